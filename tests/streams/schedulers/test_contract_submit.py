"""What every scheduler promises of tasks to run soon, tried on each of them."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from functools import partial

import pytest

from tests.streams.schedulers.conftest import Reports
from tests.streams.schedulers.rigs import PATIENCE, Harmless, Rig, in_turn, race


def test_a_task_runs_once(rig: Rig) -> None:
    runs: list[int] = []
    done = threading.Event()
    rig.scheduler.submit(in_turn(lambda: runs.append(1), done.set))

    rig.wait(done)
    rig.scheduler.close(PATIENCE)
    rig.settle()

    assert runs == [1]


def test_tasks_run_in_order(ordered_rig: Rig) -> None:
    order: list[int] = []
    done = threading.Event()
    for number in range(500):
        ordered_rig.scheduler.submit(partial(order.append, number))
    ordered_rig.scheduler.submit(done.set)

    ordered_rig.wait(done)

    assert order == list(range(500))


def test_a_task_may_submit_more(rig: Rig) -> None:
    done = threading.Event()
    left = [50]

    def again() -> None:
        left[0] -= 1
        rig.scheduler.submit(again if left[0] else done.set)

    rig.scheduler.submit(again)

    rig.wait(done)
    assert left == [0]


def test_nothing_is_lost_when_many_threads_submit(rig: Rig) -> None:
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


def test_a_task_that_ran_is_let_go_though_the_scheduler_stays_open(rig: Rig) -> None:
    task, gone = Harmless(), threading.Event()
    weakref.finalize(task, gone.set)
    rig.scheduler.submit(task)
    del task

    rig.wait(gone)


@pytest.mark.parametrize("kind", [ValueError, GeneratorExit], ids=["Exception", "BaseException"])
def test_an_error_is_reported_and_the_next_task_runs(
    rig: Rig, reports: Reports, kind: type[BaseException]
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


def test_an_error_of_a_delayed_task_is_reported(rig: Rig, reports: Reports) -> None:
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
    rig: Rig, reports: Reports, kind: type[BaseException]
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
