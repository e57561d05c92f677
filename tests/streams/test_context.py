"""``contextvars`` go with the subscription through every thread and loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from penstock.streams import Emitter, Flux, Mono, Retry, Sinks, schedulers
from tests.streams.recording import Recorder

who: ContextVar[str] = ContextVar("who", default="nobody")
GUARD = 20


def seen(_: Any = None) -> str:
    return who.get()


def on_a_bare_thread(task: Callable[[], object]) -> None:
    """Run a task where the subscriber's context is unknown."""
    thread = threading.Thread(target=task)
    thread.start()
    thread.join(GUARD)


def subscribed(stream: Any) -> Recorder:
    """Subscribe inside a context of its own."""

    def subscribe() -> Recorder:
        who.set("me")
        return Recorder.of(stream, first=9)

    return copy_context().run(subscribe)


async def later(_: Any) -> str:
    await asyncio.sleep(0)
    return who.get()


async def steps() -> AsyncIterator[str]:
    yield who.get()
    await asyncio.sleep(0)
    yield who.get()


POOL = schedulers.shared_pool()
PATHS: dict[str, Callable[[], Any]] = {
    "publish_on": lambda: Flux.just(1, 2).publish_on(POOL).map(seen),
    "subscribe_on": lambda: Flux.just(1, 2).map(seen).subscribe_on(POOL),
    "both": lambda: Flux.just(1).map(seen).subscribe_on(POOL).publish_on(POOL).publish_on(POOL),
    "map_async": lambda: Flux.just(1, 2).map_async(later),
    "below map_async": lambda: Flux.just(1, 2).map_async(later).map(seen),
    "coroutine": lambda: Mono.from_callable(lambda: 0).map_async(later),
    "coroutine function": lambda: Mono.from_callable(lambda_coroutine),
    "asynchronous iterable": lambda: Flux.from_async_iterable(steps),
    "below an asynchronous iterable": lambda: Flux.from_async_iterable(steps).map(seen),
    "timer": lambda: Mono.timer(0).map(seen),
    "interval": lambda: Flux.interval(0.001).on_backpressure_drop().take(2).map(seen),
    "delay": lambda: Flux.just(1, 2).delay_elements(0.001).map(seen),
    "flat_map": lambda: Flux.just(1, 2).flat_map(lambda n: Mono.just(n).publish_on(POOL)).map(seen),
    "timeout fallback": lambda: Mono.never().timeout(0.001, Mono.from_callable(seen)),
    "retry after a pause": lambda: failing_once().retry_when(Retry.fixed(1, pause=0.001)),
    "cache": lambda: Flux.just(1).publish_on(POOL).cache().map(seen),
}


async def lambda_coroutine() -> str:
    return who.get()


def failing_once() -> Mono[str]:
    errors = [ValueError("x")]

    def attempt() -> str:
        if errors:
            raise errors.pop()
        return who.get()

    return Mono.from_callable(attempt)


@pytest.mark.parametrize("make", PATHS.values(), ids=PATHS)
def test_the_subscribers_context_is_seen(make: Callable[[], Any]) -> None:
    recorder = subscribed(make()).wait(GUARD)

    assert recorder.error is None
    assert set(recorder.items) == {"me"}


def test_it_is_seen_when_another_thread_emits_into_a_sink() -> None:
    sink = Sinks.multicast()
    recorder = subscribed(sink.flux().map(seen))

    on_a_bare_thread(lambda: sink.try_emit(1))

    assert recorder.items == ["me"]


def test_each_subscriber_of_a_sink_sees_its_own() -> None:
    sink = Sinks.multicast()
    mine, other = subscribed(sink.flux().map(seen)), Recorder.of(sink.flux().map(seen), first=9)

    on_a_bare_thread(lambda: sink.try_emit(1))

    assert (mine.items, other.items) == (["me"], ["nobody"])


def test_it_is_seen_when_another_thread_calls_back() -> None:
    emitters: list[Emitter[int]] = []
    recorder = subscribed(Flux.create(emitters.append).map(seen))

    on_a_bare_thread(lambda: emitters[0].next(1))

    assert recorder.items == ["me"]


def test_it_is_seen_when_another_thread_settles_a_future() -> None:
    future: Future[int] = Future()
    recorder = subscribed(Mono.from_future(future).map(seen))

    on_a_bare_thread(lambda: future.set_result(1))

    assert recorder.items == ["me"]


def test_nothing_leaks_into_the_thread_that_emits() -> None:
    sink = Sinks.multicast()
    subscribed(sink.flux().do_on_next(lambda _: who.set("changed")))

    sink.try_emit(1)

    assert who.get() == "nobody"
