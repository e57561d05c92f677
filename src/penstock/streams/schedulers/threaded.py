"""Worker threads around one queue: what the single-thread and the pool scheduler are made of."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

from penstock.streams.arguments import a_whole_number
from penstock.streams.schedulers.forking import renew_after_fork
from penstock.streams.schedulers.realtime import RealTimeScheduler
from penstock.streams.schedulers.scheduler import SchedulerClosed, Task, report_task_error


def _leave() -> None:
    """Queued once by `close()`, passed from worker to worker, never called."""


class ThreadedScheduler(RealTimeScheduler):
    """Runs tasks on up to `threads` daemon threads that take them from one queue, in order.

    A thread is started when a task finds all the others occupied, and stays until `close()`. Once all are
    started, `submit` is a `SimpleQueue.put` and two looks at a flag, without a lock.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._limit = a_whole_number(threads, "pool")
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
        """See `Scheduler.close`."""
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
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
