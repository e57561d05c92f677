"""What every scheduler promises of its end, tried on each of them."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections import Counter
from functools import partial

import pytest

from penstock.streams.schedulers import SchedulerClosed
from tests.streams.schedulers.rigs import PATIENCE, Forbidden, Rig, in_turn, race


def worker_threads() -> set[threading.Thread]:
    """The threads of schedulers, without those that the process keeps.

    The shared schedulers start threads whenever they need some, perhaps for what an earlier test has left.
    """
    kept = ("penstock-timer", "penstock-loop", "penstock-net", "penstock-shared-")
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("penstock-") and not thread.name.startswith(kept)
    }


def test_what_was_submitted_still_runs(rig: Rig) -> None:
    ran: list[int] = []
    for number in range(200):
        rig.scheduler.submit(partial(ran.append, number))

    rig.scheduler.close(PATIENCE)
    rig.settle()

    assert sorted(ran) == list(range(200))


def test_further_tasks_are_refused_with_advice(rig: Rig) -> None:
    assert not rig.scheduler.closed
    rig.scheduler.close(PATIENCE)

    assert rig.scheduler.closed
    name = rig.scheduler.name
    with pytest.raises(SchedulerClosed, match=rf"scheduler '{name}' is closed .*; close it only after"):
        rig.scheduler.submit(Forbidden())
    with pytest.raises(SchedulerClosed, match=rf"scheduler '{name}' is closed .*; close it only after"):
        rig.scheduler.submit_after(0, Forbidden())


def test_pending_timers_are_cancelled(rig: Rig) -> None:
    task = Forbidden()
    alive = weakref.ref(task)
    timer = rig.scheduler.submit_after(3600, task)
    del task

    rig.scheduler.close(PATIENCE)
    gc.collect()

    assert alive() is None
    timer.cancel()


def test_closing_again_and_from_many_threads_is_harmless(rig: Rig) -> None:
    rig.scheduler.submit(lambda: None)

    race(*[partial(rig.scheduler.close, PATIENCE)] * 6)
    rig.scheduler.close()

    assert rig.scheduler.closed


def test_a_task_may_close_its_own_scheduler(rig: Rig) -> None:
    done = threading.Event()
    rig.scheduler.submit(in_turn(rig.scheduler.close, done.set))

    rig.wait(done)

    assert rig.scheduler.closed


def test_no_thread_is_left(rig: Rig) -> None:
    before = worker_threads()
    for _ in range(20):
        rig.scheduler.submit(lambda: None)
    rig.scheduler.submit_after(3600, Forbidden())

    rig.scheduler.close()

    assert worker_threads() <= before


def test_the_context_manager_closes(rig: Rig) -> None:
    ran: list[int] = []
    with rig.scheduler as entered:
        entered.submit(partial(ran.append, 1))
    rig.settle()

    assert entered is rig.scheduler
    assert entered.closed
    assert ran == [1]


def test_a_task_that_races_with_close_either_runs_or_is_refused(rig: Rig) -> None:
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
