"""The event loop of a process that runs none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.streams.schedulers import LoopScheduler, SharedSchedulerError, background_loop
from tests.streams.schedulers.rigs import PATIENCE, in_turn, race

Reports = list[tuple[BaseException, object]]


def thread_of(scheduler: LoopScheduler) -> threading.Thread:
    """Ask the scheduler where it runs, which also shows that it still does."""
    found: list[threading.Thread] = []
    done = threading.Event()
    scheduler.submit(in_turn(lambda: found.append(threading.current_thread()), done.set))
    assert done.wait(PATIENCE)
    return found[0]


def test_everybody_gets_the_same_one_on_one_daemon_thread() -> None:
    found: list[LoopScheduler] = []

    race(*[lambda: found.append(background_loop())] * 8)

    assert len(found) == 8
    assert len({id(scheduler) for scheduler in found}) == 1
    assert isinstance(found[0], LoopScheduler)
    assert thread_of(found[0]).name == "penstock-loop"
    assert thread_of(found[0]).daemon
    assert sum(thread.name == "penstock-loop" for thread in threading.enumerate()) == 1


def test_coroutines_may_be_run_on_its_loop() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    future = asyncio.run_coroutine_threadsafe(answer(), background_loop().loop)

    assert future.result(PATIENCE) == 42


def test_delays_run_on_its_thread() -> None:
    names: list[str] = []
    done = threading.Event()

    background_loop().submit_after(
        0.01, in_turn(lambda: names.append(threading.current_thread().name), done.set)
    )

    assert done.wait(PATIENCE)
    assert names == ["penstock-loop"]


def test_it_cannot_be_closed() -> None:
    with pytest.raises(SharedSchedulerError, match="'background-loop' is shared"):
        background_loop().close()
    with pytest.raises(SharedSchedulerError), background_loop():
        raise AssertionError("the block must not be entered")

    assert not background_loop().closed


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_no_task_ends_it(kind: type[BaseException], reports: Reports) -> None:
    before = thread_of(background_loop())
    error = kind()

    def leave() -> None:
        raise error

    background_loop().submit(leave)

    assert thread_of(background_loop()) is before
    assert reports == [(error, background_loop())]


def test_neither_does_a_coroutine_that_exits_nor_a_stray_stop(reports: Reports) -> None:
    before = thread_of(background_loop())

    async def leave() -> None:
        raise SystemExit(3)

    future = asyncio.run_coroutine_threadsafe(leave(), background_loop().loop)
    with pytest.raises(SystemExit):
        future.result(PATIENCE)
    background_loop().submit(background_loop().loop.stop)

    assert thread_of(background_loop()) is before
    assert [(type(error), where) for error, where in reports] == [(SystemExit, background_loop())]
