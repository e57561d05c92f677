"""Schedulers without a thread: tasks run on the thread that submits them."""

from __future__ import annotations

import threading
from collections import deque
from typing import ClassVar

from penstock.streams.schedulers.scheduler import SchedulerClosed, Task, run_for_caller
from penstock.streams.schedulers.timers import RealTimeScheduler


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
