"""The schedulers with threads of their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from penstock.streams.schedulers import (
    PoolScheduler,
    Scheduler,
    SchedulerClosed,
    SharedSchedulerError,
    SingleThreadScheduler,
    Task,
    pool,
    shared_pool,
    shared_single,
    single,
)
from tests.streams.schedulers.rigs import PATIENCE, in_turn, race


def threads_named(prefix: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


class Occupied:
    """A task that holds a thread until released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.release.wait(PATIENCE)


class TestSingle:
    def test_the_thread_starts_with_the_first_task(self) -> None:
        with single("lazy") as scheduler:
            assert threads_named("penstock-lazy") == []
            scheduler.submit(lambda: None)
            assert threads_named("penstock-lazy") == ["penstock-lazy"]

    def test_all_tasks_run_on_one_daemon_thread(self) -> None:
        threads: list[threading.Thread] = []
        with single() as scheduler:
            race(*[partial(scheduler.submit, lambda: threads.append(threading.current_thread()))] * 8)

        assert len(threads) == 8
        assert len(set(threads)) == 1
        assert threads[0].daemon

    def test_closing_one_that_never_ran_anything(self) -> None:
        scheduler = single()
        scheduler.close()
        with pytest.raises(SchedulerClosed):
            scheduler.submit(lambda: None)


class TestPool:
    def test_the_default_size_is_a_few_more_than_the_processors(self) -> None:
        assert pool().threads == min(32, (os.cpu_count() or 1) + 4)

    @pytest.mark.parametrize("threads", [0, -1])
    def test_an_empty_pool_is_refused_with_advice(self, threads: int) -> None:
        with pytest.raises(ValueError, match="pass threads=1 or more"):
            pool(threads)

    def test_tasks_that_find_an_idle_thread_start_no_other(self) -> None:
        with pool(4, "thrifty") as scheduler:
            for _ in range(50):
                done = threading.Event()
                scheduler.submit(done.set)
                assert done.wait(PATIENCE)
                # The thread is idle once it has counted its task as finished, a moment after the task itself.
                while scheduler._unfinished:
                    pass
            assert threads_named("penstock-thrifty") == ["penstock-thrifty-1"]

    def test_a_task_never_waits_behind_another_while_a_thread_may_be_started(self) -> None:
        with pool(4, "eager") as scheduler:
            tasks = [Occupied() for _ in range(4)]
            for task in tasks:
                scheduler.submit(task)
                assert task.begun.wait(PATIENCE)
            for task in tasks:
                task.release.set()

    def test_no_more_threads_are_started_than_allowed(self) -> None:
        with pool(3, "bounded") as scheduler:
            tasks = [Occupied() for _ in range(3)]
            queued = threading.Event()
            for task in tasks:
                scheduler.submit(task)
            for task in tasks:
                assert task.begun.wait(PATIENCE)
            scheduler.submit(queued.set)
            assert threads_named("penstock-bounded") == [f"penstock-bounded-{n}" for n in (1, 2, 3)]
            assert not queued.is_set()

            tasks[1].release.set()
            assert queued.wait(PATIENCE)
            for task in tasks:
                task.release.set()

    def test_the_bound_holds_when_threads_race_to_start_it(self) -> None:
        lock = threading.Lock()
        busy, most = 0, 0

        def task() -> None:
            nonlocal busy, most
            with lock:
                busy += 1
                most = max(most, busy)
            with lock:
                busy -= 1

        with pool(3, "raced") as scheduler:
            race(*[in_turn(*[partial(scheduler.submit, task)] * 300)] * 6)

        assert 1 <= most <= 3
        assert len(scheduler._threads) <= 3

    def test_two_tasks_may_close_their_pool_at_once(self) -> None:
        scheduler = pool(2)
        together = threading.Barrier(2)

        def task() -> None:
            together.wait(PATIENCE)
            scheduler.close()

        scheduler.submit(task)
        scheduler.submit(task)
        scheduler.close(PATIENCE)

        assert not any(thread.is_alive() for thread in scheduler._threads)

    def test_the_threads_it_has_will_do_when_the_system_has_no_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_thread(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with pool(2) as scheduler:
            first = Occupied()
            scheduler.submit(first)
            monkeypatch.setattr(threading.Thread, "start", no_thread)
            done = threading.Event()
            scheduler.submit(done.set)
            first.release.set()
            assert done.wait(PATIENCE)
            monkeypatch.undo()

    def test_without_any_thread_the_task_is_refused_and_the_pool_recovers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_thread(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        ran: list[int] = []
        with pool(2) as scheduler:
            monkeypatch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="can't start"):
                scheduler.submit(partial(ran.append, 1))
            monkeypatch.undo()
            scheduler.submit(partial(ran.append, 2))

        assert ran == [2]


class TestClose:
    def test_close_gives_up_waiting_and_the_tasks_still_run(self) -> None:
        scheduler = single()
        first, second = Occupied(), threading.Event()
        scheduler.submit(first)
        scheduler.submit(second.set)

        scheduler.close(timeout=0)
        with pytest.raises(SchedulerClosed):
            scheduler.submit(lambda: None)
        assert not second.is_set()

        first.release.set()
        assert second.wait(PATIENCE)
        scheduler.close(PATIENCE)
        assert not scheduler._threads[0].is_alive()

    def test_a_task_queued_just_after_the_thread_has_gone_is_refused(self) -> None:
        scheduler = single()
        scheduler.submit(lambda: None)
        others = [lambda: None, lambda: None]
        really_put = scheduler._put

        def put_too_late(task: Task) -> None:
            # As if the thread that submits had been held up here while another one closed the scheduler.
            scheduler._put = really_put
            scheduler.close(PATIENCE)
            for late in [others[0], task, others[1]]:
                really_put(late)

        scheduler._put = put_too_late  # type: ignore[assignment]
        with pytest.raises(SchedulerClosed):
            scheduler.submit(lambda: None)

        # What other threads queued as late as this one is theirs to withdraw, in the same way.
        assert [scheduler._queue.get() for _ in others] == others
        assert scheduler._queue.empty()

    def test_a_task_queued_just_before_the_thread_goes_still_runs(self) -> None:
        scheduler = single()
        first, second = Occupied(), threading.Event()
        scheduler.submit(first)
        really_put = scheduler._put

        def put_behind_the_notice(task: Task) -> None:
            scheduler._put = really_put
            scheduler.close(timeout=0)
            really_put(task)

        scheduler._put = put_behind_the_notice  # type: ignore[assignment]
        scheduler.submit(second.set)

        first.release.set()
        assert second.wait(PATIENCE)
        scheduler.close(PATIENCE)


class TestShared:
    @pytest.mark.parametrize("shared", [shared_pool, shared_single])
    def test_everybody_gets_the_same_one(self, shared: Callable[[], Scheduler]) -> None:
        found: list[Scheduler] = []

        race(*[lambda: found.append(shared())] * 8)

        assert len(found) == 8
        assert len({id(scheduler) for scheduler in found}) == 1

    @pytest.mark.parametrize("shared", [shared_pool, shared_single])
    def test_it_cannot_be_closed(self, shared: Callable[[], Scheduler]) -> None:
        scheduler = shared()
        with pytest.raises(
            SharedSchedulerError, match=rf"'{scheduler.name}' is shared .*make a scheduler of"
        ):
            scheduler.close()
        with pytest.raises(SharedSchedulerError), scheduler:
            raise AssertionError("the block must not be entered")

        done = threading.Event()
        scheduler.submit(done.set)
        assert done.wait(PATIENCE)
        assert not scheduler.closed

    def test_they_are_of_the_kind_they_say(self) -> None:
        assert isinstance(shared_pool(), PoolScheduler)
        assert isinstance(shared_single(), SingleThreadScheduler)
