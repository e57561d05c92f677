"""Delayed tasks in the order in which they fall due."""

from __future__ import annotations

import heapq
import itertools
import threading

from penstock.streams.schedulers.scheduler import Scheduler, Task


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
        """See `Timer.cancel`."""
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
