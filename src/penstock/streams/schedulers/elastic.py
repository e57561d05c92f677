"""Threads that are never all held up: what timers ring on."""

from __future__ import annotations

import threading
from collections import deque

from penstock.streams.schedulers.forking import renew_after_fork
from penstock.streams.schedulers.immediate import ImmediateScheduler
from penstock.streams.schedulers.pool import default_pool_size
from penstock.streams.schedulers.realtime import RealTimeScheduler
from penstock.streams.schedulers.scheduler import SchedulerClosed, Task, report_task_error
from penstock.streams.schedulers.timers import shared_timers

STUCK_AFTER = 0.02
"""Seconds without a task being taken after which a waiting task gets another thread."""
IDLE_FOR = 10.0
"""Seconds after which a thread without work leaves."""

_timer_thread = ImmediateScheduler("timer thread")


class ElasticScheduler(RealTimeScheduler):
    """Runs tasks on a few daemon threads, and on more of them when all are held up.

    A pool with a fixed number of threads is full when that many tasks block, and then a `timeout` cannot ring
    just when it is needed. Here a task that waits while no thread becomes free gets a new one, so nothing
    waits for long behind tasks that block. Threads that have no work leave after a while.
    """

    def __init__(self, name: str = "elastic") -> None:
        super().__init__(name)
        self._few = default_pool_size()
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
        """See `Scheduler.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        super().close()
        if threading.current_thread() in threads:
            return
        deadline = None if timeout is None else self.now() + timeout
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - self.now()))
