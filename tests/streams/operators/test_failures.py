"""``materialize``, ``repeat_when``, ``circuit_breaker``, and policies of ``retry_when``."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import (
    CircuitBreaker,
    CircuitOpen,
    CircuitState,
    Flux,
    Mono,
    Retry,
    RetryBudget,
    RetryExhausted,
    Signal,
    schedulers,
)
from tests.streams.operators.rigs import Elsewhere, Oops, asked_of_the_source, failure, oops, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

# ---------------------------------------------------------------- materialize


def test_elements_and_the_end_become_elements() -> None:
    error = ValueError("x")
    assert result(Flux.just(1, 2).materialize()) == [
        Signal("next", 1),
        Signal("next", 2),
        Signal("complete"),
    ]
    assert result(Flux.error(error).materialize()) == [Signal("error", error=error)]


def test_the_signal_of_the_end_waits_for_demand() -> None:
    recorder = Recorder.of(Flux.just(1).materialize(), first=1)
    assert recorder.items == [Signal("next", 1)]
    assert not recorder.terminated

    recorder.request(1)

    assert recorder.check().items[1:] == [Signal("complete")]
    assert recorder.completed


def test_materialize_asks_for_what_it_is_asked_for() -> None:
    assert asked_of_the_source(lambda f: f.materialize(), 1, 2, 3) == [1, 3, 6]
    assert asked_of_the_source(lambda f: f.materialize().dematerialize(), 1, 2, 3) == [1, 3, 6]


def test_a_mono_has_one_signal() -> None:
    error = ValueError("x")
    assert result(Mono.just(1).materialize()) == [Signal("next", 1)]
    assert result(Mono.empty().materialize()) == [Signal("complete")]
    assert result(Mono.error(error).materialize()) == [Signal("error", error=error)]


def test_dematerialize_is_the_opposite() -> None:
    error = ValueError("x")
    assert result(Flux.just(1, 2).materialize().dematerialize()) == [1, 2]
    assert failure(Flux.error(error).materialize().dematerialize()) is error
    assert Mono.just(1).materialize().dematerialize().block() == 1
    assert Mono.empty().materialize().dematerialize().block() is None


def test_what_follows_a_signal_of_the_end_is_not_sent() -> None:
    source = Elsewhere(Signal("next", 1), Signal("complete"), Signal("next", 2))

    assert result(Flux.from_publisher(source).dematerialize()) == [1]
    assert source.cancelled


def test_dematerialize_names_what_is_not_a_signal() -> None:
    assert "materialize() makes" in str(failure(Flux.just(1).dematerialize()))  # type: ignore[misc]


def test_the_same_error_may_be_replayed_often() -> None:
    kept = Flux.error(ValueError("x")).materialize().cache()
    for _ in range(3):
        assert str(failure(kept.dematerialize())) == "x"


# ---------------------------------------------------------------- repeat_when


def test_each_element_of_the_companion_is_another_run() -> None:
    assert result(Flux.just(1, 2).repeat_when(lambda ends: ends.take(2))) == [1, 2, 1, 2, 1, 2]
    assert result(Mono.just(1).repeat_when(lambda ends: ends.take(1))) == [1, 1]


def test_the_companion_learns_how_many_elements_each_run_had() -> None:
    lengths = iter([3, 0, 2])
    counts: list[int] = []
    flux = Flux.defer(lambda: Flux.range(next(lengths)))
    result(flux.repeat_when(lambda ends: ends.do_on_next(counts.append).take(2)))

    assert counts == [3, 0]


def test_a_companion_that_is_empty_lets_the_first_run_end() -> None:
    assert result(Flux.just(1, 2).repeat_when(lambda ends: Flux.empty())) == [1, 2]


def test_the_companion_may_take_its_time() -> None:
    source, companion = Driven(), Driven()
    recorder = Recorder.of(source.flux().repeat_when(lambda ends: companion), first=9)
    source.emit(1).complete()
    assert source.subscriptions == 1
    assert companion.requests == [1]

    companion.emit("again")
    assert source.subscriptions == 2
    source.emit(2).complete()
    companion.complete()

    assert recorder.check().items == [1, 2]
    assert recorder.completed


def test_an_error_of_the_companion_is_final() -> None:
    source, companion = Driven(), Driven()
    recorder = Recorder.of(source.flux().repeat_when(lambda ends: companion), first=9)
    source.complete()
    companion.fail(ValueError("x"))

    assert isinstance(recorder.wait().error, ValueError)


def test_an_error_of_the_source_cancels_the_companion() -> None:
    source, companion = Driven(), Driven()
    recorder = Recorder.of(source.flux().repeat_when(lambda ends: companion), first=9)
    source.fail(ValueError("x"))

    assert isinstance(recorder.wait().error, ValueError)
    assert companion.cancelled


@pytest.mark.parametrize("between", [False, True])
def test_a_cancel_reaches_the_source_and_the_companion(between: bool) -> None:
    source, companion = Driven(), Driven()
    recorder = Recorder.of(source.flux().repeat_when(lambda ends: companion), first=9)
    if between:
        source.complete()
    recorder.cancel()
    companion.emit("too late")

    assert companion.cancelled
    assert source.cancelled is not between
    assert source.subscriptions == 1


def test_the_demand_that_is_left_goes_to_the_next_run() -> None:
    source = [Elsewhere(1, 2), Elsewhere(3, 4, 5)]
    runs = iter(source)
    flux = Flux.defer(lambda: Flux.from_publisher(next(runs)))
    recorder = Recorder.of(flux.repeat_when(lambda ends: ends.take(1)), first=3)

    assert recorder.check().items == [1, 2, 3]
    assert [each.asked for each in source] == [3, 1]


def test_a_function_that_raises_ends_it() -> None:
    error = failure(Flux.just(1).repeat_when(oops))
    assert isinstance(error, Oops)
    assert "repeat_when(oops)" in error.__notes__[0]


def test_many_repetitions_need_no_deep_stack() -> None:
    flux = Flux.just(1).repeat_when(lambda ends: ends)
    assert flux.take(20_000).count().block() == 20_000


def test_pauses_in_virtual_time() -> None:
    clock = schedulers.virtual_time()
    flux = Flux.just("poll").repeat_when(lambda ends: ends.delay_elements(10, clock))
    recorder = Recorder.of(flux, first=UNBOUNDED)
    clock.advance_by(35)
    recorder.cancel()

    assert recorder.check().items == ["poll"] * 4
    assert clock.pending == 0


# ---------------------------------------------------------------- circuit_breaker


def trial(stream: Any) -> str:
    signal = stream.materialize().block(60)
    assert signal is not None
    return type(signal.error).__name__ if signal.error is not None else signal.kind


def test_it_opens_after_so_many_failures_in_a_row_and_asks_the_source_no_more() -> None:
    calls: list[int] = []
    breaker = CircuitBreaker(3)

    def fail() -> int:
        calls.append(1)
        raise ConnectionError("refused")

    stream = Mono.from_callable(fail).circuit_breaker(breaker)

    assert [trial(stream) for _ in range(5)] == ["ConnectionError"] * 3 + ["CircuitOpen"] * 2
    assert len(calls) == 3
    assert breaker.state is CircuitState.OPEN


def test_a_success_between_resets_the_count() -> None:
    breaker = CircuitBreaker(2)
    bad = Mono.error(ValueError()).circuit_breaker(breaker)
    good = Mono.just(1).circuit_breaker(breaker)

    assert [trial(each) for each in (bad, good, bad)] == ["ValueError", "next", "ValueError"]
    assert breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("recovers", [True, False])
def test_after_the_pause_one_trial_decides(recovers: bool) -> None:
    clock = schedulers.virtual_time()
    breaker = CircuitBreaker(1, pause=30, scheduler=clock)
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    clock.advance_by(29)
    assert breaker.state is CircuitState.OPEN
    clock.advance_by(1)
    assert breaker.state is CircuitState.HALF_OPEN

    source = Driven()
    recorder = Recorder.of(source.mono().circuit_breaker(breaker), first=1)
    assert trial(Mono.just(1).circuit_breaker(breaker)) == "CircuitOpen", "one trial at a time"
    if recovers:
        source.emit(1).complete()
    else:
        source.fail(ValueError())
    assert recorder.terminated

    assert breaker.state is (CircuitState.CLOSED if recovers else CircuitState.OPEN)


def test_the_first_element_of_an_endless_trial_closes_it() -> None:
    clock = schedulers.virtual_time()
    breaker = CircuitBreaker(1, pause=1, scheduler=clock)
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    clock.advance_by(1)
    source = Driven()
    Recorder.of(source.flux().circuit_breaker(breaker), first=9)
    source.emit(1)

    assert breaker.state is CircuitState.CLOSED


def test_a_trial_that_is_cancelled_lets_another_try() -> None:
    clock = schedulers.virtual_time()
    breaker = CircuitBreaker(1, pause=1, scheduler=clock)
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    clock.advance_by(1)
    Recorder.of(Flux.never().circuit_breaker(breaker)).cancel()

    assert trial(Mono.just(1).circuit_breaker(breaker)) == "next"
    assert breaker.state is CircuitState.CLOSED


def test_a_failure_that_began_before_it_opened_says_nothing_about_the_trial() -> None:
    clock = schedulers.virtual_time()
    breaker = CircuitBreaker(1, pause=1, scheduler=clock)
    old, trying = Driven(), Driven()
    Recorder.of(old.flux().circuit_breaker(breaker))
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    clock.advance_by(1)
    Recorder.of(trying.flux().circuit_breaker(breaker))
    old.fail(ValueError())
    assert breaker.state is CircuitState.HALF_OPEN

    trying.complete()

    assert breaker.state is CircuitState.CLOSED


def test_only_errors_of_the_given_types_are_failures() -> None:
    breaker = CircuitBreaker(1, on=ConnectionError)
    assert trial(Mono.error(ValueError()).circuit_breaker(breaker)) == "ValueError"
    assert breaker.state is CircuitState.CLOSED


def test_the_refusal_says_what_to_do() -> None:
    breaker = CircuitBreaker(1)
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    error = failure(Flux.just(1).circuit_breaker(breaker))

    assert isinstance(error, CircuitOpen)
    assert "on_error_resume()" in str(error)


def test_a_breaker_is_needed() -> None:
    with pytest.raises(TypeError, match="CircuitBreaker"):
        Flux.just(1).circuit_breaker(5)  # type: ignore[arg-type]


def test_many_threads_find_one_trial() -> None:
    clock = schedulers.virtual_time()
    breaker = CircuitBreaker(1, pause=1, scheduler=clock)
    trial(Mono.error(ValueError()).circuit_breaker(breaker))
    clock.advance_by(1)
    refusals = threading.Semaphore(0)
    source = Flux.never().circuit_breaker(breaker).do_on_error(lambda _: refusals.release())
    recorders = [Recorder.of(source.subscribe_on(schedulers.shared_pool()), first=1) for _ in range(16)]

    assert all(refusals.acquire(timeout=20) for _ in range(15))
    assert breaker.state is CircuitState.HALF_OPEN
    for recorder in recorders:
        recorder.cancel()
    assert not refusals.acquire(blocking=False)


# ---------------------------------------------------------------- policies


def failing(error: BaseException, attempts: list[int]) -> Flux[Any]:
    return Flux.defer(lambda: attempts.append(1) or Flux.error(error))


def test_a_filter_decides_which_errors_are_worth_another_attempt() -> None:
    attempts: list[int] = []
    policy = Retry(5, when=lambda error: "busy" in str(error))

    error = failure(failing(ValueError("wrong"), attempts).retry_when(policy))
    assert (str(error), len(attempts)) == ("wrong", 1)
    error = failure(failing(ValueError("busy"), attempts).retry_when(policy))
    assert isinstance(error, RetryExhausted)
    assert len(attempts) == 1 + 6


def test_a_filter_that_raises_ends_the_stream() -> None:
    assert isinstance(failure(Flux.error(ValueError()).retry_when(Retry(5, when=oops))), Oops)


def test_a_budget_bounds_the_attempts_of_all_streams_together() -> None:
    clock = schedulers.virtual_time()
    attempts: list[int] = []
    budget = RetryBudget(5, per=60)
    policy = Retry(3, budget=budget, scheduler=lambda: clock)
    streams = [failing(ValueError("down"), attempts).retry_when(policy) for _ in range(3)]

    errors = [failure(stream) for stream in streams]

    assert all(isinstance(error, RetryExhausted) for error in errors)
    assert len(attempts) == 3 + 5
    assert "gave up after 3" in str(errors[0])
    assert "RetryBudget(5, per=60.0) is spent" in str(errors[1])
    assert isinstance(errors[1].__cause__, ValueError)


def test_a_budget_recovers_with_time() -> None:
    budget = RetryBudget(2, per=10)
    assert [budget.spend(now) for now in (0, 1, 2, 10, 10.5, 11)] == [True, True, False, True, False, True]


def test_a_budget_is_checked_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="RetryBudget"):
        Retry(1, budget=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 0 seconds"):
        RetryBudget(1, per=0)
