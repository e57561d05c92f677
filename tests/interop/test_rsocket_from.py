"""Publishers of rsocket-py as streams: their real classes, and what differs from the rules put right."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from rsocket.payload import Payload
from rsocket.streams.empty_stream import EmptyStream
from rsocket.streams.error_stream import ErrorStream
from rsocket.streams.stream_from_async_generator import StreamFromAsyncGenerator
from rsocket.streams.stream_from_generator import StreamFromGenerator

from penstock.interop.rsocket_bridge import from_rsocket
from penstock.streams import Flux, on_dropped, schedulers
from tests.interop.rsocket_publishers import payload, stream_from_async_generator, stream_from_generator
from tests.streams.recording import Recorder

FACTORIES = [stream_from_generator, stream_from_async_generator]


def numbers(payloads: Any) -> list[int]:
    return [int(each.data) for each in payloads]


async def elements_of(flux: Flux[Any]) -> list[Any]:
    return [element async for element in flux]


async def settled() -> None:
    """Let the tasks of rsocket-py get as far as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def nothing_is_dropped() -> Iterator[None]:
    """No error of rsocket-py ends nowhere."""
    errors: list[BaseException] = []
    with on_dropped(error=lambda error, where: errors.append(error)):
        yield
    assert errors == []


class TestSignals:
    @pytest.mark.parametrize("factory", FACTORIES)
    @pytest.mark.parametrize("elements", [1, 2, 3, 4, 5, 1_000])
    @pytest.mark.parametrize("prefetch", [1, 4, 256])
    def test_elements_and_the_end_come_in_order(self, factory: Any, elements: int, prefetch: int) -> None:
        flux = from_rsocket(factory(elements), prefetch=prefetch)

        assert numbers(asyncio.run(elements_of(flux))) == list(range(elements))

    @pytest.mark.parametrize("elements", [0, 1, 3, 4, 8])
    @pytest.mark.parametrize("prefetch", [1, 4])
    def test_an_end_without_the_flag_brings_no_empty_element(self, elements: int, prefetch: int) -> None:
        def generate() -> Iterator[tuple[Payload, bool]]:
            return ((payload(number), False) for number in range(elements))

        async def generate_async() -> AsyncIterator[tuple[Payload, bool]]:
            for each in generate():
                yield each

        for publisher in (StreamFromGenerator(generate), StreamFromAsyncGenerator(generate_async)):
            flux = from_rsocket(publisher, prefetch=prefetch)
            assert numbers(asyncio.run(elements_of(flux))) == list(range(elements))

    def test_an_end_without_an_element_is_an_end(self) -> None:
        flux = from_rsocket(lambda: StreamFromGenerator(lambda: iter([(payload(0), False), (None, True)])))

        assert numbers(asyncio.run(elements_of(flux))) == [0]

    def test_an_empty_stream_completes(self) -> None:
        assert asyncio.run(elements_of(from_rsocket(EmptyStream()))) == []

    def test_an_error_is_passed_on(self) -> None:
        error = OSError("line cut")

        with pytest.raises(OSError, match="line cut") as raised:
            asyncio.run(elements_of(from_rsocket(ErrorStream(error))))

        assert raised.value is error

    def test_an_error_in_a_generator_is(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.CRITICAL, "pyrsocket")

        def generate() -> Iterator[tuple[Payload, bool]]:
            yield payload(0), False
            raise OSError("line cut")

        with pytest.raises(OSError, match="line cut"):
            asyncio.run(elements_of(from_rsocket(StreamFromGenerator(generate), prefetch=1)))


class TestDemand:
    @pytest.mark.parametrize("prefetch", [1, 4, 16])
    def test_no_more_is_made_than_the_window_ahead_of_what_is_taken(self, prefetch: int) -> None:
        made = 0
        ahead = []

        def generate() -> Iterator[tuple[Payload, bool]]:
            nonlocal made
            for number in range(200):
                made += 1
                yield payload(number), number == 199

        async def read() -> None:
            recorder = Recorder.of(from_rsocket(StreamFromGenerator(generate), prefetch=prefetch))
            for taken in range(1, 201):
                await settled()
                ahead.append(made - taken)
                recorder.request(1)
            await settled()
            assert numbers(recorder.check().items) == list(range(200))

        asyncio.run(read())

        assert max(ahead) <= prefetch

    def test_the_end_and_an_error_need_no_demand(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.CRITICAL, "pyrsocket")

        def generate() -> Iterator[tuple[Payload, bool]]:
            yield payload(0), False
            raise OSError("line cut")

        async def subscribe() -> None:
            ended = Recorder.of(from_rsocket(stream_from_generator(1)))
            failed = Recorder.of(from_rsocket(StreamFromGenerator(generate)))
            ended.request(1)
            failed.request(1)
            await settled()
            assert ended.check().completed
            assert isinstance(failed.check().error, OSError)

        asyncio.run(subscribe())

    @pytest.mark.parametrize("n", [0, -5])
    def test_an_illegal_request_ends_the_stream(self, n: int) -> None:
        async def subscribe() -> None:
            recorder = Recorder.of(from_rsocket(stream_from_generator(3)))
            recorder.request(n)
            await settled()
            assert isinstance(recorder.check().error, ValueError)
            assert "3.9" in str(recorder.error)

        asyncio.run(subscribe())


class TestCancel:
    @pytest.mark.parametrize("factory", FACTORIES)
    @pytest.mark.parametrize("rounds", range(8))
    def test_it_is_safe_at_any_moment(self, factory: Any, rounds: int) -> None:
        async def subscribe() -> None:
            recorder = Recorder.of(from_rsocket(factory(1_000)))
            if rounds:
                recorder.request(3)
            for _ in range(rounds - 1):
                await asyncio.sleep(0)
            recorder.cancel()
            got = len(recorder.items)
            await settled()
            assert len(recorder.check().items) == got
            assert not recorder.terminated
            assert len(asyncio.all_tasks()) == 1, "no task of rsocket-py is left"

        asyncio.run(subscribe())

    def test_it_closes_the_generator(self) -> None:
        closed = []

        def generate() -> Iterator[tuple[Payload, bool]]:
            try:
                while True:
                    yield payload(1), False
            finally:
                closed.append(1)

        async def read() -> None:
            assert await from_rsocket(StreamFromGenerator(generate)).take(3).count() == 3
            await settled()

        asyncio.run(read())

        assert closed == [1]


class TestSubscribers:
    def test_a_publisher_serves_one(self) -> None:
        async def subscribe() -> None:
            flux = from_rsocket(stream_from_generator(3))
            first, second = Recorder.of(flux, 1), Recorder.of(flux, 1)
            await settled()
            first.request(2)
            await settled()
            assert numbers(first.check().items) == [0, 1, 2]
            assert isinstance(second.check().error, RuntimeError)
            assert "from_rsocket(lambda: …)" in str(second.error)

        asyncio.run(subscribe())

    def test_a_function_makes_one_for_each(self) -> None:
        async def read() -> list[Any]:
            flux = from_rsocket(lambda: stream_from_generator(3))
            return await asyncio.gather(elements_of(flux), elements_of(flux))

        assert [numbers(each) for each in asyncio.run(read())] == [[0, 1, 2], [0, 1, 2]]

    @pytest.mark.parametrize(
        "error",
        [ConnectionError("no server"), SystemExit(3), asyncio.CancelledError(), GeneratorExit()],
        ids=lambda error: type(error).__name__,
    )
    def test_a_function_that_raises_fails_the_stream(self, error: BaseException) -> None:
        def refuse() -> Any:
            raise error

        heard: list[BaseException] = []

        async def read() -> None:
            from_rsocket(refuse).subscribe(print, on_error=heard.append)
            await asyncio.sleep(0)

        asyncio.run(read())
        assert heard == [error]

    @pytest.mark.parametrize("wrong", [None, 42, "publisher"])
    def test_anything_else_is_refused(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match="publisher of rsocket"):
            from_rsocket(wrong)

    def test_a_window_is_at_least_one(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            from_rsocket(stream_from_generator, prefetch=0)


class TestThreads:
    def test_a_thread_without_a_loop_gets_the_one_of_the_package(self) -> None:
        flux = from_rsocket(lambda: stream_from_generator(500), prefetch=16)

        assert numbers(flux.collect_list().block(20)) == list(range(500))

    def test_a_thread_can_say_which_loop_it_is(self) -> None:
        where = []

        def generate() -> Iterator[tuple[Payload, bool]]:
            where.append(threading.get_ident())
            yield payload(0), True

        async def main() -> None:
            flux = from_rsocket(StreamFromGenerator(generate))
            here = flux.subscribe_on(schedulers.loop())
            assert await asyncio.to_thread(here.block_last, 20) == payload(0)

        asyncio.run(main())

        assert where == [threading.get_ident()]
