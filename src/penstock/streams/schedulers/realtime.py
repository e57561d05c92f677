"""The part that schedulers on the wall clock share: their clock, their delays, their closed flag."""

from __future__ import annotations

import time

from penstock.streams.schedulers.scheduler import Scheduler, SchedulerClosed, Task, Timer, check_delay
from penstock.streams.schedulers.timers import shared_timers


class RealTimeScheduler(Scheduler):
    """A scheduler whose delays are waited for by the shared timer thread.

    To write your own, implement `submit`, and extend `close` when there is more to end than the delays.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once `close()` was called."""
        return self._closed

    def now(self) -> float:
        """Seconds of `time.monotonic()`."""
        return time.monotonic()

    def submit_after(self, seconds: float, task: Task) -> Timer:
        """See `Scheduler.submit_after`."""
        check_delay(seconds)
        if self._closed:
            raise SchedulerClosed(self.name)
        timer = shared_timers.schedule(seconds, task, self)
        # close() may have run in between, and swept before this timer was there. If it swept after, the task
        # has been told, and a second answer would be one too many.
        if self._closed and timer.withdraw() is not None:
            raise SchedulerClosed(self.name)
        return timer

    def close(self, timeout: float | None = None) -> None:
        """See `Scheduler.close`."""
        # The flag first: a delay added after the sweep sees it and withdraws itself.
        self._closed = True
        shared_timers.cancel_all(self)
