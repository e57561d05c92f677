"""Delays: the heap of delayed tasks, and the one thread that waits for every delay in the process.

A thread per timer would make a timeout per element unaffordable. Here a delay costs a heap entry; when it
falls due, the task is *submitted* to the scheduler that asked for it, so the timer thread itself does no work
(unless that scheduler runs tasks inline).
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time

from penstock.streams.schedulers.scheduler import (
    Scheduler,
    SchedulerClosed,
    Task,
    Timer,
    check_delay,
    refuse,
    renew_after_fork,
    report_task_error,
)


class DelayedTask:
    """A task with its due time: the `Timer` a caller holds, and itself the task that is run when due."""

    __slots__ = ("_heap", "due", "owner", "queued", "task")

    def __init__(self, heap: TimerHeap, due: float, task: Task, owner: Scheduler | None) -> None:
        self._heap = heap
        self.due = due
        self.task: Task | None = task
        """The work, or None once it has begun or was cancelled."""
        self.owner = owner
        """The scheduler that waits for it; None for work that is queued but was not delayed."""
        self.queued = True
        """True until the heap gives it out; guarded by the heap's lock."""

    def cancel(self) -> None:
        if self.task is not None:
            self._heap.cancel(self)

    def withdraw(self) -> Task | None:
        """Take the work out, if nobody has begun or cancelled it."""
        return self._heap.cancel(self)

    def __call__(self) -> None:
        # A cancel() that comes between falling due and starting, in a busy scheduler's queue, still counts.
        task = self.withdraw()
        if task is not None:
            task()


class TimerHeap:
    """A priority queue of `DelayedTask`: earliest first, first in first out among equals.

    Cancelled tasks stay until they surface or until they outnumber the others, whichever comes first:
    cancelling is cheap, and the heap never holds more than about twice the tasks that still wait.
    """

    FEW = 64
    """Below this many cancelled tasks, sweeping them out is not worth it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start empty, with a new lock: the old one may be held by a thread that a fork left behind."""
        # Re-entrant, because the garbage collector may run a finalizer that cancels a timer at any moment.
        self.lock = threading.RLock()
        self._entries: list[tuple[float, int, DelayedTask]] = []
        self._numbers = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        """How many tasks still wait."""
        with self.lock:
            return len(self._entries) - self._cancelled

    @property
    def held(self) -> int:
        """How many entries are in memory, those cancelled but not yet swept included."""
        return len(self._entries)

    def push(self, due: float, task: Task, owner: Scheduler | None) -> DelayedTask:
        """Add a task that falls due at `due`."""
        entry = DelayedTask(self, due, task, owner)
        with self.lock:
            heapq.heappush(self._entries, (due, next(self._numbers), entry))
        return entry

    def first(self) -> DelayedTask | None:
        """The task that falls due next; it stays in the heap."""
        with self.lock:
            while self._entries and self._entries[0][2].task is None:
                self._pop()
                self._cancelled -= 1
            return self._entries[0][2] if self._entries else None

    def pop_due(self, moment: float) -> DelayedTask | None:
        """Remove and return the next task that is due at `moment`, if there is one."""
        with self.lock:
            entry = self.first()
            if entry is None or entry.due > moment:
                return None
            return self._pop()

    def cancel(self, entry: DelayedTask) -> Task | None:
        """Take the work out of `entry` and return it; the entry goes when it surfaces or is swept."""
        with self.lock:
            # Held in a local so that whatever its finalizers do happens after the lock is released.
            task, entry.task = entry.task, None
            if task is not None and entry.queued:
                self._cancelled += 1
                if self._cancelled > self.FEW and self._cancelled * 2 > len(self._entries):
                    self._sweep()
        return task

    def cancel_owned_by(self, owner: Scheduler) -> list[Task | None]:
        """Cancel every task that waits on behalf of `owner`, and return them, to be told without the lock."""
        with self.lock:
            mine = [entry for _, _, entry in self._entries if entry.owner is owner and entry.task is not None]
            tasks = [entry.task for entry in mine]
            for entry in mine:
                entry.task = None
            self._cancelled += len(mine)
            self._sweep()
        return tasks  # only now, outside the lock, may finalizers run

    def _pop(self) -> DelayedTask:
        entry = heapq.heappop(self._entries)[2]
        entry.queued = False
        return entry

    def _sweep(self) -> None:
        # Into a fresh list that is already in place: a task that a finalizer adds meanwhile is not lost.
        old, self._entries, self._cancelled = self._entries, [], 0
        for item in old:
            if item[2].task is not None:
                heapq.heappush(self._entries, item)


class TimerThread:
    """Waits on one daemon thread, started with the first delay, for all the tasks given to it."""

    def __init__(self, name: str = "penstock-timer") -> None:
        self._name = name
        self._heap = TimerHeap()
        self.renew_in_child()
        renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Start afresh: the parent runs the tasks that it waits for."""
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
        """Cancel every delay that `scheduler` waits for, and tell its alarms."""
        for task in self._heap.cancel_owned_by(scheduler):
            refuse(task, scheduler)

    def _start_for(self, entry: DelayedTask) -> None:
        # A daemon, so that a delay nobody cancelled never keeps the interpreter from exiting.
        thread = threading.Thread(target=self._wait_and_deliver, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread left: the caller gets the error, so the task must not run later.
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


class RealTimeScheduler(Scheduler):
    """A scheduler whose delays are waited for by the shared timer thread.

    To write your own, implement `submit`, and extend `close` when there is more to end than the delays.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def now(self) -> float:
        """Seconds of `time.monotonic()`."""
        return time.monotonic()

    def submit_after(self, seconds: float, task: Task) -> Timer:
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
        # The flag first: a delay added after the sweep sees it and withdraws itself.
        self._closed = True
        shared_timers.cancel_all(self)
