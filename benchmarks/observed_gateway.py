"""What does it cost the readers of a gateway that it is observed?

A gateway with one subscriber, and another one with 500, deliver as fast as they can. For some seconds nobody
looks, and for some seconds the metrics are scraped once a second; the gateway with one subscriber has a
dashboard then as well, which looks once a second on its own.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Final

from benchmarks.crowd import follow, serve
from benchmarks.measuring import Alternative, Clock, Question, Timed, WrongResult
from benchmarks.processes import Line, beside, now

__all__ = ["MANY", "question"]

MANY: Final = 500
_SMALL, _LARGE = 16 * 2**10, 256 * 2**10
"""Bytes in a frame: small ones for the many, because it is for each frame that a gateway works."""
_FRAMES: Final = 4
"""How many of them are on their way to a subscriber."""
_SHORTEST: Final = 10**9
"""Nanoseconds: a run in which not even one scrape fits says nothing."""
_NOT_SCRAPED: Final = f"{MANY} subscribers, not scraped"


class _Served:
    """A gateway and its subscribers."""

    def __init__(self, gateway: Line, readers: Line, metrics: str) -> None:
        self._gateway, self._readers, self._metrics = gateway, readers, metrics

    def alone(self, records: int) -> Timed:
        """The time until so many more records have come to all subscribers together."""
        _, before = self._ask("how long?")
        begin = now()
        self._readers.say(records)
        end, came = self._readers.hear()
        _, after = self._ask("how long?")
        taken = end - begin
        if taken < _SHORTEST:
            raise WrongResult(f"{came} records in {taken} ns: the clock was read at the wrong moment")
        # Less is the luck of the moment in this figure than in the time that it took.
        return Timed(came, taken, {"gateway's processor, ps": (after - before) * 1000 / came})

    def scraped(self, records: int) -> Timed:
        """The same while the metrics are scraped once a second."""
        over = threading.Event()
        scraper = threading.Thread(target=self._scrape, args=(over,))
        scraper.start()
        try:
            return self.alone(records)
        finally:
            over.set()
            scraper.join()

    def observed(self, records: int) -> Timed:
        """The same with a dashboard, too."""
        self._ask("show")
        try:
            return self.scraped(records)
        finally:
            self._ask("hide")

    def _ask(self, what: str) -> tuple[int, int]:
        """Tell the gateway something; the processor time of its thread, and of its process so far."""
        self._gateway.say(what)
        thread, process = self._gateway.hear()
        return thread, process

    def _scrape(self, over: threading.Event) -> None:
        pause = 0.5  # So that as many fall into a run as it has seconds, on average.
        while not over.wait(pause):
            with urllib.request.urlopen(self._metrics, timeout=30) as answer:
                answer.read()
            pause = 1.0


@contextmanager
def _served(subscribers: int, frame: int, first: int) -> Iterator[_Served]:
    with beside(serve, subscribers, frame) as gateway:
        endpoint, metrics = gateway.hear()
        with beside(follow, endpoint, subscribers, _FRAMES * frame) as readers:
            readers.hear()
            served = _Served(gateway, readers, metrics)
            served.scraped(first)  # Whatever is imported or cached at first.
            yield served


@contextmanager
def question() -> Iterator[Question]:
    """Records to one subscriber and to 500, with and without an observer.

    Both gateways are there all the time, but subscribers take nothing while it is not their turn.
    """
    with ExitStack() as stack:
        # Nobody starts before the first run: a question may be asked for the names of its alternatives only.
        one = cache(lambda: stack.enter_context(_served(1, _LARGE, 24_000_000)))
        many = cache(lambda: stack.enter_context(_served(MANY, _SMALL, 6_000_000)))
        yield Question(
            name="observed_gateway",
            title="records of 100 bytes from a gateway that is observed or not",
            elements=24_000_000,  # more than two seconds where a record takes 0.1 µs
            base="1 subscriber, not observed",
            expected=lambda n: n,
            unit="delivery",
            clock=Clock.BETWEEN_PROCESSES,
            alternatives=(
                Alternative("1 subscriber, not observed", lambda n: one().alone(n)),
                Alternative("1 subscriber, observed", lambda n: one().observed(n)),
                Alternative(_NOT_SCRAPED, lambda n: many().alone(n), share=0.25, base=_NOT_SCRAPED),
                Alternative(
                    f"{MANY} subscribers, scraped every second",
                    lambda n: many().scraped(n),
                    share=0.25,
                    base=_NOT_SCRAPED,
                ),
            ),
        )
