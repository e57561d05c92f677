"""Delays that an event loop waits for itself, armed and cancelled from any thread."""

from __future__ import annotations

import contextlib
import math
import threading
from asyncio import AbstractEventLoop, TimerHandle
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import Callable

from penstock.streams.schedulers.scheduler import Task


class LoopTimer:
    """A `Timer` that an event loop waits for."""

    __slots__ = ("_handle", "_owner", "_task")

    def __init__(self, owner: LoopTimers, task: Task) -> None:
        self._owner = owner
        # None once the task has begun or was cancelled; written from any thread.
        self._task: Task | None = task
        # asyncio's handles are not thread-safe: touched on the loop's thread only.
        self._handle: TimerHandle | None = None

    def cancel(self) -> None:
        """See `Timer.cancel`."""
        self.withdraw()

    def withdraw(self) -> Task | None:
        """Cancel, and return the task if it had neither begun nor been cancelled before."""
        task = self.give_up()
        if task is not None:
            self._owner.discard(self)
        return task

    def give_up(self) -> Task | None:
        """Let go of the task without touching the loop; one of several callers gets it."""
        with self._owner.lock:
            task, self._task = self._task, None
        return task

    def abandon(self) -> None:
        """Let go of the task without the lock, which after a fork may be held by nobody for ever."""
        self._task = None

    def arm(self, due: float) -> None:
        """Begin to wait; on the loop's thread."""
        # A delay without end needs no handle, and not every loop would take one.
        if self._task is not None and due < math.inf:
            self._handle = self._owner.loop.call_at(due, self._fire)

    def disarm(self) -> None:
        """Stop waiting, so that the loop does not hold a dead timer until it is due; on the loop's thread."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()

    def _fire(self) -> None:
        self._handle = None
        task = self.give_up()
        if task is not None:
            self._owner.finish(self, task)


class LoopTimers:
    """The pending timers of one scheduler on one event loop."""

    def __init__(self, loop: AbstractEventLoop, run: Callable[[Task], None]) -> None:
        self.loop = loop
        """The loop that waits."""
        self._run = run
        self._pending: set[LoopTimer] = set()
        self.lock = threading.RLock()
        """Guards the pending timers and their tasks.

        Re-entrant, because the garbage collector may run a finalizer that cancels a timer while it is held.
        """

    def __len__(self) -> int:
        """How many timers are pending."""
        return len(self._pending)

    def add(self, seconds: float, task: Task) -> LoopTimer:
        """Run `task` in `seconds`; raises `RuntimeError` when the loop is closed."""
        # Taken now: a busy loop that arms the timer late must not delay it twice.
        due = self.loop.time() + seconds
        timer = LoopTimer(self, task)
        with self.lock:
            self._pending.add(timer)
        try:
            if running_loop_or_none() is self.loop:
                timer.arm(due)
            else:
                self.loop.call_soon_threadsafe(timer.arm, due)
        except RuntimeError:
            self._forget(timer)
            raise
        return timer

    def finish(self, timer: LoopTimer, task: Task) -> None:
        """`timer` fell due: run its task; on the loop's thread."""
        self._forget(timer)
        self._run(task)

    def discard(self, timer: LoopTimer) -> None:
        """`timer` was cancelled: have the loop forget it."""
        self._forget(timer)
        if running_loop_or_none() is self.loop:
            timer.disarm()
        else:
            # A closed loop raises, and has forgotten the timer already.
            with contextlib.suppress(RuntimeError):
                # Behind the call that arms the timer, if that is still under way.
                self.loop.call_soon_threadsafe(timer.disarm)

    def cancel_all(self) -> list[Task | None]:
        """Cancel every pending timer, and return the tasks."""
        with self.lock:
            pending = list(self._pending)
        return [timer.withdraw() for timer in pending]

    def abandon(self) -> None:
        """Let go of every task without touching the loop, which after a fork is the parent's."""
        for timer in list(self._pending):
            timer.abandon()

    def _forget(self, timer: LoopTimer) -> None:
        with self.lock:
            self._pending.discard(timer)
