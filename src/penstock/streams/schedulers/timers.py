"""The one thread that waits for every delay in the process.

A thread per timer would make a timeout per element unaffordable. Here a delay costs a heap entry; when it
falls due, the task is *submitted* to the scheduler that asked for it, so the timer thread itself does no work
(unless that scheduler runs tasks inline).
"""

from __future__ import annotations

import threading
import time

from penstock.streams.schedulers.forking import renew_after_fork
from penstock.streams.schedulers.heap import DelayedTask, TimerHeap
from penstock.streams.schedulers.scheduler import (
    Scheduler,
    SchedulerClosed,
    Task,
    refuse,
    report_task_error,
)


class TimerThread:
    """Waits on one daemon thread, started with the first delay, for all the tasks given to it."""

    def __init__(self, name: str = "penstock-timer") -> None:
        self._name = name
        self._heap = TimerHeap()
        self.renew_in_child()
        renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Start afresh: what the parent waits for, the parent runs."""
        self._heap.reset()
        self._changed = threading.Condition(self._heap.lock)
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """How many delays are being waited for."""
        return len(self._heap)

    def schedule(self, seconds: float, task: Task, scheduler: Scheduler) -> DelayedTask:
        """Submit `task` to `scheduler` in `seconds`, unless the returned timer is cancelled first."""
        due = time.monotonic() + seconds
        with self._changed:
            entry = self._heap.push(due, task, scheduler)
            if self._thread is None:
                self._start_for(entry)
            elif self._heap.first() is entry:
                # The thread is asleep until a later task falls due: this one comes before it.
                self._changed.notify()
        return entry

    def cancel_all(self, scheduler: Scheduler) -> None:
        """Cancel every delay that `scheduler` waits for, and tell those tasks that want to know."""
        for task in self._heap.cancel_owned_by(scheduler):
            refuse(task, scheduler)

    def _start_for(self, entry: DelayedTask) -> None:
        # A daemon, so that a delay nobody cancelled never keeps the interpreter from exiting.
        thread = threading.Thread(target=self._wait_and_deliver, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread to give: the caller is told, so the task must not run later after all.
            entry.cancel()
            raise
        self._thread = thread

    def _wait_and_deliver(self) -> None:
        while True:
            entry = self._next_due()
            self._deliver(entry)
            # Without this the scheduler of the last task would be kept alive until the next one is due.
            del entry

    def _next_due(self) -> DelayedTask:
        with self._changed:
            while True:
                moment = time.monotonic()
                entry = self._heap.pop_due(moment)
                if entry is not None:
                    return entry
                first = self._heap.first()
                pause = threading.TIMEOUT_MAX if first is None else first.due - moment
                del first
                self._changed.wait(min(pause, threading.TIMEOUT_MAX))

    @staticmethod
    def _deliver(entry: DelayedTask) -> None:
        scheduler = entry.owner
        if scheduler is None:
            return
        try:
            scheduler.submit(entry)
        except SchedulerClosed:
            # Closed in the moment between falling due and here: as cancelled as the other delays.
            refuse(entry.withdraw(), scheduler)
        except BaseException as error:
            # An inline scheduler hands KeyboardInterrupt and SystemExit to its caller, which is this thread.
            report_task_error(error, scheduler)


shared_timers = TimerThread()
"""The timer thread of this process."""
