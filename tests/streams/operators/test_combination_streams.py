"""``concat``, ``merge``, ``zip`` of a Flux: in turn, mixed, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def two(operator: str, first: int = UNBOUNDED, **options: Any) -> tuple[Driven, Driven, Recorder]:
    a, b = Driven(), Driven()
    return a, b, Recorder.of(getattr(Flux, operator)(a, b, **options), first)


ALL = pytest.mark.parametrize("operator", ["concat", "merge", "zip"])


@ALL
def test_nothing_combined_is_empty(operator: str) -> None:
    assert Recorder.of(getattr(Flux, operator)()).completed


@ALL
def test_an_error_of_the_first_ends_the_whole_and_cancels_the_second(operator: str) -> None:
    (a, b, recorder), error = two(operator), ValueError("x")

    a.fail(error)

    assert recorder.error is error
    assert b.cancels == (0 if operator == "concat" else 1)


@pytest.mark.parametrize("operator", ["merge", "zip"])
def test_an_error_of_the_second_cancels_the_first(operator: str) -> None:
    (a, b, recorder), error = two(operator), ValueError("x")

    b.fail(error)

    assert (recorder.error, a.cancels) == (error, 1)


@pytest.mark.parametrize("operator", ["merge", "zip"])
def test_a_cancel_reaches_all(operator: str) -> None:
    a, b, recorder = two(operator)

    recorder.cancel()

    assert (a.cancels, b.cancels) == (1, 1)


# -------------------------------------------------------------------- concat
def test_concat_subscribes_to_the_second_when_the_first_has_completed() -> None:
    a, b, recorder = two("concat")
    assert b.subscriptions == 0

    a.emit(1).complete()
    b.emit(2).complete()

    assert (recorder.items, recorder.completed) == ([1, 2], True)


def test_concat_asks_the_second_for_the_demand_that_is_left() -> None:
    a, b, recorder = two("concat", first=3)
    a.emit(1).complete()

    assert (a.requests, b.requests) == ([3], [2])
    recorder.request(5)
    assert b.requests == [2, 5]


def test_concat_does_not_subscribe_after_an_error() -> None:
    a, b, _ = two("concat")

    a.fail(ValueError())

    assert b.subscriptions == 0


def test_a_cancel_of_a_concatenation_reaches_the_present_one_only() -> None:
    a, b, recorder = two("concat")
    a.complete()

    recorder.cancel()

    assert (a.cancels, b.cancels) == (0, 1)


def test_a_thousand_streams_added_one_by_one_stay_one_stage() -> None:
    stream = Flux.just(0)
    for n in range(1, 1000):
        stream = stream.concat_with(Flux.just(n))

    assert stream.collect_list().block() == list(range(1000))
    assert len(stream._source.upstreams()) == 1000


FAILING_AT_ONCE: dict[str, Callable[[], Flux[Any]]] = {
    "combine_latest": lambda: Flux.combine_latest(Flux.error(OSError()), Flux.just(1)),
    "flat_map": lambda: Flux.just(1, 2).flat_map(lambda x: Flux.just(x) if x == 1 else Flux.error(OSError())),
    "flat_map_sequential": lambda: Flux.just(1, 2).flat_map_sequential(lambda _: Flux.error(OSError())),
    "merge": lambda: Flux.merge(Flux.just(1), Flux.error(OSError()), Flux.just(2)),
    "merge_ordered": lambda: Flux.merge_ordered(Flux.just(1), Flux.error(OSError())),
    "merge_priority": lambda: Flux.merge_priority(Flux.just(1), Flux.error(OSError())),
    "switch_map": lambda: Flux.just(1).switch_map(lambda _: Flux.error(OSError())),
    "zip": lambda: Flux.zip(Flux.error(OSError()), Flux.empty()),
    "map": lambda: Flux.error(OSError()).map(str),
    "publish_on": lambda: Flux.error(OSError()).publish_on(schedulers.immediate()),
    "share": lambda: Flux.error(OSError()).share(),
}


@pytest.mark.parametrize("name", FAILING_AT_ONCE)
def test_start_with_comes_before_an_error_that_was_there_before_the_demand(name: str) -> None:
    """What comes first is a stream of its own, as in concat: the error of the second one cannot pass it."""
    recorder = Recorder.of(FAILING_AT_ONCE[name]().start_with("a", "b").map(str))
    assert not recorder.terminated

    recorder.request(1)
    assert recorder.check().items == ["a"]
    assert not recorder.terminated

    recorder.request(1)
    assert recorder.check().items == ["a", "b"]
    assert isinstance(recorder.error, OSError)


def test_start_with_comes_first_and_needs_no_demand_of_the_source() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().start_with("a", "b"), first=2)
    assert recorder.items == ["a", "b"]

    recorder.request(1)
    source.emit("c").complete()

    assert (recorder.items, recorder.completed) == (["a", "b", "c"], True)
    with pytest.raises(TypeError, match="start_with"):
        source.flux().start_with(None)


# -------------------------------------------------------------------- merge
def test_merge_takes_elements_as_they_arrive() -> None:
    a, b, recorder = two("merge")

    b.emit("b1")
    a.emit("a1")
    b.emit("b2").complete()
    assert not recorder.completed
    a.complete()

    assert (recorder.items, recorder.completed) == (["b1", "a1", "b2"], True)


def test_merge_asks_each_for_its_prefetch_and_then_three_quarters() -> None:
    a, b, recorder = two("merge", first=0, prefetch=4)
    a.emit(1, 2, 3, 4)
    assert (a.requests, b.requests, recorder.items) == ([4], [4], [])

    recorder.request(3)

    assert (a.requests, b.requests, recorder.items) == ([4, 3], [4], [1, 2, 3])


def test_merge_with_mixes_others_in() -> None:
    source, other = Driven(), Driven()
    recorder = Recorder.of(source.flux().merge_with(other), first=9)

    other.emit(1)
    source.emit(2)

    assert recorder.items == [1, 2]


def test_more_streams_than_the_default_concurrency_all_run() -> None:
    sources = [Driven() for _ in range(40)]
    recorder = Recorder.of(Flux.merge(*sources), first=UNBOUNDED)

    sources[39].emit("last")

    assert recorder.items == ["last"]


def test_merge_across_threads_keeps_the_order_of_each() -> None:
    pool = schedulers.shared_pool()
    streams = [Flux.range(n * 1000, 500).subscribe_on(pool) for n in range(4)]

    items = Recorder.of(Flux.merge(*streams), first=UNBOUNDED).wait().items

    assert len(items) == 2000
    for n in range(4):
        assert [x for x in items if x // 1000 == n] == list(range(n * 1000, n * 1000 + 500))


# -------------------------------------------------------------------- zip
def test_zip_makes_rows() -> None:
    a, b, recorder = two("zip")

    a.emit(1, 2)
    assert recorder.items == []
    b.emit("x")

    assert recorder.items == [(1, "x")]


def test_zip_calls_the_combinator() -> None:
    assert Flux.zip(Flux.just(1, 2), Flux.just(10, 20), combinator=max).collect_list().block() == [10, 20]


def test_a_combinator_that_raises_cancels_all() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(a.flux().zip_with(b, lambda x, y: x / y), first=1)

    a.emit(1)
    b.emit(0)

    assert isinstance(recorder.error, ZeroDivisionError)
    assert (a.cancels, b.cancels) == (1, 1)


def test_zip_completes_and_cancels_the_others_when_one_has_nothing_left() -> None:
    a, b, recorder = two("zip")
    a.emit(1).complete()
    assert not recorder.completed

    b.emit("x")

    assert (recorder.items, recorder.completed, b.cancels) == ([(1, "x")], True, 1)


def test_zip_with_an_empty_stream_is_empty_without_demand() -> None:
    a, b, recorder = two("zip", first=0)

    a.complete()

    assert (recorder.completed, b.cancels) == (True, 1)


def test_zip_asks_each_for_its_prefetch_and_then_three_quarters() -> None:
    a, b, recorder = two("zip", first=2, prefetch=4)
    assert (a.requests, b.requests) == ([4], [4])

    a.emit(1, 2, 3)
    b.emit(1, 2, 3)
    assert (a.requests, b.requests, len(recorder.items)) == ([4], [4], 2)
    recorder.request(1)

    assert (a.requests, b.requests, len(recorder.items)) == ([4, 3], [4, 3], 3)


def test_zip_across_threads_keeps_the_order() -> None:
    one, other = schedulers.shared_pool(), schedulers.shared_single()
    stream = Flux.zip(Flux.range(2000).subscribe_on(one), Flux.range(2000).subscribe_on(other))

    assert Recorder.of(stream, first=UNBOUNDED).wait().items == [(n, n) for n in range(2000)]


# -------------------------------------------------------------------- then
def test_then_forgets_the_elements_and_asks_for_all_of_them() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().then(), first=1)
    assert source.requests == [UNBOUNDED]

    source.emit(1, 2).complete()

    assert (recorder.items, recorder.completed) == ([], True)


@pytest.mark.parametrize("operator", ["then", "then_many"])
def test_then_goes_on_with_another_stream_only_after_the_end(operator: str) -> None:
    source, other = Driven(), Driven()
    stream = other.mono() if operator == "then" else other.flux()
    recorder = Recorder.of(getattr(source.flux(), operator)(stream), first=1)
    source.emit("forgotten")
    assert other.subscriptions == 0

    source.complete()
    assert other.requests == [1]
    other.emit("kept").complete()

    assert (recorder.items, recorder.completed) == (["kept"], True)
    recorder.check()


@pytest.mark.parametrize("operator", ["then", "then_many"])
def test_an_error_leaves_the_other_stream_alone(operator: str) -> None:
    source, other, error = Driven(), Driven(), ValueError("x")
    recorder = Recorder.of(getattr(source.flux(), operator)(other.flux()), first=1)

    source.fail(error)

    assert (recorder.error, other.subscriptions) == (error, 0)
