"""``async with flux.stream()``: when the block has been left, nothing of the stream is at work any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock.streams import Flux, on_dropped, schedulers

PATIENCE = 60.0


class AsyncRows:
    """An asynchronous generator whose clean-up takes a few turns of the loop."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def rows(self) -> AsyncIterator[int]:
        self.log.append("opened")
        try:
            for n in range(1_000_000):
                yield n
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.log.append("closed")

    def flux(self) -> Flux[int]:
        return Flux.from_async_iterable(self.rows)


class ThreadRows:
    """A generator on another thread, which is in the middle of a step when its reader leaves."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inside = threading.Event()
        self.left = threading.Event()

    def rows(self) -> Iterator[int]:
        self.log.append("opened")
        try:
            yield 0
            self.inside.set()
            assert self.left.wait(PATIENCE)
            yield 1
        finally:
            self.log.append("closed")

    def flux(self) -> Flux[int]:
        return Flux.defer(lambda: Flux.from_iterable(self.rows()))


CHAINS: dict[str, Callable[[Flux[int]], Flux[Any]]] = {
    "alone": lambda flux: flux,
    "map": lambda flux: flux.map(lambda n: n),
    "publish_on": lambda flux: flux.publish_on(schedulers.shared_pool()),
    "flat_map": lambda flux: Flux.just(1).flat_map(lambda _: flux),
    "merge": lambda flux: Flux.merge(flux, Flux.never()),
    "timeout": lambda flux: flux.timeout(PATIENCE),
    "retry": lambda flux: flux.retry(3),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("way", ["break", "return", "error", "cancel"])
def test_an_asynchronous_generator_is_closed_when_the_block_has_been_left(chain: str, way: str) -> None:
    source = AsyncRows()

    async def read(entered: asyncio.Event) -> None:
        async with CHAINS[chain](source.flux()).stream() as rows:
            async for n in rows:
                if n == 2 and way == "break":
                    break
                if n == 2 and way == "return":
                    return
                if n == 2 and way == "error":
                    raise KeyError
                if n == 2:
                    entered.set()
                    await asyncio.Event().wait()

    async def main() -> list[str]:
        entered = asyncio.Event()
        task = asyncio.ensure_future(read(entered))
        if way == "cancel":
            await asyncio.wait_for(entered.wait(), PATIENCE)
            task.cancel()
        with contextlib.suppress(KeyError, asyncio.CancelledError):
            await task
        return list(source.log)

    assert asyncio.run(main()) == ["opened", "closed"]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_generator_on_another_thread_is_closed_when_the_block_has_been_left(chain: str) -> None:
    source = ThreadRows()

    async def main() -> list[str]:
        flux = CHAINS[chain](source.flux().subscribe_on(schedulers.shared_pool()))
        async with flux.stream() as rows:
            async for _ in rows:
                await asyncio.to_thread(source.inside.wait, PATIENCE)
                break
            # The step ends while the block is waiting for it.
            asyncio.get_running_loop().call_later(0.01, source.left.set)
        return list(source.log)

    assert asyncio.run(main()) == ["opened", "closed"]


def test_a_cancellation_during_the_clean_up_waits_for_its_end() -> None:
    log: list[str] = []

    async def main() -> None:
        closing, go_on = asyncio.Event(), asyncio.Event()

        async def rows() -> AsyncIterator[int]:
            try:
                while True:
                    yield 1
            finally:
                closing.set()
                await go_on.wait()
                log.append("closed")

        async def read() -> None:
            async with Flux.from_async_iterable(rows).stream() as elements:
                async for _ in elements:
                    break

        task = asyncio.ensure_future(read())
        await asyncio.wait_for(closing.wait(), PATIENCE)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["closed"]

    asyncio.run(main())


def test_a_block_that_reads_nothing_does_not_start_the_stream() -> None:
    source = AsyncRows()

    async def main() -> None:
        async with source.flux().stream():
            pass

    asyncio.run(main())
    assert source.log == []


def test_it_reads_no_further_ahead_than_it_is_told() -> None:
    taken: list[int] = []

    async def main() -> None:
        flux = Flux.range(100).do_on_next(taken.append).publish_on(schedulers.immediate(), prefetch=1)
        async with flux.stream(prefetch=1) as numbers:
            async for number in numbers:
                if number == 2:
                    break

    asyncio.run(main())
    assert len(taken) <= 5
    assert Flux.range(3).stream(prefetch=2) is not None
    with pytest.raises(ValueError, match="stream"):
        Flux.range(3).stream(prefetch=0)


def test_the_error_of_the_stream_is_raised_in_the_block() -> None:
    seen: list[int] = []

    async def main() -> None:
        async with Flux.just(1, 0).map(lambda n: 1 // n).stream() as numbers:
            async for number in numbers:
                seen.append(number)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert seen == [1]


def test_a_task_that_still_reads_sees_the_end_and_the_block_says_so() -> None:
    ended: list[str] = []

    async def read(elements: AsyncIterator[Any]) -> None:
        async for _ in elements:
            pass
        ended.append("task")

    async def leave_early(tasks: list[asyncio.Future[None]]) -> None:
        async with Flux.never().stream() as elements:
            tasks.append(asyncio.ensure_future(read(elements)))
            await asyncio.sleep(0)

    async def main() -> None:
        tasks: list[asyncio.Future[None]] = []
        with pytest.raises(RuntimeError, match="inside the block"):
            await leave_early(tasks)
        await asyncio.wait_for(tasks[0], PATIENCE)

    asyncio.run(main())
    assert ended == ["task"]


def test_an_error_in_the_clean_up_is_reported_and_does_not_hide_the_one_of_the_block() -> None:
    dropped: list[BaseException] = []
    error = OSError("cannot close")

    async def rows() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise error

    async def main() -> None:
        async with Flux.from_async_iterable(rows).stream() as elements:
            async for _ in elements:
                raise KeyError("mine")

    with on_dropped(error=lambda error, where: dropped.append(error)), pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    assert dropped == [error]
