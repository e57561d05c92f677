"""Virtual time: every default scheduler follows, wherever the stream was put together."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Retry, schedulers
from penstock.streams.schedulers import SchedulerClosed
from penstock.testing import TestSubscriber, virtual_time

HOURLY = Flux.interval(3600)
"""Put together long before there is a clock."""


def seen_after(seconds: float, flux: Any) -> list[Any]:
    with virtual_time() as clock:
        subscriber: TestSubscriber[Any] = TestSubscriber()
        flux.subscribe(subscriber)
        clock.advance_by(seconds)
        items = subscriber.items
        if not subscriber.terminated:
            subscriber.cancel()
    return items


def test_a_stream_that_was_put_together_outside() -> None:
    assert seen_after(4 * 3600, HOURLY) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "flux",
    [
        Mono.timer(59).then_return("x"),
        Flux.just("x").delay_elements(59),
        Mono.never().timeout(59, Mono.just("x")),
        Mono.error(OSError()).retry_when(Retry.fixed(1, pause=59)).on_error_return("x"),
        Mono.just("x").publish_on(schedulers.shared_pool()).delay_element(59),
        Mono.just("x").subscribe_on(schedulers.shared_single()).delay_element(59),
        Flux.just("x").map_async(lambda x: asyncio.sleep(59, x)),
        Mono.defer(lambda: Mono.from_future(asyncio.sleep(59, "x"))),
    ],
)
def test_every_default_follows(flux: Any) -> None:
    assert seen_after(58, flux) == []
    assert seen_after(59, flux) == ["x"]


def test_everything_runs_on_the_thread_of_the_test() -> None:
    threads: set[int] = set()

    def note(_: object) -> None:
        threads.add(threading.get_ident())

    flux = Flux.interval(1).do_on_next(note).publish_on(schedulers.shared_pool()).do_on_next(note)
    seen_after(5, flux.map_async(lambda x: asyncio.sleep(1, x)).do_on_next(note))

    assert threads == {threading.get_ident()}


def test_an_hour_of_every_timed_operator_at_once() -> None:
    flux = Flux.merge(
        Flux.interval(1).timeout(10),
        Flux.interval(1).delay_elements(0.5),
        Flux.interval(1).map_async(lambda x: asyncio.sleep(0.5, x)),
    )

    assert len(seen_after(3600, flux)) == 3600 + 3599 + 3599


def test_after_the_block_time_is_real_again() -> None:
    with virtual_time():
        pass

    assert Mono.timer(0.001).block(timeout=20) == 0
    assert Mono.just(1).map_async(lambda x: asyncio.sleep(0.001, x)).block(timeout=20) == 1
    assert schedulers.shared_timer().now() > 0


def test_a_block_inside_another_one() -> None:
    with virtual_time() as outer:
        with virtual_time() as inner:
            inner.advance_by(5)
            assert schedulers.shared_timer().now() == 5
        assert schedulers.shared_timer().now() == outer.now() == 0


def test_a_stream_that_still_waits_at_the_end_fails() -> None:
    subscriber: TestSubscriber[int] = TestSubscriber()
    with virtual_time():
        Flux.interval(1).subscribe(subscriber)

    assert isinstance(subscriber.error, SchedulerClosed)


def test_a_coroutine_that_still_waits_at_the_end_is_cancelled() -> None:
    cancelled: list[bool] = []

    async def wait(_: int) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 1

    with virtual_time() as clock:
        running = Flux.just(1).map_async(wait).subscribe(lambda _: None)
        clock.run_pending()
        running.cancel()

    assert cancelled == [True]


def test_within_an_event_loop_timers_are_virtual_as_well() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        with virtual_time() as clock:
            running = Flux.interval(60).subscribe(seen.append)
            clock.advance_by(180)
            running.cancel()
        return seen

    assert asyncio.run(main()) == [0, 1, 2]
