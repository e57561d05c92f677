"""``sample``, ``throttle_first``, ``throttle_last`` and ``debounce``, on virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, on_dropped, schedulers
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.rigs import Oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

Operator = Callable[[Flux[Any], VirtualTimeScheduler], Flux[Any]]

OPERATORS: dict[str, Operator] = {
    "debounce": lambda flux, clock: flux.debounce(2, clock),
    "sample": lambda flux, clock: flux.sample(2, clock),
    "throttle_first": lambda flux, clock: flux.throttle_first(2, clock),
    "throttle_last": lambda flux, clock: flux.throttle_last(2, clock),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


class Rig:
    """A source driven by hand, an operator on a virtual clock, and a subscriber that notes the times."""

    def __init__(self, operator: Operator, first: int = UNBOUNDED) -> None:
        self.clock = VirtualTimeScheduler()
        self.source = Driven()
        self.recorder = Recorder(first, on_element=self._note)
        self.seen: list[tuple[float, Any]] = []
        operator(self.source.flux(), self.clock).subscribe(self.recorder)

    def _note(self, _: Recorder, element: Any) -> None:
        self.seen.append((round(self.clock.now(), 6), element))

    def at(self, moment: float, *elements: Any) -> Rig:
        self.clock.advance_to(moment)
        self.source.emit(*elements)
        return self


# -------------------------------------------------------------------- which elements, and when
def test_debounce_sends_an_element_after_a_pause() -> None:
    rig = Rig(OPERATORS["debounce"])
    rig.at(0, "a").at(1, "b").at(2.5, "c").at(9, "d").at(12)

    assert rig.seen == [(4.5, "c"), (11, "d")]
    assert rig.clock.pending == 0


def test_debounce_with_sums_of_fractions_does_not_ring_for_ever() -> None:
    rig = Rig(lambda flux, clock: flux.debounce(0.2, clock))
    rig.at(0.05, "a").at(0.1, "b")
    for n in range(3, 200):
        rig.at(n * 0.1 / 3)
    assert rig.seen == [(0.3, "b")]


def test_throttle_first_sends_the_element_that_opens_a_window() -> None:
    rig = Rig(OPERATORS["throttle_first"])
    rig.at(0, "a").at(1.9, "b").at(2, "c").at(3, "d").at(9, "e")

    assert rig.seen == [(0, "a"), (2, "c"), (9, "e")]


def test_throttle_last_sends_the_last_element_of_a_window() -> None:
    rig = Rig(OPERATORS["throttle_last"])
    rig.at(1, "a").at(2.9, "b").at(3.5, "c").at(20)

    assert rig.seen == [(3, "b"), (5.5, "c")]
    assert rig.clock.pending == 0


def test_sample_sends_the_newest_element_at_each_tick_once() -> None:
    rig = Rig(OPERATORS["sample"])
    rig.at(0.5, "a", "b").at(5, "c").at(7.9, "d").at(20)

    assert rig.seen == [(2, "b"), (6, "c"), (8, "d")]


def test_the_ticks_of_a_sample_do_not_drift() -> None:
    class Late(VirtualTimeScheduler):
        """Runs delayed tasks a little late, as real schedulers do."""

        def submit_after(self, seconds: float, task: Any) -> Any:
            return super().submit_after(seconds + 0.1, task)

    clock, source = Late(), Driven()
    times: list[float] = []
    recorder = Recorder(UNBOUNDED, on_element=lambda *_: times.append(round(clock.now(), 6)))
    source.flux().sample(1, clock).subscribe(recorder)
    for n in range(45):
        clock.advance_to(n / 10 + 0.05)
        source.emit(n)

    assert times == [1.1, 2.1, 3.1, 4.1]


def test_a_clock_that_slept_does_not_ring_for_the_ticks_that_it_missed() -> None:
    class Sleepy(VirtualTimeScheduler):
        def submit_after(self, seconds: float, task: Any) -> Any:
            return super().submit_after(seconds + (100 if self.now() < 1 else 0), task)

    clock = Sleepy()
    Driven().flux().sample(1, clock).subscribe(Recorder(UNBOUNDED))

    assert clock.advance_by(105.5) == 5  # at 101, 102, 103, 104 and 105


def test_sample_by_another_stream() -> None:
    source, sampler = Driven(), Driven()
    recorder = Recorder.of(source.flux().sample(sampler.flux()), UNBOUNDED)
    sampler.emit("nothing yet")
    source.emit(1, 2)
    sampler.emit("now")
    sampler.emit("nothing new")
    source.emit(3)
    sampler.complete()

    assert recorder.check().items == [2, 3]
    assert recorder.completed
    assert source.cancels == 1


def test_a_sampler_is_cancelled_at_the_end() -> None:
    source, sampler = Driven(), Driven()
    recorder = Recorder.of(source.flux().sample(sampler.flux()), UNBOUNDED)
    source.emit(1).complete()

    assert (recorder.check().items, recorder.completed, sampler.cancels) == ([1], True, 1)


def test_a_sampler_that_fails_fails_the_stream() -> None:
    source, sampler = Driven(), Driven()
    recorder = Recorder.of(source.flux().sample(sampler.flux()), UNBOUNDED)
    sampler.fail(Oops())

    assert isinstance(recorder.check().error, Oops)
    assert source.cancels == 1


def test_a_sampler_is_cancelled_with_the_stream() -> None:
    source, sampler = Driven(), Driven()
    Recorder.of(source.flux().sample(sampler.flux()), 1).cancel()

    assert (source.cancels, sampler.cancels) == (1, 1)


def test_a_source_that_completes_at_once_is_sampled_at_its_end() -> None:
    sampler = Driven()
    recorder = Recorder.of(Flux.just(1, 2).sample(sampler.flux()), 0)
    assert sampler.cancels == 1
    recorder.request(1)

    assert (recorder.check().items, recorder.completed) == ([2], True)


# -------------------------------------------------------------------- demand
@every_operator
def test_the_source_is_asked_for_everything(name: str) -> None:
    assert Rig(OPERATORS[name], first=1).source.requests == [UNBOUNDED]


@every_operator
def test_without_demand_the_newest_due_element_waits(name: str) -> None:
    rig = Rig(OPERATORS[name], first=0)
    rig.at(1, "a").at(10, "b").at(20)
    assert rig.recorder.items == []
    rig.recorder.request(1)
    assert rig.recorder.items == ["b"]
    rig.recorder.request(1)

    assert rig.recorder.check().items == ["b"]


def test_one_element_is_kept_however_slow_the_subscriber() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def busy(_: Recorder, element: int) -> None:
        if element == 0:
            inside.set()
            assert go_on.wait(20)

    source, recorder = Driven(), Recorder(on_element=busy)
    source.flux().throttle_first(0).subscribe(recorder)
    source.emit(0)
    worker = threading.Thread(target=recorder.request, args=(UNBOUNDED,))
    worker.start()
    assert inside.wait(20)
    source.emit(*range(1, 1000))
    go_on.set()
    worker.join()

    assert recorder.check().items == [0, 999]


# -------------------------------------------------------------------- the end
@every_operator
def test_the_last_element_goes_down_when_the_source_completes(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.at(0.5, "a")
    rig.source.complete()

    assert (rig.recorder.check().items, rig.recorder.completed) == (["a"], True)
    assert rig.clock.pending == 0


@every_operator
def test_completion_waits_until_the_last_element_was_asked_for(name: str) -> None:
    rig = Rig(OPERATORS[name], first=0)
    rig.at(0.5, "a")
    rig.source.complete()
    assert not rig.recorder.terminated
    rig.recorder.request(1)

    assert (rig.recorder.check().items, rig.recorder.completed) == (["a"], True)


@every_operator
def test_an_empty_source_completes_without_demand(name: str) -> None:
    rig = Rig(OPERATORS[name], first=0)
    rig.source.complete()

    assert rig.recorder.check().completed
    assert rig.clock.pending == 0


@pytest.mark.parametrize("name", ["debounce", "sample", "throttle_last"])
def test_an_error_does_not_wait_for_the_clock_and_what_was_not_due_is_reported(name: str) -> None:
    dropped: list[Any] = []
    rig = Rig(OPERATORS[name])
    rig.at(0.5, "a")
    with on_dropped(element=lambda element, where: dropped.append(element)):
        rig.source.fail(Oops())

    assert (rig.recorder.check().items, type(rig.recorder.error)) == ([], Oops)
    assert dropped == ["a"]
    assert rig.clock.pending == 0


@every_operator
def test_an_error_waits_for_an_element_that_is_due(name: str) -> None:
    rig = Rig(OPERATORS[name], first=0)
    rig.at(1, "a").at(10)
    rig.source.fail(Oops())
    assert not rig.recorder.terminated
    rig.recorder.request(1)

    assert (rig.recorder.check().items, type(rig.recorder.error)) == (["a"], Oops)


@every_operator
def test_a_cancel_stops_the_source_and_the_clock(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.at(1, "a")
    rig.recorder.cancel()
    rig.clock.advance_by(10)
    rig.source.emit("late")

    assert rig.source.cancels == 1
    assert rig.clock.pending == 0
    assert rig.recorder.check().items in ([], ["a"])


@every_operator
def test_a_cancel_inside_on_next_stops_it(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.recorder.on_element = lambda recorder, _: recorder.cancel()
    rig.at(1, "a").at(5, "b").at(20)

    assert rig.recorder.check().items == ["a"]
    assert rig.clock.pending == 0


@pytest.mark.parametrize("name", ["debounce", "sample", "throttle_last"])
def test_a_scheduler_that_closes_fails_the_stream(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.at(1, "a")
    with on_dropped(element=lambda *_: None):
        rig.clock.close()

    assert isinstance(rig.recorder.check().error, SchedulerClosed)
    assert rig.source.cancels == 1


@pytest.mark.parametrize("name", ["debounce", "sample", "throttle_last"])
def test_a_closed_scheduler_fails_the_stream(name: str) -> None:
    clock, source = VirtualTimeScheduler(), Driven()
    clock.close()
    recorder = Recorder.of(OPERATORS[name](source.flux(), clock), 1)
    with on_dropped(element=lambda *_: None):
        if not recorder.terminated:
            source.emit("a")

    assert isinstance(recorder.check().error, SchedulerClosed)


# -------------------------------------------------------------------- arguments
def test_a_period_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Flux.just(1).sample(0)


def test_a_scheduler_belongs_to_a_clock() -> None:
    with pytest.raises(TypeError, match="scheduler"):
        Flux.just(1).sample(Flux.just(1), VirtualTimeScheduler())


@pytest.mark.parametrize("name", ["debounce", "throttle_first", "throttle_last"])
def test_a_duration_is_a_number(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) needs seconds"):
        getattr(Flux.just(1), name)("soon")


# -------------------------------------------------------------------- threads
@pytest.mark.parametrize(
    ("operator", "sends_the_last"),
    [
        pytest.param(lambda flux: flux.sample(0.0005), True, id="sample"),
        pytest.param(lambda flux: flux.debounce(0), True, id="debounce"),
        pytest.param(lambda flux: flux.throttle_first(0.0002), False, id="throttle_first"),
        pytest.param(lambda flux: flux.throttle_last(0.0002), True, id="throttle_last"),
    ],
)
def test_source_clock_and_subscriber_race(
    operator: Callable[[Flux[Any]], Flux[Any]], sends_the_last: bool
) -> None:
    """Serial signals, within demand, in order, and the last element is not lost."""
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    operator(Flux.range(20_000).subscribe_on(schedulers.shared_pool())).subscribe(recorder)
    recorder.wait()

    assert recorder.items == sorted(set(recorder.items))
    assert recorder.completed
    assert recorder.items[-1] == 19_999 or not sends_the_last
