"""trio is refused by name, wherever a coroutine would wait for a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from penstock.streams import Flux, Mono, Sink, Sinks, schedulers


async def over_an_iterable() -> None:
    async for _ in Flux.range(3):
        pass


async def over_a_queue() -> None:
    async for _ in Flux.range(3).publish_on(schedulers.shared_pool()):
        pass


async def in_a_block() -> None:
    async with Flux.range(3).stream() as elements:
        async for _ in elements:
            pass


async def for_one() -> None:
    await Mono.just(1)


async def at_a_full_sink() -> None:
    sink: Sink[int] = Sinks.unicast(1)
    await sink.emit(1)
    await sink.emit(2)


@pytest.mark.parametrize("waits", [over_an_iterable, over_a_queue, in_a_block, for_one, at_a_full_sink])
def test_a_task_of_trio_is_told_what_to_do(waits: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(RuntimeError, match=r"runs on asyncio, not on trio; .* trio.to_thread.run_sync"):
        trio.run(waits)


def test_a_thread_of_trio_reads_streams() -> None:
    async def main() -> tuple[Any, Any]:
        numbers = await trio.to_thread.run_sync(list, Flux.range(3).publish_on(schedulers.shared_pool()))
        return numbers, await trio.to_thread.run_sync(Mono.just(1).block)

    assert trio.run(main) == ([0, 1, 2], 1)


def test_asyncio_is_not_disturbed_by_an_import_of_trio() -> None:
    asyncio.run(over_a_queue())
