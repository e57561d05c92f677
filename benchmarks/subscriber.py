"""What does a conforming Subscriber at the end of a chain cost, beyond its own ``on_next``?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import reactivex
from reactivex import operators as ops

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import Unbounded, Windowed, add_one, chain, double, is_even, sum_of_chain

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """The same chain, pushed."""
    yield Question(
        name="subscriber",
        title="map, filter, map over a range, pushed to a Subscriber that sums up",
        elements=100_000,
        base="hand loop, unbounded",
        expected=sum_of_chain,
        alternatives=(
            Alternative("hand loop, unbounded", lambda n: by_hand(Unbounded(), n)),
            Alternative("Penstock, unbounded", lambda n: with_penstock(Unbounded(), n)),
            Alternative("hand loop, windows of 256", lambda n: by_hand(Windowed(), n)),
            Alternative("Penstock, windows of 256", lambda n: with_penstock(Windowed(), n)),
            Alternative("hand loop, one by one", lambda n: by_hand(Windowed(1), n), share=0.5),
            Alternative("Penstock, one by one", lambda n: with_penstock(Windowed(1), n), share=0.5),
            Alternative("Penstock, a function", with_function, share=0.5),
            Alternative("reactivex, unbounded", with_reactivex, share=0.5),
        ),
    )


class _Deaf:
    """The subscription of the hand loop, which goes on whatever is asked of it."""

    def request(self, n: int, /) -> None:
        """A call, and nothing behind it."""

    def cancel(self) -> None:
        """Never called."""


def by_hand(subscriber: Unbounded, n: int) -> int:
    """The loop one would write to feed this subscriber."""
    subscriber.on_subscribe(_Deaf())
    on_next = subscriber.on_next
    for x in range(n):
        x = add_one(x)
        if is_even(x):
            on_next(double(x))
    subscriber.on_complete()
    return subscriber.result()


def with_penstock(subscriber: Unbounded, n: int) -> int:
    """The stream feeds it, as far as it asked."""
    chain(n).subscribe(subscriber)
    return subscriber.result()


def with_function(n: int) -> int:
    """A function instead of a Subscriber: Penstock asks for windows and looks after errors."""
    subscriber = Unbounded()
    chain(n).subscribe(subscriber.on_next, on_complete=subscriber.on_complete)
    return subscriber.result()


def with_reactivex(n: int) -> int:
    """The same ``on_next`` without any demand."""
    subscriber = Unbounded()
    operators = ops.map(add_one), ops.filter(is_even), ops.map(double)
    stream = reactivex.from_iterable(range(n)).pipe(*operators)
    stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
    return subscriber.result()
