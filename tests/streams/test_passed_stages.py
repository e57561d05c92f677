"""A stage that has nothing to do with an element lets it pass: counts, ends and errors stay exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation
from penstock.streams import Emitter, Flux, Retry, Sink, Sinks, on_dropped, scan
from penstock.streams.fusion.link import last_passed
from penstock.streams.schedulers import VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

Passed = Callable[[Flux[Any]], Flux[Any]]

PASSED: dict[str, Passed] = {
    "on_error_resume": lambda flux: flux.on_error_resume(lambda error: Flux.just(7, 8, 9)),
    "retry": lambda flux: flux.retry(1),
    "both": lambda flux: flux.retry(1).on_error_resume(lambda error: Flux.just(7, 8, 9)),
    "concat_map": lambda flux: Flux.just(1).concat_map(lambda _: flux),
    "switch_if_empty": lambda flux: flux.switch_if_empty(Flux.just(7)),
}


def failing_at(number: int) -> Flux[int]:
    """Numbers up to this one, at which a function fails."""

    def fail(x: int) -> int:
        if x == number:
            raise ValueError(x)
        return x

    return Flux.range(1000).map(fail)


@pytest.mark.parametrize("name", PASSED)
def test_elements_go_past_the_stage(name: str) -> None:
    recorder = Recorder.of(PASSED[name](Flux.range(5).map(abs)), first=2)

    upstream = scan_top(recorder)
    assert last_passed(upstream) is upstream.downstream  # of two such stages, only past the first
    assert recorder.items == [0, 1]


@pytest.mark.parametrize("first", [0, UNBOUNDED])
def test_three_stages_that_let_elements_pass_count_each_once(first: int) -> None:
    def emit(emitter: Emitter[int]) -> None:
        emitter.next(0)
        emitter.complete()

    flux = Flux.concat_delay_error(Flux.create(emit), Flux.just(5)).concat_with(Flux.just(6))
    recorder = Recorder.of(flux.concat_map(lambda x: Flux.just(x)), first=first)
    recorder.request(UNBOUNDED)
    assert recorder.check().completed
    assert recorder.items == [0, 5, 6]


def scan_top(recorder: Recorder) -> Any:
    """The subscription at the top of the stream."""
    stage: Any = recorder.subscription
    while stage.upstream is not None:
        stage = stage.upstream
    return stage


@pytest.mark.parametrize("step", [1, 2, 3, 5, UNBOUNDED])
def test_what_follows_gets_the_demand_that_is_left(step: int) -> None:
    recorder = Recorder.of(PASSED["both"](failing_at(4)))
    expected = [0, 1, 2, 3, 0, 1, 2, 3, 7, 8, 9]
    seen = 0
    while not recorder.terminated:
        recorder.request(step)
        seen = min(seen + step, len(expected))
        assert recorder.items == expected[:seen]
    assert recorder.check().completed
    assert recorder.items == expected


def test_requests_inside_on_next() -> None:
    recorder = Recorder(1, lambda r, x: r.request(1))
    PASSED["both"](failing_at(400)).subscribe(recorder)
    assert recorder.check().items == [*range(400), *range(400), 7, 8, 9]
    assert recorder.deepest == 1


def test_an_element_before_the_error_counts_as_one() -> None:
    attempts: list[int] = []

    def source() -> Iterator[int]:
        attempts.append(1)
        if len(attempts) < 4:
            yield len(attempts)
            raise ValueError
        raise KeyError

    flux = Flux.defer(lambda: Flux.from_iterable(source()).map(abs))
    recorder = Recorder.of(flux.retry_when(Retry(1, transient=True)), first=UNBOUNDED)
    assert recorder.check().items == [1, 2, 3]
    assert len(attempts) == 4  # the fourth has no element, so its error is the second in a row


@pytest.mark.parametrize("name", PASSED)
def test_a_bad_request_inside_on_next_is_answered_after_it(name: str) -> None:
    """§1.3, §3.9: and it is not an error of the source, so nothing follows."""
    recorder = Recorder(UNBOUNDED, lambda r, x: r.request(0) if x == 2 else None)
    PASSED[name](Flux.range(100).map(abs)).subscribe(recorder)
    assert recorder.check().items == [0, 1, 2]
    assert isinstance(recorder.error, RuleViolation)


@pytest.mark.parametrize("name", PASSED)
def test_a_bad_request_while_it_waits(name: str) -> None:
    recorder = Recorder.of(PASSED[name](Flux.range(100).map(abs)), first=2)
    recorder.request(-1).request(5)
    assert recorder.check().items == [0, 1]
    assert isinstance(recorder.error, RuleViolation)


@pytest.mark.parametrize("name", PASSED)
def test_a_cancel_inside_on_next_stops_at_once_and_closes_the_source(name: str) -> None:
    closed: list[int] = []

    def source() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(1)

    recorder = Recorder(UNBOUNDED, lambda r, x: r.cancel() if x == 2 else None)
    PASSED[name](Flux.defer(lambda: Flux.from_iterable(source()).map(abs))).subscribe(recorder)
    assert recorder.check().items == [0, 1, 2]
    assert not recorder.terminated
    assert closed == [1]


@pytest.mark.parametrize("name", PASSED)
def test_a_subscriber_that_raises_has_cancelled_all_stages(name: str) -> None:
    dropped: list[BaseException] = []

    def on_element(recorder: Recorder, x: int) -> None:
        if x == 2:
            raise LookupError("the subscriber is broken")

    recorder = Recorder(UNBOUNDED, on_element)
    with on_dropped(error=lambda error, where: dropped.append(error)):
        PASSED[name](Flux.range(100).map(abs)).subscribe(recorder)
    assert recorder.items == [0, 1, 2]
    assert not recorder.terminated
    assert [type(error) for error in dropped] == [LookupError]
    assert scan(recorder.subscription)[0].terminated


def test_a_stage_shows_what_went_past_it() -> None:
    recorder = Recorder.of(PASSED["retry"](Flux.range(9).map(abs)), first=3)
    assert [state.emitted for state in scan(recorder.subscription)] == [3, 3]


def test_a_foreign_publisher_is_not_passed_but_counted() -> None:
    driven: Driven = Driven()
    recorder = Recorder.of(PASSED["on_error_resume"](Flux.from_publisher(driven)), first=3)
    driven.emit(1)
    driven.fail(ValueError())
    assert recorder.check().items == [1, 7, 8]


def test_operators_below_are_not_passed() -> None:
    recorder = Recorder.of(PASSED["retry"](failing_at(2)).index().skip(1), first=UNBOUNDED)
    assert recorder.check().items == [(1, 1), (2, 0), (3, 1)]


def test_pushed_elements_pass_as_well() -> None:
    sink: Sink[int] = Sinks.unicast()
    recorder = Recorder.of(PASSED["on_error_resume"](sink.flux()), first=3)
    sink.try_emit(1)
    sink.try_emit(2)
    sink.try_error(ValueError())
    assert recorder.check().items == [1, 2, 7]


def test_elements_of_another_thread_pass_as_well() -> None:
    clock = VirtualTimeScheduler()
    flux = PASSED["both"](failing_at(3).publish_on(clock, prefetch=2))
    recorder = Recorder.of(flux, first=5)
    for _ in range(30):
        clock.run_pending()
    assert recorder.check().items == [0, 1, 2, 0, 1]
