"""What does each operator cost, beside Python by hand and beside the same operator of reactivex?

The source is a range, and the subscriber puts what comes into a list. So the price of the source and of the
list is part of each figure; "the source alone" says how much that is. By hand means what a program would do
without a library: a generator expression, a loop, a function of the standard library.

Whether the right elements came out is checked when the time has been taken: to compare two lists costs as
much for an element as many an operator does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import reactivex

from benchmarks.matrix import ROWS, Row
from benchmarks.measuring import Alternative, Clock, Question, Timed
from penstock.spec import UNBOUNDED, Publisher, Subscription

__all__ = ["BY_HAND", "OURS", "THEIRS", "columns", "question", "subscribed"]

OURS, BY_HAND, THEIRS = "Penstock", "by hand", "reactivex"


@contextmanager
def question() -> Iterator[Question]:
    """Up to three alternatives for each operator."""
    alternatives: list[Alternative] = []
    for row in ROWS:
        for column, run in columns(row).items():
            alternatives.append(Alternative(f"{row.name}: {column}", _checked(row, run)))
    yield Question(
        name="operators",
        title="each operator over a range, into a list",
        elements=5_000,
        base=alternatives[0].name,
        expected=lambda n: n,
        alternatives=tuple(alternatives),
        matrix=True,
    )


def columns(row: Row) -> dict[str, Callable[[int], list[Any]]]:
    """What runs a row, by the name of the column."""
    found: dict[str, Callable[[int], list[Any]]] = {
        OURS: lambda n: subscribed(row.ours(n)),
        BY_HAND: lambda n: _looped(row.by_hand(n)),
    }
    theirs = row.theirs
    if theirs is not None:
        found[THEIRS] = lambda n: _observed(theirs(n))
    return found


def _checked(row: Row, run: Callable[[int], list[Any]]) -> Callable[[int], Timed]:
    """Return the number of elements that went in, if the right ones came out."""
    expected: dict[int, list[Any]] = {}

    def checked(n: int) -> Timed:
        start = Clock.PROCESSOR.now()
        seen = run(n)
        taken = Clock.PROCESSOR.now() - start
        if n not in expected:
            expected[n] = list(row.by_hand(n))
        return Timed(n if seen == expected[n] else -1, taken)

    return checked


def _looped(elements: Iterable[Any]) -> list[Any]:
    seen: list[Any] = []
    keep = seen.append
    for element in elements:
        keep(element)
    return seen


class _Keeping:
    """A Subscriber that keeps everything."""

    __slots__ = ("error", "on_next", "seen")

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.on_next = self.seen.append
        self.error: BaseException | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """No backpressure."""
        subscription.request(UNBOUNDED)

    def on_error(self, error: BaseException, /) -> None:
        """Kept as well."""
        self.error = error

    def on_complete(self) -> None:
        """Nothing to do: the list tells whether everything came."""


def subscribed(stream: Publisher[Any]) -> list[Any]:
    """The elements of a stream, for a subscriber that requests everything."""
    keeping = _Keeping()
    stream.subscribe(keeping)
    if keeping.error is not None:
        raise keeping.error
    return keeping.seen


def _observed(stream: reactivex.Observable[Any]) -> list[Any]:
    keeping = _Keeping()
    stream.subscribe(keeping.on_next, keeping.on_error, keeping.on_complete)
    if keeping.error is not None:
        raise keeping.error
    return keeping.seen
