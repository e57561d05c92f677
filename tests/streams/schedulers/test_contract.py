"""What every scheduler promises, tried on each of them."""

from __future__ import annotations

import gc
import math
import pickle
import threading
import weakref
from collections import Counter
from functools import partial

import pytest

from penstock.streams.schedulers import SchedulerClosed
from tests.streams.schedulers.conftest import Reports
from tests.streams.schedulers.rigs import PATIENCE, Rig, in_turn, race

LATER = 0.2
"""Seconds to a timer that the test means to cancel first."""


class Harmless:
    """A task that does nothing, and can be watched through a weak reference."""

    def __call__(self) -> None: ...


class Forbidden:
    """A task that must not run, and can be watched through a weak reference."""

    def __call__(self) -> None:
        raise AssertionError("a task ran that must not")


def worker_threads() -> set[threading.Thread]:
    """The threads of schedulers, without those that the process keeps."""
    kept = {"penstock-timer", "penstock-loop"}
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("penstock-") and thread.name not in kept
    }


class TestSubmit:
    def test_a_task_runs_once(self, rig: Rig) -> None:
        runs: list[int] = []
        done = threading.Event()
        rig.scheduler.submit(in_turn(lambda: runs.append(1), done.set))

        rig.wait(done)
        rig.scheduler.close(PATIENCE)
        rig.settle()

        assert runs == [1]

    def test_tasks_run_in_order(self, ordered_rig: Rig) -> None:
        order: list[int] = []
        done = threading.Event()
        for number in range(500):
            ordered_rig.scheduler.submit(partial(order.append, number))
        ordered_rig.scheduler.submit(done.set)

        ordered_rig.wait(done)

        assert order == list(range(500))

    def test_a_task_may_submit_more(self, rig: Rig) -> None:
        done = threading.Event()
        left = [50]

        def again() -> None:
            left[0] -= 1
            rig.scheduler.submit(again if left[0] else done.set)

        rig.scheduler.submit(again)

        rig.wait(done)
        assert left == [0]

    def test_nothing_is_lost_when_many_threads_submit(self, rig: Rig) -> None:
        threads, each = 8, 400
        ran: Counter[tuple[int, int]] = Counter()
        counting = threading.Lock()
        done = threading.Event()

        def count(key: tuple[int, int]) -> None:
            with counting:
                ran[key] += 1
                if len(ran) == threads * each:
                    done.set()

        def submit_each(thread: int) -> None:
            for number in range(each):
                rig.scheduler.submit(partial(count, (thread, number)))

        race(*(partial(submit_each, thread) for thread in range(threads)))
        rig.wait(done)
        rig.scheduler.close(PATIENCE)
        rig.settle()

        assert set(ran.values()) == {1}
        assert len(ran) == threads * each

    def test_a_task_that_ran_is_let_go_though_the_scheduler_stays_open(self, rig: Rig) -> None:
        task, gone = Harmless(), threading.Event()
        weakref.finalize(task, gone.set)
        rig.scheduler.submit(task)
        del task

        rig.wait(gone)


class TestErrors:
    @pytest.mark.parametrize("kind", [ValueError, GeneratorExit], ids=["Exception", "BaseException"])
    def test_an_error_is_reported_and_the_next_task_runs(
        self, rig: Rig, reports: Reports, kind: type[BaseException]
    ) -> None:
        error = kind("from the task")
        done = threading.Event()

        def fail() -> None:
            raise error

        for _ in range(10):
            rig.scheduler.submit(fail)
        rig.scheduler.submit(done.set)
        rig.wait(done)
        rig.scheduler.close(PATIENCE)
        rig.settle()

        assert reports == [(error, rig.scheduler)] * 10

    def test_an_error_of_a_delayed_task_is_reported(self, rig: Rig, reports: Reports) -> None:
        error = ValueError("from the task")
        done = threading.Event()

        def fail() -> None:
            raise error

        rig.scheduler.submit_after(0.01, fail)
        rig.scheduler.submit_after(0.02, done.set)
        rig.wait(done)
        rig.scheduler.close(PATIENCE)

        assert reports == [(error, rig.scheduler)]

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
    def test_an_exit_goes_to_the_caller_or_is_reported(
        self, rig: Rig, reports: Reports, kind: type[BaseException]
    ) -> None:
        error = kind()
        done = threading.Event()

        def fail() -> None:
            raise error

        caller_gets_it = rig.scheduler.runs_inline
        if caller_gets_it:
            with pytest.raises(kind):
                rig.scheduler.submit(fail)
        else:
            rig.scheduler.submit(fail)
            if rig.scheduler.name == "virtual":
                caller_gets_it = True
                with pytest.raises(kind):
                    rig.settle()
        rig.scheduler.submit(done.set)
        rig.wait(done)
        rig.scheduler.close(PATIENCE)

        assert reports == ([] if caller_gets_it else [(error, rig.scheduler)])


class TestDelays:
    def test_the_earlier_is_run_first(self, ordered_rig: Rig) -> None:
        order: list[str] = []
        done = threading.Event()
        ordered_rig.scheduler.submit_after(0.06, in_turn(lambda: order.append("last"), done.set))
        ordered_rig.scheduler.submit_after(0.02, partial(order.append, "first"))
        ordered_rig.scheduler.submit_after(0.04, partial(order.append, "second"))
        ordered_rig.scheduler.submit_after(0, partial(order.append, "at once"))

        ordered_rig.wait(done)

        assert order == ["at once", "first", "second", "last"]

    def test_a_task_is_not_run_before_its_time(self, rig: Rig) -> None:
        moments: list[float] = []
        done = threading.Event()
        asked_at = rig.scheduler.now()
        rig.scheduler.submit_after(0.05, in_turn(lambda: moments.append(rig.scheduler.now()), done.set))

        rig.wait(done)

        # An event loop may run a timer up to one tick of its clock early.
        assert moments[0] - asked_at >= 0.049

    def test_a_cancelled_task_is_not_run(self, rig: Rig) -> None:
        done = threading.Event()
        timer = rig.scheduler.submit_after(LATER, Forbidden())
        timer.cancel()
        rig.scheduler.submit_after(LATER + 0.02, done.set)

        rig.wait(done)

    def test_a_cancelled_task_is_let_go_at_once(self, rig: Rig) -> None:
        task = Forbidden()
        alive = weakref.ref(task)
        timer = rig.scheduler.submit_after(3600, task)
        del task
        timer.cancel()

        gc.collect()
        assert alive() is None

    def test_a_delayed_task_that_ran_is_let_go_though_the_timer_is_kept(self, rig: Rig) -> None:
        task, gone = Harmless(), threading.Event()
        weakref.finalize(task, gone.set)
        timer = rig.scheduler.submit_after(0, task)
        del task

        rig.wait(gone)
        timer.cancel()

    def test_cancelling_is_harmless_at_any_time_from_any_thread(self, rig: Rig) -> None:
        done = threading.Event()
        timer = rig.scheduler.submit_after(0, done.set)
        never = rig.scheduler.submit_after(math.inf, Forbidden())

        rig.wait(done)
        race(*[timer.cancel, never.cancel] * 4)
        rig.scheduler.close(PATIENCE)

        timer.cancel()
        never.cancel()

    def test_a_task_either_runs_or_is_cancelled_when_both_race(self, rig: Rig) -> None:
        runs: Counter[int] = Counter()
        counting = threading.Lock()
        done = threading.Event()

        def count(number: int) -> None:
            with counting:
                runs[number] += 1

        timers = [rig.scheduler.submit_after(0.0001 * n, partial(count, n)) for n in range(200)]

        def cancel_every_fourth(start: int) -> None:
            for timer in timers[start::4]:
                timer.cancel()

        race(*(partial(cancel_every_fourth, start) for start in range(4)))
        rig.scheduler.submit_after(0.03, done.set)
        rig.wait(done)
        rig.scheduler.close(PATIENCE)

        assert set(runs.values()) <= {1}

    def test_many_threads_may_ask_for_delays(self, rig: Rig) -> None:
        threads, each = 6, 50
        done = threading.Event()
        counting = threading.Lock()
        total = [0]

        def count() -> None:
            with counting:
                total[0] += 1
                if total[0] == threads * each:
                    done.set()

        def ask() -> None:
            for number in range(each):
                rig.scheduler.submit_after(0.0005 * (number % 7), count)

        race(*[ask] * threads)

        rig.wait(done)
        assert total == [threads * each]

    @pytest.mark.parametrize("seconds", [-0.001, -math.inf, math.nan])
    def test_an_impossible_delay_is_refused_with_advice(self, rig: Rig, seconds: float) -> None:
        with pytest.raises(ValueError, match=r"cannot wait .* seconds; pass zero or more"):
            rig.scheduler.submit_after(seconds, Forbidden())

    def test_the_clock_does_not_go_back(self, rig: Rig) -> None:
        moments = [rig.scheduler.now() for _ in range(100)]

        assert moments == sorted(moments)


class TestClose:
    def test_what_was_submitted_still_runs(self, rig: Rig) -> None:
        ran: list[int] = []
        for number in range(200):
            rig.scheduler.submit(partial(ran.append, number))

        rig.scheduler.close(PATIENCE)
        rig.settle()

        assert sorted(ran) == list(range(200))

    def test_further_tasks_are_refused_with_advice(self, rig: Rig) -> None:
        assert not rig.scheduler.closed
        rig.scheduler.close(PATIENCE)

        assert rig.scheduler.closed
        name = rig.scheduler.name
        with pytest.raises(SchedulerClosed, match=rf"scheduler '{name}' is closed .*; close it only after"):
            rig.scheduler.submit(Forbidden())
        with pytest.raises(SchedulerClosed, match=rf"scheduler '{name}' is closed .*; close it only after"):
            rig.scheduler.submit_after(0, Forbidden())

    def test_pending_timers_are_cancelled(self, rig: Rig) -> None:
        task = Forbidden()
        alive = weakref.ref(task)
        timer = rig.scheduler.submit_after(3600, task)
        del task

        rig.scheduler.close(PATIENCE)
        gc.collect()

        assert alive() is None
        timer.cancel()

    def test_closing_again_and_from_many_threads_is_harmless(self, rig: Rig) -> None:
        rig.scheduler.submit(lambda: None)

        race(*[partial(rig.scheduler.close, PATIENCE)] * 6)
        rig.scheduler.close()

        assert rig.scheduler.closed

    def test_a_task_may_close_its_own_scheduler(self, rig: Rig) -> None:
        done = threading.Event()
        rig.scheduler.submit(in_turn(rig.scheduler.close, done.set))

        rig.wait(done)

        assert rig.scheduler.closed

    def test_no_thread_is_left(self, rig: Rig) -> None:
        before = worker_threads()
        for _ in range(20):
            rig.scheduler.submit(lambda: None)
        rig.scheduler.submit_after(3600, Forbidden())

        rig.scheduler.close()

        assert worker_threads() <= before

    def test_the_context_manager_closes(self, rig: Rig) -> None:
        ran: list[int] = []
        with rig.scheduler as entered:
            entered.submit(partial(ran.append, 1))
        rig.settle()

        assert entered is rig.scheduler
        assert entered.closed
        assert ran == [1]

    def test_a_task_that_races_with_close_either_runs_or_is_refused(self, rig: Rig) -> None:
        ran: Counter[int] = Counter()
        accepted: set[int] = set()
        lock = threading.Lock()
        first_in = threading.Event()

        def count(number: int) -> None:
            with lock:
                ran[number] += 1

        def submit_until_refused(thread: int) -> None:
            for number in range(thread, 1_000_000, 4):
                try:
                    rig.scheduler.submit(partial(count, number))
                except SchedulerClosed:
                    return
                with lock:
                    accepted.add(number)
                first_in.set()
            raise AssertionError("close() never came")

        def close() -> None:
            first_in.wait(PATIENCE)
            rig.scheduler.close(PATIENCE)

        race(*(partial(submit_until_refused, thread) for thread in range(4)), close)
        rig.settle()

        assert set(ran) == accepted
        assert set(ran.values()) == {1}


def test_a_scheduler_names_itself(rig: Rig) -> None:
    assert repr(rig.scheduler.name) in repr(rig.scheduler)
    rig.scheduler.close()
    assert repr(rig.scheduler).endswith(" closed>")


def test_the_refusal_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(SchedulerClosed("pool")))

    assert error.name == "pool"
    assert str(error) == str(SchedulerClosed("pool"))
