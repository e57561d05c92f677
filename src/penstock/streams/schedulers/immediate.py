"""Runs each task at once, on the thread that submits it."""

from __future__ import annotations

from typing import ClassVar

from penstock.streams.schedulers.realtime import RealTimeScheduler
from penstock.streams.schedulers.scheduler import SchedulerClosed, Task, run_for_caller


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
