"""Tasks on an event loop."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.streams.schedulers import LoopScheduler, SchedulerClosed, immediate, loop
from tests.streams.schedulers.rigs import PATIENCE, LoopThread, in_turn, race


@pytest.fixture
def running() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


class Spy:
    """Counts through which door an event loop is entered."""

    def __init__(self, watched: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.doors: list[str] = []
        for door in ("call_soon", "call_soon_threadsafe"):
            monkeypatch.setattr(watched, door, partial(self._enter, door, getattr(watched, door)))

    def _enter(self, door: str, really: object, *args: object, **kwargs: object) -> object:
        self.doors.append(door)
        return really(*args, **kwargs)  # type: ignore[operator]


def test_without_an_argument_it_takes_the_running_loop() -> None:
    async def main() -> list[str]:
        here, order = loop(), list[str]()
        assert here.loop is asyncio.get_running_loop()
        here.submit(partial(order.append, "task"))
        order.append("coroutine")
        await asyncio.sleep(0)
        return order

    assert asyncio.run(main()) == ["coroutine", "task"]


def test_without_a_running_loop_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"create this scheduler inside a coroutine, pass it a loop"):
        loop()


def test_tasks_from_other_threads_run_on_the_loop_s_thread(running: LoopThread) -> None:
    scheduler, threads, done = loop(running.loop), list[threading.Thread](), threading.Event()

    race(*[partial(scheduler.submit, lambda: threads.append(threading.current_thread()))] * 6)
    scheduler.submit(done.set)

    assert done.wait(PATIENCE)
    assert threads == [running.thread] * 6


def test_each_thread_enters_through_the_right_door(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[str]:
        here, done = loop(), asyncio.Event()
        spy = Spy(here.loop, monkeypatch)

        here.submit(lambda: None)  # a coroutine on the loop

        def from_a_task() -> None:
            here.submit(done.set)

        here.submit(from_a_task)
        await done.wait()
        mine, spy.doors = spy.doors, []
        await asyncio.to_thread(here.submit, lambda: None)
        assert spy.doors[0] == "call_soon_threadsafe"
        return mine[:3]

    assert asyncio.run(main()) == ["call_soon"] * 3


def test_a_loop_that_moved_to_another_thread_is_still_woken() -> None:
    moved = asyncio.new_event_loop()
    scheduler = loop(moved)

    async def touch() -> None:
        here = asyncio.Event()
        scheduler.submit(here.set)
        await here.wait()

    moved.run_until_complete(touch())  # first on this thread ...
    thread = threading.Thread(target=moved.run_forever)
    thread.start()  # ... then on another
    try:
        idle, done = threading.Event(), threading.Event()
        moved.call_soon_threadsafe(idle.set)
        assert idle.wait(PATIENCE)
        scheduler.submit(done.set)
        assert done.wait(PATIENCE)
    finally:
        moved.call_soon_threadsafe(moved.stop)
        thread.join(PATIENCE)
        moved.close()


def test_a_closed_loop_refuses_tasks() -> None:
    async def main() -> LoopScheduler:
        here = loop()
        here.submit_after(3600, lambda: None)
        return here

    scheduler = asyncio.run(main())

    assert scheduler.closed
    with pytest.raises(SchedulerClosed, match="'loop' is closed"):
        scheduler.submit(lambda: None)
    with pytest.raises(SchedulerClosed, match="'loop' is closed"):
        scheduler.submit_after(1, lambda: None)
    assert len(scheduler._timers) == 1  # the refused one left nothing; the first went down with its loop


def test_a_timer_may_be_cancelled_after_its_loop_was_closed() -> None:
    async def main() -> object:
        return loop().submit_after(3600, lambda: None)

    timer = asyncio.run(main())

    timer.cancel()  # type: ignore[attr-defined]


def test_an_error_of_the_loop_that_is_not_its_closing_comes_through(running: LoopThread) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the loop is unwell")

    scheduler = loop(running.loop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.loop, "call_soon_threadsafe", broken)
        with pytest.raises(RuntimeError, match="unwell"):
            scheduler.submit(lambda: None)
        with pytest.raises(RuntimeError, match="unwell"):
            scheduler.submit_after(1, lambda: None)
    assert len(scheduler._timers) == 0


def test_closing_the_scheduler_leaves_the_loop_running(running: LoopThread) -> None:
    scheduler = loop(running.loop)
    scheduler.close()

    running.settle()

    assert not running.loop.is_closed()
    assert scheduler.closed


def test_a_cancelled_timer_does_not_stay_in_the_loop(running: LoopThread) -> None:
    scheduler = loop(running.loop)
    timers = [scheduler.submit_after(3600, lambda: None) for _ in range(500)]

    for timer in timers:
        timer.cancel()
    running.settle()
    running.settle()  # asyncio drops cancelled handles at the beginning of its next round

    assert len(scheduler._timers) == 0
    assert len(running.loop._scheduled) == 0  # type: ignore[attr-defined]


def test_a_delay_without_end_asks_nothing_of_the_loop(running: LoopThread) -> None:
    timer = loop(running.loop).submit_after(math.inf, lambda: None)
    running.settle()

    assert len(running.loop._scheduled) == 0  # type: ignore[attr-defined]
    timer.cancel()


def test_a_timer_may_be_armed_and_cancelled_on_the_loop_itself() -> None:
    async def main() -> list[str]:
        here, ran, done = loop(), list[str](), asyncio.Event()
        here.submit_after(0, lambda: ran.append("cancelled")).cancel()
        here.submit_after(0.01, in_turn(lambda: ran.append("kept"), done.set))
        await done.wait()
        return ran

    assert asyncio.run(main()) == ["kept"]


def test_delays_count_from_the_asking_even_when_the_loop_is_busy(running: LoopThread) -> None:
    scheduler = loop(running.loop)
    order: list[str] = []
    in_time = False
    while not in_time:  # If this thread was held up in between, the other one is due first.
        begun, release, done = threading.Event(), threading.Event(), threading.Event()
        scheduler.submit(in_turn(begun.set, partial(release.wait, PATIENCE)))
        assert begun.wait(PATIENCE)
        asked_at = scheduler.now()
        order = []

        scheduler.submit_after(0.2, in_turn(partial(order.append, "asked first, due second"), done.set))
        scheduler.submit_after(0.05, partial(order.append, "asked second, due first"))
        in_time = scheduler.now() - asked_at < 0.15
        past_both = threading.Event()
        immediate().submit_after(0.25, past_both.set)
        assert past_both.wait(PATIENCE)
        assert scheduler.now() - asked_at >= 0.2
        release.set()

        assert done.wait(PATIENCE)
        running.settle()  # Nothing of this round is left for the next one.

    assert order == ["asked second, due first", "asked first, due second"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_on_the_main_thread_an_exit_ends_the_loop_as_asyncio_does(
    kind: type[BaseException], reports: list[tuple[BaseException, object]]
) -> None:
    async def main() -> None:
        def leave() -> None:
            raise kind

        loop().submit(leave)
        await asyncio.sleep(PATIENCE)

    with pytest.raises(kind):
        asyncio.run(main())
    assert not reports
