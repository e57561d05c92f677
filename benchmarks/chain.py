"""What does a chain of synchronous operators cost, read by a plain ``for``?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import aiostream
import reactivex
import streamz
from aiostream import pipe
from reactivex import operators as ops

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import add_one, chain, double, is_even, sum_of_chain

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """map, filter, map, sum."""
    with asyncio.Runner() as runner:
        yield Question(
            name="chain",
            title="map, filter, map over a range, summed up",
            elements=100_000,
            base="plain loop",
            expected=sum_of_chain,
            alternatives=(
                Alternative("plain loop", plain_loop),
                Alternative("builtin map and filter", builtins),
                Alternative("Penstock, for", penstock_for),
                Alternative("Penstock, sum()", penstock_sum),
                Alternative("reactivex", with_reactivex, share=0.5),
                Alternative("aiostream", lambda n: runner.run(with_aiostream(n)), share=0.03),
                Alternative("streamz", with_streamz, share=0.03),
            ),
        )


def plain_loop(n: int) -> int:
    """What one would write by hand, with the same functions."""
    total = 0
    for x in range(n):
        x = add_one(x)
        if is_even(x):
            total += double(x)
    return total


def builtins(n: int) -> int:
    """The same without an operator of anybody's."""
    return sum(map(double, filter(is_even, map(add_one, range(n)))))


def penstock_for(n: int) -> int:
    """The stream is the iterable of a loop."""
    total = 0
    for x in chain(n):
        total += x
    return total


def penstock_sum(n: int) -> int:
    """The stream is the argument of a builtin."""
    return sum(chain(n))


def with_reactivex(n: int) -> int:
    """Summing in ``on_next``, which is faster than its own ``ops.sum``."""
    total = 0

    def add(x: int) -> None:
        nonlocal total
        total += x

    operators = ops.map(add_one), ops.filter(is_even), ops.map(double)
    reactivex.from_iterable(range(n)).pipe(*operators).subscribe(add)
    return total


async def with_aiostream(n: int) -> int:
    """Operators on asynchronous iterators."""
    total = 0
    stream = aiostream.stream.iterate(range(n)) | pipe.map(add_one) | pipe.filter(is_even) | pipe.map(double)
    async with stream.stream() as elements:
        async for x in elements:
            total += x
    return total


def with_streamz(n: int) -> int:
    """Pushed in by ``emit``."""
    total = 0

    def add(x: int) -> None:
        nonlocal total
        total += x

    source = streamz.Stream()
    source.map(add_one).filter(is_even).map(double).sink(add)
    for x in range(n):
        source.emit(x)
    return total
