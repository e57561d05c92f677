"""The schedulers that run tasks on the submitting thread."""

from __future__ import annotations

import threading

import pytest

from penstock.streams.schedulers import Scheduler, immediate, trampoline
from tests.streams.schedulers.rigs import PATIENCE, in_turn, race


@pytest.fixture(params=[immediate, trampoline])
def inline(request: pytest.FixtureRequest) -> Scheduler:
    made: Scheduler = request.param()
    return made


def test_the_task_has_run_when_submit_returns(inline: Scheduler) -> None:
    threads: list[int] = []

    inline.submit(lambda: threads.append(threading.get_ident()))

    assert threads == [threading.get_ident()]
    assert inline.runs_inline


def test_the_names_are_those_that_explain_shows() -> None:
    assert immediate().name == "caller"
    assert trampoline().name == "trampoline"


def test_a_delayed_task_runs_on_the_timer_thread(inline: Scheduler) -> None:
    names: list[str] = []
    done = threading.Event()

    inline.submit_after(0, in_turn(lambda: names.append(threading.current_thread().name), done.set))

    assert done.wait(PATIENCE)
    assert names == ["penstock-timer"]


def test_immediate_tasks_are_nested() -> None:
    scheduler, steps = immediate(), list[str]()

    def outer() -> None:
        steps.append("outer begins")
        scheduler.submit(lambda: steps.append("inner"))
        steps.append("outer ends")

    scheduler.submit(outer)

    assert steps == ["outer begins", "inner", "outer ends"]


def test_trampoline_tasks_follow_each_other() -> None:
    scheduler, steps = trampoline(), list[str]()

    def outer() -> None:
        steps.append("outer begins")
        scheduler.submit(lambda: steps.append("inner"))
        steps.append("outer ends")

    scheduler.submit(outer)

    assert steps == ["outer begins", "outer ends", "inner"]


def test_a_trampoline_chain_does_not_grow_the_stack() -> None:
    scheduler = trampoline()
    left = [100_000]

    def again() -> None:
        left[0] -= 1
        if left[0]:
            scheduler.submit(again)

    scheduler.submit(again)

    assert left == [0]


def test_trampolines_are_independent_of_each_other() -> None:
    one, other, steps = trampoline(), trampoline(), list[str]()

    def outer() -> None:
        other.submit(lambda: steps.append("other"))
        steps.append("outer ends")

    one.submit(outer)

    assert steps == ["other", "outer ends"]


def test_each_thread_drains_its_own_trampoline() -> None:
    scheduler = trampoline()
    strays: list[int] = []

    def chain() -> None:
        here = threading.get_ident()

        def step(left: int) -> None:
            if threading.get_ident() != here:
                strays.append(left)
            if left:
                scheduler.submit(lambda: step(left - 1))

        step(2000)

    race(*[chain] * 4)

    assert not strays


def test_what_an_interrupt_left_behind_runs_with_the_next_task() -> None:
    scheduler, steps = trampoline(), list[str]()

    def interrupted() -> None:
        scheduler.submit(lambda: steps.append("left behind"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheduler.submit(interrupted)
    assert steps == []

    scheduler.submit(lambda: steps.append("next"))

    assert steps == ["left behind", "next"]


def test_an_exit_in_a_delayed_task_does_not_end_the_timer_thread(
    inline: Scheduler, reports: list[tuple[BaseException, Scheduler]]
) -> None:
    error = SystemExit(3)
    done = threading.Event()

    def leave() -> None:
        raise error

    inline.submit_after(0, leave)
    inline.submit_after(0.01, done.set)

    assert done.wait(PATIENCE)
    assert reports == [(error, inline)]
