"""``flat_map`` and ``flat_map_sequential``: many inner streams at once, and a bound for all of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, schedulers
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

BOTH = pytest.mark.parametrize("operator", ["flat_map", "flat_map_sequential"])


class Rig:
    """An outer stream and inner ones, all driven by hand: element i opens ``inner[i]``."""

    def __init__(self, operator: str, first: int = UNBOUNDED, **options: Any) -> None:
        self.outer = Driven()
        self.inner: list[Driven] = []
        flattened = getattr(self.outer.flux(), operator)(self._open, **options)
        self.seen = Recorder.of(flattened, first)

    def _open(self, element: Any) -> Flux[Any]:
        self.inner.append(Driven())
        return self.inner[-1].flux()


def test_elements_of_different_streams_mix_as_they_arrive() -> None:
    rig = Rig("flat_map")
    rig.outer.emit(0, 1)

    rig.inner[1].emit("b1")
    rig.inner[0].emit("a1")
    rig.inner[1].emit("b2")

    assert rig.seen.items == ["b1", "a1", "b2"]


def test_in_sequence_the_elements_of_a_younger_stream_wait_for_the_older_to_complete() -> None:
    rig = Rig("flat_map_sequential")
    rig.outer.emit(0, 1)

    rig.inner[1].emit("b1")
    rig.inner[0].emit("a1")
    assert rig.seen.items == ["a1"]
    rig.inner[0].complete()

    assert rig.seen.items == ["a1", "b1"]


@BOTH
def test_it_completes_when_the_source_and_all_inner_streams_have(operator: str) -> None:
    rig = Rig(operator)
    rig.outer.emit(0, 1).complete()
    rig.inner[1].complete()
    assert not rig.seen.completed

    rig.inner[0].emit("last").complete()

    assert (rig.seen.items, rig.seen.completed) == (["last"], True)
    rig.seen.check()


@BOTH
def test_an_empty_source_completes_without_demand(operator: str) -> None:
    rig = Rig(operator, first=0)

    rig.outer.complete()

    assert rig.seen.completed


@BOTH
def test_empty_inner_streams_leave_nothing(operator: str) -> None:
    stream = getattr(Flux.range(100), operator)(lambda n: Flux.empty())

    assert stream.collect_list().block() == []


@BOTH
def test_no_more_than_concurrency_inner_streams_run_at_once(operator: str) -> None:
    rig = Rig(operator, concurrency=2)
    assert rig.outer.requests == [2]

    rig.outer.emit(0, 1)
    assert rig.outer.requests == [2]
    rig.inner[0].complete()

    assert rig.outer.requests == [2, 1]


@BOTH
def test_each_inner_stream_is_asked_for_its_prefetch_and_then_three_quarters(operator: str) -> None:
    rig = Rig(operator, first=6, prefetch=4)
    rig.outer.emit(0)
    assert rig.inner[0].requests == [4]

    rig.inner[0].emit(1, 2)
    assert rig.inner[0].requests == [4]
    rig.inner[0].emit(3)

    assert rig.inner[0].requests == [4, 3]
    rig.inner[0].emit(4, 5, 6, 7)
    assert rig.seen.items == [1, 2, 3, 4, 5, 6]
    assert rig.inner[0].requests == [4, 3, 3]
    rig.seen.check()


@BOTH
def test_an_inner_stream_is_not_asked_again_while_nobody_takes(operator: str) -> None:
    rig = Rig(operator, first=0, prefetch=2)
    rig.outer.emit(0)
    rig.inner[0].emit(1, 2)

    assert (rig.seen.items, rig.inner[0].requests) == ([], [2])
    rig.seen.request(2)
    assert (rig.seen.items, rig.inner[0].requests) == ([1, 2], [2, 2])


@BOTH
def test_a_cancel_reaches_the_source_and_all_inner_streams(operator: str) -> None:
    rig = Rig(operator)
    rig.outer.emit(0, 1)

    rig.seen.cancel()

    assert (rig.outer.cancels, [inner.cancels for inner in rig.inner]) == (1, [1, 1])


@BOTH
def test_an_inner_error_cancels_all_the_others(operator: str) -> None:
    rig, error = Rig(operator), ValueError("inner")
    rig.outer.emit(0, 1, 2)

    rig.inner[1].fail(error)

    assert rig.seen.error is error
    assert (rig.outer.cancels, [inner.cancels for inner in rig.inner]) == (1, [1, 0, 1])


@BOTH
def test_an_error_of_the_source_cancels_the_inner_streams(operator: str) -> None:
    rig, error = Rig(operator), ValueError("outer")
    rig.outer.emit(0, 1)

    rig.outer.fail(error)

    assert rig.seen.error is error
    assert [inner.cancels for inner in rig.inner] == [1, 1]


@BOTH
def test_a_mapper_that_raises_cancels_everything(operator: str) -> None:
    outer, inner, error = Driven(), Driven(), ValueError("mapper")

    def mapper(n: int) -> Flux[Any]:
        if n:
            raise error
        return inner.flux()

    recorder = Recorder.of(getattr(outer.flux(), operator)(mapper), first=9)
    outer.emit(0, 1)

    assert recorder.error is error
    assert (outer.cancels, inner.cancels) == (1, 1)


@BOTH
def test_take_cancels_what_still_runs(operator: str) -> None:
    outer, inner = Driven(), Driven()
    recorder = Recorder.of(getattr(outer.flux(), operator)(lambda n: inner.flux()).take(1), first=9)

    outer.emit(0)
    inner.emit("only")

    assert (recorder.items, recorder.completed) == (["only"], True)
    assert (outer.cancels, inner.cancels) == (1, 1)


@BOTH
def test_elements_from_many_threads_all_arrive_one_at_a_time(operator: str) -> None:
    pool = schedulers.shared_pool()
    stream = getattr(Flux.range(40), operator)(lambda n: Flux.range(50).subscribe_on(pool), concurrency=8)

    recorder = Recorder.of(stream, first=UNBOUNDED).wait()

    assert sorted(recorder.items) == sorted(list(range(50)) * 40)


def test_in_sequence_the_order_holds_across_threads() -> None:
    pool = schedulers.shared_pool()
    stream = Flux.range(40).flat_map_sequential(lambda n: Flux.range(n * 50, 50).subscribe_on(pool))

    assert stream.collect_list().block(20) == list(range(2000))


@BOTH
def test_a_mapper_may_return_whatever_stands_for_a_stream(operator: str) -> None:
    stream = getattr(Flux.just(1, 2), operator)(lambda n: [n, n * 10])
    assert sorted(stream.collect_list().block()) == [1, 2, 10, 20]

    text = getattr(Flux.just("word"), operator)(lambda word: word)
    with pytest.raises(TypeError, match=rf"the function of {operator}\(\) needs a publisher.* use map\(\)"):
        text.collect_list().block()


@BOTH
def test_ten_thousand_synchronous_inner_streams_need_no_deep_stack(operator: str) -> None:
    stream = getattr(Flux.range(10_000), operator)(Mono.just)

    assert stream.count().block() == 10_000


@BOTH
@pytest.mark.parametrize("option", ["concurrency", "prefetch"])
def test_bounds_below_one_are_refused(operator: str, option: str) -> None:
    with pytest.raises(ValueError, match=rf"{operator}\(\) needs a number of at least 1"):
        getattr(Flux.just(1), operator)(Flux.just, **{option: 0})
