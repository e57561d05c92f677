"""Schedulers with threads of their own: one, a bounded pool, or as many as are needed."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from queue import SimpleQueue

from penstock.arguments import a_whole_number, patience
from penstock.streams.schedulers.inline import ImmediateScheduler
from penstock.streams.schedulers.scheduler import (
    ProcessWide,
    SchedulerClosed,
    StaysOpen,
    Task,
    renew_after_fork,
    report_task_error,
)
from penstock.streams.schedulers.timers import RealTimeScheduler, shared_timers


def _leave() -> None:
    """Queued once by `close()`, passed from worker to worker, never called."""


class ThreadedScheduler(RealTimeScheduler):
    """Runs tasks on up to `threads` daemon threads that take them from one queue, in order.

    A thread is started when a task finds all the others occupied, and stays until `close()`. Once all are
    started, `submit` is a `SimpleQueue.put` and two looks at a flag, without a lock.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._limit = a_whole_number(threads, "pool()")
        if self._limit < 1:
            raise ValueError(f"a scheduler cannot run on {threads!r} threads; pass threads=1 or more")
        super().__init__(name)
        self._set_up()
        renew_after_fork(self)

    def _set_up(self) -> None:
        self._queue: SimpleQueue[Task] = SimpleQueue()
        self._put = self._queue.put
        self._threads: list[threading.Thread] = []
        # Re-entrant, because the garbage collector may run a finalizer that submits while it is held.
        self._lock = threading.RLock()
        # Tasks submitted and not finished; counted only while threads may still be added.
        self._unfinished = 0
        # All threads are started and close() was not called: the queue alone will do.
        self._steady = False
        # Workers that have not left yet; when closed and zero, nobody looks into the queue any more.
        self._working = 0

    def renew_in_child(self) -> None:
        """Start afresh after a fork: the parent has the threads and runs the tasks queued so far."""
        self._set_up()

    @property
    def threads(self) -> int:
        """How many threads run at most."""
        return self._limit

    def submit(self, task: Task) -> None:
        """Queue `task` for the next free thread."""
        if not self._steady:
            self._submit_growing(task)
            return
        self._put(task)
        if not self._steady:
            self._settle_race_with_close(task)

    def _submit_growing(self, task: Task) -> None:
        with self._lock:
            if self._closed:
                raise SchedulerClosed(self.name)
            if self._unfinished >= self._working and self._working < self._limit:
                self._add_thread()
            self._unfinished += 1
            self._put(task)

    def _add_thread(self) -> None:
        self._working += 1
        number = f"-{self._working}" if self._limit > 1 else ""
        thread = threading.Thread(target=self._work, name=f"penstock-{self.name}{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread left to give. Those already here will do, if there are any.
            self._working -= 1
            if not self._working:
                raise
            return
        self._threads.append(thread)
        self._steady = self._working == self._limit and not self._closed

    def _settle_race_with_close(self, task: Task) -> None:
        """`close()` came while `task` was being queued: either a worker still runs it, or it is refused."""
        with self._lock:
            if self._working or not self._closed:
                return
            # Nobody takes from the queue any more: what is in it came too late, this task and perhaps those
            # of other threads, which will each come here for their own.
            others: list[Task] = []
            refused = False
            while not self._queue.empty():
                late = self._queue.get()
                if late is task and not refused:
                    refused = True
                else:
                    others.append(late)
            for late in others:
                self._put(late)
        if refused:
            raise SchedulerClosed(self.name)

    def _work(self) -> None:
        queue = self._queue
        while True:
            task = queue.get()
            if task is _leave:
                if self._may_leave():
                    return
                continue
            try:
                task()
            except BaseException as error:
                report_task_error(error, self)
            # Without this an idle worker would keep its last task, and the stream behind it, alive.
            del task
            if not self._steady:
                with self._lock:
                    self._unfinished -= 1

    def _may_leave(self) -> bool:
        with self._lock:
            if not self._queue.empty():
                # A submit that raced with close() got in behind the notice: it goes first.
                self._put(_leave)
                return False
            self._working -= 1
            if self._working:
                self._put(_leave)
            return True

    def close(self, timeout: float | None = None) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._steady = False
                if self._working:
                    self._put(_leave)
            threads = list(self._threads)
        super().close()
        if threading.current_thread() in threads:
            return
        limit = patience(timeout, "close()")
        deadline = None if limit is None else time.monotonic() + limit
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))


def default_pool_size() -> int:
    """Threads of a pool that was not told how many: a few more than processors, at most 32.

    The same measure as the standard library's `ThreadPoolExecutor`: pools mostly wait for I/O, and under the
    interpreter lock more threads would only get in each other's way.
    """
    return min(32, (os.cpu_count() or 1) + 4)


class PoolScheduler(ThreadedScheduler):
    """Runs tasks on up to `threads` daemon threads; further tasks queue.

    A thread starts only when no idle one can take the task. Tasks begin in the order of submission, but run
    side by side, so they may finish in any order.
    """

    def __init__(self, threads: int | None = None, name: str = "pool") -> None:
        super().__init__(default_pool_size() if threads is None else threads, name)


class SingleThreadScheduler(ThreadedScheduler):
    """Runs every task on one daemon thread, first in first out, never two at a time.

    The thread starts with the first task. Use it for what must not run in parallel: a connection, a file, a
    library that is not thread-safe. A task that blocks holds up all those behind it.
    """

    def __init__(self, name: str = "single") -> None:
        super().__init__(1, name)


STUCK_AFTER = 0.02
"""Seconds without a task being taken after which a waiting task gets another thread."""
IDLE_FOR = 10.0
"""Seconds after which a thread without work leaves."""

_timer_thread = ImmediateScheduler("timer thread")


class ElasticScheduler(RealTimeScheduler):
    """Runs tasks on a few daemon threads, and on more of them when all are busy.

    A pool with a fixed number of threads is full when that many tasks block, and then a `timeout` cannot ring
    just when it is needed. Here a task that waits while no thread becomes free gets a new one, so nothing
    waits for long behind tasks that block. Threads that have no work leave after a while.

    ``few`` is the number of threads that start at once; each beyond it starts after a moment, when none of
    the others has become free.
    """

    def __init__(self, name: str = "elastic", few: int | None = None) -> None:
        super().__init__(name)
        self._few = default_pool_size() if few is None else few
        self._set_up()
        renew_after_fork(self)

    def _set_up(self) -> None:
        # Re-entrant, because the garbage collector may run a finalizer that submits while it is held.
        self._changed = threading.Condition(threading.RLock())
        self._tasks: deque[Task] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._taken = 0
        self._started = 0
        self._watched = False

    def renew_in_child(self) -> None:
        """Start afresh after a fork: the parent has the threads and runs the tasks queued so far."""
        self._set_up()

    def submit(self, task: Task) -> None:
        """Queue `task` for the next free thread."""
        with self._changed:
            if self._closed:
                raise SchedulerClosed(self.name)
            self._tasks.append(task)
            if len(self._tasks) <= self._idle:
                self._changed.notify()
            elif len(self._threads) < self._few:
                self._add_thread()
            else:
                self._watch()

    def _add_thread(self) -> None:
        self._started += 1
        name = f"penstock-{self.name}-{self._started}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread left to give. Those already here will do, if there are any.
            self._threads.discard(thread)
            if not self._threads:
                self._tasks.pop()
                raise

    def _watch(self) -> None:
        """All threads are at work: look in a moment whether one of them has come back."""
        if not self._watched:
            self._watched = True
            taken = self._taken
            shared_timers.schedule(STUCK_AFTER, lambda: self._help(taken), _timer_thread)

    def _help(self, taken: int) -> None:
        with self._changed:
            self._watched = False
            if len(self._tasks) <= self._idle:
                return
            if self._taken == taken:
                self._add_thread()
            self._watch()

    def _work(self) -> None:
        me = threading.current_thread()
        while (task := self._next(me)) is not None:
            try:
                task()
            except BaseException as error:
                report_task_error(error, self)
            # Without this an idle worker would keep its last task, and the stream behind it, alive.
            del task

    def _next(self, me: threading.Thread) -> Task | None:
        with self._changed:
            while not self._tasks:
                self._idle += 1
                woken = not self._closed and self._changed.wait(IDLE_FOR)
                self._idle -= 1
                if not woken and not self._tasks:
                    self._threads.discard(me)
                    return None
            self._taken += 1
            return self._tasks.popleft()

    def close(self, timeout: float | None = None) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        super().close()
        if threading.current_thread() in threads:
            return
        limit = patience(timeout, "close()")
        deadline = None if limit is None else self.now() + limit
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - self.now()))


class SharedPool(StaysOpen, PoolScheduler):
    """The pool of this process; see `shared_pool`."""


class SharedSingle(StaysOpen, SingleThreadScheduler):
    """The single thread of this process; see `shared_single`."""


class SharedTimer(StaysOpen, ElasticScheduler):
    """Where the timers of this process ring; see `shared_timer`."""


_pool = ProcessWide(lambda: SharedPool(name="shared-pool"))
_single = ProcessWide(lambda: SharedSingle(name="shared-single"))


_timer = ProcessWide(lambda: SharedTimer(name="shared-timer"))


def shared_pool() -> PoolScheduler:
    """The pool of this process, of the default size, for blocking calls without a pool of their own.

    It is shared, so `close()` raises `SharedSchedulerError`. Its threads are daemons: tasks still queued when
    the interpreter exits are dropped.
    """
    return _pool.get()


def shared_single() -> SingleThreadScheduler:
    """The single thread of this process: for short tasks that must not overlap; it cannot be closed."""
    return _single.get()


def shared_timer() -> ElasticScheduler:
    """Where timers ring by default: `timeout`, `interval`, `timer`, `delay_elements`, `retry_when`.

    It has threads of its own, and starts another one when all of them are busy, so no blocking call can delay
    a timer. `close()` raises `SharedSchedulerError`.
    """
    return _timer.get()
