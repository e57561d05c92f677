"""Schedulers without a thread: tasks run on the thread that submits them, or that moves virtual time."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from penstock.streams.schedulers.scheduler import (
    Scheduler,
    SchedulerClosed,
    Task,
    Timer,
    check_delay,
    refuse,
    run_for_caller,
)
from penstock.streams.schedulers.timers import RealTimeScheduler, TimerHeap


class ImmediateScheduler(RealTimeScheduler):
    """`submit` *is* the call: when it returns, the task has run.

    A task that submits another runs it nested, one stack frame deeper; use a trampoline where that can go on
    without end. A delayed task runs on the shared timer thread, so keep it short: while it runs, no other
    delay in the process is served.
    """

    runs_inline: ClassVar[bool] = True

    def __init__(self, name: str = "caller") -> None:
        super().__init__(name)

    def submit(self, task: Task) -> None:
        """Run `task` now; `KeyboardInterrupt` and `SystemExit` come out, other errors are reported."""
        if self._closed:
            raise SchedulerClosed(self.name)
        run_for_caller(task, self)


class _Lane:
    """What one thread has to run."""

    __slots__ = ("running", "tasks")

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()
        self.running = False


class _Lanes(threading.local):
    """The lane of the thread that looks."""

    # A second object, because each look through a thread-local costs several times a plain attribute.
    def __init__(self) -> None:
        self.mine = _Lane()


class TrampolineScheduler(RealTimeScheduler):
    """Like immediate, but a task submitted by a running task waits until that one has returned.

    The stack stays one task deep however long the chain, which is what a loop of "request one more, receive
    one more" needs. Each thread has its own queue: threads never wait for each other. A delayed task runs on
    the shared timer thread, so keep it short.
    """

    runs_inline: ClassVar[bool] = True

    def __init__(self, name: str = "trampoline") -> None:
        super().__init__(name)
        self._lanes = _Lanes()

    def submit(self, task: Task) -> None:
        """Run `task` now, or right after the task of this scheduler that is running on this thread."""
        if self._closed:
            raise SchedulerClosed(self.name)
        lane = self._lanes.mine
        lane.tasks.append(task)
        if not lane.running:
            self._drain(lane)

    def _drain(self, lane: _Lane) -> None:
        tasks = lane.tasks
        lane.running = True
        try:
            while tasks:
                run_for_caller(tasks.popleft(), self)
        finally:
            # After a KeyboardInterrupt the rest stays queued, for the next submit on this thread to run:
            # dropping it would leave a stream waiting for ever.
            lane.running = False


# Whole nanoseconds add up exactly; with floats 0.7 + 0.1 would fall short of a timer at 0.8.
_NANOSECONDS = 1_000_000_000


class VirtualTimeScheduler(Scheduler):
    """A scheduler for tests: an hour passes in a microsecond, and always in the same order.

    Nothing runs until the test advances the clock; then tasks run on the test's own thread, by due time, and
    first in first out among those due together::

        clock = VirtualTimeScheduler()
        clock.submit_after(3600, lambda: print("an hour later"))
        clock.advance_by(3599)  # nothing
        clock.advance_by(1)  # an hour later

    Tasks may submit more tasks, and other threads may submit too; only the advancing is for one thread.
    """

    def __init__(self, start: float = 0.0, name: str = "virtual") -> None:
        if not math.isfinite(start):
            raise ValueError(f"virtual time cannot start at {start!r}; pass a finite number of seconds")
        self.name = name
        self._clock = round(start * _NANOSECONDS)
        self._tasks = TimerHeap()
        self._advancing = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def pending(self) -> int:
        """How many tasks wait: those to run now and those to run later, without the cancelled ones."""
        return len(self._tasks)

    def now(self) -> float:
        """Virtual seconds; they pass only in `advance_by` and `advance_to`."""
        return self._clock / _NANOSECONDS

    def submit(self, task: Task) -> None:
        """Queue `task` for the current moment; `run_pending` or any advance runs it."""
        self._push(self._clock, task, None)

    def submit_after(self, seconds: float, task: Task) -> Timer:
        """Queue `task` for the moment `seconds` from now."""
        check_delay(seconds)
        due = math.inf if seconds == math.inf else self._clock + round(seconds * _NANOSECONDS)
        return self._push(due, task, self)

    def run_pending(self) -> int:
        """Run everything that is due now, with what that submits for now; returns how many tasks ran."""
        return self._run_until(self._clock)

    def advance_by(self, seconds: float) -> int:
        """Let `seconds` pass, running what falls due on the way; returns how many tasks ran."""
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"time cannot advance by {seconds!r} seconds; pass a finite number, zero or more"
            )
        return self._run_until(self._clock + round(seconds * _NANOSECONDS))

    def advance_to(self, moment: float) -> int:
        """Let time pass until `now()` is `moment`, running what falls due; returns how many tasks ran."""
        # By way of nanoseconds, so that advance_to(now()) is never refused for a rounding error.
        if not math.isfinite(moment) or round(moment * _NANOSECONDS) < self._clock:
            raise ValueError(
                f"time cannot advance to {moment!r}; "
                f"pass a finite moment that is not before now, which is {self.now()!r}"
            )
        return self._run_until(round(moment * _NANOSECONDS))

    def close(self, timeout: float | None = None) -> None:
        """Take no more tasks and drop the delayed ones; what was submitted runs with the next advance."""
        with self._tasks.lock:
            self._closed = True
            dropped = self._tasks.cancel_owned_by(self)
        for task in dropped:
            refuse(task, self)

    def _push(self, due: float, task: Task, owner: Scheduler | None) -> Timer:
        with self._tasks.lock:
            if self._closed:
                raise SchedulerClosed(self.name)
            return self._tasks.push(due, task, owner)

    def _run_until(self, target: int) -> int:
        count = 0
        with self._alone():
            while (entry := self._tasks.pop_due(target)) is not None:
                # Never back: a task that another thread queued for the moment just left runs now.
                self._clock = max(self._clock, int(entry.due))
                run_for_caller(entry, self)
                count += 1
            self._clock = target
        return count

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._advancing.acquire(blocking=False):
            raise RuntimeError(
                "virtual time is already advancing; neither a task nor a second thread may advance it: "
                "use submit_after() in the task and advance from the test"
            )
        try:
            yield
        finally:
            self._advancing.release()
