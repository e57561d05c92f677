"""Elements that are pushed into an open stream: past the queue, and under the same rules."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import EmitResult, Flux, Sinks, on_dropped
from tests.streams.recording import Recorder

CHAINS: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "without operators": lambda flux: flux,
    "one loop": lambda flux: flux.map(lambda x: x),
    "two loops": lambda flux: flux.start_with(-1).map(lambda x: x).skip(1),
    "many out of one": lambda flux: flux.flat_map_iterable(lambda x: (x,)),
}


class Meddler:
    """A drain's lock. Whoever takes it next is interrupted at once, as if by another thread."""

    def __init__(self, lock: Any, meddle: Callable[[], object]) -> None:
        self._lock = lock
        self._meddle: Callable[[], object] | None = meddle

    def acquire(self, blocking: bool) -> bool:
        taken = bool(self._lock.acquire(blocking))
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()
        return taken

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())


EACH = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


@EACH
def test_demand_is_exact_to_the_element(chain: Callable[[Flux[Any]], Flux[Any]]) -> None:
    sink = Sinks.multicast(10)
    recorder = Recorder.of(chain(sink.flux()), first=3)

    for n in range(5):
        assert sink.try_emit(n) is EmitResult.OK
    assert recorder.check().items == [0, 1, 2]
    recorder.request(1)
    assert recorder.check().items == [0, 1, 2, 3]
    recorder.request(5)
    sink.try_emit(5)
    sink.try_complete()

    assert (recorder.check().items, recorder.completed) == ([0, 1, 2, 3, 4, 5], True)


@EACH
def test_an_element_emitted_inside_on_next_comes_after_it(chain: Callable[[Flux[Any]], Flux[Any]]) -> None:
    sink = Sinks.multicast()
    recorder = Recorder(UNBOUNDED, lambda _, x: sink.try_emit(x + 1) if x < 500 else None)
    chain(sink.flux()).subscribe(recorder)
    sink.try_emit(-5)

    sink.try_emit(400)

    assert recorder.check().items == [*range(-5, 501), *range(400, 501)]
    assert recorder.deepest == 1


@EACH
def test_a_cancel_inside_on_next_is_the_last_of_it(chain: Callable[[Flux[Any]], Flux[Any]]) -> None:
    sink = Sinks.multicast()
    recorder = Recorder(UNBOUNDED, lambda recorder, x: recorder.cancel() if x == 1 else None)
    chain(sink.flux()).subscribe(recorder)

    for n in range(4):
        sink.try_emit(n)
    sink.try_complete()

    assert (recorder.check().items, recorder.terminated) == ([0, 1], False)
    assert Recorder.of(sink.flux(), UNBOUNDED).check().items == [2, 3], "they wait for the next subscriber"


@EACH
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_a_subscriber_that_raises_is_cancelled(
    chain: Callable[[Flux[Any]], Flux[Any]], error: type[Exception]
) -> None:
    def fail(recorder: Recorder, element: int) -> None:
        if element == 1:
            raise error("mine")

    sink, dropped = Sinks.multicast(), []
    recorder = Recorder(UNBOUNDED, fail)
    chain(sink.flux()).subscribe(recorder)

    with on_dropped(error=lambda error, where: dropped.append(where)):
        results = [sink.try_emit(n) for n in range(3)]

    assert results == [EmitResult.OK] * 3
    assert (recorder.items, recorder.terminated, sink.subscriber_count()) == ([0, 1], False, 0)
    assert len(dropped) == 1
    assert "§2.13" in dropped[0]


def test_a_function_that_raises_is_named() -> None:
    sink = Sinks.unicast()
    recorder = Recorder.of(sink.flux().map(lambda x: 1 // x), UNBOUNDED)
    sink.try_emit(1)

    sink.try_emit(0)

    assert isinstance(recorder.error, ZeroDivisionError)
    assert any("map(λ)" in note for note in recorder.error.__notes__)


def test_a_take_completes_with_its_last_element() -> None:
    sink = Sinks.unicast()
    recorder = Recorder.of(sink.flux().take(2), UNBOUNDED)

    results = [sink.try_emit(n) for n in range(3)]

    assert (recorder.check().items, recorder.completed) == ([0, 1], True)
    assert results == [EmitResult.OK, EmitResult.OK, EmitResult.CANCELLED]


def test_it_runs_in_the_context_of_the_subscriber() -> None:
    place = contextvars.ContextVar("place", default="nowhere")
    seen: list[str] = []
    sink = Sinks.multicast()
    here = contextvars.copy_context()
    here.run(place.set, "here")
    here.run(sink.flux().do_on_next(lambda _: seen.append(place.get())).subscribe, Recorder(UNBOUNDED))
    here.run(sink.flux().subscribe, Recorder(UNBOUNDED, lambda *_: seen.append(place.get())))

    for n in range(3):
        sink.try_emit(n)

    assert seen == ["here"] * 6


def test_nothing_is_emitted_after_the_end() -> None:
    sink = Sinks.multicast()
    recorder = Recorder(UNBOUNDED, lambda *_: sink.try_complete())
    sink.flux().subscribe(recorder)

    assert [sink.try_emit(n) for n in range(2)] == [EmitResult.OK, EmitResult.TERMINATED]
    assert (recorder.check().items, recorder.completed) == ([0], True)


@EACH
@pytest.mark.parametrize("subscribers", [1, 3])
def test_threads_that_emit_at_once(chain: Callable[[Flux[Any]], Flux[Any]], subscribers: int) -> None:
    sink = Sinks.multicast(100_000)
    recorders = [Recorder.of(chain(sink.flux()), UNBOUNDED) for _ in range(subscribers)]
    gate = threading.Barrier(4)

    def emit(base: int) -> None:
        gate.wait(20)
        for n in range(300):
            assert sink.try_emit(base + n) is EmitResult.OK

    threads = [threading.Thread(target=emit, args=(base,)) for base in (0, 1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    sink.try_complete()

    for recorder in recorders:
        assert recorder.wait().completed
        assert sorted(recorder.items) == [base + n for base in (0, 1000, 2000, 3000) for n in range(300)]
        for base in (0, 1000, 2000, 3000):
            own = [n for n in recorder.items if base <= n < base + 1000]
            assert own == sorted(own), "each thread's elements keep their order"
    if subscribers > 1:
        assert recorders[0].items == recorders[1].items == recorders[2].items


def test_a_slow_subscriber_bounds_a_sink_with_several() -> None:
    sink = Sinks.multicast(3)
    quick, slow = Recorder.of(sink.flux(), UNBOUNDED), Recorder.of(sink.flux(), 1)

    results = [sink.try_emit(n) for n in range(5)]

    assert results == [EmitResult.OK] * 4 + [EmitResult.OVERFLOW]
    assert (quick.items, slow.items) == ([0, 1, 2, 3], [0])
    late = Recorder.of(sink.flux(), UNBOUNDED)
    assert late.items == [1, 2, 3], "from the oldest that is still there"
    slow.request(3)
    assert (slow.items, sink.try_emit(4)) == ([0, 1, 2, 3], EmitResult.OK)
    for recorder in (quick, slow, late):
        recorder.check()


def test_a_filter_below_a_shared_stream_never_starves() -> None:
    recorder = Recorder.of(Flux.range(5_000).share(prefetch=8).filter(lambda x: x == 4_999), first=1)

    assert recorder.check().items == [4_999]


def test_share_asks_in_batches() -> None:
    asked: list[int] = []
    recorder = Recorder.of(Flux.range(10_000).do_on_request(asked.append).share(), UNBOUNDED)

    assert recorder.wait().items == list(range(10_000))
    assert asked[:3] == [256, 192, 192]


@EACH
@pytest.mark.parametrize("end", ["complete", "error", "cancel"])
def test_an_end_that_comes_when_an_element_is_about_to_pass_is_seen(
    chain: Callable[[Flux[Any]], Flux[Any]], end: str
) -> None:
    sink = Sinks.multicast()
    outcomes: list[Any] = []
    recorder = Recorder.of(chain(sink.flux().do_finally(outcomes.append)), UNBOUNDED)
    sink.try_emit(0)
    ends = {
        "complete": sink.try_complete,
        "error": lambda: sink.try_error(ValueError("late")),
        "cancel": recorder.cancel,
    }
    stage: Any = recorder.subscription

    stage._owner = Meddler(stage._owner, ends[end])
    sink.try_emit(1)

    assert len(outcomes) == 1, "nobody has looked at the end"
    assert recorder.check().terminated is (end != "cancel")


@pytest.mark.parametrize("end", ["complete", "error"])
def test_an_emitter_that_ends_when_an_element_is_about_to_pass_is_heard(end: str) -> None:
    emitters: list[Any] = []
    recorder = Recorder.of(Flux.create(emitters.append), UNBOUNDED)
    emitter = emitters[0]
    emitter.next(0)
    stage: Any = recorder.subscription

    stage._owner = Meddler(
        stage._owner, lambda: emitter.complete() if end == "complete" else emitter.error(ValueError("late"))
    )
    emitter.next(1)

    assert recorder.check().terminated


def test_a_subscriber_that_joins_while_an_element_is_about_to_pass_misses_none() -> None:
    sink = Sinks.multicast()
    inside, go_on = threading.Event(), threading.Event()

    def stay(_: Recorder, element: Any) -> None:
        if element == 1:
            inside.set()
            go_on.wait(20)

    first, late = Recorder(UNBOUNDED, stay), Recorder(UNBOUNDED)
    sink.flux().subscribe(first)
    sink.try_emit(0)
    slow = threading.Thread(target=sink.try_emit, args=[1])
    slow.start()
    inside.wait(20)
    sink.try_emit(2)  # it waits

    def join_and_catch_up() -> None:
        sink.flux().subscribe(late)
        go_on.set()
        slow.join(20)

    class Late(Meddler):
        def acquire(self, blocking: bool) -> bool:
            meddle, self._meddle = self._meddle, None
            if meddle is not None:
                meddle()
            return super().acquire(blocking)

    stage: Any = first.subscription
    stage._owner = Late(stage._owner, join_and_catch_up)
    sink.try_emit(3)
    sink.try_emit(4)

    assert first.check().items == [0, 1, 2, 3, 4]
    assert late.check().items == [2, 3, 4]
