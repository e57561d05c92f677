"""``interval``, ``timer`` and ``delay_elements``, on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import BufferOverflow, Flux, Mono
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return VirtualTimeScheduler()


class Stamping(Recorder):
    """Writes down when each element came."""

    def __init__(self, clock: VirtualTimeScheduler, first: int = UNBOUNDED) -> None:
        self.times: list[float] = []
        super().__init__(first, on_element=lambda *_: self.times.append(clock.now()))


# -------------------------------------------------------------------- interval
def test_an_interval_ticks_at_a_steady_pace(clock: VirtualTimeScheduler) -> None:
    recorder = Stamping(clock)
    Flux.interval(0.5, scheduler=clock).subscribe(recorder)

    clock.advance_by(2.2)

    assert (recorder.items, recorder.times) == ([0, 1, 2, 3], [0.5, 1.0, 1.5, 2.0])
    recorder.check()


def test_the_first_tick_may_have_a_delay_of_its_own(clock: VirtualTimeScheduler) -> None:
    recorder = Stamping(clock)
    Flux.interval(timedelta(seconds=2), delay=0, scheduler=clock).subscribe(recorder)

    clock.advance_by(5)

    assert recorder.times == [0, 2, 4]


def test_a_slow_subscriber_does_not_move_the_later_ticks(clock: VirtualTimeScheduler) -> None:
    """Ticks are measured from the first, so that no delay adds up."""

    class Late(VirtualTimeScheduler):
        """Runs delayed tasks a little late, as real schedulers do."""

        def submit_after(self, seconds: float, task: Any) -> Any:
            return super().submit_after(seconds + 0.1, task)

    late = Late()
    recorder = Stamping(late)
    Flux.interval(1, scheduler=late).subscribe(recorder)

    late.advance_by(4.5)

    assert recorder.times == pytest.approx([1.1, 2.1, 3.1, 4.1])


def test_a_tick_that_nobody_asked_for_ends_the_stream_and_says_what_to_do(
    clock: VirtualTimeScheduler,
) -> None:
    recorder = Recorder.of(Flux.interval(1, scheduler=clock), first=2)

    clock.advance_by(10)

    assert recorder.items == [0, 1]
    assert isinstance(recorder.error, BufferOverflow)
    assert "interval(1.0)" in str(recorder.error)
    assert "on_backpressure_drop()" in str(recorder.error)
    assert clock.pending == 0


def test_ticks_may_be_dropped(clock: VirtualTimeScheduler) -> None:
    dropped: list[int] = []
    recorder = Recorder.of(Flux.interval(1, scheduler=clock).on_backpressure_drop(dropped.append), first=1)

    clock.advance_by(3)
    recorder.request(1)
    clock.advance_by(2)

    assert (recorder.items, dropped) == ([0, 3], [1, 2, 4])
    recorder.check()


def test_only_the_newest_tick_may_be_kept(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Flux.interval(1, scheduler=clock).on_backpressure_latest(), first=1)

    clock.advance_by(4)
    recorder.request(1)

    assert recorder.items == [0, 3]


def test_a_cancel_stops_the_clock(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Flux.interval(1, scheduler=clock), first=UNBOUNDED)
    clock.advance_by(1)

    recorder.cancel()

    assert clock.pending == 0


def test_take_stops_the_clock(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Flux.interval(1, scheduler=clock).take(2), first=UNBOUNDED)

    clock.advance_by(10)

    assert (recorder.items, recorder.completed, clock.pending) == ([0, 1], True, 0)


def test_a_scheduler_closed_before_or_during_the_run_fails_the_interval(
    clock: VirtualTimeScheduler,
) -> None:
    recorder = Recorder(UNBOUNDED, on_element=lambda *_: clock.close())
    Flux.interval(1, scheduler=clock).subscribe(recorder)
    clock.advance_by(1)

    assert isinstance(recorder.error, SchedulerClosed)
    assert isinstance(Recorder.of(Flux.interval(1, scheduler=clock), first=1).error, SchedulerClosed)


# -------------------------------------------------------------------- timer
def test_a_timer_rings_once(clock: VirtualTimeScheduler) -> None:
    recorder = Stamping(clock)
    Mono.timer(3, clock).subscribe(recorder)

    clock.advance_by(10)

    assert (recorder.items, recorder.times, recorder.completed) == ([0], [3], True)


def test_a_timer_that_rang_waits_for_demand(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Mono.timer(3, clock))
    clock.advance_by(10)
    assert recorder.items == []

    recorder.request(1)

    assert (recorder.items, recorder.completed) == ([0], True)
    recorder.check()


def test_a_cancelled_timer_is_taken_off_the_scheduler(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Mono.timer(3, clock), first=1)

    recorder.cancel()

    assert clock.pending == 0


def test_a_timer_on_a_closed_scheduler_fails(clock: VirtualTimeScheduler) -> None:
    clock.close()

    assert isinstance(Recorder.of(Mono.timer(3, clock), first=1).error, SchedulerClosed)


# -------------------------------------------------------------------- delay
def test_each_element_is_held_back(clock: VirtualTimeScheduler) -> None:
    recorder = Stamping(clock)
    Flux.just("a", "b").delay_elements(2, clock).subscribe(recorder)

    clock.advance_by(10)

    assert (recorder.items, recorder.times, recorder.completed) == (["a", "b"], [2, 4], True)


def test_a_delayed_element_waits_for_demand_and_the_source_is_not_asked_further(
    clock: VirtualTimeScheduler,
) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().delay_elements(2, clock))
    source.emit("a", "b")
    clock.advance_by(10)

    assert (recorder.items, sum(source.requests)) == ([], 2)
    recorder.request(1)
    assert recorder.items == ["a"]


def test_cancelling_a_delay_cancels_the_timer_and_the_source(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().delay_elements(2, clock), first=1)
    source.emit("a")
    assert clock.pending == 1

    recorder.cancel()

    assert (source.cancels, clock.pending) == (1, 0)


def test_an_error_comes_after_the_elements_before_it(clock: VirtualTimeScheduler) -> None:
    source, error = Driven(), ValueError("x")
    recorder = Recorder.of(source.flux().delay_elements(2, clock), first=9)
    source.emit("a").fail(error)
    assert recorder.error is None

    clock.advance_by(2)

    assert (recorder.items, recorder.error) == (["a"], error)


def test_a_mono_is_held_back(clock: VirtualTimeScheduler) -> None:
    recorder = Stamping(clock)
    Mono.just("a").delay_element(2, clock).subscribe(recorder)
    clock.advance_by(10)

    assert (recorder.items, recorder.times, recorder.completed) == (["a"], [2], True)
    assert Recorder.of(Mono.empty().delay_element(2, clock)).completed


def test_a_delay_on_a_closed_scheduler_fails(clock: VirtualTimeScheduler) -> None:
    clock.close()

    assert isinstance(Recorder.of(Mono.just(1).delay_element(3, clock), first=1).error, SchedulerClosed)
