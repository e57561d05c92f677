"""What every scheduler promises, what happens to a task that raises, and what the whole process shares.

A scheduler answers one question: *on which thread does this piece of work run, and when?* Operators
never create threads; they hand tasks to a `Scheduler`, so that a test can swap real time for virtual time.

`os.fork()` copies memory, but only the thread that called it: in the child, worker threads are gone, and a
lock that one of them held stays locked for ever. Whatever owns threads or locks registers with
`renew_after_fork` and starts afresh in the child.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

_logger = logging.getLogger("penstock.streams")

Task: TypeAlias = Callable[[], object]
"""A piece of work: called without arguments, once; what it returns is ignored."""


class Timer(Protocol):
    """The handle of a delayed task, from `Scheduler.submit_after`."""

    def cancel(self) -> None:
        """Stop the task from running, if it has not begun yet.

        Callable from any thread, as often as you like, even after the task ran; it never raises. The task
        is let go at once, so a cancelled timeout keeps nothing alive.
        """


class Alarm:
    """A delayed task that is told if its scheduler closes first.

    `submit_after` takes it like any other task. Both functions run in a copy of `context`, and at most one of
    them is called: `ring()` when the time has come, or `refused(error)` on the thread that closed the
    scheduler. Without the second call a stream that waits for the first would wait for ever.
    """

    __slots__ = ("_context", "_refused", "_ring")

    def __init__(
        self, context: Context, ring: Callable[[], object], refused: Callable[[SchedulerClosed], object]
    ) -> None:
        self._context = context
        self._ring = ring
        self._refused = refused

    def __call__(self) -> None:
        # A copy: a context can be entered by one thread at a time.
        self._context.copy().run(self._ring)

    def refuse(self, scheduler: Scheduler) -> None:
        """The scheduler has closed and will not ring."""
        self._context.copy().run(self._refused, SchedulerClosed(scheduler.name))


def refuse(task: Task | None, scheduler: Scheduler) -> None:
    """Tell a delayed task that its scheduler has closed, if the task is an `Alarm`."""
    if isinstance(task, Alarm):
        try:
            task.refuse(scheduler)
        except BaseException as error:
            if asks_main_thread_to_stop(error):
                raise
            report_task_error(error, scheduler)


class SchedulerClosed(RuntimeError):
    """A task was handed to a scheduler after its `close()`, or to one whose event loop is closed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"scheduler {name!r} is closed and takes no more tasks; "
            "close it only after the last stream that uses it has ended, or make a new one"
        )
        self.name = name
        """Name of the scheduler that refused the task."""

    def __reduce__(self) -> tuple[type[SchedulerClosed], tuple[str]]:
        # The inherited way would build the copy from the whole message instead of the name.
        return type(self), (self.name,)


class Scheduler(ABC):
    """Runs tasks: soon (`submit`) or after a delay (`submit_after`), from any thread.

    The implementations differ in which thread runs the tasks, and how many run at a time. All of them survive
    a task that raises (see `on_task_error`), and all of them can be used as a context manager::

        with single("writer") as writer:
            writer.submit(lambda: print("on the writer's thread"))
        # here the task has run and the thread is gone
    """

    runs_inline: ClassVar[bool] = False
    """True when `submit` may run the task itself, before it returns, on the calling thread."""

    name: str
    """Short name for people: `explain()` prints it and threads carry it."""

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Run `task` soon; raises `SchedulerClosed` after `close()`.

        Cheap, and callable from any thread. It returns without waiting for the task, unless `runs_inline`.
        """

    @abstractmethod
    def submit_after(self, seconds: float, task: Task) -> Timer:
        """Run `task` once, `seconds` from now, unless the returned timer is cancelled first.

        `seconds` is zero or more (`math.inf` means never); anything else raises `ValueError`. After
        `close()` it raises `SchedulerClosed`.
        """

    @abstractmethod
    def now(self) -> float:
        """Seconds on this scheduler's clock, which never goes back; only differences mean something."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Take no more tasks, cancel the pending timers, and end this scheduler's own threads.

        A pending timer whose task is an `Alarm` is told, so that the stream behind it fails with
        `SchedulerClosed`. Tasks already submitted still run. Threads are waited for, at most `timeout`
        seconds when given; a thread that needs longer still ends by itself after its last task. Called from
        one of this scheduler's own tasks it does not wait, because that would be waiting for itself. Closing
        again does nothing but wait.
        """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True once `submit` would raise `SchedulerClosed`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}{' closed' if self.closed else ''}>"


def log_task_error(error: BaseException, scheduler: Scheduler) -> None:
    """Log at ERROR, with traceback, on the logger `penstock.streams`: the default `on_task_error`."""
    _logger.error("a task on scheduler %r raised", scheduler.name, exc_info=error)


on_task_error: Callable[[BaseException, Scheduler], None] = log_task_error
"""Called for every exception that leaves a task. Set it on this module to replace it::

    from penstock.streams.schedulers import scheduler

    scheduler.on_task_error = lambda error, where: metrics.count("task_error", where.name)

It is called on the thread that ran the task. `KeyboardInterrupt` and `SystemExit` do not come here from an
inline scheduler, from virtual time, nor from an event loop on the main thread: they go up to the caller.
"""


def report_task_error(error: BaseException, scheduler: Scheduler) -> None:
    """Pass `error` to `on_task_error`; if that hook raises, log it."""
    if isinstance(error, SchedulerClosed) and not threading.main_thread().is_alive():
        # The interpreter is exiting, and the shared schedulers close one by one: that is not an error.
        return
    try:
        on_task_error(error, scheduler)
    except BaseException as hook_error:
        if asks_main_thread_to_stop(hook_error):
            raise
        log_task_error(error, scheduler)
        _logger.error("the on_task_error hook itself raised", exc_info=hook_error)


def asks_main_thread_to_stop(error: BaseException) -> bool:
    """True for a Ctrl-C or exit on the main thread, where it must not be swallowed."""
    return (
        isinstance(error, KeyboardInterrupt | SystemExit)
        and threading.current_thread() is threading.main_thread()
    )


def run_for_caller(task: Task, scheduler: Scheduler) -> None:
    """Run `task` on its caller's thread: its errors are reported, Ctrl-C and exit go up to the caller."""
    try:
        task()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        report_task_error(error, scheduler)


def check_delay(seconds: float) -> None:
    """Refuse a delay that is negative or not a number, and say what to pass instead."""
    # Written so that NaN, for which every comparison is false, is refused too.
    if not seconds >= 0:
        raise ValueError(
            f"submit_after() cannot wait {seconds!r} seconds; "
            "pass zero or more, where 0 means as soon as possible and math.inf means never"
        )


class Renewable(Protocol):
    """Something that must start afresh in a forked child."""

    def renew_in_child(self) -> None:
        """Forget the parent's threads, replace every lock, and drop the work that the parent will do."""


_registered: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Have `owner.renew_in_child()` called in every forked child; `owner` is not kept alive by this."""
    _registered.add(owner)


_forks = 0


def forks() -> int:
    """How many forks led to this process: a child has one more than its parent."""
    return _forks


def _renew_all() -> None:
    global _forks
    _forks += 1
    for owner in list(_registered):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)


T = TypeVar("T")


class ProcessWide(Generic[T]):
    """Makes its value once, whichever threads ask first; costs nothing until then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._lock = threading.Lock()
        renew_after_fork(self)

    def get(self) -> T:
        """The value, made by the first call."""
        if self._value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._make()
        return self._value

    @contextmanager
    def replaced_by(self, value: T) -> Iterator[None]:
        """Give out another value while the block runs: for tests."""
        before, self._value = self._value, value
        try:
            yield
        finally:
            self._value = before

    def renew_in_child(self) -> None:
        """Replace the lock after a fork; the value, if it needs to, renews itself."""
        self._lock = threading.Lock()


class SharedSchedulerError(RuntimeError):
    """Somebody tried to close a scheduler that the whole process shares."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"scheduler {name!r} is shared by the whole process and stays open; "
            "leave out close() and `with`, or make a scheduler of your own with pool(), single() or loop()"
        )
        self.name = name
        """Name of the scheduler that stays open."""

    def __reduce__(self) -> tuple[type[SharedSchedulerError], tuple[str]]:
        # The inherited way would build the copy from the whole message instead of the name.
        return type(self), (self.name,)


class StaysOpen(Scheduler):
    """Mixed into a shared scheduler: closing it would end streams its caller knows nothing of."""

    def close(self, timeout: float | None = None) -> None:
        """Refuse with `SharedSchedulerError`; the scheduler goes on."""
        raise SharedSchedulerError(self.name)

    def __enter__(self) -> Self:
        # Refused on the way in: on the way out the work would be done and the error a surprise.
        raise SharedSchedulerError(self.name)
