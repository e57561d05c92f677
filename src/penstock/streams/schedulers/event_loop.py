"""Tasks and delays on an asyncio event loop, and a loop for programs that do not run one."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import threading
from asyncio import AbstractEventLoop, TimerHandle
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident

from penstock.streams.schedulers.inline import ImmediateScheduler
from penstock.streams.schedulers.loop_thread import LoopThread, loops_of_exiting_process
from penstock.streams.schedulers.scheduler import (
    ProcessWide,
    Scheduler,
    SchedulerClosed,
    StaysOpen,
    Task,
    Timer,
    asks_main_thread_to_stop,
    check_delay,
    refuse,
    renew_after_fork,
    report_task_error,
)
from penstock.streams.schedulers.timers import shared_timers


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
        """Let go of the task without the lock, which after a fork may stay locked for ever."""
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


_NO_THREAD = 0  # never the identifier of a thread
LOOK_AFTER = 1.0
"""Seconds after which a scheduler with pending timers checks whether its loop was closed."""
_timer_thread = ImmediateScheduler("timer thread")


class LoopScheduler(Scheduler):
    """Runs every task on one event loop: first in first out, on the loop's thread, between its callbacks.

    Without an argument it takes the loop that is running, so create it inside a coroutine::

        async def main() -> None:
            here = LoopScheduler()
            here.submit(lambda: print("on the loop"))

    Tasks may be submitted from any thread. A task is an ordinary function and must not block the loop.
    `close()` stops this scheduler, not the loop. There is no thread to wait for, so it returns at once; tasks
    already submitted run if the loop keeps running.
    """

    def __init__(self, loop: AbstractEventLoop | None = None, name: str = "loop") -> None:
        if loop is None:
            loop = running_loop_or_none()
            if loop is None:
                raise RuntimeError(
                    "no event loop is running here; create this scheduler inside a coroutine, "
                    "pass it a loop, or use background_loop()"
                )
        self.name = name
        self._closed = False
        self._bind(loop)

    def _bind(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._timers = LoopTimers(loop, self._run)
        self._watching = False
        # The thread that is inside one of our tasks. Only then is it certain that the loop runs on that
        # thread: it may stop and run again elsewhere, so an identifier remembered for longer could mislead.
        self._inside = _NO_THREAD

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop that runs the tasks."""
        return self._loop

    @property
    def closed(self) -> bool:
        """True once `close()` was called or the event loop was closed."""
        return self._closed or self._loop.is_closed()

    @property
    def winding_down(self) -> bool:
        """True while the interpreter exits and cancels what runs here, which is not an error."""
        return self._loop in loops_of_exiting_process

    def now(self) -> float:
        """Seconds of the loop's own clock, `loop.time()`."""
        return self._loop.time()

    def submit(self, task: Task) -> None:
        """Run `task` in one of the loop's next rounds."""
        if self._closed:
            raise SchedulerClosed(self.name)
        loop = self._loop
        try:
            # The first test is the cheap one, for a task that submits another; the second is always right.
            if get_ident() == self._inside or running_loop_or_none() is loop:
                loop.call_soon(self._run, task)
            else:
                loop.call_soon_threadsafe(self._run, task)
        except RuntimeError:
            self._raise_if_loop_closed()
            raise

    def submit_after(self, seconds: float, task: Task) -> Timer:
        """See `Scheduler.submit_after`; the loop itself waits, no other thread takes part."""
        check_delay(seconds)
        if self._closed:
            raise SchedulerClosed(self.name)
        try:
            timer = self._timers.add(seconds, task)
        except RuntimeError:
            self._raise_if_loop_closed()
            raise
        # close() may have run in between, and swept before this timer was there. If it swept after, the task
        # has been told, and a second answer would be one too many.
        if self._closed and timer.withdraw() is not None:
            raise SchedulerClosed(self.name)
        self._watch_the_loop()
        return timer

    def close(self, timeout: float | None = None) -> None:
        """Take no more tasks and cancel the pending timers; the loop goes on."""
        # The flag first: a timer added after the sweep sees it and withdraws itself.
        self._closed = True
        self._refuse_timers()

    def _refuse_timers(self) -> None:
        for task in self._timers.cancel_all():
            refuse(task, self)

    def _watch_the_loop(self) -> None:
        """Look now and then whether the loop was closed: it forgets its timers silently."""
        if not self._watching:
            self._watching = True
            shared_timers.schedule(LOOK_AFTER, self._look_at_the_loop, _timer_thread)

    def _look_at_the_loop(self) -> None:
        self._watching = False
        if self._loop.is_closed():
            self._refuse_timers()
        elif len(self._timers):
            self._watch_the_loop()

    def _run(self, task: Task) -> None:
        self._inside = get_ident()
        try:
            task()
        except BaseException as error:
            # asyncio lets Ctrl-C and exit end the loop. On the main thread, where the loop is the program, so
            # do we; on another thread it would only end a loop that others use.
            if asks_main_thread_to_stop(error):
                raise
            report_task_error(error, self)
        finally:
            self._inside = _NO_THREAD

    def _raise_if_loop_closed(self) -> None:
        if self._loop.is_closed():
            raise SchedulerClosed(self.name) from None


class BackgroundLoopScheduler(StaysOpen, LoopScheduler):
    """Runs tasks on an event loop of its own, on the daemon thread `penstock-loop`; see `background_loop`.

    A forked child that inherits it gets a new loop and a new thread with its first task. When the interpreter
    exits, what runs on the loop is cancelled and the loop is closed.
    """

    def __init__(
        self,
        new_loop: Callable[[], AbstractEventLoop] = asyncio.new_event_loop,
        thread_name: str = "penstock-loop",
    ) -> None:
        self._new_loop = new_loop
        self._thread_name = thread_name
        self._starting = threading.Lock()
        self._runner: LoopThread | None = self._launch()
        super().__init__(self._runner.loop, name="background-loop")
        renew_after_fork(self)
        atexit.register(self._end_at_exit)

    @property
    def loop(self) -> AbstractEventLoop:
        """The running loop, for `asyncio.run_coroutine_threadsafe(coroutine, scheduler.loop)`."""
        self._ensure_running()
        return self._loop

    def submit(self, task: Task) -> None:
        """Run `task` in one of the loop's next rounds."""
        if self._runner is None:
            self._ensure_running()
        super().submit(task)

    def submit_after(self, seconds: float, task: Task) -> Timer:
        self._ensure_running()
        return super().submit_after(seconds, task)

    def renew_in_child(self) -> None:
        """Leave loop, tasks and timers to the parent; the next task starts a loop of our own."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.leave_to_parent()
        self._timers.abandon()
        self._starting = threading.Lock()

    def _ensure_running(self) -> None:
        if self._runner is not None:
            return
        with self._starting:
            if self._closed:
                raise SchedulerClosed(self.name)
            if self._runner is None:
                runner = self._launch()
                self._bind(runner.loop)
                self._runner = runner

    def _launch(self) -> LoopThread:
        return LoopThread(self._new_loop, self._thread_name, lambda error: report_task_error(error, self))

    def _end_at_exit(self) -> None:
        self._closed = True
        if self._runner is not None:
            self._runner.end_at_exit()


_background: ProcessWide[LoopScheduler] = ProcessWide(BackgroundLoopScheduler)


def background_loop_is(loop: LoopScheduler) -> AbstractContextManager[None]:
    """Let `background_loop()` return `loop` while the block runs: for tests."""
    return _background.replaced_by(loop)


def background_loop() -> LoopScheduler:
    """The event loop of this process for code that has none, started by the first call.

    Use it to run coroutines behind a synchronous program. Inside a coroutine use `loop()` instead: it stays
    on the loop you are on. It is shared, so `close()` raises `SharedSchedulerError`.
    """
    return _background.get()
