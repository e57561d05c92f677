"""Time that moves when a test says so."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.streams.schedulers.scheduler import (
    Scheduler,
    SchedulerClosed,
    Task,
    Timer,
    check_delay,
    refuse,
    run_for_caller,
)
from penstock.streams.schedulers.timers import TimerHeap

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
