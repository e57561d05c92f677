"""Alarms: delayed tasks that hear of it when their scheduler closes first."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from penstock.streams.schedulers import Alarm, LoopScheduler, SchedulerClosed, single
from tests.streams.schedulers.conftest import Reports
from tests.streams.schedulers.rigs import PATIENCE, Rig, race


class Told:
    """Writes down what an alarm says."""

    def __init__(self) -> None:
        self.rings: list[str] = []
        self.refusals: list[SchedulerClosed] = []
        self.heard = threading.Event()

    def alarm(self) -> Alarm:
        return Alarm(copy_context(), self._ring, self._refused)

    def _ring(self) -> None:
        self.rings.append("ring")
        self.heard.set()

    def _refused(self, error: SchedulerClosed) -> None:
        self.refusals.append(error)
        self.heard.set()


def test_an_alarm_rings(rig: Rig) -> None:
    told = Told()
    rig.scheduler.submit_after(0.001, told.alarm())
    rig.wait(told.heard)
    rig.scheduler.close(PATIENCE)
    assert (told.rings, told.refusals) == (["ring"], [])


def test_closing_tells_an_alarm_that_has_not_rung(rig: Rig) -> None:
    told = Told()
    rig.scheduler.submit_after(3600, told.alarm())
    rig.scheduler.close(PATIENCE)
    assert told.rings == []
    assert [error.name for error in told.refusals] == [rig.scheduler.name]


def test_closing_does_not_tell_an_alarm_that_was_cancelled(rig: Rig) -> None:
    told = Told()
    rig.scheduler.submit_after(3600, told.alarm()).cancel()
    rig.scheduler.close(PATIENCE)
    assert (told.rings, told.refusals) == ([], [])


def test_an_alarm_that_fails_to_hear_is_reported_and_the_others_are_told(rig: Rig, reports: Reports) -> None:
    error, told = ValueError("deaf"), Told()

    def deaf(_: SchedulerClosed) -> None:
        raise error

    rig.scheduler.submit_after(3600, Alarm(copy_context(), print, deaf))
    rig.scheduler.submit_after(3601, told.alarm())
    rig.scheduler.close(PATIENCE)
    assert [report for report, _ in reports] == [error]
    assert len(told.refusals) == 1


def test_an_alarm_speaks_in_its_own_context(rig: Rig) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    heard: list[str] = []
    who.set("me")
    mine = copy_context()
    who.set("somebody else")
    rig.scheduler.submit_after(3600, Alarm(mine, print, lambda _: heard.append(who.get())))
    rig.scheduler.close(PATIENCE)
    assert heard == ["me"]


def test_an_alarm_that_is_set_while_its_scheduler_closes_gets_exactly_one_answer() -> None:
    for _ in range(200):
        scheduler, told, raised = single("closing"), Told(), []

        def submit(scheduler: Any = scheduler, told: Told = told, raised: list[Any] = raised) -> None:
            try:
                scheduler.submit_after(3600, told.alarm())
            except SchedulerClosed as error:
                raised.append(error)

        race(submit, lambda scheduler=scheduler: scheduler.close(PATIENCE))
        assert len(raised) + len(told.refusals) == 1
        assert told.rings == []


def test_closing_the_event_loop_tells_the_alarms_that_it_forgets() -> None:
    told = Told()

    async def main() -> LoopScheduler:
        scheduler = LoopScheduler()
        scheduler.submit_after(3600, told.alarm())
        return scheduler

    scheduler = asyncio.run(main())
    assert told.heard.wait(PATIENCE)
    assert (told.rings, len(told.refusals), scheduler.closed) == ([], 1, True)


@pytest.mark.slow
def test_a_loop_that_lives_is_looked_at_again() -> None:
    told = Told()

    async def main() -> None:
        LoopScheduler().submit_after(3600, told.alarm())
        await asyncio.sleep(1.5)
        assert not told.heard.is_set()

    asyncio.run(main())
    assert told.heard.wait(PATIENCE)
