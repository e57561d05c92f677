"""Going on after an error, after the end, or when nothing came."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

BOTH = pytest.mark.parametrize("kind", [Flux, Mono])


class OtherError(Exception):
    """Not a ValueError."""


# -------------------------------------------------------------------- resume, return, complete
def test_after_an_error_the_second_stream_gets_the_demand_that_is_left() -> None:
    first, second = Driven(), Driven()
    recorder = Recorder.of(first.flux().on_error_resume(lambda error: second), first=3)

    first.emit(1).fail(ValueError())
    second.emit(2, 3).complete()

    assert (first.requests, second.requests) == ([3], [2])
    assert (recorder.check().items, recorder.completed) == ([1, 2, 3], True)


def test_the_function_gets_the_error() -> None:
    error, seen = ValueError("x"), []

    def resume(error: BaseException) -> Flux[int]:
        seen.append(error)
        return Flux.empty()

    assert Recorder.of(Flux.error(error).on_error_resume(resume), first=1).completed
    assert seen == [error]


def test_without_an_error_nothing_is_resumed() -> None:
    assert Flux.just(1).on_error_resume(lambda error: Flux.just(2)).collect_list().block() == [1]


def test_an_error_of_the_second_stream_is_final() -> None:
    second = OtherError()

    recorder = Recorder.of(
        Flux.error(ValueError()).on_error_resume(lambda error: Flux.error(second)), first=1
    )

    assert recorder.error is second


def test_a_function_that_raises_has_the_first_error_as_its_context() -> None:
    first = ValueError("first")

    def resume(error: BaseException) -> Flux[int]:
        raise OtherError("second")

    recorder = Recorder.of(Flux.error(first).on_error_resume(resume), first=1)

    assert isinstance(recorder.error, OtherError)
    assert recorder.error.__context__ is first


def test_a_cancel_reaches_the_second_stream() -> None:
    second = Driven()
    recorder = Recorder.of(Flux.error(ValueError()).on_error_resume(lambda error: second), first=1)

    recorder.cancel()

    assert second.cancels == 1


def test_a_failed_source_is_not_cancelled() -> None:
    source = Driven()
    Recorder.of(source.flux().on_error_return(0), first=1)

    source.fail(ValueError())

    assert source.cancels == 0


RECOVERIES = {
    "resume": lambda stream, **on: stream.on_error_resume(lambda error: Mono.just("-"), **on),
    "return": lambda stream, **on: stream.on_error_return("-", **on),
    "complete": lambda stream, **on: stream.on_error_complete(**on),
    "map": lambda stream, **on: stream.on_error_map(lambda error: OtherError("mapped"), **on),
}
EACH = pytest.mark.parametrize("recover", RECOVERIES.values(), ids=RECOVERIES)


@BOTH
@EACH
def test_only_errors_of_the_given_types_are_caught(recover: Any, kind: Any) -> None:
    error = ValueError("x")

    recorder = Recorder.of(recover(kind.error(error), on=(KeyError, OSError)), first=1)

    assert (recorder.items, recorder.error) == ([], error)


@BOTH
@EACH
def test_a_keyboard_interrupt_is_not_caught_by_default(recover: Any, kind: Any) -> None:
    error = KeyboardInterrupt()

    assert Recorder.of(recover(kind.error(error)), first=1).error is error


@BOTH
def test_on_error_return_sends_a_value_when_there_is_demand(kind: Any) -> None:
    recorder = Recorder.of(kind.error(ValueError()).on_error_return("-"))
    assert (recorder.items, recorder.terminated) == ([], False)

    recorder.request(1)

    assert (recorder.items, recorder.completed) == (["-"], True)


@BOTH
def test_on_error_complete_just_ends(kind: Any) -> None:
    recorder = Recorder.of(kind.error(ValueError()).on_error_complete())

    assert (recorder.items, recorder.completed) == ([], True)


@BOTH
def test_on_error_map_replaces_the_error_and_keeps_the_first_as_its_cause(kind: Any) -> None:
    first = ValueError("first")

    recorder = Recorder.of(kind.error(first).on_error_map(lambda error: OtherError("second")), first=1)

    assert isinstance(recorder.error, OtherError)
    assert recorder.error.__cause__ is first


def test_on_error_map_must_return_an_exception() -> None:
    recorder = Recorder.of(Flux.error(ValueError()).on_error_map(lambda error: "text"), first=1)  # type: ignore[arg-type,return-value]

    assert isinstance(recorder.error, TypeError)
    assert "on_error_map" in str(recorder.error)


def test_elements_before_the_error_are_not_lost_when_demand_comes_late() -> None:
    flux = Flux.just(1, 2, 0).map(lambda x: 6 // x).on_error_return(-1)
    recorder = Recorder.of(flux)

    for _ in range(3):
        recorder.request(1)

    assert (recorder.check().items, recorder.completed) == ([6, 3, -1], True)


# -------------------------------------------------------------------- retry
@BOTH
def test_retry_subscribes_again_as_often_as_was_said(kind: Any) -> None:
    attempts: list[int] = []

    def source() -> Any:
        attempts.append(1)
        return kind.error(ValueError(len(attempts)))

    recorder = Recorder.of(kind.defer(source).retry(2), first=1)

    assert (len(attempts), str(recorder.error)) == (3, "3")


def test_what_was_sent_before_the_error_has_been_sent() -> None:
    attempts = iter([ValueError(), None])

    def source() -> Flux[Any]:
        error = next(attempts)
        return Flux.just(1, 2).concat_with(Flux.error(error) if error else Flux.just(3))

    assert Flux.defer(source).retry().collect_list().block() == [1, 2, 1, 2, 3]


def test_a_retry_asks_for_the_demand_that_is_left() -> None:
    sources = [Driven(), Driven()]
    remaining = iter(sources)
    recorder = Recorder.of(Flux.defer(lambda: next(remaining)).retry(), first=3)

    sources[0].emit(1).fail(ValueError())
    recorder.request(1)

    assert (sources[0].requests, sources[1].requests) == ([3], [2, 1])
    recorder.cancel()
    assert (sources[0].cancels, sources[1].cancels) == (0, 1)


def test_ten_thousand_retries_need_no_deep_stack() -> None:
    left = [10_000]

    def source() -> Mono[str]:
        left[0] -= 1
        return Mono.error(ValueError()) if left[0] else Mono.just("at last")

    assert Mono.defer(source).retry().block() == "at last"


def test_a_keyboard_interrupt_is_not_retried() -> None:
    error = KeyboardInterrupt()

    assert Recorder.of(Flux.error(error).retry(), first=1).error is error


# -------------------------------------------------------------------- repeat
def test_repeat_runs_the_source_again_after_its_end() -> None:
    assert Flux.just(1, 2).repeat(2).collect_list().block() == [1, 2] * 3
    assert Flux.just(1, 2).repeat(0).collect_list().block() == [1, 2]
    assert Flux.just(1, 2).repeat().take(5).collect_list().block() == [1, 2, 1, 2, 1]
    assert Mono.just(1).repeat(2).collect_list().block() == [1, 1, 1]


def test_repeat_runs_only_as_far_as_there_is_demand() -> None:
    runs: list[int] = []
    recorder = Recorder.of(Flux.defer(lambda: Flux.just(runs.append(1) or "x")).repeat(), first=3)

    assert recorder.check().items == ["x"] * 3
    assert len(runs) <= 4


def test_an_error_ends_the_repetition() -> None:
    sources = [Driven(), Driven()]
    remaining, error = iter(sources), ValueError("x")
    recorder = Recorder.of(Flux.defer(lambda: next(remaining)).repeat(), first=UNBOUNDED)

    sources[0].emit(1).complete()
    sources[1].fail(error)

    assert (recorder.items, recorder.error) == ([1], error)


# -------------------------------------------------------------------- empty
@BOTH
def test_an_empty_stream_is_replaced(kind: Any) -> None:
    alternative = Driven()
    recorder = Recorder.of(kind.empty().switch_if_empty(kind.from_publisher(alternative)), first=1)

    assert alternative.requests == [1]
    alternative.emit("a").complete()

    assert (recorder.check().items, recorder.completed) == (["a"], True)


@BOTH
def test_a_stream_with_an_element_is_not_replaced(kind: Any) -> None:
    alternative = Driven()

    recorder = Recorder.of(kind.just(1).switch_if_empty(kind.from_publisher(alternative)), first=2)

    assert (recorder.items, recorder.completed, alternative.subscriptions) == ([1], True, 0)


@BOTH
def test_a_stream_that_fails_is_not_replaced(kind: Any) -> None:
    error = ValueError()

    assert Recorder.of(kind.error(error).switch_if_empty(kind.just(1)), first=1).error is error


def test_an_empty_alternative_ends_it() -> None:
    assert Recorder.of(Flux.empty().switch_if_empty(Flux.empty())).completed
