"""What does a stream cost before its first element?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import reactivex
from reactivex import operators as ops

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import Unbounded, add_one, double, is_even
from penstock.streams import Flux, Mono

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """One element, three operators, again and again."""
    assembled = Flux.just(1).map(add_one).filter(is_even).map(double)
    with asyncio.Runner() as runner:
        yield Question(
            name="starting",
            title="a stream of one element with three operators: put together, subscribed, finished",
            elements=200,
            base="reactivex",
            expected=lambda n: 4 * n,
            unit="stream",
            alternatives=(
                Alternative("reactivex", with_reactivex),
                Alternative("Penstock, for", lambda n: sum(sum(stream()) for _ in range(n))),
                Alternative("Penstock, Subscriber", lambda n: sum(pushed(stream()) for _ in range(n))),
                Alternative(
                    "Penstock, Subscriber, put together once",
                    lambda n: sum(pushed(assembled) for _ in range(n)),
                ),
                Alternative("Penstock, await Mono", lambda n: runner.run(awaited(n))),
            ),
        )


def stream() -> Flux[int]:
    """Put together anew each time, as in a request handler."""
    return Flux.just(1).map(add_one).filter(is_even).map(double)


def pushed(flux: Flux[int]) -> int:
    """Subscribed."""
    subscriber = Unbounded()
    flux.subscribe(subscriber)
    return subscriber.result()


async def awaited(n: int) -> int:
    """A Mono in a coroutine."""
    total = 0
    for _ in range(n):
        total += await Mono.just(1).map(add_one).filter(is_even).map(double) or 0
    return total


def with_reactivex(n: int) -> int:
    """The same."""
    total = 0
    for _ in range(n):
        subscriber = Unbounded()
        operators = ops.map(add_one), ops.filter(is_even), ops.map(double)
        stream = reactivex.just(1).pipe(*operators)
        stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
        total += subscriber.result()
    return total
