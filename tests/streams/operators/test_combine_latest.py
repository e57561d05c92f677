"""``combine_latest``: the newest elements of several streams."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, on_dropped, schedulers
from tests.streams.operators.rigs import Oops, oops, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Rig:
    def __init__(self, first: int = UNBOUNDED, streams: int = 2, **settings: Any) -> None:
        self.sources = [Driven() for _ in range(streams)]
        fluxes = [source.flux() for source in self.sources]
        self.recorder = Recorder.of(Flux.combine_latest(*fluxes, **settings), first)


def test_a_row_for_each_element_once_all_have_one() -> None:
    rig = Rig(streams=3)
    a, b, c = rig.sources
    a.emit(1, 2)
    b.emit("x")
    assert rig.recorder.items == []
    c.emit(0.5)
    b.emit("y")
    a.emit(3)

    assert rig.recorder.check().items == [(2, "x", 0.5), (2, "y", 0.5), (3, "y", 0.5)]


def test_rows_wait_for_demand_and_none_is_left_out() -> None:
    rig = Rig(first=0, prefetch=4)
    a, b = rig.sources
    assert (a.requests, b.requests) == ([4], [4])
    a.emit(1, 2)
    b.emit("x", "y")
    a.emit(3)
    rig.recorder.request(1)
    assert rig.recorder.items == [(2, "x")]
    rig.recorder.request(9)

    assert rig.recorder.check().items == [(2, "x"), (2, "y"), (3, "y")]
    assert (a.requests, b.requests) == ([4, 3], [4])  # three quarters were taken


def test_a_combinator_makes_the_row() -> None:
    assert result(Flux.combine_latest(Flux.just(1), Flux.just(2, 3), combinator=lambda a, b: a * b)) == [2, 3]


def test_elements_need_not_be_comparable() -> None:
    class Strange:
        def __eq__(self, other: object) -> bool:
            raise Oops("compared")

        __hash__ = None  # type: ignore[assignment]

    first = Strange()
    (row,) = result(Flux.combine_latest(Flux.just(first), Flux.just(1)))

    assert row[0] is first


def test_of_nothing_is_nothing_and_of_one_are_rows_of_one() -> None:
    assert result(Flux.combine_latest()) == []
    assert result(Flux.combine_latest([1, 2])) == [(1,), (2,)]  # type: ignore[arg-type]


# -------------------------------------------------------------------- the end
def test_it_completes_when_all_have() -> None:
    rig = Rig()
    a, b = rig.sources
    a.emit(1).complete()
    b.emit("x", "y")
    assert not rig.recorder.terminated
    b.complete()

    assert (rig.recorder.check().items, rig.recorder.completed) == ([(1, "x"), (1, "y")], True)


def test_completion_waits_for_the_rows() -> None:
    rig = Rig(first=0)
    a, b = rig.sources
    a.emit(1).complete()
    b.emit("x").complete()
    assert not rig.recorder.terminated
    rig.recorder.request(1)

    assert (rig.recorder.check().items, rig.recorder.completed) == ([(1, "x")], True)


def test_an_empty_stream_ends_it_at_once() -> None:
    rig = Rig(first=0)
    a, b = rig.sources
    a.emit(1)
    b.complete()

    assert (rig.recorder.check().completed, a.cancels) == (True, 1)


def test_an_error_cancels_the_others_and_reports_what_waits() -> None:
    dropped: list[Any] = []
    rig = Rig(first=0)
    a, b = rig.sources
    a.emit(1)
    with on_dropped(element=lambda element, where: dropped.append(element)):
        b.fail(Oops())

    assert isinstance(rig.recorder.check().error, Oops)
    assert (a.cancels, dropped) == (1, [1])


def test_a_combinator_that_raises_ends_it() -> None:
    rig = Rig(combinator=oops)
    a, b = rig.sources
    a.emit(1)
    b.emit(1)

    assert isinstance(rig.recorder.check().error, Oops)
    assert (a.cancels, b.cancels) == (1, 1)


def test_a_cancel_reaches_all() -> None:
    rig = Rig(streams=3)
    rig.recorder.cancel()
    rig.sources[0].emit("late")

    assert [source.cancels for source in rig.sources] == [1, 1, 1]
    assert rig.recorder.check().items == []


def test_a_cancel_inside_on_next_stops_it() -> None:
    recorder = Recorder(UNBOUNDED, on_element=lambda recorder, _: recorder.cancel())
    Flux.combine_latest(Flux.just(1), Flux.range(100)).subscribe(recorder)

    assert recorder.check().items == [(1, 0)]


# -------------------------------------------------------------------- threads
@pytest.mark.parametrize("first", [1, UNBOUNDED])
def test_streams_on_threads(first: int) -> None:
    """Each column counts up; every element of both is in a row, the last row has the last of both."""
    recorder = Recorder(first, on_element=lambda recorder, _: recorder.request(1) if first == 1 else None)
    numbers = Flux.range(2_000).subscribe_on(schedulers.shared_pool())
    Flux.combine_latest(numbers, numbers, prefetch=8).subscribe(recorder)
    recorder.wait()

    rows = recorder.items
    assert rows == sorted(rows)
    assert rows[-1] == (1_999, 1_999)
    assert all(before != after for before, after in pairwise(rows))


def test_a_slow_subscriber_bounds_what_waits() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def busy(*_: Any) -> None:
        inside.set()
        assert go_on.wait(20)

    taken: list[int] = []
    recorder = Recorder(UNBOUNDED, on_element=busy)
    numbers = Flux.range(10_000).do_on_next(taken.append).subscribe_on(schedulers.shared_pool())
    Flux.combine_latest(Flux.just(0), numbers, prefetch=8).subscribe(recorder)
    assert inside.wait(20)
    assert len(taken) <= 9
    recorder.cancel()
    go_on.set()
