"""Leaving an ``async for`` waits for the clean-up of what it read, as with any asynchronous generator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Mono, on_dropped, schedulers

PATIENCE = 60.0


class Source:
    """An asynchronous generator whose clean-up takes a few turns of the loop."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def rows(self) -> Any:
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


CHAINS: dict[str, Callable[[Flux[int]], Flux[Any]]] = {
    "alone": lambda flux: flux,
    "map": lambda flux: flux.map(lambda n: n),
    "take": lambda flux: flux.take(999),
    "publish_on": lambda flux: flux.publish_on(schedulers.shared_pool()),
    "limit_rate": lambda flux: flux.limit_rate(4),
    "flat_map": lambda flux: Flux.just(1).flat_map(lambda _: flux),
    "concat_map": lambda flux: Flux.just(1).concat_map(lambda _: flux),
    "merge": lambda flux: Flux.merge(flux, Flux.never()),
    "timeout": lambda flux: flux.timeout(PATIENCE),
    "retry": lambda flux: flux.retry(3),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("way", ["aclosing", "end of the loop's task", "error in the loop"])
def test_the_source_is_closed_when_the_reader_has_left(chain: str, way: str) -> None:
    source = Source()

    async def main() -> list[str]:
        flux = CHAINS[chain](source.flux())
        if way == "aclosing":
            async with contextlib.aclosing(flux.to_async_iterable()) as elements:  # type: ignore[type-var]
                async for n in elements:
                    if n == 2:
                        break
        elif way == "error in the loop":
            with contextlib.suppress(KeyError):
                async with contextlib.aclosing(flux.to_async_iterable()) as elements:  # type: ignore[type-var]
                    async for n in elements:
                        if n == 2:
                            raise KeyError
        else:
            got: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def read() -> None:
                async for n in flux:
                    if n == 2 and not got.done():
                        got.set_result(None)

            task = asyncio.ensure_future(read())
            await got
            task.cancel()
            await asyncio.wait([task])
        return list(source.log)

    assert asyncio.run(main()) == ["opened", "closed"]


def test_a_stream_that_ends_early_has_closed_its_source() -> None:
    source = Source()

    async def main() -> list[str]:
        assert [n async for n in source.flux().take(2)] == [0, 1]
        assert await source.flux().first() == 0
        return list(source.log)

    assert asyncio.run(main()) == ["opened", "closed", "opened", "closed"]


def test_coroutines_of_map_async_end_before_the_reader_goes_on() -> None:
    log: list[str] = []

    async def work(n: int) -> int:
        try:
            if n:
                await asyncio.Event().wait()
            return n
        finally:
            await asyncio.sleep(0)
            log.append(f"closed {n}")

    async def main() -> list[str]:
        stream = Flux.range(3).map_async(work)
        async with contextlib.aclosing(stream.to_async_iterable()) as elements:  # type: ignore[type-var]
            async for _ in elements:
                break
        return sorted(log)

    assert asyncio.run(main()) == ["closed 0", "closed 1", "closed 2"]


def test_a_coroutine_that_does_not_listen_does_not_hold_up_a_timeout() -> None:
    release: list[asyncio.Event] = []

    async def deaf() -> None:
        release.append(asyncio.Event())
        while not release[0].is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release[0].wait()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await Mono.from_callable(deaf).timeout(0.001)
        release[0].set()

    asyncio.run(main())
    assert len(release) == 1


def test_a_shared_source_goes_on_when_one_of_its_readers_has_left() -> None:
    source = Source()

    async def main() -> None:
        shared = source.flux().share()
        second = shared.to_async_iterable(2)

        async def leave_early() -> None:
            async with contextlib.aclosing(shared.to_async_iterable(2)) as elements:  # type: ignore[type-var]
                async for _ in elements:
                    await anext(second)
                    return

        await asyncio.wait_for(leave_early(), PATIENCE)
        assert source.log == ["opened"]
        assert await anext(second) >= 1
        await second.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_an_error_in_the_clean_up_is_reported() -> None:
    dropped: list[BaseException] = []
    error = OSError("cannot close")

    async def rows() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            raise error

    async def main() -> None:
        async with contextlib.aclosing(Flux.from_async_iterable(rows).to_async_iterable()) as elements:
            async for _ in elements:
                break

    with on_dropped(error=lambda error, where: dropped.append(error)):
        asyncio.run(main())
    assert dropped == [error]


def test_an_asynchronous_generator_is_closed_before_the_next_attempt_opens_it() -> None:
    log: list[str] = []

    async def rows() -> Any:
        log.append("open")
        try:
            yield 1
            raise OSError
        finally:
            await asyncio.sleep(0)
            log.append("close")

    Flux.from_async_iterable(rows).retry(2).on_error_complete().collect_list().block(PATIENCE)
    assert log == ["open", "close"] * 3
