"""Those who wait for room in a sink: served in turn, one for each place, and forgotten when they give up."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import EmissionFailed, EmitResult, Flux, Sinks, processor
from penstock.streams.operators.replay_buffer import ReplayBuffer
from penstock.testing import race
from tests.races.racing import eventually
from tests.streams.recording import Recorder

PATIENCE = 60.0
MAKERS: dict[str, Any] = {
    "unicast": lambda: Sinks.unicast(1),
    "multicast": lambda: Sinks.multicast(1),
    "replay": lambda: Sinks.replay(1),
}


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def full(request: pytest.FixtureRequest) -> tuple[Any, Recorder]:
    """A sink without room, and its subscriber, which has not asked for anything."""
    sink = request.param()
    recorder = Recorder.of(sink.flux())
    assert sink.try_emit("first") is EmitResult.OK
    assert sink.try_emit("too much") is EmitResult.OVERFLOW
    return sink, recorder


def test_those_who_give_up_are_not_remembered(full: tuple[Any, Recorder]) -> None:
    sink, recorder = full
    for _ in range(20):
        with pytest.raises(TimeoutError):
            sink.emit_blocking("late", timeout=0)

    async def main() -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await sink.emit("late")

    asyncio.run(main())
    assert len(sink._buffer._waiters) == 0
    recorder.request(9)
    assert sink.try_emit("second") is EmitResult.OK
    assert recorder.check().items == ["first", "second"]


def test_what_a_cancelled_emit_carried_is_not_kept_alive(full: tuple[Any, Recorder]) -> None:
    sink, _ = full

    class Element: ...

    element = Element()
    alive = weakref.ref(element)
    with pytest.raises(TimeoutError):
        sink.emit_blocking(element, timeout=0)
    del element
    gc.collect()
    assert alive() is None


def test_a_place_that_one_gives_back_goes_to_the_next() -> None:
    """Two wait, the first is cancelled after it got the place and before it could use it."""
    sink: Any = Sinks.unicast(1)

    async def main() -> list[Any]:
        recorder = Recorder.of(sink.flux())
        await sink.emit("first")
        quitter, stayer = (asyncio.ensure_future(sink.emit(x)) for x in ("quitter", "stayer"))
        await asyncio.sleep(0)
        recorder.request(1)
        quitter.cancel()
        await asyncio.wait([quitter])
        assert quitter.cancelled()
        await asyncio.wait_for(stayer, PATIENCE)
        recorder.request(1)
        return recorder.check().items

    assert asyncio.run(main()) == ["first", "stayer"]


def test_each_element_that_is_read_lets_one_emitter_go_on_and_the_oldest_first(
    full: tuple[Any, Recorder],
) -> None:
    sink, recorder = full

    async def main() -> None:
        tasks = [asyncio.ensure_future(sink.emit(n)) for n in range(5)]
        await asyncio.sleep(0)
        for n in range(5):
            recorder.request(1)
            await asyncio.wait_for(asyncio.shield(tasks[n]), PATIENCE)
            await asyncio.sleep(0)
            assert [task.done() for task in tasks] == [k <= n for k in range(5)]
        recorder.request(1)

    asyncio.run(main())
    assert recorder.check().items == ["first", 0, 1, 2, 3, 4]


def test_nobody_overtakes_those_who_wait(full: tuple[Any, Recorder]) -> None:
    sink, recorder = full

    async def main() -> None:
        waiting = asyncio.ensure_future(sink.emit("waited"))
        await asyncio.sleep(0)
        recorder.request(1)
        assert sink.try_emit("pushy") is EmitResult.OVERFLOW
        await asyncio.wait_for(waiting, PATIENCE)

    asyncio.run(main())
    recorder.request(9)
    assert recorder.check().items == ["first", "waited"]


def test_reading_does_not_wake_those_for_whom_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each element costs does not depend on how many wait: counted, not timed."""
    calls: list[Any] = []
    usual = ReplayBuffer._next_in_line
    monkeypatch.setattr(
        ReplayBuffer, "_next_in_line", lambda self: [calls.append(ticket) or ticket for ticket in usual(self)]
    )
    sink: Any = Sinks.unicast(1)

    async def main() -> None:
        async def read() -> int:
            return len([x async for x in sink.flux().to_async_iterable(1)])

        reader = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        await asyncio.gather(*[sink.emit(n) for n in range(300)])
        sink.try_complete()
        assert await reader == 300

    asyncio.run(main())
    assert len(calls) <= 300


@pytest.mark.parametrize("end", ["completes", "fails", "is deserted"])
def test_all_who_wait_hear_that_there_will_be_no_room(end: str) -> None:
    sink: Any = Sinks.unicast(1)
    recorder = Recorder.of(sink.flux())
    sink.try_emit("first")
    results: list[EmitResult] = []

    def emit() -> None:
        with pytest.raises(EmissionFailed) as failed:
            sink.emit_blocking("never", timeout=PATIENCE)
        results.append(failed.value.result)

    threads = [threading.Thread(target=emit) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(sink._buffer._waiters) == 4, PATIENCE)
    {
        "completes": sink.try_complete,
        "fails": lambda: sink.try_error(OSError()),
        "is deserted": recorder.cancel,
    }[end]()
    for thread in threads:
        thread.join(PATIENCE)
    expected = EmitResult.CANCELLED if end == "is deserted" else EmitResult.TERMINATED
    assert results == [expected] * 4


def test_threads_and_tasks_that_give_up_or_not_lose_no_element_and_no_place() -> None:
    sink: Any = Sinks.multicast(2)
    recorder = Recorder.of(sink.flux(), UNBOUNDED)
    slow = Recorder(1, lambda r, x: r.request(1))
    sink.flux().subscribe(slow)
    sent: list[Any] = []

    def emit(i: int) -> None:
        for k in range(200):
            try:
                sink.emit_blocking((i, k), timeout=0.0 if k % 3 == 0 else PATIENCE)
                sent.append((i, k))
            except TimeoutError:
                continue

    race(*[lambda i=i: emit(i) for i in range(4)])
    sink.try_complete()
    assert sorted(recorder.wait().items) == sorted(slow.wait().items) == sorted(sent)
    assert (sink._buffer._reserved, len(sink._buffer._waiters)) == (0, 0)


# -------------------------------------------------------------------- what stays in memory
class Element:
    """Can be watched through a weak reference."""


def emitted(emit: Any, count: int = 50) -> int:
    """How many of the elements are alive after they were emitted."""
    alive = []
    for _ in range(count):
        element = Element()
        alive.append(weakref.ref(element))
        emit(element)
        del element
    gc.collect()
    return sum(each() is not None for each in alive)


@pytest.mark.parametrize("make", [Sinks.unicast, Sinks.multicast])
def test_an_element_that_all_have_taken_is_let_go(make: Any) -> None:
    sink = make()
    running = sink.flux().subscribe(lambda x: None)
    if make is Sinks.multicast:
        sink.flux().map(lambda x: x).subscribe(lambda x: None)
        sink.flux().filter(lambda x: True).subscribe(lambda x: None)
    assert emitted(sink.try_emit) == 0
    running.cancel()


def test_share_and_processor_let_go_of_what_all_have_taken() -> None:
    sink = Sinks.multicast()
    shared = sink.flux().share()
    shared.subscribe(lambda x: None)
    shared.subscribe(lambda x: None)
    assert emitted(sink.try_emit) == 0
    between, feed = processor(lambda flux: flux.map(lambda x: x)), Sinks.multicast()
    feed.flux().subscribe(between)
    Flux.from_publisher(between).subscribe(lambda x: None)
    assert emitted(feed.try_emit) == 0


def test_what_the_slowest_has_not_taken_stays_and_is_let_go_when_it_leaves() -> None:
    sink = Sinks.multicast(100)
    sink.flux().subscribe(lambda x: None)
    slow = Recorder.of(sink.flux(), 5)
    alive = []
    for _ in range(20):
        element = Element()
        alive.append(weakref.ref(element))
        sink.try_emit(element)
        del element
    slow.items.clear()
    gc.collect()
    assert sum(each() is not None for each in alive) == 15
    slow.cancel()
    gc.collect()
    assert sum(each() is not None for each in alive) == 0


def test_history_is_kept_and_no_more_than_that() -> None:
    sink = Sinks.replay(3)
    sink.flux().subscribe(lambda x: None)
    assert emitted(sink.try_emit) == 3


@pytest.mark.parametrize("readers", [0, 1, 3])
def test_a_long_history_moves_along_without_losing_its_place(readers: int) -> None:
    sink = Sinks.replay(700)
    seen = [Recorder.of(sink.flux(), UNBOUNDED) for _ in range(readers)]
    for n in range(5000):
        assert sink.try_emit(n) is EmitResult.OK
    late = Recorder.of(sink.flux(), UNBOUNDED)
    assert late.check().items == list(range(4300, 5000))
    for recorder in seen:
        assert recorder.check().items == list(range(5000))
    assert len(sink._buffer._elements) < 2 * 700 + 2


def test_a_full_history_is_not_moved_for_each_element() -> None:
    """The list is cut once in a while, and not for each element: counted, not timed."""

    class Counting(list[Any]):
        cuts = 0

        def __delitem__(self, which: Any) -> None:
            Counting.cuts += 1
            super().__delitem__(which)

    sink = Sinks.replay(2000)
    sink._buffer._elements = Counting()
    for n in range(10_000):
        sink.try_emit(n)
    assert Counting.cuts <= 5


def test_emission_failed_survives_a_pickle() -> None:
    copy = pickle.loads(pickle.dumps(EmissionFailed(EmitResult.CANCELLED)))
    assert (copy.result, str(copy)) == (EmitResult.CANCELLED, str(EmissionFailed(EmitResult.CANCELLED)))
