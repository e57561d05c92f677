"""Coroutines run on the event loop of whoever reads the stream, whatever thread starts them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Retry, Sinks, schedulers
from penstock.testing import TestPublisher
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

PATIENCE = 60.0
pool = schedulers.shared_pool

Coroutines = Callable[[], Any]

LATER: dict[str, Callable[[Any], Any]] = {
    "timeout's fallback": lambda inner: Flux.never().timeout(0.001, inner),
    "delay_elements, concat_map": lambda inner: (
        Flux.just(1).delay_elements(0.001).concat_map(lambda _: inner)
    ),
    "interval, flat_map": lambda inner: Flux.interval(0.001).take(1).flat_map(lambda _: inner),
    "timer, flat_map_many": lambda inner: Mono.timer(0.001).flat_map_many(lambda _: inner),
    "publish_on, flat_map": lambda inner: Flux.just(1).publish_on(pool()).flat_map(lambda _: inner),
    "publish_on, flat_map_sequential": lambda inner: (
        Flux.just(1).publish_on(pool()).flat_map_sequential(lambda _: inner)
    ),
    "publish_on, expand": lambda inner: (
        Flux.just(0).publish_on(pool()).expand(lambda n: inner if n == 0 else Flux.empty())
    ),
    "subscribe_on": lambda inner: inner.subscribe_on(pool()),
    "subscribe_on, concat_with": lambda inner: Flux.just(1).subscribe_on(pool()).concat_with(inner),
    "subscribe_on, merge_with": lambda inner: Flux.just(1).merge_with(inner).subscribe_on(pool()),
    "subscribe_on, zip": lambda inner: inner.zip_with(Flux.just(1)).subscribe_on(pool()),
    "retry_when": lambda inner: (
        Flux.error(OSError())
        .concat_with(inner)
        .retry_when(Retry.fixed(1, pause=0.001))
        .on_error_resume(lambda _: inner)
    ),
    "repeat": lambda inner: inner.delay_elements(0.001).repeat(1),
    "switch_if_empty": lambda inner: Flux.empty().subscribe_on(pool()).switch_if_empty(inner),
    "on_error_resume": lambda inner: (
        Flux.error(OSError()).subscribe_on(pool()).on_error_resume(lambda _: inner)
    ),
    "using": lambda inner: Flux.using(lambda: 1, lambda _: inner, lambda _: None).subscribe_on(pool()),
    "share": lambda inner: inner.share().subscribe_on(pool()),
    "cache": lambda inner: inner.cache().subscribe_on(pool()),
    "limit_rate": lambda inner: inner.limit_rate(2).subscribe_on(pool()),
    "on_backpressure_buffer": lambda inner: inner.on_backpressure_buffer().subscribe_on(pool()),
}


def sources(seen: list[Any]) -> dict[str, Any]:
    async def call(*_: Any) -> int:
        seen.append(asyncio.get_running_loop())
        return 1

    async def rows() -> Any:
        seen.append(asyncio.get_running_loop())
        yield 1

    return {
        "from_callable": Mono.from_callable(call).flux(),
        "from_async_iterable": Flux.from_async_iterable(rows),
        "map_async": Flux.just(1).map_async(call),
        "flat_map of a coroutine function": Flux.just(1).flat_map(call),
        "defer of a coroutine": Flux.defer(call),
    }


@pytest.mark.parametrize("source", list(sources([])))
@pytest.mark.parametrize("way", LATER)
def test_a_coroutine_that_another_thread_starts_runs_on_the_loop_of_the_reader(way: str, source: str) -> None:
    seen: list[Any] = []

    async def main() -> None:
        here = asyncio.get_running_loop()
        inner = sources(seen)[source]
        async with asyncio.timeout(PATIENCE):
            async for _ in LATER[way](inner):
                pass
            await LATER[way](inner).count()
            running = asyncio.Event()
            LATER[way](inner).subscribe(
                print,
                on_error=lambda error: here.call_soon_threadsafe(running.set),
                on_complete=lambda: here.call_soon_threadsafe(running.set),
            )
            await running.wait()
        assert len(seen) >= 3
        assert all(loop is here for loop in seen)

    asyncio.run(main())


def test_a_foreign_subscriber_gets_the_loop_that_it_subscribed_on() -> None:
    seen: list[Any] = []

    async def main() -> None:
        here = asyncio.get_running_loop()
        recorder = Recorder(9)
        LATER["interval, flat_map"](sources(seen)["map_async"]).subscribe(recorder)
        await asyncio.to_thread(recorder.wait)
        assert seen == [here]

    asyncio.run(main())


def test_elements_of_a_foreign_publisher_start_coroutines_on_the_loop_of_the_reader() -> None:
    """The publisher may have an event loop of its own on its thread: that one is not meant."""
    seen: list[Any] = []

    async def main() -> None:
        here = asyncio.get_running_loop()
        driven = Driven()
        reader = asyncio.ensure_future(
            driven.flux().flat_map(lambda _: sources(seen)["from_callable"]).collect_list()
        )
        await asyncio.sleep(0)

        async def emit() -> None:
            driven.emit("x").complete()

        await asyncio.to_thread(lambda: asyncio.run(emit()))
        assert await reader == [1]
        assert seen == [here]

    asyncio.run(main())


def test_a_future_of_the_readers_loop_can_be_awaited_after_a_retry() -> None:
    async def main() -> None:
        ready = asyncio.get_running_loop().create_future()
        attempts: list[int] = []

        async def uses() -> Any:
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError
            asyncio.get_running_loop().call_soon(ready.set_result, 42)
            return await ready

        assert await Mono.from_callable(uses).retry_when(Retry.fixed(2, pause=0.001)) == 42

    asyncio.run(main())


def test_without_a_loop_coroutines_run_on_the_background_loop() -> None:
    seen: list[Any] = []
    for way in LATER.values():
        way(sources(seen)["from_callable"]).collect_list().block(PATIENCE)
    background = schedulers.background_loop()
    assert all(loop is background.loop for loop in seen)


def test_what_stands_above_subscribe_on_a_loop_runs_on_that_loop() -> None:
    seen: list[Any] = []

    async def main() -> None:
        background = schedulers.background_loop()
        for source in sources(seen).values():
            await source.subscribe_on(background).count()
        assert all(loop is background.loop for loop in seen)

    asyncio.run(main())
    assert len(seen) == 5


def test_a_reader_whose_loop_is_closed_does_not_keep_the_stream_from_going_on() -> None:
    seen: list[Any] = []
    sink, done = Sinks.unicast(), threading.Event()

    async def main() -> None:
        sink.flux().flat_map(lambda _: sources(seen)["from_callable"]).subscribe(print, on_complete=done.set)

    asyncio.run(main())
    sink.try_emit(1)
    sink.try_complete()
    assert done.wait(PATIENCE)
    assert seen == [schedulers.background_loop().loop]


@pytest.mark.parametrize("from_thread", ["of the loop", "another"])
def test_a_source_that_pushes_after_the_loop_of_its_reader_was_closed_is_cancelled(
    from_thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    source: TestPublisher[int] = TestPublisher()
    loop = asyncio.new_event_loop()

    async def read() -> None:
        async for _ in source.flux():
            pass

    reading = loop.create_task(read())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    if from_thread == "another":
        pushing = threading.Thread(target=source.next, args=(1,))
        pushing.start()
        pushing.join(PATIENCE)
    else:
        source.next(1)

    assert source.cancelled == 1
    assert "Event loop is closed" not in caplog.text
    # Nobody will wake these any more; without this they would say so when they are collected.
    reading._log_destroy_pending = False  # type: ignore[attr-defined]
