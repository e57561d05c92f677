"""``concat_map`` and what a Mono goes on with: one inner stream at a time, with exactly the demand left."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Rig:
    """An outer stream and inner ones, all driven by hand."""

    def __init__(self, first: int = UNBOUNDED, **options: Any) -> None:
        self.outer = Driven()
        self.inner: list[Driven] = []
        self.seen = Recorder.of(self.outer.flux().concat_map(self._open, **options), first)

    def _open(self, element: Any) -> Flux[Any]:
        self.inner.append(Driven())
        return self.inner[-1].flux()


def test_the_second_stream_starts_when_the_first_has_completed() -> None:
    rig = Rig(prefetch=2)
    rig.outer.emit(0, 1)
    assert len(rig.inner) == 1

    rig.inner[0].emit("a").complete()
    rig.inner[1].emit("b")

    assert rig.seen.items == ["a", "b"]


def test_it_completes_when_the_source_and_the_last_inner_stream_have() -> None:
    rig = Rig()
    rig.outer.emit(0).complete()
    assert not rig.seen.completed

    rig.inner[0].complete()

    assert rig.seen.completed


def test_an_empty_source_completes_without_demand() -> None:
    rig = Rig(first=0)

    rig.outer.complete()

    assert rig.seen.completed


def test_an_inner_stream_gets_exactly_the_demand_that_is_left() -> None:
    rig = Rig(first=5)
    rig.outer.emit(0)
    rig.inner[0].emit("a", "b").complete()
    rig.outer.emit(1)

    assert (rig.inner[0].requests, rig.inner[1].requests) == ([5], [3])
    rig.seen.request(2)
    assert rig.inner[1].requests == [3, 2]


def test_the_source_is_asked_for_prefetch_and_then_one_by_one() -> None:
    rig = Rig(prefetch=3)
    assert rig.outer.requests == [3]

    rig.outer.emit(0)
    assert rig.outer.requests == [3, 1]
    rig.outer.emit(1, 2, 3)
    assert rig.outer.requests == [3, 1]
    rig.inner[0].complete()

    assert rig.outer.requests == [3, 1, 1]


def test_a_cancel_reaches_the_source_and_the_present_stream() -> None:
    rig = Rig()
    rig.outer.emit(0)

    rig.seen.cancel()

    assert (rig.outer.cancels, rig.inner[0].cancels) == (1, 1)


def test_a_cancel_between_two_streams_reaches_the_source() -> None:
    rig = Rig()
    rig.outer.emit(0)
    rig.inner[0].complete()

    rig.seen.cancel()

    assert (rig.outer.cancels, rig.inner[0].cancels) == (1, 0)


def test_an_inner_error_cancels_the_source() -> None:
    rig, error = Rig(), ValueError("inner")
    rig.outer.emit(0)

    rig.inner[0].emit("a").fail(error)

    assert (rig.seen.items, rig.seen.error, rig.outer.cancels) == (["a"], error, 1)


def test_an_error_of_the_source_waits_for_the_present_stream() -> None:
    rig, error = Rig(), ValueError("outer")
    rig.outer.emit(0).fail(error)
    assert rig.seen.error is None

    rig.inner[0].emit("a").complete()

    assert (rig.seen.items, rig.seen.error) == (["a"], error)


def test_a_mapper_that_raises_cancels_the_source() -> None:
    outer, error = Driven(), ValueError("mapper")

    def mapper(n: int) -> Flux[Any]:
        raise error

    recorder = Recorder.of(outer.flux().concat_map(mapper), first=9)
    outer.emit(0)

    assert (recorder.error, outer.cancels) == (error, 1)


def test_take_cancels_the_source_and_the_present_stream() -> None:
    outer, inner = Driven(), Driven()
    recorder = Recorder.of(outer.flux().concat_map(lambda n: inner.flux()).take(1), first=9)

    outer.emit(0)
    inner.emit("only")

    assert (recorder.completed, outer.cancels, inner.cancels) == (True, 1, 1)


def test_ten_thousand_synchronous_streams_need_no_deep_stack() -> None:
    recorder = Recorder.of(Flux.range(10_000).concat_map(Flux.just), first=UNBOUNDED)

    assert recorder.check().items == list(range(10_000))


def test_one_at_a_time_demand_gets_everything_in_order() -> None:
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    Flux.range(200).concat_map(lambda n: Flux.just(n, n)).subscribe(recorder)

    assert recorder.check().items == [n for n in range(200) for _ in range(2)]
    assert recorder.completed


# -------------------------------------------------------------------- Mono
def test_a_mono_goes_on_with_the_mono_of_its_element() -> None:
    assert Mono.just(3).flat_map(lambda n: Mono.just(n + 1)).block() == 4


def test_an_empty_mono_asks_for_no_second_one() -> None:
    calls: list[int] = []

    assert Mono.empty().flat_map(calls.append).block() is None  # type: ignore[arg-type]
    assert calls == []


def test_a_mono_may_go_on_with_an_empty_one() -> None:
    assert Mono.just(1).flat_map(lambda _: Mono.empty()).block() is None


def test_of_a_longer_stream_a_mono_takes_one_element_and_cancels() -> None:
    inner = Driven()
    recorder = Recorder.of(Mono.just(1).flat_map(lambda _: inner.flux()), first=5)  # type: ignore[arg-type,return-value]

    inner.emit("a")

    assert (recorder.items, recorder.completed, inner.cancels) == (["a"], True, 1)


@pytest.mark.parametrize("operator", ["flat_map", "flat_map_many"])
def test_errors_of_the_mono_the_mapper_and_the_second_stream_arrive(operator: str) -> None:
    error = ValueError("x")

    def raising(_: object) -> Any:
        raise error

    for stream in (
        getattr(Mono.error(error), operator)(Mono.just),
        getattr(Mono.just(1), operator)(raising),
        getattr(Mono.just(1), operator)(lambda _: Mono.error(error)),
    ):
        assert Recorder.of(stream, first=1).error is error


@pytest.mark.parametrize("operator", ["flat_map", "flat_map_many"])
def test_a_cancel_reaches_whichever_stream_runs(operator: str) -> None:
    first, second = Driven(), Driven()
    recorder = Recorder.of(getattr(first.mono(), operator)(lambda _: second.flux()), first=1)
    recorder.cancel()
    assert first.cancels == 1

    recorder = Recorder.of(getattr(Mono.just(1), operator)(lambda _: second.flux()), first=1)
    recorder.cancel()
    assert second.cancels == 1


def test_a_mono_becomes_many_with_the_demand_that_there_is() -> None:
    inner = Driven()
    recorder = Recorder.of(Mono.just(1).flat_map_many(lambda _: inner.flux()), first=2)

    inner.emit("a", "b")
    recorder.request(4)

    assert (recorder.items, inner.requests) == (["a", "b"], [2, 4])
