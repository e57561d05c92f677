"""What does distance cost, if one has to ask for records?

The document's way is to ask for 1000, wait for them, and ask for the next 1000: each batch costs a round
trip. The extended dialect asks again long before what it asked for has come, and its window grows until the
round trip no longer shows. Here control messages take 1 ms and 10 ms for both ways, and some tenths of a
millisecond that the machine adds: about what it is to the next city, and to the next country but one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks import gateway, slow_line, zeromq
from benchmarks.measuring import Alternative, Clock, Question
from benchmarks.processes import Receiving, exchange

__all__ = ["question"]

ROUND_TRIPS = (1, 10)
"""Milliseconds."""
WARM_UP = 100_000
"""Enough for a window to grow."""


@contextmanager
def question() -> Iterator[Question]:
    """One subscriber, at some distance."""
    alternatives = []
    for milliseconds in ROUND_TRIPS:
        for name, share, receive in (
            ("plain, stop-and-wait, Next 1000", 0.1 / milliseconds**0.5, _plain()),
            ("extended, window of 1000", 0.1 / milliseconds**0.5, _extended(window=1000, max_window=1000)),
            ("extended, window of 65 536", 1.0, _extended(window=65_536, max_window=65_536)),
            ("extended, growing from 1000", 1.0, _extended(window=1000)),
            ("extended, as it is", 1.0, _extended()),
        ):
            alternatives.append(_alternative(name, milliseconds, receive, share))
    yield Question(
        name="aquifer_round_trip",
        title="records of 100 bytes from a gateway that is some milliseconds away",
        elements=2_000_000,
        base=alternatives[0].name,
        expected=lambda n: n,
        unit="record",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=1,
        alternatives=tuple(alternatives),
    )


def _plain() -> Receiving:
    return partial(zeromq.document_client, size=1000)


def _extended(**window: Any) -> Receiving:
    return partial(gateway.subscribe, dialect="extended", **window)


def _alternative(name: str, milliseconds: int, receive: Receiving, share: float) -> Alternative:
    relay = partial(slow_line.relay, round_trip=milliseconds / 1000)
    run = partial(exchange, send=gateway.serve, receive=receive, relay=relay, warm_up=WARM_UP)
    base = f"{milliseconds} ms: plain, stop-and-wait, Next 1000"
    return Alternative(f"{milliseconds} ms: {name}", run, share, base=base)
