"""What does an element cost that is made on a thread and used by a coroutine?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import janus

from benchmarks.measuring import Alternative, Clock, Question
from benchmarks.workload import WINDOW, sum_of_all
from penstock.streams import Flux, schedulers

__all__ = ["question"]

END: Any = object()


@contextmanager
def question() -> Iterator[Question]:
    """All elements cross; nothing else is done to them."""
    making = schedulers.single("making")

    async def with_penstock(n: int) -> int:
        total = 0
        async for x in Flux.range(n).subscribe_on(making):
            total += x
        return total

    try:
        with asyncio.Runner() as runner:
            yield Question(
                name="thread_to_loop",
                title="from a thread to an event loop, all elements cross",
                elements=30_000,
                base="janus.Queue(256)",
                expected=sum_of_all,
                clock=Clock.ELAPSED,
                alternatives=(
                    Alternative("janus.Queue(256)", lambda n: runner.run(with_janus(n)), share=0.25),
                    Alternative("Penstock, async for", lambda n: runner.run(with_penstock(n))),
                    Alternative(
                        "call_soon_threadsafe, unbounded", lambda n: runner.run(with_calls(n)), share=0.25
                    ),
                    Alternative("asyncio.Queue(256), no thread", lambda n: runner.run(in_one_loop(n))),
                ),
            )
    finally:
        making.close()


async def with_janus(n: int) -> int:
    """The queue that is made for this."""
    between: janus.Queue[Any] = janus.Queue(WINDOW)

    def produce() -> None:
        put = between.sync_q.put
        for x in range(n):
            put(x)
        put(END)

    thread = Thread(target=produce)
    thread.start()
    total = await _add_up(between.async_q)
    thread.join()
    await between.aclose()
    return total


async def with_calls(n: int) -> int:
    """What is written by hand most often: one wake-up for each element, and no bound."""
    between: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def produce() -> None:
        for x in range(n):
            loop.call_soon_threadsafe(between.put_nowait, x)
        loop.call_soon_threadsafe(between.put_nowait, END)

    thread = Thread(target=produce)
    thread.start()
    total = await _add_up(between)
    thread.join()
    return total


async def in_one_loop(n: int) -> int:
    """Two tasks on one loop: the easier problem."""
    between: asyncio.Queue[Any] = asyncio.Queue(WINDOW)

    async def produce() -> None:
        for x in range(n):
            await between.put(x)
        await between.put(END)

    producing = asyncio.create_task(produce())
    total = await _add_up(between)
    await producing
    return total


async def _add_up(between: Any) -> int:
    total = 0
    while (x := await between.get()) is not END:
        total += x
    return total
