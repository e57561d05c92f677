"""What every scheduler promises of tasks to run later, tried on each of them."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections import Counter
from functools import partial

import pytest

from tests.streams.schedulers.rigs import PATIENCE, Forbidden, Harmless, Rig, in_turn, race

LATER = 0.2
"""Seconds to a timer that the test means to cancel first."""


def test_the_earlier_is_run_first(ordered_rig: Rig) -> None:
    scheduler = ordered_rig.scheduler
    order: list[str] = []
    in_time = False
    while not in_time:  # If this thread was held up in between, another one is the earlier.
        order = []
        done = threading.Event()
        began = scheduler.now()
        scheduler.submit_after(0.3, in_turn(partial(order.append, "last"), done.set))
        scheduler.submit_after(0.1, partial(order.append, "first"))
        scheduler.submit_after(0.2, partial(order.append, "second"))
        scheduler.submit_after(0, partial(order.append, "at once"))
        in_time = scheduler.now() - began < 0.1

        ordered_rig.wait(done)

    assert order == ["at once", "first", "second", "last"]


def test_a_task_is_not_run_before_its_time(rig: Rig) -> None:
    moments: list[float] = []
    done = threading.Event()
    asked_at = rig.scheduler.now()
    rig.scheduler.submit_after(0.05, in_turn(lambda: moments.append(rig.scheduler.now()), done.set))

    rig.wait(done)

    # An event loop may run a timer up to one tick of its clock early.
    assert moments[0] - asked_at >= 0.049


def test_a_cancelled_task_is_not_run(rig: Rig) -> None:
    ran: list[str] = []
    in_time = False
    while not in_time:  # If this thread was held up in between, the task may have been due before.
        ran, done = [], threading.Event()
        asked_at = rig.scheduler.now()
        timer = rig.scheduler.submit_after(LATER, partial(ran.append, "cancelled"))
        timer.cancel()
        in_time = rig.scheduler.now() - asked_at < LATER
        rig.scheduler.submit_after(LATER + 0.02, done.set)

        rig.wait(done)

    assert ran == []


def test_a_cancelled_task_is_let_go_at_once(rig: Rig) -> None:
    task = Forbidden()
    alive = weakref.ref(task)
    timer = rig.scheduler.submit_after(3600, task)
    del task
    timer.cancel()

    gc.collect()
    assert alive() is None


def test_a_delayed_task_that_ran_is_let_go_though_the_timer_is_kept(rig: Rig) -> None:
    task, gone = Harmless(), threading.Event()
    weakref.finalize(task, gone.set)
    timer = rig.scheduler.submit_after(0, task)
    del task

    rig.wait(gone)
    timer.cancel()


def test_cancelling_is_harmless_at_any_time_from_any_thread(rig: Rig) -> None:
    done = threading.Event()
    timer = rig.scheduler.submit_after(0, done.set)
    never = rig.scheduler.submit_after(math.inf, Forbidden())

    rig.wait(done)
    race(*[timer.cancel, never.cancel] * 4)
    rig.scheduler.close(PATIENCE)

    timer.cancel()
    never.cancel()


def test_a_task_either_runs_or_is_cancelled_when_both_race(rig: Rig) -> None:
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


def test_many_threads_may_ask_for_delays(rig: Rig) -> None:
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
def test_an_impossible_delay_is_refused_with_advice(rig: Rig, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"cannot wait .* seconds; pass zero or more"):
        rig.scheduler.submit_after(seconds, Forbidden())


def test_the_clock_does_not_go_back(rig: Rig) -> None:
    moments = [rig.scheduler.now() for _ in range(100)]

    assert moments == sorted(moments)
