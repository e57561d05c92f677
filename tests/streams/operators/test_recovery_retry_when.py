"""``retry_when``: pauses that grow, on virtual time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Retry, RetryExhausted
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Failing:
    """A source that writes down when it was subscribed to, and fails each time."""

    def __init__(self, clock: VirtualTimeScheduler, *elements: Any) -> None:
        self._clock = clock
        self._elements = elements
        self.times: list[float] = []

    def flux(self) -> Flux[Any]:
        return Flux.defer(self._attempt)

    def _attempt(self) -> Flux[Any]:
        self.times.append(self._clock.now())
        return Flux.just(*self._elements).concat_with(Flux.error(ConnectionError(len(self.times))))


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return VirtualTimeScheduler()


def test_the_pauses_double_up_to_the_longest(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock)
    policy = Retry.backoff(5, first=1, longest=5, jitter=0, scheduler=clock)
    recorder = Recorder.of(source.flux().retry_when(policy), first=1)

    clock.advance_by(100)

    assert source.times == [0, 1, 3, 7, 12, 17]
    assert isinstance(recorder.error, RetryExhausted)
    assert "5 more attempts" in str(recorder.error)
    assert isinstance(recorder.error.__cause__, ConnectionError)
    assert str(recorder.error.__cause__) == "6"


def test_fixed_pauses_stay_the_same(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock)
    Recorder.of(source.flux().retry_when(Retry.fixed(3, pause=2, scheduler=clock)), first=1)

    clock.advance_by(100)

    assert source.times == [0, 2, 4, 6]


def test_jitter_moves_a_pause_by_no_more_than_its_part() -> None:
    policy = Retry.backoff(1000, first=8, longest=8, jitter=0.25)
    pauses = [policy.pause(n, ValueError()) for n in range(1, 500)]

    assert all(6 <= pause <= 10 for pause in pauses)
    assert max(pauses) - min(pauses) > 2


@pytest.mark.parametrize(("randomness", "pause"), [(0.0, 5.0), (0.5, 10.0), (1.0, 15.0)])
def test_jitter_goes_both_ways(randomness: float, pause: float) -> None:
    policy = Retry(3, first=10, jitter=0.5, randomness=lambda: randomness)

    assert policy.pause(1, ValueError()) == pause


def test_errors_of_other_types_are_final(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock)
    policy = Retry.backoff(5, first=1, only=(TimeoutError,), scheduler=clock)

    recorder = Recorder.of(source.flux().retry_when(policy), first=1)

    assert (source.times, str(recorder.error)) == ([0], "1")
    assert clock.pending == 0


def test_without_transient_errors_an_element_does_not_reset_the_count(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock, "x")
    policy = Retry.backoff(2, first=1, jitter=0, scheduler=clock)
    recorder = Recorder.of(source.flux().retry_when(policy), first=9)

    clock.advance_by(100)

    assert source.times == [0, 1, 3]
    assert isinstance(recorder.error, RetryExhausted)


def test_with_transient_errors_an_element_resets_the_count(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock, "x")
    policy = Retry.backoff(2, first=1, jitter=0, transient=True, scheduler=clock)
    recorder = Recorder.of(source.flux().retry_when(policy), first=9)

    clock.advance_by(6)

    assert source.times == [0, 1, 2, 3, 4, 5, 6]
    assert not recorder.terminated


def test_a_cancel_during_the_pause_cancels_the_timer(clock: VirtualTimeScheduler) -> None:
    source = Failing(clock)
    recorder = Recorder.of(source.flux().retry_when(Retry.fixed(3, pause=5, scheduler=clock)), first=1)
    assert clock.pending == 1

    recorder.cancel()

    assert clock.pending == 0
    clock.advance_by(100)
    assert (source.times, recorder.terminated) == ([0], False)


def test_a_cancel_after_the_pause_reaches_the_new_attempt(clock: VirtualTimeScheduler) -> None:
    sources = [Driven(), Driven()]
    remaining = iter(sources)
    stream = Flux.defer(lambda: next(remaining)).retry_when(Retry.fixed(3, pause=5, scheduler=clock))
    recorder = Recorder.of(stream, first=2)
    sources[0].emit("a").fail(ValueError())
    clock.advance_by(5)
    assert sources[1].requests == [1]

    recorder.cancel()

    assert (sources[0].cancels, sources[1].cancels) == (0, 1)


def test_demand_during_the_pause_reaches_the_new_attempt(clock: VirtualTimeScheduler) -> None:
    sources = [Driven(), Driven()]
    remaining = iter(sources)
    stream = Flux.defer(lambda: next(remaining)).retry_when(Retry.fixed(3, pause=5, scheduler=clock))
    recorder = Recorder.of(stream, first=1)
    sources[0].fail(ValueError())

    recorder.request(4)
    clock.advance_by(5)

    assert sum(sources[1].requests) == 5


def test_a_scheduler_that_is_closed_fails_the_stream_instead_of_leaving_it_hanging(
    clock: VirtualTimeScheduler,
) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().retry_when(Retry.fixed(3, pause=5, scheduler=clock)), first=1)
    clock.close()

    source.fail(ValueError("x"))

    assert isinstance(recorder.error, SchedulerClosed)


def test_a_mono_is_retried_until_it_has_its_element(clock: VirtualTimeScheduler) -> None:
    answers = iter([ConnectionError(), ConnectionError(), "at last"])

    def load() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    policy = Retry.backoff(5, first=1, scheduler=clock)
    recorder = Recorder.of(Mono.from_callable(load).retry_when(policy), first=1)
    clock.advance_by(60)

    assert (recorder.check().items, recorder.completed) == (["at last"], True)


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"attempts": 1, "first": -1.0}, {"attempts": 1, "first": 9.0, "longest": 1.0}]
    + [{"attempts": 1, "jitter": jitter} for jitter in (-0.1, 1.1)],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"attempts|first|jitter"):
        Retry(**wrong)


def test_a_very_late_attempt_does_not_overflow() -> None:
    assert Retry.backoff(10_000, first=1, jitter=0).pause(9_999, ValueError()) == 60.0
    assert Retry(1).randomness is random.random
