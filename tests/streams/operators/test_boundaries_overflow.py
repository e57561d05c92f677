"""``on_backpressure_…``: a source that cannot be slowed down, and exactly what is given up."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import BufferOverflow, Flux, Overflow, on_dropped, schedulers
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def source() -> Driven:
    return Driven()


@pytest.fixture
def dropped() -> list[Any]:
    return []


ALL = pytest.mark.parametrize(
    "operator",
    ["on_backpressure_buffer", "on_backpressure_drop", "on_backpressure_latest", "on_backpressure_error"],
)


@ALL
def test_the_source_is_asked_for_everything(operator: str, source: Driven) -> None:
    Recorder.of(getattr(source.flux(), operator)())

    assert source.requests == [UNBOUNDED]


@ALL
def test_what_is_asked_for_passes(operator: str, source: Driven) -> None:
    recorder = Recorder.of(getattr(source.flux(), operator)(), first=3)

    source.emit(1, 2, 3).complete()

    assert (recorder.check().items, recorder.completed) == ([1, 2, 3], True)


@ALL
@pytest.mark.parametrize("places", ["above", "twice", "on both sides"])
def test_what_is_asked_for_in_on_subscribe_passes_from_a_source_that_begins_at_once(
    operator: str, places: str
) -> None:
    """The demand does not come later than the first elements because it goes to another scheduler."""
    with schedulers.single("a") as a, schedulers.single("b") as b:
        if places == "on both sides":
            flux = getattr(Flux.range(1000).subscribe_on(a), operator)().subscribe_on(b)
        else:
            flux = getattr(Flux.range(1000), operator)().subscribe_on(a)
            if places == "twice":
                flux = flux.subscribe_on(b)

        assert flux.collect_list().block(60) == list(range(1000))


@ALL
def test_errors_and_cancels_pass(operator: str, source: Driven) -> None:
    error = ValueError("x")
    assert Recorder.of(getattr(Flux.error(error), operator)()).error is error

    Recorder.of(getattr(source.flux(), operator)(), first=1).cancel()

    assert source.cancels == 1


@ALL
def test_operators_below_ask_for_what_they_need(operator: str, source: Driven) -> None:
    recorder = Recorder.of(getattr(source.flux(), operator)().filter(lambda x: x % 2).take(1), first=1)

    source.emit(1)

    assert (recorder.items, recorder.completed, source.cancels) == ([1], True, 1)


def test_a_buffer_keeps_its_size_beyond_the_demand(source: Driven) -> None:
    recorder = Recorder.of(source.flux().on_backpressure_buffer(2), first=1)
    source.emit(1, 2, 3)
    assert recorder.items == [1]

    recorder.request(2)

    assert (recorder.items, recorder.error) == ([1, 2, 3], None)


def test_a_buffer_that_overflows_fails_after_what_it_kept(source: Driven) -> None:
    recorder = Recorder.of(source.flux().on_backpressure_buffer(2))
    source.emit(1, 2, 3)
    assert (source.cancels, recorder.terminated) == (1, False)

    recorder.request(5)

    assert recorder.items == [1, 2]
    assert isinstance(recorder.error, BufferOverflow)
    assert "on_backpressure_buffer(2)" in str(recorder.error)
    assert "the buffer of 2 is full" in str(recorder.error)


def test_a_buffer_may_give_up_the_newest(source: Driven, dropped: list[Any]) -> None:
    stream = source.flux().on_backpressure_buffer(2, Overflow.DROP_NEWEST, dropped.append)
    recorder = Recorder.of(stream, first=1)
    source.emit(1, 2, 3, 4, 5)

    recorder.request(9)
    source.emit(6).complete()

    assert (recorder.items, dropped, recorder.completed) == ([1, 2, 3, 6], [4, 5], True)


def test_a_buffer_may_give_up_the_oldest(source: Driven, dropped: list[Any]) -> None:
    stream = source.flux().on_backpressure_buffer(2, Overflow.DROP_OLDEST, dropped.append)
    recorder = Recorder.of(stream, first=1)
    source.emit(1, 2, 3, 4, 5)

    recorder.request(9)
    source.emit(6).complete()

    assert (recorder.items, dropped, recorder.completed) == ([1, 4, 5, 6], [2, 3], True)


def test_drop_gives_up_what_nobody_asked_for(source: Driven, dropped: list[Any]) -> None:
    recorder = Recorder.of(source.flux().on_backpressure_drop(dropped.append), first=1)
    source.emit(1, 2, 3)

    recorder.request(1)
    source.emit(4, 5)

    assert (recorder.check().items, dropped) == ([1, 4], [2, 3, 5])


def test_latest_keeps_the_newest_until_it_is_asked_for(source: Driven, dropped: list[Any]) -> None:
    recorder = Recorder.of(source.flux().on_backpressure_latest(dropped.append), first=1)
    source.emit(1, 2, 3, 4).complete()
    assert (recorder.items, recorder.completed) == ([1], False)

    recorder.request(1)

    assert (recorder.items, dropped, recorder.completed) == ([1, 4], [2, 3], True)


def test_error_fails_as_soon_as_demand_falls_short(source: Driven) -> None:
    recorder = Recorder.of(source.flux().on_backpressure_error(), first=1)

    source.emit(1, 2)

    assert (recorder.items, source.cancels) == ([1], 1)
    assert isinstance(recorder.error, BufferOverflow)


def test_a_function_for_dropped_elements_that_raises_harms_nobody(source: Driven) -> None:
    faults: list[str] = []

    def broken(_: object) -> None:
        raise ValueError("x")

    with on_dropped(error=lambda error, where: faults.append(where)):
        recorder = Recorder.of(source.flux().on_backpressure_drop(broken))
        source.emit(1)
        recorder.request(1)
        source.emit(2)

    assert recorder.items == [2]
    assert len(faults) == 1
    assert "on_backpressure_drop" in faults[0]


def test_a_source_on_another_thread_is_counted_exactly() -> None:
    from penstock.streams import schedulers

    dropped: list[int] = []
    stream = Flux.range(5_000).subscribe_on(schedulers.shared_pool()).on_backpressure_drop(dropped.append)
    recorder = Recorder(7, on_element=lambda recorder, x: recorder.request(1) if x % 3 == 0 else None)
    stream.subscribe(recorder)
    recorder.wait()

    assert sorted(recorder.items + dropped) == list(range(5_000))
    assert recorder.items == sorted(recorder.items)
