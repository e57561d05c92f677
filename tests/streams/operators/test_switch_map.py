"""``switch_map``: only the stream of the newest element runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, Sinks, on_dropped, schedulers
from penstock.streams.schedulers import VirtualTimeScheduler
from penstock.streams.spi import PublisherSource, flux_of
from tests.streams.operators.rigs import (
    Oops,
    asked_of_the_source,
    check_that_an_exception_ends_it,
    oops,
    result,
)
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Rig:
    """An outer stream ``"a"``, ``"b"``, … and an inner one for each of its elements, driven by hand."""

    def __init__(self, first: int = UNBOUNDED) -> None:
        self.outer = Driven()
        self.inner: dict[str, Driven] = {}
        self.recorder = Recorder.of(self.outer.flux().switch_map(self._open), first)

    def _open(self, name: str) -> Flux[Any]:
        self.inner[name] = Driven()
        return self.inner[name].flux()


# -------------------------------------------------------------------- elements
def test_every_inner_stream_that_ends_before_the_next_is_sent_completely() -> None:
    stream = Flux.range(1, 3).switch_map(lambda n: Flux.range(n * 10, n))

    assert result(stream) == [10, 20, 21, 30, 31, 32]


def test_switch_map_never_lets_a_late_element_of_the_old_stream_through() -> None:
    rig = Rig()
    rig.outer.emit("a")
    rig.inner["a"].emit(1, 2)
    rig.outer.emit("b")
    rig.inner["a"].emit("late")
    rig.inner["b"].emit(3)
    rig.inner["a"].emit("later").complete()

    assert rig.recorder.check().items == [1, 2, 3]
    assert (rig.inner["a"].cancels, rig.inner["b"].cancels) == (1, 0)
    assert not rig.recorder.terminated


def test_switch_map_never_lets_a_late_element_of_the_old_stream_through_on_threads() -> None:
    """Each inner stream sends its own number as fast as it can; the numbers must never go back."""
    outer: Any = Sinks.unicast(10_000)

    def endless(n: int) -> Flux[int]:
        return Flux.generate(lambda: n, lambda state, sink: (sink.next(state), state)[1]).subscribe_on(
            schedulers.shared_pool()
        )

    recorder = Recorder(UNBOUNDED)
    seen = threading.Semaphore(0)

    def note(_: Recorder, element: int) -> None:
        if len(recorder.items) < 2 or recorder.items[-2] != element:
            seen.release()

    recorder.on_element = note
    outer.flux().switch_map(endless).subscribe(recorder)
    for n in range(200):
        outer.try_emit(n)
        assert seen.acquire(timeout=20)
    recorder.cancel()

    assert recorder.check().items == sorted(recorder.items)
    assert set(recorder.items) == set(range(200))


def test_a_switch_while_the_subscriber_is_busy_cuts_the_old_stream_off() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def busy(_: Recorder, element: Any) -> None:
        if element == 1:
            inside.set()
            assert go_on.wait(20)

    rig = Rig()
    rig.recorder.on_element = busy
    rig.outer.emit("a")
    worker = threading.Thread(target=rig.inner["a"].emit, args=(1, "late", "later"))
    worker.start()
    assert inside.wait(20)
    rig.outer.emit("b")
    go_on.set()
    worker.join()
    rig.inner["b"].emit(2)

    assert rig.recorder.check().items == [1, 2]


def test_the_mapper_may_return_anything_that_becomes_a_stream() -> None:
    async def asked(n: int) -> int:
        return n

    assert result(Flux.just(1).switch_map(lambda n: [n, n])) == [1, 1]
    assert Flux.just(1).switch_map(asked).collect_list().block() == [1]
    assert result(Flux.just(1).switch_map(lambda n: Mono.empty())) == []


# -------------------------------------------------------------------- demand
def test_the_inner_stream_is_asked_for_exactly_the_open_demand() -> None:
    rig = Rig(first=5)
    assert rig.outer.requests == [UNBOUNDED]
    rig.outer.emit("a")
    assert rig.inner["a"].requests == [5]
    rig.inner["a"].emit(1, 2)
    rig.outer.emit("b")
    assert rig.inner["b"].requests == [3]
    rig.recorder.request(4)

    assert rig.inner["b"].requests == [3, 4]
    assert rig.inner["a"].requests == [5]
    rig.recorder.check()


def test_demand_without_an_inner_stream_waits_for_one() -> None:
    rig = Rig(first=0)
    rig.outer.emit("a")
    assert rig.inner["a"].requests == []
    rig.recorder.request(2)
    rig.outer.emit("b")

    assert rig.inner["a"].requests == [2]
    assert rig.inner["b"].requests == [2]


def test_operators_below_are_part_of_the_demand() -> None:
    outer, inner = Driven(), Driven()
    recorder = Recorder.of(outer.flux().switch_map(lambda _: inner.flux()).skip(1).take(2), UNBOUNDED)
    outer.emit("a")
    assert inner.requests == [3]
    inner.emit(1, 2, 3)

    assert recorder.check().items == [2, 3]
    assert recorder.completed
    assert outer.cancels == 1


def test_elements_that_a_filter_drops_are_asked_for_again() -> None:
    inner = Driven()
    recorder = Recorder.of(Flux.just(0).switch_map(lambda _: inner.flux()).filter(lambda x: x > 1), 1)
    inner.emit(1)

    assert inner.requests == [1, 1]
    assert recorder.check().items == []


def test_the_source_is_asked_for_everything() -> None:
    assert asked_of_the_source(lambda flux: flux.switch_map(lambda _: Flux.never()), 1) == [UNBOUNDED]


def test_a_request_inside_on_next_does_not_nest() -> None:
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    Flux.just(0).switch_map(lambda _: Flux.range(2_000)).subscribe(recorder)

    assert len(recorder.check().items) == 2_000
    assert recorder.deepest == 1


# -------------------------------------------------------------------- the end
def test_it_completes_when_the_source_and_the_present_stream_have() -> None:
    rig = Rig()
    rig.outer.emit("a")
    rig.inner["a"].complete()
    rig.outer.emit("b").complete()
    assert not rig.recorder.terminated
    rig.inner["b"].emit(1).complete()

    assert rig.recorder.check().completed


def test_an_old_stream_is_not_waited_for() -> None:
    rig = Rig()
    rig.outer.emit("a")
    rig.outer.emit("b").complete()
    rig.inner["b"].complete()

    assert rig.recorder.check().completed


def test_without_an_element_it_completes_with_the_source() -> None:
    rig = Rig(first=0)
    rig.outer.complete()

    assert rig.recorder.check().completed


def test_an_error_of_the_inner_stream_comes_after_its_elements() -> None:
    rig = Rig()
    rig.outer.emit("a")
    rig.inner["a"].emit(1).fail(Oops())

    assert rig.recorder.check().items == [1]
    assert isinstance(rig.recorder.error, Oops)
    assert rig.outer.cancels == 1


def test_an_error_of_the_source_cancels_the_inner_stream() -> None:
    rig = Rig()
    rig.outer.emit("a").fail(Oops())

    assert isinstance(rig.recorder.check().error, Oops)
    assert rig.inner["a"].cancels == 1


def test_an_error_of_an_old_stream_is_reported_as_dropped() -> None:
    dropped: list[BaseException] = []
    outer, inner = Driven(), Driven()  # without the guard, which would keep the error to itself
    unguarded = flux_of(PublisherSource(inner))
    recorder = Recorder.of(outer.flux().switch_map(lambda n: unguarded if n == 1 else Flux.never()), 1)
    outer.emit(1, 2)
    with on_dropped(error=lambda error, where: dropped.append(error)):
        inner.fail(Oops())

    assert [type(error) for error in dropped] == [Oops]
    assert not recorder.check().terminated


def test_a_mapper_that_raises_ends_it() -> None:
    check_that_an_exception_ends_it(lambda flux: flux.switch_map(oops), "switch_map", __file__)


def test_a_mapper_that_returns_no_stream_says_what_to_do() -> None:
    recorder = Recorder.of(Flux.just(1).switch_map(lambda n: n), 1)  # type: ignore[arg-type, return-value]

    assert "the function of switch_map() needs a publisher" in str(recorder.error)


def test_none_from_an_inner_stream_is_refused() -> None:
    recorder = Recorder.of(Flux.just(1).switch_map(lambda n: [None]), 1)  # type: ignore[arg-type, return-value]

    assert isinstance(recorder.error, TypeError)


# -------------------------------------------------------------------- cancel
def test_a_cancel_reaches_the_source_and_the_present_stream() -> None:
    rig = Rig()
    rig.outer.emit("a")
    rig.recorder.cancel()
    rig.inner["a"].emit("late")

    assert (rig.outer.cancels, rig.inner["a"].cancels) == (1, 1)
    assert rig.recorder.check().items == []


def test_a_cancel_inside_on_next_stops_it() -> None:
    recorder = Recorder(UNBOUNDED, on_element=lambda recorder, _: recorder.cancel())
    Flux.just(1, 2).switch_map(lambda n: Flux.range(n, 10)).subscribe(recorder)

    assert recorder.check().items == [1]


def test_the_subscriber_may_push_the_next_element_from_inside_on_next() -> None:
    sink: Any = Sinks.unicast(100)

    def feed_back(_: Recorder, element: int) -> None:
        if element < 5:
            sink.try_emit(element + 1)

    recorder = Recorder(UNBOUNDED, on_element=feed_back)
    sink.flux().switch_map(lambda n: Flux.just(n, 100 + n)).subscribe(recorder)
    sink.try_emit(0)

    # The sink sends the next element when its on_next has returned (§1.3), so each inner stream ends first.
    assert recorder.check().items == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104, 5, 105]


def test_many_switches_hold_one_stream() -> None:
    rig = Rig()
    for n in range(1_000):
        rig.outer.emit(str(n))

    assert sum(inner.cancels for inner in rig.inner.values()) == 999


@pytest.mark.parametrize("requested", [1, 3, UNBOUNDED])
def test_two_subscribers_have_runs_of_their_own(requested: int) -> None:
    stream = Flux.just(1).switch_map(lambda n: Flux.range(n, 3))
    first, second = Recorder.of(stream, requested), Recorder.of(stream, UNBOUNDED)

    assert first.check().items == [1, 2, 3][:requested]
    assert second.check().items == [1, 2, 3]


def test_on_virtual_time_the_newest_wins() -> None:
    clock = VirtualTimeScheduler()
    stream = (
        Flux.interval(1, scheduler=clock)
        .take(3)
        .switch_map(lambda n: Flux.interval(0.4, scheduler=clock).map(lambda tick: (n, tick)))
    )
    recorder = Recorder.of(stream.take(7), UNBOUNDED)
    clock.advance_by(10)

    assert recorder.check().items == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert clock.pending == 0
