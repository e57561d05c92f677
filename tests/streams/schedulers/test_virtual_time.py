"""Time that moves when told to."""

from __future__ import annotations

import math
import threading

import pytest

from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler, virtual_time
from tests.streams.schedulers.rigs import in_turn


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    return virtual_time()


def test_nothing_runs_until_told(clock: VirtualTimeScheduler) -> None:
    ran: list[str] = []
    clock.submit(lambda: ran.append("soon"))
    clock.submit_after(1, lambda: ran.append("later"))
    assert ran == []
    assert clock.pending == 2

    assert clock.run_pending() == 1
    assert ran == ["soon"]
    assert clock.pending == 1

    assert clock.advance_by(1) == 1
    assert ran == ["soon", "later"]
    assert clock.pending == 0


def test_tasks_run_on_the_thread_that_advances(clock: VirtualTimeScheduler) -> None:
    threads: list[int] = []
    clock.submit(lambda: threads.append(threading.get_ident()))

    clock.run_pending()

    assert threads == [threading.get_ident()]
    assert not clock.runs_inline


def test_the_clock_shows_each_task_its_own_time(clock: VirtualTimeScheduler) -> None:
    seen: list[float] = []
    for seconds in (3, 1, 2):
        clock.submit_after(seconds, lambda: seen.append(clock.now()))

    assert clock.advance_to(10) == 3

    assert seen == [1, 2, 3]
    assert clock.now() == 10


def test_tasks_due_together_run_in_the_order_they_came(clock: VirtualTimeScheduler) -> None:
    order: list[str] = []
    clock.submit_after(1, in_turn(lambda: order.append("a"), lambda: clock.submit(lambda: order.append("c"))))
    clock.submit_after(1, lambda: order.append("b"))

    clock.advance_by(1)

    assert order == ["a", "b", "c"]


def test_what_a_task_submits_runs_in_the_same_advance_if_it_is_due(clock: VirtualTimeScheduler) -> None:
    seen: list[float] = []

    def every_second() -> None:
        seen.append(clock.now())
        clock.submit_after(1, every_second)

    clock.submit_after(1, every_second)
    clock.advance_by(3.5)

    assert seen == [1, 2, 3]
    assert clock.pending == 1


def test_small_steps_add_up_exactly(clock: VirtualTimeScheduler) -> None:
    ran: list[float] = []
    clock.submit_after(0.8, lambda: ran.append(clock.now()))

    clock.advance_by(0.7)
    assert ran == []
    clock.advance_by(0.1)

    assert 0.7 + 0.1 < 0.8
    assert ran == [0.8]
    assert clock.now() == 0.8


def test_the_start_can_be_chosen() -> None:
    clock = VirtualTimeScheduler(start=1000.5)
    assert clock.now() == 1000.5
    clock.advance_to(clock.now())

    with pytest.raises(ValueError, match="pass a finite number"):
        VirtualTimeScheduler(start=math.nan)


def test_cancelled_tasks_do_not_count_as_pending(clock: VirtualTimeScheduler) -> None:
    timer = clock.submit_after(1, lambda: None)
    clock.submit_after(math.inf, lambda: None)
    timer.cancel()

    assert clock.pending == 1
    assert clock.advance_by(10**9) == 0


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_time_does_not_go_back_nor_to_the_end(clock: VirtualTimeScheduler, seconds: float) -> None:
    clock.advance_by(5)
    with pytest.raises(ValueError, match="cannot advance by"):
        clock.advance_by(seconds)
    with pytest.raises(ValueError, match=r"cannot advance to .*not before now, which is 5\.0"):
        clock.advance_to(seconds)
    assert clock.now() == 5


def test_a_task_must_not_advance_the_clock(
    clock: VirtualTimeScheduler, reports: list[tuple[BaseException, object]]
) -> None:
    clock.submit(lambda: clock.advance_by(1))

    clock.run_pending()

    assert "neither a task nor a second thread may advance it" in str(reports[0][0])
    assert clock.advance_by(1) == 0


def test_an_interrupt_leaves_the_rest_for_the_next_advance(clock: VirtualTimeScheduler) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    ran: list[float] = []
    clock.submit_after(1, interrupted)
    clock.submit_after(2, lambda: ran.append(clock.now()))

    with pytest.raises(KeyboardInterrupt):
        clock.advance_by(5)
    assert clock.now() == 1

    clock.advance_by(1)
    assert ran == [2]


def test_after_close_what_was_submitted_still_runs_but_no_delays(clock: VirtualTimeScheduler) -> None:
    ran: list[str] = []
    clock.submit(lambda: ran.append("submitted"))
    clock.submit_after(0, lambda: ran.append("delayed"))

    clock.close()

    assert clock.pending == 1
    clock.advance_by(1)
    assert ran == ["submitted"]
    with pytest.raises(SchedulerClosed):
        clock.submit(lambda: None)
