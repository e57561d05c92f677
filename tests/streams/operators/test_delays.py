"""``rate_limit`` and ``delay_sequence``, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, on_dropped, schedulers
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.rigs import Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

Operator = Callable[[Flux[Any], VirtualTimeScheduler], Flux[Any]]

OPERATORS: dict[str, Operator] = {
    "delay_sequence": lambda flux, clock: flux.delay_sequence(2, prefetch=4, scheduler=clock),
    "rate_limit": lambda flux, clock: flux.rate_limit(1, per=2, burst=4, scheduler=clock),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


class Timed(Recorder):
    """Notes the time of each element and of the end."""

    def __init__(self, clock: VirtualTimeScheduler, first: int = UNBOUNDED) -> None:
        super().__init__(first, on_element=lambda *_: self._note())
        self._clock = clock
        self.times: list[float] = []
        self.ended: float | None = None

    def _note(self) -> None:
        self.times.append(round(self._clock.now(), 4))

    def on_complete(self) -> None:
        self.ended = round(self._clock.now(), 4)
        super().on_complete()

    def on_error(self, error: BaseException, /) -> None:
        self.ended = round(self._clock.now(), 4)
        super().on_error(error)


class Rig:
    def __init__(self, operator: Operator, first: int = UNBOUNDED) -> None:
        self.clock = VirtualTimeScheduler()
        self.source = Driven()
        self.recorder = Timed(self.clock, first)
        operator(self.source.flux(), self.clock).subscribe(self.recorder)


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return VirtualTimeScheduler()


def limited(clock: VirtualTimeScheduler, stream: Flux[Any], *limits: Any, **more: Any) -> Timed:
    recorder = Timed(clock)
    stream.rate_limit(*limits, scheduler=clock, **more).subscribe(recorder)
    return recorder


# -------------------------------------------------------------------- rate_limit
def test_rate_limit_spreads_elements_evenly(clock: VirtualTimeScheduler) -> None:
    recorder = limited(clock, Flux.range(5), 2)
    clock.advance_by(10)

    assert recorder.check().times == [0, 0.5, 1, 1.5, 2]
    assert recorder.ended == 2


def test_rate_limit_lets_a_burst_through_after_a_rest(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = limited(clock, source.flux(), 1, timedelta(seconds=2), 3)
    source.emit(1, 2, 3)
    clock.advance_by(2)
    source.emit(4)
    assert recorder.times == [0, 0, 0, 2]
    clock.advance_by(100)  # however long the rest
    source.emit(5, 6)
    source.emit(7)
    assert len(recorder.items) == 7
    clock.advance_by(2)

    assert recorder.check().times[4:] == [102, 102, 102]


@pytest.mark.parametrize("rate", [3, 7, 1000, 33_333, 0.3])
def test_the_rate_holds_in_the_long_run(clock: VirtualTimeScheduler, rate: float) -> None:
    recorder = limited(clock, Flux.range(10**9), rate)
    clock.advance_by(100 / rate * 5)
    burst = max(1, int(rate / 100))

    assert 500 <= len(recorder.check().items) <= 501 + burst
    recorder.cancel()


def test_rate_limit_by_bytes(clock: VirtualTimeScheduler) -> None:
    chunks = [b"x" * 100, b"x" * 50, b"x" * 25, b"x" * 25, b"x"]
    recorder = limited(clock, Flux.from_iterable(chunks), 100, burst=100, weight=len)
    clock.advance_by(10)

    assert recorder.check().times == [0, 0.5, 0.75, 1, 1.01]


def test_an_element_heavier_than_the_burst_passes_and_is_paid_for(clock: VirtualTimeScheduler) -> None:
    recorder = limited(clock, Flux.just(b"x" * 1_000_000, b"y"), 100_000, burst=10, weight=len)
    clock.advance_by(20)

    assert recorder.check().times == pytest.approx([0, 10], abs=0.001)


def test_with_a_weight_one_element_waits(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = limited(clock, source.flux(), 100, burst=100, weight=len)
    assert source.requests == [1]
    source.emit(b"x" * 100)
    source.emit(b"x" * 100)
    assert source.requests == [1, 1]  # the second waits, so the third is not asked for
    clock.advance_by(1)

    assert source.requests == [1, 1, 1]
    recorder.check()


def test_the_source_is_never_asked_for_more_than_a_burst(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = limited(clock, source.flux(), 1, burst=8)
    assert source.requests == [8]
    source.emit(*range(8))
    assert source.requests == [8, 6]  # when three quarters were taken
    source.emit(*range(6))
    clock.advance_by(3)
    assert len(recorder.items) == 11
    assert source.requests == [8, 6]  # three of them still wait
    clock.advance_by(1)

    assert len(recorder.check().items) == 12
    assert source.requests == [8, 6, 6]


def test_take_below_a_rate_limit_caps_the_demand(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    source.flux().rate_limit(1, burst=100, scheduler=clock).take(3).subscribe(Recorder(UNBOUNDED))

    assert source.requests == [3]


@pytest.mark.parametrize("weight", [-1, float("nan"), "heavy", None])
def test_a_weight_that_is_not_a_number_fails_the_stream(clock: VirtualTimeScheduler, weight: Any) -> None:
    recorder = limited(clock, Flux.just(1), 1, weight=lambda _: weight)

    assert "the weight of rate_limit()" in str(recorder.check().error)


def test_a_weight_that_raises_fails_the_stream(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = limited(clock, source.flux(), 1, weight=oops)
    source.emit(1)

    assert isinstance(recorder.check().error, Oops)
    assert source.cancels == 1


@pytest.mark.parametrize("limits", [(0,), (-1,), (1, 0), (1, 1, 0), (float("inf"),), (1, float("inf"))])
def test_limits_are_positive(limits: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="rate_limit"):
        Flux.just(1).rate_limit(*limits)


def test_rate_limit_on_a_real_clock() -> None:
    recorder = Recorder(UNBOUNDED)
    Flux.range(500).rate_limit(50_000).subscribe(recorder)

    assert recorder.wait().items == list(range(500))


# -------------------------------------------------------------------- delay_sequence
def test_delay_sequence_shifts_elements_and_the_end() -> None:
    rig = Rig(OPERATORS["delay_sequence"])
    rig.source.emit("a")
    rig.clock.advance_by(0.5)
    rig.source.emit("b")
    rig.clock.advance_by(1)
    rig.source.complete()
    rig.clock.advance_by(10)

    assert rig.recorder.check().times == [2, 2.5]
    assert rig.recorder.ended == 3.5
    assert rig.clock.pending == 0


def test_delay_sequence_shifts_an_error() -> None:
    rig = Rig(OPERATORS["delay_sequence"])
    rig.source.emit("a").fail(Oops())
    assert not rig.recorder.terminated
    rig.clock.advance_by(2)

    assert (rig.recorder.check().items, type(rig.recorder.error)) == (["a"], Oops)
    assert rig.recorder.ended == 2


def test_delay_sequence_of_nothing_completes_without_demand() -> None:
    rig = Rig(OPERATORS["delay_sequence"], first=0)
    rig.source.complete()
    assert not rig.recorder.terminated
    rig.clock.advance_by(2)

    assert rig.recorder.check().completed


def test_delay_sequence_holds_a_bounded_number(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Timed(clock)
    source.flux().delay_sequence(2, prefetch=4, scheduler=clock).subscribe(recorder)
    assert source.requests == [4]
    source.emit(1, 2, 3, 4)
    assert source.requests == [4]
    clock.advance_by(2)

    assert source.requests == [4, 4]
    assert len(recorder.check().items) == 4


def test_an_element_whose_time_has_come_waits_for_demand() -> None:
    rig = Rig(OPERATORS["delay_sequence"], first=1)
    rig.source.emit("a")
    rig.clock.advance_by(2)
    rig.recorder.request(1)
    rig.clock.advance_by(5)
    rig.source.emit("b")
    rig.clock.advance_by(2)

    assert rig.recorder.check().times == [2, 9]


def test_an_endless_source_is_slowed_down(clock: VirtualTimeScheduler) -> None:
    taken: list[int] = []
    stream = Flux.range(10**9).do_on_next(taken.append).delay_sequence(1, prefetch=10, scheduler=clock)
    recorder = Recorder.of(stream, UNBOUNDED)
    clock.advance_by(5.5)

    assert len(recorder.check().items) == 50
    assert len(taken) == 60
    recorder.cancel()


# -------------------------------------------------------------------- both
@every_operator
def test_demand_is_exact(name: str) -> None:
    rig = Rig(OPERATORS[name], first=0)
    assert rig.source.requests == []
    rig.recorder.request(2)
    assert rig.source.requests == [2]
    rig.source.emit(1, 2)
    rig.clock.advance_by(10)
    assert len(rig.recorder.check().items) == 2
    rig.recorder.request(1)

    assert rig.source.requests == [2, 1]


@every_operator
def test_a_cancel_stops_the_source_and_the_clock(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.source.emit(1, 2, 3, 4)
    rig.recorder.cancel()
    rig.clock.advance_by(100)

    assert rig.source.cancels == 1
    assert rig.clock.pending == 0
    assert not rig.recorder.check().terminated


@every_operator
def test_a_cancel_inside_on_next_stops_it(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.recorder.on_element = lambda recorder, _: recorder.cancel()
    rig.source.emit(1)
    rig.clock.advance_by(2)
    rig.source.emit(2)
    rig.clock.advance_by(100)

    assert rig.recorder.check().items == [1]


@every_operator
def test_a_scheduler_that_closes_fails_the_stream_and_reports_what_waits(name: str) -> None:
    dropped: list[Any] = []
    rig = Rig(OPERATORS[name])
    rig.source.emit(1, 2, 3, 4)
    if name == "rate_limit":
        rig.source.emit(5)
    waiting = [1, 2, 3, 4] if name == "delay_sequence" else [5]
    with on_dropped(element=lambda element, where: dropped.append(element)):
        rig.clock.close()

    assert isinstance(rig.recorder.check().error, SchedulerClosed)
    assert dropped == waiting
    assert rig.source.cancels == 1


@every_operator
def test_a_closed_scheduler_fails_the_stream(name: str, clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(OPERATORS[name](source.flux(), clock), UNBOUNDED)
    clock.close()
    with on_dropped(element=lambda *_: None):
        source.emit(1, 2, 3, 4)
        if name == "rate_limit":
            source.emit(5)

    assert isinstance(recorder.check().error, SchedulerClosed)
    assert source.cancels == 1


@every_operator
def test_an_error_comes_after_the_elements(name: str) -> None:
    rig = Rig(OPERATORS[name])
    rig.source.emit(1, 2, 3, 4)
    if name == "rate_limit":
        rig.source.emit(5)
    rig.source.fail(Oops())
    rig.clock.advance_by(100)

    assert rig.recorder.check().items == [1, 2, 3, 4, 5][: 5 if name == "rate_limit" else 4]
    assert isinstance(rig.recorder.error, Oops)


@pytest.mark.parametrize(
    "operator",
    [lambda flux: flux.delay_sequence(0.002, prefetch=64), lambda flux: flux.rate_limit(200_000)],
    ids=list(OPERATORS),
)
def test_source_clock_and_subscriber_race(operator: Callable[[Flux[Any]], Flux[Any]]) -> None:
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(3))
    operator(Flux.range(1_000).subscribe_on(schedulers.shared_pool())).subscribe(recorder)

    assert recorder.wait().items == list(range(1_000))
