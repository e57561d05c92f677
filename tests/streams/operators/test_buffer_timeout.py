"""``buffer_timeout`` and ``batch_weighted``: lists that end by size, time or weight."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, schedulers
from tests.streams.operators.rigs import Counting, Elsewhere, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Rig:
    """A source driven by hand, and a clock that moves when told to."""

    def __init__(self, size: int, seconds: float, first: int = UNBOUNDED) -> None:
        self.clock = schedulers.virtual_time()
        self.source = Driven()
        self.seen = Recorder.of(self.source.flux().buffer_timeout(size, seconds, self.clock), first)


def test_a_full_list_is_sent_at_once() -> None:
    rig = Rig(2, 10)

    rig.source.emit(1, 2, 3)

    assert rig.seen.items == [[1, 2]]


def test_a_list_is_sent_when_its_first_element_has_waited_long_enough() -> None:
    rig = Rig(3, 1)
    rig.source.emit(1)
    rig.clock.advance_by(0.75)
    rig.source.emit(2)
    assert rig.seen.items == []

    rig.clock.advance_by(0.25)

    assert rig.seen.items == [[1, 2]]
    rig.clock.advance_by(100)
    assert rig.seen.items == [[1, 2]]  # no list is empty


def test_each_list_has_a_clock_of_its_own() -> None:
    rig = Rig(2, 1)
    rig.source.emit(1)
    rig.clock.advance_by(0.5)
    rig.source.emit(2, 3)
    rig.clock.advance_by(0.75)
    assert rig.seen.items == [[1, 2]]

    rig.clock.advance_by(0.25)

    assert rig.seen.items == [[1, 2], [3]]


def test_buffer_timeout_never_over_emits() -> None:
    rig = Rig(2, 1, first=1)
    rig.source.emit(1, 2, 3)
    rig.clock.advance_by(5)
    rig.source.emit(4, 5)
    rig.clock.advance_by(5)
    assert rig.seen.items == [[1, 2]]

    rig.seen.request(1)
    assert rig.seen.items == [[1, 2], [3, 4]]
    rig.seen.request(1)
    rig.clock.advance_by(1)

    assert rig.seen.items == [[1, 2], [3, 4], [5]]
    rig.seen.check()


def test_a_list_that_is_late_is_sent_with_the_next_demand() -> None:
    rig = Rig(3, 1, first=0)
    rig.source.emit(1, 2)
    rig.clock.advance_by(2)

    rig.seen.request(1)

    assert rig.seen.items == [[1, 2]]


def test_four_lists_may_wait_and_no_more() -> None:
    rig = Rig(3, 1, first=0)
    assert rig.source.requests == [12]
    rig.source.emit(*range(12))
    assert rig.source.requests == [12]

    rig.seen.request(1)

    assert rig.source.requests == [12, 3]
    assert rig.seen.items == [[0, 1, 2]]


def test_the_rest_comes_before_the_end_and_waits_for_demand() -> None:
    rig = Rig(2, 1, first=1)
    rig.source.emit(1, 2, 3).complete()
    assert (rig.seen.items, rig.seen.completed) == ([[1, 2]], False)

    rig.seen.request(1)

    assert (rig.seen.items, rig.seen.completed) == ([[1, 2], [3]], True)


def test_the_rest_comes_before_an_error() -> None:
    rig = Rig(2, 1)

    rig.source.emit(1, 2, 3).fail(Oops("gone"))

    assert (rig.seen.items, type(rig.seen.error)) == ([[1, 2], [3]], Oops)


def test_nothing_rings_after_a_cancel() -> None:
    rig = Rig(2, 1)
    rig.source.emit(1)

    rig.seen.cancel()
    rig.clock.advance_by(5)

    assert rig.source.cancelled
    assert rig.seen.items == []
    assert rig.clock.pending == 0


def test_a_closed_scheduler_is_an_error() -> None:
    scheduler = schedulers.single("closing")
    source = Driven()
    seen = Recorder.of(source.flux().buffer_timeout(5, 1000, scheduler), UNBOUNDED)
    source.emit(1)

    scheduler.close()

    assert isinstance(seen.wait().error, schedulers.SchedulerClosed)
    assert source.cancelled


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_pushing_thread_a_clock_and_a_slow_reader(size: int) -> None:
    sink: Any = Sinks.unicast(100_000)
    choose = random.Random(size)

    def ask_for_a_few(reader: Recorder, _: Any) -> None:
        if choose.random() < 0.7:
            reader.request(1)
        else:
            schedulers.shared_pool().submit(lambda: reader.request(1))

    reader = Recorder(1, ask_for_a_few)
    with schedulers.pool(2, "pushing") as pool:
        sink.flux().buffer_timeout(size, 0.0005).subscribe(reader)
        pool.submit(lambda: [sink.try_emit(n) for n in range(20_000)] and sink.try_complete())
        reader.wait()

    assert [x for batch in reader.items for x in batch] == list(range(20_000))
    assert {len(batch) for batch in reader.items} <= set(range(1, size + 1))


def weigh(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ([], []),
        ([1, 2, 3], [[1, 2], [3]]),
        ([1, 1, 1, 1], [[1, 1, 1], [1]]),
        ([2, 2, 2], [[2], [2], [2]]),
        ([1, 7, 1], [[1], [7], [1]]),
        ([7, 7], [[7], [7]]),
        ([0, 0, 3, 0], [[0, 0, 3], [0]]),
    ],
)
def test_lists_of_at_most_three(elements: list[int], expected: list[list[int]]) -> None:
    assert Flux.from_iterable(elements).batch_weighted(3, weigh).collect_list().block() == expected
    assert list(Flux.from_iterable(elements).batch_weighted(3, weigh)) == expected


def test_a_heavy_element_does_not_wait_for_the_next_one() -> None:
    source = Driven()
    seen = Recorder.of(source.flux().batch_weighted(3, weigh), UNBOUNDED)

    source.emit(1, 9)

    assert seen.items == [[1], [9]]


def test_two_lists_at_once_need_a_demand_of_two() -> None:
    source = Elsewhere(1, 9, 2, 3)
    seen = Recorder.of(Flux.from_publisher(source).batch_weighted(3, weigh), 1)
    assert (seen.items, source.asked) == ([[1]], 2)

    seen.request(1)
    assert (seen.items, source.asked) == ([[1], [9]], 2)
    seen.request(5)

    assert (seen.items, seen.completed) == ([[1], [9], [2], [3]], True)
    seen.check()


def test_a_source_is_not_read_beyond_the_list_that_was_asked_for() -> None:
    source = Counting(100)
    seen = Recorder.of(Flux.from_iterable(source).batch_weighted(6, weigh), 1)

    assert (seen.items, source.taken) == ([[1, 2, 3]], 3)


@pytest.mark.parametrize("weight", [-1, float("nan")])
def test_a_weight_is_not_negative(weight: float) -> None:
    with pytest.raises(ValueError, match="a weight of at least 0"):
        Flux.just(1).batch_weighted(3, lambda _: weight).block_last()


def test_an_error_in_the_weight_ends_the_stream() -> None:
    with pytest.raises(Oops):
        Flux.just(1).batch_weighted(3, oops).block_last()
    with pytest.raises(ValueError, match="above 0"):
        Flux.just(1).batch_weighted(0, weigh)


def test_operators_above_and_below_a_weighted_list() -> None:
    stream = Flux.range(1, 9).filter(lambda x: x % 2).batch_weighted(8, weigh).map(sum).take(2)

    assert stream.collect_list().block() == [4, 5]
