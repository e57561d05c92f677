"""What does a scrape of a gateway with 500 subscribers cost, and whom?

The subscribers have everything and wait, so that what the gateway's process does is done for the scrape.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Final

from benchmarks.crowd import follow, serve
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.observed_gateway import MANY
from benchmarks.processes import Line, beside

__all__ = ["question"]

_RECORDS: Final = 5_000
_FRAME: Final = 16 * 2**10
_IDLE: Final = 1.0
"""Seconds after which a gateway that has nothing to send looks at its sessions less often."""


@contextmanager
def question() -> Iterator[Question]:
    """The processor time of the thread that serves, that of the whole process, and the time that it takes."""
    with ExitStack() as stack:
        idle = cache(lambda: stack.enter_context(_idle()))

        def timed(clock: Callable[[Line], int]) -> Callable[[int], Timed]:
            def run(scrapes: int) -> Timed:
                gateway, metrics = idle()
                start = clock(gateway)
                told = sum(_scrape(metrics) for _ in range(scrapes))
                return Timed(told // MANY, clock(gateway) - start)

            return run

        yield Question(
            name="scrape",
            title=f"scrapes of a gateway with {MANY} subscribers",
            elements=10,
            base="the thread that serves them",
            expected=lambda scrapes: scrapes,
            unit="scrape",
            clock=Clock.BETWEEN_PROCESSES,
            alternatives=(
                Alternative("the thread that serves them", timed(lambda gateway: _times(gateway)[0])),
                Alternative("all threads of the gateway", timed(lambda gateway: _times(gateway)[1])),
                Alternative("until the scraper has everything", timed(lambda _: time.perf_counter_ns())),
            ),
        )


@contextmanager
def _idle() -> Iterator[tuple[Line, str]]:
    """A gateway whose subscribers have everything, and where its metrics are."""
    with beside(serve, MANY, _FRAME, _RECORDS) as gateway:
        endpoint, metrics = gateway.hear()
        with beside(follow, endpoint, MANY, 4 * _FRAME) as readers:
            readers.hear()
            readers.say(MANY * _RECORDS)
            readers.hear()
            _scrape(metrics)
            time.sleep(_IDLE)
            yield gateway, metrics


def _times(gateway: Line) -> tuple[int, int]:
    gateway.say("how long?")
    serving, process = gateway.hear()
    return serving, process


def _scrape(metrics: str) -> int:
    """Scrape; for how many subscribers is there a lag?"""
    with urllib.request.urlopen(metrics, timeout=30) as answer:
        return sum(line.startswith(b"penstock_lag_records{") for line in answer)
