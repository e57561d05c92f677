"""``merge_sequential``, ``merge_priority``, ``merge_ordered``: which stream goes first."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, on_dropped, schedulers
from tests.streams.operators.rigs import Counting, Elsewhere, failure, oops, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

MERGES = [Flux.merge_sequential, Flux.merge_priority, Flux.merge_ordered]


@pytest.mark.parametrize("merge", MERGES)
def test_nothing_of_nobody(merge: Any) -> None:
    assert result(merge()) == []


@pytest.mark.parametrize("merge", MERGES)
def test_all_elements_of_all(merge: Any) -> None:
    assert sorted(result(merge(Flux.range(100), Flux.range(50), Flux.empty()))) == sorted(
        [*range(100), *range(50)]
    )


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("prefetch", [1, 3, 32])
def test_a_source_is_asked_for_no_more_than_its_queue_holds(merge: Any, prefetch: int) -> None:
    a, b = Elsewhere(*range(100)), Elsewhere(*range(100))
    recorder = Recorder.of(merge(a, b, prefetch=prefetch))
    assert (a.asked, b.asked) == (prefetch, prefetch)

    recorder.request(2)

    assert len(recorder.check().items) == 2
    assert a.asked + b.asked <= 2 * prefetch + 2


@pytest.mark.parametrize("merge", MERGES)
def test_a_cancel_inside_on_next_cancels_all(merge: Any) -> None:
    a, b = Elsewhere(*range(100)), Elsewhere(*range(100))
    recorder = Recorder(9, on_element=lambda me, _: me.cancel())
    merge(a, b).subscribe(recorder)

    assert len(recorder.check().items) == 1
    assert a.cancelled
    assert b.cancelled or not b.requests, "cancelled, or not even started"


@pytest.mark.parametrize("merge", MERGES)
def test_an_error_ends_it_at_once_and_what_waited_is_dropped(merge: Any) -> None:
    a, b, dropped = Driven(), Driven(), []
    recorder = Recorder.of(merge(a, b))
    a.emit(1)
    with on_dropped(element=lambda element, where: dropped.append(element)):
        b.fail(ValueError("x"))

    assert isinstance(recorder.wait().error, ValueError)
    assert a.cancelled
    assert dropped == [1]


@pytest.mark.parametrize("merge", MERGES)
def test_threads_lose_nothing(merge: Any) -> None:
    pool = schedulers.shared_pool()
    sources = [Flux.range(n * 1000, 1000).subscribe_on(pool) for n in range(4)]
    recorder = Recorder.of(merge(*sources, prefetch=8), first=UNBOUNDED).wait()

    assert recorder.completed
    assert sorted(recorder.items) == list(range(4000))


@pytest.mark.parametrize("merge", MERGES)
def test_a_list_of_streams_is_a_mistake_that_is_named(merge: Any) -> None:
    with pytest.raises(TypeError, match="put a star before it"):
        merge([Flux.just(1)])


def test_sequential_runs_all_and_keeps_the_order_of_the_publishers() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.merge_sequential(a, b), first=9)
    b.emit("x", "y").complete()
    a.emit(1)
    assert recorder.items == [1]

    a.complete()

    assert recorder.check().items == [1, "x", "y"]
    assert recorder.completed


def test_the_first_publisher_goes_first_when_several_wait() -> None:
    urgent, normal = Driven(), Driven()
    recorder = Recorder.of(Flux.merge_priority(urgent, normal))
    normal.emit("a", "b")
    urgent.emit("!", "!!")

    recorder.request(3)

    assert recorder.check().items == ["!", "!!", "a"]


def test_priority_by_a_key_of_the_elements() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.merge_priority(a, b, key=lambda pair: pair[0]))
    a.emit((5, "a"), (1, "a"))
    b.emit((3, "b"))

    recorder.request(9)

    assert recorder.check().items == [(3, "b"), (5, "a"), (1, "a")]


def test_priority_does_not_wait_for_a_silent_source() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.merge_priority(a, b), first=9)
    b.emit("at once")

    assert recorder.items == ["at once"]


def test_ordered_waits_for_a_silent_source_until_it_ends() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.merge_ordered(a, b), first=9)
    a.emit(1, 2)
    assert recorder.items == []
    b.emit(2)
    assert recorder.items == [1, 2], "of equal ones that of the first publisher goes first"

    b.complete()
    assert recorder.items == [1, 2], "the next of the first publisher may still be smaller"
    a.emit(3).complete()

    assert recorder.check().items == [1, 2, 2, 3]
    assert recorder.completed


@pytest.mark.parametrize("seed", range(20))
def test_ordered_is_heapq_merge(seed: int) -> None:
    chance = random.Random(seed)
    lists = [sorted(chance.choices(range(50), k=chance.randrange(30))) for _ in range(chance.randrange(1, 6))]
    merged = Flux.merge_ordered(*map(Flux.from_iterable, lists), prefetch=chance.randrange(1, 9))
    recorder = Recorder.of(merged)
    while not recorder.terminated:
        recorder.request(chance.randrange(1, 5))

    assert recorder.check().items == list(heapq.merge(*lists))


def test_ordered_compares_keys_and_never_the_elements() -> None:
    a, b = Flux.just({"at": 1}, {"at": 2}), Flux.just({"at": 1})

    assert [x["at"] for x in result(Flux.merge_ordered(a, b, key=lambda record: record["at"]))] == [1, 1, 2]


def test_ordered_is_stable_between_publishers() -> None:
    a, b = Flux.just((1, "a"), (2, "a")), Flux.just((1, "b"), (2, "b"))

    assert result(Flux.merge_ordered(a, b, key=lambda pair: pair[0])) == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


@pytest.mark.parametrize("merge", [Flux.merge_priority, Flux.merge_ordered])
def test_a_key_that_raises_ends_it_with_a_note(merge: Any) -> None:
    source = Counting()
    error = failure(merge(Flux.from_iterable(source), Flux.just(1), key=oops))

    assert "(oops)" in error.__notes__[0]
    assert source.closed


def test_elements_that_cannot_be_compared_are_an_error_not_a_hang() -> None:
    assert isinstance(failure(Flux.merge_ordered(Flux.just(1), Flux.just("a"))), TypeError)


def test_zip_does_not_over_pull() -> None:
    long, short = Elsewhere(*range(1000)), Elsewhere("a", "b")
    recorder = Recorder.of(Flux.zip(long, short, prefetch=4), first=UNBOUNDED)

    assert recorder.check().items == [(0, "a"), (1, "b")]
    assert recorder.completed
    assert long.asked == 4, "two rows were sent, and no more than the queue was ever asked for"
    assert long.cancelled


@pytest.mark.parametrize("prefetch", [1, 2, 8])
def test_zip_does_not_over_pull_beyond_its_queue_and_the_rows_sent(prefetch: int) -> None:
    sources = [Elsewhere(*range(1000)) for _ in range(5)]
    recorder = Recorder.of(Flux.zip(*sources, prefetch=prefetch))
    for rows in range(1, 30):
        recorder.request(1)
        assert len(recorder.check().items) == rows
        assert all(source.asked <= rows + prefetch for source in sources)


def test_take_caps_demand() -> None:
    source = Elsewhere(*range(100))
    recorder = Recorder.of(Flux.from_publisher(source).take(3), first=UNBOUNDED)

    assert recorder.check().items == [0, 1, 2]
    assert source.asked == 3


def test_flat_map_over_endless_inners_stays_bounded() -> None:
    opened: list[Elsewhere] = []

    def endless(_: int) -> Elsewhere:
        opened.append(Elsewhere(*range(10_000)))
        return opened[-1]

    recorder = Recorder.of(Flux.range(1_000_000).flat_map(endless, concurrency=8, prefetch=4))
    for _ in range(100):
        recorder.request(3)

    assert len(recorder.check().items) == 300
    assert len(opened) == 8
    assert sum(source.asked for source in opened) <= 300 + 8 * 4
    recorder.cancel()
    assert all(source.cancelled for source in opened)


def test_a_sink_behind_a_priority_keeps_its_bound() -> None:
    sink: Any = Sinks.multicast(8)
    recorder = Recorder.of(Flux.merge_priority(sink.flux(), Flux.never(), prefetch=2))
    accepted = 0
    while sink.try_emit(accepted).value == "ok":
        accepted += 1

    assert accepted == 8 + 2
    recorder.request(UNBOUNDED)
    assert recorder.check().items == list(range(10))


def test_sequential_keeps_its_order_when_another_stream_is_merged_with_it() -> None:
    a, b, c = Driven(), Driven(), Driven()
    recorder = Recorder.of(Flux.merge_sequential(a.flux(), b.flux()).merge_with(c.flux()), UNBOUNDED)
    b.emit("b")
    c.emit("c")
    assert recorder.items == ["c"]
    a.emit("a")
    a.complete()

    assert recorder.check().items == ["c", "a", "b"]


def test_a_merge_with_its_own_prefetch_keeps_it_when_another_stream_is_merged_with_it() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.merge(a.flux(), prefetch=3).merge_with(b.flux()))

    assert (a.requests, b.requests) == ([3], [32])
    recorder.cancel()
