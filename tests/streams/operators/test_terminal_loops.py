"""``for`` and ``async for`` over a stream."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Sinks, schedulers
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.operators.test_map_async import settled


class Numbers:
    """A generator that tells how far it was read and that it was closed."""

    def __init__(self) -> None:
        self.read = 0
        self.closed = False

    def __iter__(self) -> Iterator[int]:
        try:
            for n in range(1_000_000):
                self.read += 1
                yield n
        finally:
            self.closed = True


SHAPES: dict[str, Any] = {
    "pulled": lambda flux: flux,
    "pulled through operators": lambda flux: flux.map(lambda n: n).filter(lambda n: True),
    "watched": lambda flux: flux.do_on_complete(lambda: None),
}
EACH = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


# -------------------------------------------------------------------- for
@EACH
def test_a_break_closes_the_source_at_once(shape: Any) -> None:
    numbers = Numbers()

    for n in shape(Flux.from_iterable(numbers)):
        if n == 2:
            break

    assert (numbers.closed, numbers.read) == (True, 3)


@EACH
def test_an_exception_in_the_body_closes_the_source(shape: Any) -> None:
    numbers = Numbers()

    def body() -> None:
        for _ in shape(Flux.from_iterable(numbers)):
            raise KeyError("body")

    with pytest.raises(KeyError):
        body()

    assert numbers.closed


@EACH
def test_a_source_that_fails_raises_in_the_loop_after_its_elements(shape: Any) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("x")

    seen: list[int] = []
    with pytest.raises(ValueError, match="x"):
        seen.extend(shape(Flux.from_iterable(numbers())))
    with pytest.raises(RuntimeError, match="used up"):
        list(shape(used := Flux.from_iterable(n for n in range(2)))) + list(shape(used))


def test_loops_may_be_nested_over_the_same_stream() -> None:
    flux = Flux.range(3).publish_on(schedulers.shared_pool())

    assert [(a, b) for a in flux for b in flux] == [(a, b) for a in range(3) for b in range(3)]


def test_a_break_cancels_a_stream_of_another_thread() -> None:
    cancelled = threading.Event()
    stream = Flux.range(100_000).do_on_cancel(cancelled.set).publish_on(schedulers.shared_pool())

    for _ in stream:
        break

    assert cancelled.wait(20)


def test_a_loop_reads_ahead_by_its_prefetch_and_refills_at_three_quarters() -> None:
    class Ready(Driven):
        """Answers the first request at once."""

        def request(self, n: int, /) -> None:
            super().request(n)
            if len(self.requests) == 1:
                self.emit(1, 2, 3, 4)

    source = Ready()
    iterator = source.flux().to_iterable(prefetch=4)
    assert source.subscriptions == 0

    with contextlib.closing(iterator):  # type: ignore[type-var]
        assert [next(iterator) for _ in range(3)] == [1, 2, 3]
        assert source.requests == [4]
        assert next(iterator) == 4
        assert source.requests == [4, 3]

    assert source.cancels == 1


def test_on_an_event_loop_a_for_that_would_block_says_so() -> None:
    source = Driven()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use 'async for' or 'await'"):
            for _ in source.flux():
                pass
        assert list(Flux.range(3)) == [0, 1, 2]

    asyncio.run(main())
    assert source.cancels == 1


def test_a_sink_is_read_by_a_loop_until_it_completes() -> None:
    sink = Sinks.unicast()
    for n in range(3):
        sink.try_emit(n)
    sink.try_complete()

    assert list(sink.flux()) == [0, 1, 2]


# -------------------------------------------------------------------- async for
def test_async_for_reads_a_synchronous_stream_and_lets_others_run() -> None:
    async def main(flux: Flux[int]) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        count = 0
        async for _ in flux:
            count += 1
        task.cancel()
        assert count == 200_000
        assert turns > 4  # it takes many milliseconds, and others run in each

    asyncio.run(main(Flux.range(200_000).map(lambda n: n)))
    asyncio.run(main(Flux.range(200_000).do_on_complete(lambda: None)))
    asyncio.run(main(Flux.just(200_000).flat_map_iterable(range)))
    asyncio.run(main(Flux.just(400_000).flat_map_iterable(range).filter(lambda n: n % 2)))


@EACH
def test_a_break_closes_the_source_soon(shape: Any) -> None:
    numbers = Numbers()

    async def main() -> None:
        async for n in shape(Flux.from_iterable(numbers)):
            if n == 2:
                break
        await settled()
        assert numbers.closed

    asyncio.run(main())


def test_a_break_cancels_the_source_soon() -> None:
    async def main() -> None:
        source = Driven()

        async def read() -> None:
            async for _ in source.flux():
                break

        task = asyncio.create_task(read())
        await settled()
        source.emit(1)
        await task
        await settled()
        assert source.cancels == 1

    asyncio.run(main())


def test_cancelling_the_task_cancels_the_source() -> None:
    async def main() -> None:
        source = Driven()

        async def read() -> None:
            async for _ in source.flux():
                pass

        task = asyncio.create_task(read())
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.cancels == 1

    asyncio.run(main())


def test_async_for_reads_what_other_threads_send() -> None:
    async def main() -> None:
        stream = Flux.range(5_000).publish_on(schedulers.shared_pool())
        assert [n async for n in stream] == list(range(5_000))

    asyncio.run(main())


def test_async_for_asks_for_its_prefetch_and_then_three_quarters() -> None:
    async def main() -> None:
        source = Driven()
        iterator = source.flux().to_async_iterable(prefetch=4)
        first = asyncio.ensure_future(anext(iterator))
        await settled()
        assert source.requests == [4]
        source.emit(1, 2, 3, 4)
        assert await first == 1
        assert [await anext(iterator) for _ in range(3)] == [2, 3, 4]
        assert source.requests == [4, 3]
        await iterator.aclose()  # type: ignore[attr-defined]
        assert source.cancels == 1

    asyncio.run(main())


def test_an_error_is_raised_in_the_async_for_after_the_elements() -> None:
    async def main() -> None:
        source, seen = Driven(), []

        async def read() -> None:
            async for n in source.flux():
                seen.append(n)

        task = asyncio.create_task(read())
        await settled()
        source.emit(1).fail(ValueError("x"))
        with pytest.raises(ValueError, match="x"):
            await task
        assert seen == [1]

    asyncio.run(main())


def test_a_stream_of_a_stream_of_coroutines() -> None:
    async def letters() -> AsyncIterator[str]:
        for letter in "abc":
            yield letter

    async def main() -> None:
        flux = Flux.from_async_iterable(letters)
        assert [a + b async for a in flux async for b in flux] == [a + b for a in "abc" for b in "abc"]
        assert await Mono.just(1) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "stream",
    [
        Flux.range(3).ignore_elements().flux(),
        Flux.range(3).then().flux(),
        Flux.range(3).map(str).ignore_elements().map(str).flux(),
        Flux.range(3).buffer(2).ignore_elements().flux(),
        Flux.range(3).flat_map_iterable(lambda n: [n]).ignore_elements().flux(),
        Mono.just(1).ignore_element().flux(),
    ],
)
def test_a_chain_that_sends_nothing_is_an_empty_loop(stream: Any) -> None:
    async def main() -> list[Any]:
        return [x async for x in stream]

    assert list(stream) == []
    assert asyncio.run(main()) == []
