"""``share``: one run of the source for all who are there at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import EmitResult, Flux, Sinks
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder
from tests.streams.test_pushed_elements import Meddler


@pytest.fixture
def source() -> Driven:
    return Driven()


def test_all_get_the_same_elements_of_one_run(source: Driven) -> None:
    shared = source.flux().share()
    a, b = Recorder.of(shared, first=UNBOUNDED), Recorder.of(shared, first=UNBOUNDED)

    source.emit(1, 2).complete()

    assert a.check().items == b.check().items == [1, 2]
    assert a.completed
    assert b.completed
    assert source.subscriptions == 1


def test_a_late_subscriber_starts_with_what_the_slowest_has_not_taken(source: Driven) -> None:
    shared = source.flux().share()
    slow = Recorder.of(shared, first=2)
    quick = Recorder.of(shared, first=UNBOUNDED)
    source.emit(1, 2, 3)

    late = Recorder.of(shared, first=9)

    assert (slow.items, quick.items, late.items) == ([1, 2], [1, 2, 3], [3])


def test_a_late_subscriber_gets_nothing_that_all_have_taken(source: Driven) -> None:
    shared = source.flux().share()
    Recorder.of(shared, first=UNBOUNDED)
    source.emit(1, 2)

    late = Recorder.of(shared, first=9)
    source.emit(3)

    assert late.items == [3]


def test_the_slowest_bounds_how_far_the_source_is_ahead(source: Driven) -> None:
    shared = source.flux().share(prefetch=4)
    quick = Recorder.of(shared, first=UNBOUNDED)
    slow = Recorder.of(shared)
    source.emit(1, 2, 3, 4)
    assert (quick.items, sum(source.requests)) == ([1, 2, 3, 4], 4)

    slow.request(2)

    assert sum(source.requests) == 6


def test_without_demand_the_source_is_asked_for_nothing(source: Driven) -> None:
    Recorder.of(source.flux().share())

    assert source.requests == []


def test_the_source_is_cancelled_when_the_last_one_leaves(source: Driven) -> None:
    shared = source.flux().share()
    a, b = Recorder.of(shared, first=9), Recorder.of(shared, first=9)

    a.cancel()
    assert source.cancels == 0
    b.cancel()

    assert source.cancels == 1


def test_the_next_subscriber_starts_it_anew(source: Driven) -> None:
    shared = source.flux().share()
    Recorder.of(shared, first=9).cancel()

    again = Recorder.of(shared, first=9)
    source.emit("fresh")

    assert (source.subscriptions, again.items) == (2, ["fresh"])


@pytest.mark.parametrize("failing", [False, True])
def test_after_its_end_the_next_subscriber_starts_it_anew(source: Driven, failing: bool) -> None:
    shared = source.flux().share()
    first = Recorder.of(shared, first=9)
    if failing:
        source.fail(ValueError("x"))
    else:
        source.complete()
    assert first.terminated

    again = Recorder.of(shared, first=9)
    source.emit("fresh")

    assert (source.subscriptions, again.items) == (2, ["fresh"])


def test_an_error_reaches_all_after_what_they_have_not_read(source: Driven) -> None:
    shared, error = source.flux().share(), ValueError("x")
    quick, slow = Recorder.of(shared, first=9), Recorder.of(shared)
    source.emit(1).fail(error)
    assert (quick.error, slow.error) == (error, None)

    slow.request(1)

    assert (slow.items, slow.error) == ([1], error)


def test_one_that_leaves_during_on_subscribe_does_not_keep_the_source() -> None:
    class Leaving(Recorder):
        def on_subscribe(self, subscription: object, /) -> None:  # type: ignore[override]
            super().on_subscribe(subscription)  # type: ignore[arg-type]
            self.cancel()

    source = Driven()
    source.flux().share().subscribe(Leaving())

    assert source.cancels == source.subscriptions


@pytest.mark.parametrize("below", [lambda flux: flux, lambda flux: flux.map(lambda x: x).limit_rate(1)])
def test_who_comes_after_the_last_has_left_starts_a_new_run_even_inside_on_next(below: Any) -> None:
    started: list[int] = []
    shared = below(Flux.defer(lambda: started.append(1) or Flux.range(5)).share())
    second = Recorder(99)

    def leave_and_come_back(first: Recorder, _: Any) -> None:
        first.cancel()
        shared.subscribe(second)

    shared.subscribe(Recorder(1, leave_and_come_back))
    assert second.wait().items == [0, 1, 2, 3, 4]
    assert len(started) == 2


def test_a_sink_knows_at_once_that_its_only_subscriber_has_left() -> None:
    sink: Any = Sinks.unicast()
    results: list[EmitResult] = []

    def leave(recorder: Recorder, _: Any) -> None:
        recorder.cancel()
        results.append(sink.try_emit("too late"))
        results.append(sink.subscriber_count())

    sink.flux().subscribe(Recorder(9, leave))
    sink.try_emit("first")
    assert results == [EmitResult.CANCELLED, 0]


def test_a_reader_that_joins_while_an_element_is_about_to_pass_misses_none(source: Driven) -> None:
    shared = source.flux().share()
    late = Recorder(UNBOUNDED)

    def more(first: Recorder, element: Any) -> None:
        if element == 1:  # the source goes on meanwhile, as if on another thread
            stage: Any = first.subscription
            stage._buffer.append_asked(2)
            stage._owner = Meddler(stage._owner, lambda: shared.subscribe(late))
            stage._buffer.append_asked(3)

    first = Recorder(UNBOUNDED, more)
    shared.subscribe(first)

    source.emit(0, 1, 4)

    assert first.items == [0, 1, 2, 3, 4]
    assert late.check().items == [2, 3, 4]
