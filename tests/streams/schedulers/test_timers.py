"""The thread that waits for all delays, and the heap it waits with."""

from __future__ import annotations

import random
import threading
import weakref
from functools import partial

import pytest

from penstock.streams.schedulers import Task, immediate, single
from penstock.streams.schedulers.timers import RealTimeScheduler, TimerHeap, TimerThread, shared_timers
from tests.streams.schedulers.rigs import PATIENCE, in_turn, race


def nothing() -> None:
    """A task."""


class TestHeap:
    def test_tasks_come_by_due_time_then_in_the_order_they_were_added(self) -> None:
        heap = TimerHeap()
        added = [heap.push(random.Random(n).randrange(5), nothing, None) for n in range(100)]

        popped = [heap.pop_due(10) for _ in range(100)]

        assert popped == sorted(added, key=lambda entry: entry.due)
        assert heap.pop_due(10) is None

    def test_only_what_is_due_is_given_out(self) -> None:
        heap = TimerHeap()
        entry = heap.push(5, nothing, None)

        assert heap.pop_due(4.9) is None
        assert heap.pop_due(5) is entry

    def test_cancelled_tasks_do_not_pile_up(self) -> None:
        heap = TimerHeap()
        kept = [heap.push(1000, nothing, None) for _ in range(10)]
        for _ in range(10_000):
            heap.push(500, nothing, None).cancel()
            assert heap.held <= 2 * max(len(heap), heap.FEW) + 2

        assert len(heap) == 10
        assert [heap.pop_due(1000) for _ in range(10)] == kept

    def test_cancelling_what_was_given_out_does_not_upset_the_count(self) -> None:
        heap = TimerHeap()
        out = heap.push(1, nothing, None)
        heap.push(2, nothing, None)
        assert heap.pop_due(1) is out

        out.cancel()
        out.cancel()

        assert len(heap) == 1

    def test_one_owner_s_tasks_can_be_cancelled_together(self) -> None:
        heap, mine, other = TimerHeap(), immediate(), immediate()
        heap.push(1, nothing, mine)
        heap.push(2, nothing, mine).cancel()
        kept = [heap.push(1, nothing, other), heap.push(3, nothing, None)]
        heap.push(4, nothing, mine)

        heap.cancel_owned_by(mine)

        assert len(heap) == 2
        assert [heap.pop_due(9), heap.pop_due(9), heap.pop_due(9)] == [*kept, None]

    def test_a_finalizer_may_cancel_while_the_heap_is_at_work(self) -> None:
        heap = TimerHeap()
        victim = heap.push(9, nothing, None)

        class CancelsWhenCollected:
            def __call__(self) -> None: ...

            def __del__(self) -> None:
                victim.cancel()
                heap.push(1, nothing, None)

        owner = immediate()
        heap.push(2, CancelsWhenCollected(), owner)
        heap.cancel_owned_by(owner)

        assert len(heap) == 1

    def test_it_stays_whole_when_threads_push_cancel_and_pop(self) -> None:
        heap = TimerHeap()
        popped: list[object] = []

        def push_and_cancel(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(2000):
                entry = heap.push(chance.random(), nothing, None)
                if chance.random() < 0.7:
                    entry.cancel()

        def pop() -> None:
            for _ in range(2000):
                entry = heap.pop_due(0.5)
                if entry is not None:
                    popped.append(entry)

        race(*(partial(push_and_cancel, seed) for seed in range(3)), pop)
        waiting = len(heap)
        rest = 0
        while heap.pop_due(1) is not None:
            rest += 1

        assert rest == waiting
        assert len(set(map(id, popped))) == len(popped)


class TestTimerThread:
    def test_the_thread_starts_with_the_first_delay_and_is_a_daemon(self) -> None:
        timers = TimerThread("lazy-timer")
        assert timers._thread is None

        done = threading.Event()
        timers.schedule(0, done.set, immediate())

        assert done.wait(PATIENCE)
        assert timers._thread is not None
        assert timers._thread.daemon

    def test_without_a_thread_the_delay_is_refused_and_the_next_one_tries_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_thread(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        timers, ran, done = TimerThread("late-timer"), list[str](), threading.Event()
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            timers.schedule(0, lambda: ran.append("refused"), immediate())
        assert timers.pending == 0
        monkeypatch.undo()

        timers.schedule(0, done.set, immediate())
        assert done.wait(PATIENCE)
        assert ran == []

    def test_an_earlier_delay_wakes_the_thread(self) -> None:
        timers = TimerThread("woken-timer")
        done = threading.Event()
        late = timers.schedule(3600, nothing, immediate())
        timers.schedule(0.01, done.set, immediate())

        assert done.wait(PATIENCE)
        late.cancel()
        assert timers.pending == 0

    def test_a_scheduler_that_refuses_does_not_end_the_thread(
        self, reports: list[tuple[BaseException, object]]
    ) -> None:
        class Refuses(RealTimeScheduler):
            def submit(self, task: Task) -> None:
                raise OSError("no")

        refuses, done = Refuses("refuses"), threading.Event()
        refuses.submit_after(0, nothing)
        immediate().submit_after(0.01, done.set)

        assert done.wait(PATIENCE)
        assert [(str(error), where) for error, where in reports] == [("no", refuses)]

    def test_what_falls_due_while_its_scheduler_closes_is_dropped(
        self, reports: list[tuple[BaseException, object]]
    ) -> None:
        timers, closed = TimerThread("closing-timer"), single("closing")
        closed.close()
        done = threading.Event()

        class Watched:
            def __call__(self) -> None: ...

        task = Watched()
        alive = weakref.ref(task)
        timer = timers.schedule(0, task, closed)
        timers.schedule(0.01, done.set, immediate())
        del task

        assert done.wait(PATIENCE)
        assert alive() is None
        assert not reports
        timer.cancel()

    def test_the_thread_keeps_no_scheduler_alive_whose_delays_are_over(self) -> None:
        timers, scheduler, gone = TimerThread("idle-timer"), immediate(), threading.Event()
        weakref.finalize(scheduler, gone.set)
        timers.schedule(0, nothing, scheduler)
        del scheduler

        assert gone.wait(PATIENCE)

    def test_a_timer_cancelled_while_its_task_is_queued_does_not_run(self) -> None:
        ran: list[int] = []
        with single() as scheduler:
            begun, release = threading.Event(), threading.Event()
            scheduler.submit(in_turn(begun.set, lambda: release.wait(PATIENCE)))
            assert begun.wait(PATIENCE)
            due = threading.Event()
            timer = scheduler.submit_after(0, lambda: ran.append(1))
            # Falls due behind it, on another scheduler: when it has run, the first one is queued.
            immediate().submit_after(0.01, due.set)
            assert due.wait(PATIENCE)
            timer.cancel()
            release.set()

        assert ran == []

    def test_timeouts_that_are_set_and_cancelled_leave_nothing_behind(self) -> None:
        with single() as scheduler:
            before = shared_timers.pending
            for _ in range(5000):
                scheduler.submit_after(60, nothing).cancel()

            # Only ours: what other tests have left behind may set delays meanwhile.
            ours = [entry for *_, entry in shared_timers._heap._entries if entry.owner is scheduler]
            assert all(entry.task is None for entry in ours)
            assert len(ours) <= 2 * max(before, TimerHeap.FEW) + 2
