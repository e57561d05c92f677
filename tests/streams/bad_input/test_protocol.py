"""Subscribers and sources that break the rules themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation
from penstock.streams import EmitResult, Flux, Mono, Retry, Sinks, on_dropped, schedulers
from penstock.streams.schedulers import SchedulerClosed
from tests.streams.recording import Recorder


@pytest.mark.parametrize("n", [0, -1, "x", None, 2.0])
def test_a_bad_request_is_answered_with_its_rule_and_closes_the_source(n: Any) -> None:
    closed: list[int] = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(1)

    recorder = Recorder.of(Flux.from_iterable(numbers()), 1)
    recorder.request(n)
    assert isinstance(recorder.error, RuleViolation)
    assert "§3.9" in str(recorder.error)
    assert "request" in str(recorder.error)
    assert closed == [1]


@pytest.mark.parametrize("nobody", [None, object(), 3, "text"])
def test_subscribe_to_nobody_raises_a_type_error_with_its_rule(nobody: Any) -> None:
    with pytest.raises(TypeError, match=r"§1\.9"):
        Flux.just(1).subscribe(nobody)


class Faulty(Recorder):
    def __init__(self, where: str) -> None:
        super().__init__(UNBOUNDED)
        self.where = where

    def on_subscribe(self, subscription: Any, /) -> None:
        super().on_subscribe(subscription)
        assert self.where != "on_subscribe", "fault"

    def on_next(self, element: Any, /) -> None:
        super().on_next(element)
        assert self.where != "on_next", "fault"

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        assert self.where != "on_error", "fault"

    def on_complete(self) -> None:
        super().on_complete()
        assert self.where != "on_complete", "fault"


@pytest.mark.parametrize("where", ["on_subscribe", "on_next", "on_error", "on_complete"])
def test_a_subscriber_that_raises_goes_to_the_hook_and_not_to_the_caller(where: str) -> None:
    seen: list[tuple[BaseException, str]] = []
    flux = Flux.range(3).map(lambda x: x)
    if where == "on_error":
        flux = flux.concat_with(Flux.error(ValueError()))
    with on_dropped(error=lambda error, place: seen.append((error, place))):
        flux.subscribe(Faulty(where))
    faults = [place for error, place in seen if isinstance(error, AssertionError)]
    assert len(faults) == 1
    assert "§2.13" in faults[0]


def test_a_source_that_raises_midway_sends_what_came_before_and_the_error_with_its_place() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    recorder = Recorder.of(Flux.from_iterable(numbers()).map(str), UNBOUNDED)
    assert recorder.items == ["1"]
    assert isinstance(recorder.error, OSError)
    assert "from_iterable" in recorder.error.__notes__[0]
    assert "test_protocol.py" in recorder.error.__notes__[0]


def test_a_source_that_raises_stop_iteration_in_a_mapper_fails_instead_of_ending() -> None:
    def stop(x: int) -> int:
        raise StopIteration

    recorder = Recorder.of(Flux.range(3).map(stop), UNBOUNDED)
    assert isinstance(recorder.error, RuntimeError)
    assert not recorder.completed


def test_a_source_that_raises_stop_iteration_when_it_is_opened_fails_instead_of_ending() -> None:
    empty: Iterator[str] = iter(())

    class SkipsItsHeading:
        def __iter__(self) -> Iterator[str]:
            next(empty)
            return empty

    for source in (Flux.from_iterable(SkipsItsHeading()), Flux.from_iterable(SkipsItsHeading()).map(str)):
        recorder = Recorder.of(source, UNBOUNDED)
        assert isinstance(recorder.error, RuntimeError)
        assert isinstance(recorder.error.__cause__, StopIteration)
        assert not recorder.completed


def test_an_iterable_whose_iter_raises_fails_the_stream() -> None:
    class Bad:
        def __iter__(self) -> Iterator[int]:
            raise OSError("cannot open")

    recorder = Recorder.of(Flux.from_iterable(Bad()), 1)
    assert isinstance(recorder.error, OSError)


class Misbehaving:
    """A foreign publisher that does what a list of steps says."""

    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    def subscribe(self, subscriber: Any, /) -> None:
        for step in self.steps:
            step(subscriber, self)

    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


MISBEHAVIOUR: dict[str, tuple[str, list[Any]]] = {
    "element before on_subscribe": ("1.9", [lambda s, p: s.on_next(1)]),
    "element without demand": ("1.1", [lambda s, p: s.on_subscribe(p), *[lambda s, p: s.on_next(1)] * 3]),
    "None": ("2.13", [lambda s, p: s.on_subscribe(p), lambda s, p: s.on_next(None)]),
}


@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_a_foreign_publisher_that_breaks_a_rule_fails_the_stream_with_that_rule(name: str) -> None:
    rule, steps = MISBEHAVIOUR[name]
    recorder = Recorder(1)
    try:
        Flux.from_publisher(Misbehaving(*steps)).map(lambda x: x).subscribe(recorder)
    except TypeError:
        assert name == "None"  # §2.13 also raises at its caller, the publisher
    assert isinstance(recorder.error, RuleViolation)
    assert recorder.error.rule == rule
    recorder.check()


def test_a_foreign_publisher_whose_subscribe_raises_fails_the_stream() -> None:
    class Broken:
        def subscribe(self, subscriber: Any, /) -> None:
            raise OSError("no route")

    for flux in (Flux.from_publisher(Broken()), Flux.from_publisher(Broken()).map(str)):
        recorder = Recorder.of(flux, 1).wait()
        assert recorder.error is not None


def test_a_second_subscriber_of_a_unicast_sink_hears_what_to_use_even_if_it_is_watched() -> None:
    sink = Sinks.unicast()
    Recorder.of(sink.flux())
    for flux in (sink.flux(), sink.flux().do_on_complete(lambda: None), sink.flux().map(str)):
        recorder = Recorder.of(flux, 1)
        assert isinstance(recorder.error, RuntimeError)
        assert "Sinks.multicast()" in str(recorder.error)


def test_a_sink_that_is_used_from_inside_its_own_subscriber_does_not_hang() -> None:
    sink = Sinks.one()
    results: list[EmitResult] = []
    sink.mono().subscribe(lambda value: results.append(sink.try_value(2)))
    assert sink.try_value(1) is EmitResult.OK
    assert results == [EmitResult.TERMINATED]


@pytest.mark.parametrize(
    "make",
    [
        lambda gone: Flux.range(3).publish_on(gone),
        lambda gone: Flux.range(3).subscribe_on(gone),
        lambda gone: Flux.range(3).timeout(1, scheduler=gone),
        lambda gone: Flux.error(OSError()).retry_when(Retry.fixed(2, pause=1, scheduler=gone)),
        lambda gone: Flux.interval(1, scheduler=gone),
        lambda gone: Mono.timer(1, scheduler=gone),
        lambda gone: Flux.just(1).delay_elements(1, scheduler=gone),
    ],
)
def test_a_closed_scheduler_fails_the_stream_and_subscribe_returns(make: Any) -> None:
    gone = schedulers.single()
    gone.close()
    recorder = Recorder.of(make(gone), 1).wait()
    assert isinstance(recorder.error, SchedulerClosed)
