"""asyncio and futures need no bridge: what streams have is enough for publishers of other libraries, too."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest

from penstock.streams import Flux, Mono
from tests.streams.operators.rigs import Elsewhere, Oops
from tests.streams.recording import Recorder


class TestAsyncio:
    @pytest.mark.parametrize("prefetch", [1, 4, 16])
    def test_any_publisher_can_be_looped_over_within_a_window(self, prefetch: int) -> None:
        source = Elsewhere(*range(100))
        ahead = []

        async def read() -> list[int]:
            seen = []
            async for element in Flux.from_publisher(source).to_async_iterable(prefetch):
                seen.append(element)
                ahead.append(source.asked - len(seen))
            return seen

        assert asyncio.run(read()) == list(range(100))
        assert max(ahead) <= prefetch

    def test_leaving_the_loop_cancels_it(self) -> None:
        source = Elsewhere(*range(1_000))

        async def read() -> None:
            elements = Flux.from_publisher(source).to_async_iterable(4)
            async for element in elements:
                if element == 2:
                    break
            await elements.aclose()  # type: ignore[attr-defined]

        asyncio.run(read())

        assert source.cancelled
        assert source.asked <= 8

    def test_any_subscriber_can_read_an_asynchronous_iterable(self) -> None:
        stepped = []

        async def numbers() -> AsyncIterator[int]:
            for number in range(10):
                stepped.append(number)
                yield number

        async def subscribe() -> None:
            recorder = Recorder.of(Flux.from_async_iterable(numbers))
            for n in (2, 3):
                recorder.request(n)
                for _ in range(50):  # turns of the loop: no thread takes part
                    await asyncio.sleep(0)
            assert recorder.check().items == [0, 1, 2, 3, 4]
            assert stepped == [0, 1, 2, 3, 4]
            recorder.cancel()

        asyncio.run(subscribe())

    def test_the_first_element_of_any_publisher_can_be_awaited(self) -> None:
        source = Elsewhere("first", "second")

        async def wait() -> Any:
            return await Mono.from_publisher(source)

        assert asyncio.run(wait()) == "first"


class TestFutures:
    def test_the_first_element_of_any_publisher_is_a_future(self) -> None:
        future = Mono.from_publisher(Elsewhere("first")).to_future()

        assert isinstance(future, Future)
        assert future.result(10) == "first"

    def test_cancelling_the_future_cancels_the_stream(self) -> None:
        cancelled = threading.Event()
        future = Flux.never().do_on_cancel(cancelled.set).count().to_future()

        assert future.cancel()
        assert cancelled.wait(10)

    def test_jobs_of_an_executor_are_bounded(self) -> None:
        lock, at_once, most = threading.Lock(), 0, 0

        def job(n: int) -> int:
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once)
            try:
                return n * n
            finally:
                with lock:
                    at_once -= 1

        with ThreadPoolExecutor(16) as executor:
            squares = Flux.range(200).flat_map(lambda n: executor.submit(job, n), concurrency=4)
            assert sorted(squares) == [n * n for n in range(200)]

        assert most <= 4

    def test_an_error_of_a_job_is_the_error_of_the_stream(self) -> None:
        def job() -> Any:
            raise Oops("in the pool")

        with ThreadPoolExecutor(1) as executor, pytest.raises(Oops):
            Mono.from_future(executor.submit(job)).block(10)


@pytest.mark.parametrize(("bridge", "library"), [("reactivex", "reactivex"), ("rsocket", "rsocket")])
def test_a_bridge_without_its_library_says_what_to_install(
    bridge: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.interop.r")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] in (library, "reactivestreams")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]

    with pytest.raises(ImportError) as raised:
        import_module(f"penstock.interop.{bridge}_bridge")

    assert str(raised.value) == (
        f"penstock.interop.{bridge}_bridge needs {library}: pip install 'penstock-streams[interop]'"
    )
