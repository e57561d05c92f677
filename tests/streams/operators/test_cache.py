"""``cache``: one run of the source, and its history for everybody."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def source() -> Driven:
    return Driven()


def test_the_source_is_subscribed_to_once_and_by_the_first_subscriber(source: Driven) -> None:
    cached = source.flux().cache()
    assert source.subscriptions == 0

    Recorder.of(cached)
    Recorder.of(cached)

    assert source.subscriptions == 1


def test_a_late_subscriber_gets_everything_from_the_beginning(source: Driven) -> None:
    cached = source.flux().cache()
    first = Recorder.of(cached, first=UNBOUNDED)
    source.emit(1, 2)
    late = Recorder.of(cached, first=UNBOUNDED)
    source.emit(3).complete()

    assert first.check().items == late.check().items == [1, 2, 3]
    assert first.completed
    assert late.completed
    assert Recorder.of(cached, first=9).items == [1, 2, 3]


def test_the_source_runs_as_fast_as_the_quickest_subscriber_asks(source: Driven) -> None:
    cached = source.flux().cache()
    quick = Recorder.of(cached, first=3)
    slow = Recorder.of(cached, first=1)
    assert sum(source.requests) == 3

    source.emit(1, 2, 3)
    assert (quick.items, slow.items) == ([1, 2, 3], [1])
    slow.request(3)

    assert (slow.items, sum(source.requests)) == ([1, 2, 3], 4)


def test_a_bounded_history_keeps_the_last_elements(source: Driven) -> None:
    cached = source.flux().cache(2)
    Recorder.of(cached, first=UNBOUNDED)
    source.emit(1, 2, 3, 4)

    assert Recorder.of(cached, first=9).items == [3, 4]


def test_with_a_bounded_history_the_source_is_never_further_ahead_of_the_slowest(source: Driven) -> None:
    cached = source.flux().cache(2)
    quick = Recorder.of(cached, first=UNBOUNDED)
    slow = Recorder.of(cached)
    source.emit(1, 2)
    assert (quick.items, sum(source.requests)) == ([1, 2], 2)

    slow.request(1)

    assert sum(source.requests) == 3


def test_a_late_subscriber_that_reads_nothing_costs_nobody_an_element(source: Driven) -> None:
    cached = source.flux().cache(2)
    quick = Recorder.of(cached, first=UNBOUNDED)
    source.emit(1, 2, 3, 4)
    outstanding = sum(source.requests) - 4
    late = Recorder.of(cached)

    source.emit(*range(5, 5 + outstanding))
    late.request(9)

    assert quick.items == list(range(1, 5 + outstanding))
    assert late.items == list(range(3, 5 + outstanding))


def test_an_error_is_cached_behind_the_elements(source: Driven) -> None:
    cached, error = source.flux().cache(), ValueError("x")
    Recorder.of(cached, first=9)
    source.emit(1).fail(error)

    late = Recorder.of(cached, first=9)

    assert (late.items, late.error, source.subscriptions) == ([1], error, 1)


def test_the_source_goes_on_when_all_have_left(source: Driven) -> None:
    cached = source.flux().cache()
    Recorder.of(cached, first=UNBOUNDED).cancel()
    assert source.cancels == 0

    source.emit(1, 2).complete()

    assert Recorder.of(cached, first=9).items == [1, 2]


def test_the_source_is_asked_for_a_few_at_a_time_though_a_subscriber_wants_all(source: Driven) -> None:
    recorder = Recorder.of(source.flux().cache(), first=UNBOUNDED)
    source.emit(*range(191))
    assert source.requests == [256]

    source.emit(191)
    assert source.requests == [256, 192]
    source.emit(*range(192, 1_000))

    assert source.requests == [256, 192, 192, 192, 192, 192]
    assert recorder.check().items == list(range(1_000))


def test_small_demand_is_passed_on_as_soon_as_there_is_room_for_it(source: Driven) -> None:
    recorder = Recorder.of(source.flux().cache(), first=255)
    recorder.request(3)
    source.emit(0)
    assert source.requests == [255]

    source.emit(1)
    assert source.requests == [255, 3]
    source.emit(*range(2, 258))

    assert recorder.check().items == list(range(258))


def test_an_endless_source_stops_soon_after_all_have_left() -> None:
    taken: list[int] = []
    cached = Flux.from_iterable(count()).do_on_next(taken.append).cache()

    def leave(recorder: Recorder, element: int) -> None:
        if element == 300:
            recorder.cancel()

    first = Recorder(UNBOUNDED, on_element=leave)
    cached.subscribe(first)
    assert first.check().items == list(range(301))
    assert len(taken) < 301 + 256

    late = Recorder.of(cached, first=1_000)

    assert late.check().items == taken == list(range(1_000))


def test_a_subscriber_that_leaves_does_not_hold_the_others_back(source: Driven) -> None:
    cached = source.flux().cache(2)
    quick = Recorder.of(cached, first=UNBOUNDED)
    slow = Recorder.of(cached)
    source.emit(1, 2)

    slow.cancel()

    assert sum(source.requests) > 2
    source.emit(3)
    assert quick.items == [1, 2, 3]


def test_operators_below_ask_for_what_they_need(source: Driven) -> None:
    recorder = Recorder.of(source.flux().cache().filter(lambda x: x > 1).take(1), first=1)

    source.emit(1)
    source.emit(2)

    assert (recorder.items, recorder.completed) == ([2], True)


def test_a_mono_is_run_once_for_all() -> None:
    calls: list[int] = []
    cached = Mono.from_callable(lambda: calls.append(1) or "value").cache()

    assert [cached.block(), cached.block()] == ["value", "value"]
    assert calls == [1]


def test_an_empty_mono_and_a_failed_one_are_cached() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("x")

    assert Mono.empty().cache().block() is None
    cached = Mono.from_callable(fail).cache()
    errors = [Recorder.of(cached, first=1).error for _ in range(2)]
    assert errors[0] is errors[1]
    assert calls == [1]


def test_many_threads_see_the_same_sequence() -> None:
    from penstock.streams import schedulers

    cached = Flux.range(2_000).subscribe_on(schedulers.shared_pool()).cache()
    recorders = [Recorder.of(cached.publish_on(schedulers.shared_pool()), first=UNBOUNDED) for _ in range(4)]

    for recorder in recorders:
        assert recorder.wait().items == list(range(2_000))


@pytest.mark.parametrize("step", [1, 3, UNBOUNDED])
def test_a_reader_that_keeps_up_gets_what_its_filter_leaves(step: int, source: Driven) -> None:
    """Elements that a filter drops are asked for again, whether or not the reader keeps up."""
    recorder = Recorder.of(source.flux().cache().filter(lambda x: x % 3 == 0), first=step)
    for n in range(30):
        if sum(source.requests) > n:
            source.emit(n)
        recorder.check()
    assert recorder.items == [n for n in range(30) if n % 3 == 0][: min(step, 10)]


@pytest.mark.parametrize("ops", [0, 1])
def test_an_end_right_after_an_element_reaches_a_reader_that_keeps_up(ops: int, source: Driven) -> None:
    cached = source.flux().cache()
    recorder = Recorder.of(cached.map(abs) if ops else cached, first=UNBOUNDED)
    source.emit(1, 2)
    error = ValueError("the end")
    source.fail(error)
    assert recorder.check().items == [1, 2]
    assert recorder.error is error
    assert Recorder.of(cached, first=UNBOUNDED).check().items == [1, 2]


def test_a_reader_that_joins_inside_on_next_gets_everything_once(source: Driven) -> None:
    cached = source.flux().cache()
    late = Recorder(UNBOUNDED)
    first = Recorder(UNBOUNDED, lambda r, x: cached.subscribe(late) if x == 2 else None)
    cached.subscribe(first)
    source.emit(1, 2, 3).complete()
    assert first.check().items == late.check().items == [1, 2, 3]
    assert first.completed
    assert late.completed
