"""``timeout``, on virtual time: late elements, and subscribers that take their time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return VirtualTimeScheduler()


@pytest.fixture
def source() -> Driven:
    return Driven()


def test_a_first_element_that_is_late_fails_the_stream(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=1)

    clock.advance_by(1.999)
    assert recorder.error is None
    clock.advance_by(0.001)

    assert isinstance(recorder.error, TimeoutError)
    assert "no element within 2.0 s" in str(recorder.error)
    assert source.cancels == 1
    assert clock.pending == 0


def test_each_element_starts_the_clock_anew(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=UNBOUNDED)

    for n in range(5):
        clock.advance_by(1.5)
        source.emit(n)
    assert recorder.items == [0, 1, 2, 3, 4]
    clock.advance_by(1.999)
    assert recorder.error is None
    clock.advance_by(0.001)

    assert isinstance(recorder.error, TimeoutError)


def test_a_timeout_with_sums_of_fractions_does_not_ring_for_ever(
    clock: VirtualTimeScheduler, source: Driven
) -> None:
    recorder = Recorder.of(source.flux().timeout(0.2, scheduler=clock), first=UNBOUNDED)
    clock.advance_by(0.1)
    source.emit("a")
    clock.advance_by(0.2)  # 0.3 - 0.1 is a little less than 0.2

    assert isinstance(recorder.check().error, TimeoutError)


def test_late_elements_go_on_with_the_fallback_and_the_demand_left(
    clock: VirtualTimeScheduler, source: Driven
) -> None:
    fallback = Driven()
    recorder = Recorder.of(source.flux().timeout(2, fallback.flux(), clock), first=3)
    source.emit("a")
    clock.advance_by(2)
    assert (source.cancels, fallback.requests) == (1, [2])

    source.emit("too late")
    fallback.emit("b").complete()

    assert (recorder.check().items, recorder.completed) == (["a", "b"], True)


def test_the_fallback_may_take_its_time(clock: VirtualTimeScheduler, source: Driven) -> None:
    fallback = Driven()
    recorder = Recorder.of(source.flux().timeout(2, fallback.flux(), clock), first=1)
    clock.advance_by(2)

    clock.advance_by(1000)

    assert (recorder.terminated, clock.pending) == (False, 0)


def test_without_demand_the_clock_stands_still(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=1)
    source.emit("a")

    clock.advance_by(1000)
    assert not recorder.terminated
    recorder.request(1)
    clock.advance_by(1.999)
    assert not recorder.terminated
    clock.advance_by(0.001)

    assert isinstance(recorder.error, TimeoutError)


def test_the_first_demand_may_come_late(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock))

    clock.advance_by(1000)
    recorder.request(1)
    clock.advance_by(1.5)
    source.emit("a")

    assert (recorder.items, recorder.error) == (["a"], None)


@pytest.mark.parametrize("first", [1, UNBOUNDED], ids=["one by one", "unbounded"])
def test_a_subscriber_that_is_slow_inside_on_next_is_not_blamed(
    clock: VirtualTimeScheduler, source: Driven, first: int
) -> None:
    def slowly(recorder: Recorder, _: Any) -> None:
        clock.advance_by(10)
        recorder.request(1)

    recorder = Recorder(first, on_element=slowly)
    source.flux().timeout(2, scheduler=clock).subscribe(recorder)

    source.emit("a")
    source.emit("b")
    assert (recorder.items, recorder.error) == (["a", "b"], None)
    clock.advance_by(1.999)
    assert recorder.error is None
    clock.advance_by(0.001)

    assert isinstance(recorder.error, TimeoutError)


def test_the_end_in_time_cancels_the_timer(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=1)

    source.complete()

    assert (recorder.completed, clock.pending) == (True, 0)


def test_a_cancel_cancels_the_timer_and_the_source(clock: VirtualTimeScheduler, source: Driven) -> None:
    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=1)

    recorder.cancel()

    assert (source.cancels, clock.pending) == (1, 0)


def test_an_error_of_the_source_is_not_replaced_by_the_fallback(
    clock: VirtualTimeScheduler, source: Driven
) -> None:
    error = TimeoutError("the source's own")
    recorder = Recorder.of(source.flux().timeout(2, Flux.just("x"), clock), first=1)

    source.fail(error)

    assert (recorder.items, recorder.error, clock.pending) == ([], error, 0)


def test_a_mono_that_is_late_goes_on_with_its_fallback(clock: VirtualTimeScheduler) -> None:
    mono = Mono.never().timeout(timedelta(seconds=3), Mono.just("too late"), clock)
    recorder = Recorder.of(mono, first=1)

    clock.advance_by(3)

    assert (recorder.items, recorder.completed) == (["too late"], True)


def test_a_mono_in_time_is_left_alone(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Mono.just(1).timeout(3, scheduler=clock), first=1)

    assert (recorder.items, recorder.completed, clock.pending) == ([1], True, 0)


def test_a_closed_scheduler_fails_the_stream_and_does_not_raise(
    clock: VirtualTimeScheduler, source: Driven
) -> None:
    clock.close()

    recorder = Recorder.of(source.flux().timeout(2, scheduler=clock), first=1)

    assert isinstance(recorder.error, SchedulerClosed)
    recorder.check()


@pytest.mark.parametrize("duration", [-1, float("nan"), "soon", True])
def test_a_duration_must_be_one(duration: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"timeout\(\) needs"):
        Flux.never().timeout(duration)
