"""``elapsed``, ``timestamp`` and ``skip_last``; and an hour of virtual time through every timed operator."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from penstock.streams.schedulers import VirtualTimeScheduler
from tests.streams.operators.rigs import asked_of_the_source, check_that_a_cancel_stops_it, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder
from tests.streams.test_operators_are_complete import public


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return VirtualTimeScheduler()


# -------------------------------------------------------------------- elapsed, timestamp
def test_elapsed_measures_from_the_subscription_and_then_from_element_to_element(
    clock: VirtualTimeScheduler,
) -> None:
    source = Driven()
    stream = source.flux().elapsed(clock)
    clock.advance_by(100)  # not from when it was put together
    recorder = Recorder.of(stream)
    clock.advance_by(1)  # the first request does not matter
    recorder.request(UNBOUNDED)
    clock.advance_by(1)
    source.emit("a")
    clock.advance_by(0.5)
    source.emit("b", "c")

    assert recorder.check().items == [(2.0, "a"), (0.5, "b"), (0.0, "c")]


def test_two_subscribers_have_clocks_of_their_own(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    stream = source.flux().elapsed(clock)
    first = Recorder.of(stream, 1)
    clock.advance_by(1)
    early = source.subscriber
    second = Recorder.of(stream, 1)
    clock.advance_by(1)
    early.on_next("a")
    source.emit("a")

    assert (first.items, second.items) == ([(2.0, "a")], [(1.0, "a")])


def test_timestamp_is_the_time_of_day_or_of_a_virtual_clock(clock: VirtualTimeScheduler) -> None:
    before = time.time()
    ((moment, element),) = result(Flux.just("a").timestamp())
    assert before <= moment <= time.time()
    assert element == "a"
    clock.advance_by(7)

    assert Mono.just("a").timestamp(clock).block() == (7.0, "a")


def test_a_mono_has_them_too(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.mono().elapsed(clock), 1)
    clock.advance_by(3)
    source.emit("a")

    assert recorder.check().items == [(3.0, "a")]


@pytest.mark.parametrize("name", ["elapsed", "timestamp"])
def test_they_are_fused(name: str) -> None:
    assert asked_of_the_source(lambda flux: getattr(flux, name)(), 2, 3) == [2, 5]
    check_that_a_cancel_stops_it(lambda flux: getattr(flux, name)())
    assert [element for _, element in getattr(Flux.range(3), name)()] == [0, 1, 2]


# -------------------------------------------------------------------- skip_last
@pytest.mark.parametrize("n", [0, 1, 3, 5, 9])
def test_skip_last_leaves_out_the_end(n: int) -> None:
    elements = list(range(5))

    assert result(Flux.range(5).skip_last(n)) == elements[: max(0, 5 - n)]
    assert list(Flux.range(5).skip_last(n)) == elements[: max(0, 5 - n)]


def test_skip_last_asks_for_what_it_holds_once() -> None:
    assert asked_of_the_source(lambda flux: flux.skip_last(3), 1, 2) == [4, 6]
    assert asked_of_the_source(lambda flux: flux.skip_last(0), 1, 2) == [1, 3]


def test_skip_last_can_be_cancelled() -> None:
    check_that_a_cancel_stops_it(lambda flux: flux.skip_last(2))


def test_skip_last_needs_a_count() -> None:
    with pytest.raises(ValueError, match=r"skip_last\(\)"):
        Flux.just(1).skip_last(-1)


# -------------------------------------------------------------------- memory
TIMED: dict[str, Callable[[Flux[Any], VirtualTimeScheduler], Flux[Any]]] = {
    "buffer_timeout": lambda flux, clock: flux.buffer_timeout(3, 2, clock),
    "cache": lambda flux, clock: flux.cache(ttl=5, scheduler=clock),
    "debounce": lambda flux, clock: flux.debounce(0.5, clock),
    "debounce that never gets its pause": lambda flux, clock: flux.debounce(2, clock),
    "delay_elements": lambda flux, clock: flux.on_backpressure_latest().delay_elements(2, clock),
    "delay_sequence": lambda flux, clock: flux.delay_sequence(5, scheduler=clock),
    "delay_subscription": lambda flux, clock: flux.delay_subscription(5, clock),
    "elapsed": lambda flux, clock: flux.elapsed(clock),
    "interval": lambda flux, clock: Flux.interval(1, scheduler=clock),
    "publish": lambda flux, clock: flux.publish().ref_count(1, 5, clock),
    "rate_limit": lambda flux, clock: flux.on_backpressure_latest().rate_limit(0.5, scheduler=clock),
    "repeat_when": lambda flux, clock: flux.take(3).repeat_when(
        lambda ends: ends.flat_map(lambda _: Mono.timer(1, clock))
    ),
    "replay": lambda flux, clock: flux.replay(ttl=5, scheduler=clock).ref_count(),
    "sample": lambda flux, clock: flux.sample(3, clock),
    "sample by another": lambda flux, clock: flux.sample(Flux.interval(3, scheduler=clock)),
    "switch_map": lambda flux, clock: flux.switch_map(lambda n: Flux.interval(0.4, scheduler=clock)),
    "take_until_other": lambda flux, clock: flux.take_until_other(Flux.interval(9_999, scheduler=clock)),
    "throttle_first": lambda flux, clock: flux.throttle_first(3, clock),
    "throttle_last": lambda flux, clock: flux.throttle_last(3, clock),
    "timeout": lambda flux, clock: flux.timeout(5, scheduler=clock),
    "timestamp": lambda flux, clock: flux.timestamp(clock),
    "window": lambda flux, clock: flux.window(every=4, scheduler=clock).flat_map(lambda window: window),
    "window_timeout": lambda flux, clock: flux.window_timeout(3, 2, clock).flat_map(
        lambda window: window.collect_list()
    ),
    "with_latest_from": lambda flux, clock: flux.with_latest_from(Flux.interval(0.7, scheduler=clock)),
}


def test_every_operator_with_a_clock_goes_through_the_hour() -> None:
    """Schedulers of ``publish_on`` and ``subscribe_on`` are not clocks."""
    timed = {
        name
        for name in public(Flux)
        if "scheduler" in signature(getattr(Flux, name)).parameters and not name.endswith("_on")
    }

    assert timed - set(TIMED) == set()
    assert {"debounce", "sample", "window"} <= timed


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMED)
def test_an_hour_through_a_timed_operator_stays_flat(name: str, clock: VirtualTimeScheduler) -> None:
    """A kilobyte each second, for an hour: what is kept after ten minutes is all there ever is."""
    count = 0

    def seen(_: Any) -> None:
        nonlocal count
        count += 1

    source = Flux.interval(1, scheduler=clock).map(lambda n: bytes([n % 256]) * 1024)
    subscription = TIMED[name](source, clock).subscribe(seen)
    clock.advance_by(600)
    pending = clock.pending

    def kept_by_an_hour() -> int:
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            clock.advance_by(3000)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

    # Other threads of the process are measured as well, but what they do happens once.
    assert kept_by_an_hour() < 64 * 1024 or kept_by_an_hour() < 64 * 1024
    assert clock.pending <= pending + 1
    assert count > 500 or "never" in name
    subscription.cancel()
    if name == "cache":
        return  # it lives on
    clock.advance_by(10)  # the grace of ref_count
    assert clock.pending == 0
