"""What does ``async for`` over a chain cost?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from benchmarks.chain import plain_loop, with_aiostream
from benchmarks.measuring import Alternative, Question
from benchmarks.workload import add_one, chain, double, is_even, sum_of_chain

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """The same chain in a coroutine."""
    with asyncio.Runner() as runner:
        yield Question(
            name="asynchronous",
            title="map, filter, map over a range, summed up by async for",
            elements=100_000,
            base="plain loop",
            expected=sum_of_chain,
            alternatives=(
                Alternative("plain loop", plain_loop),
                Alternative("one async generator by hand", lambda n: runner.run(add_up(by_hand(n)))),
                Alternative("three async generators", lambda n: runner.run(add_up(in_stages(n))), share=0.5),
                Alternative("Penstock, async for", lambda n: runner.run(add_up(aiter(chain(n))))),
                Alternative("aiostream", lambda n: runner.run(with_aiostream(n)), share=0.03),
            ),
        )


async def add_up(elements: AsyncIterator[int]) -> int:
    """The reader."""
    total = 0
    async for x in elements:
        total += x
    return total


async def by_hand(n: int) -> AsyncIterator[int]:
    """The loop of the plain loop, as a generator; it never lets the event loop run others."""
    for x in range(n):
        x = add_one(x)
        if is_even(x):
            yield double(x)


async def in_stages(n: int) -> AsyncIterator[int]:
    """One generator for each operator, as one writes it when the stages are to be reused."""

    async def source() -> AsyncIterator[int]:
        for x in range(n):
            yield add_one(x)

    async def filtered() -> AsyncIterator[int]:
        async for x in source():
            if is_even(x):
                yield x

    async for x in filtered():
        yield double(x)
