"""A Python thread for Java's tasks."""

from __future__ import annotations

import queue
import threading
from typing import Any, Self

from penstock.interop.jvm.machine import implements, java_class, java_method
from penstock.streams.dropped import drop_error

__all__ = ["PythonExecutor"]


@implements("java.util.concurrent.Executor")
class PythonExecutor:
    """A ``java.util.concurrent.Executor`` with one thread, which is Python's.

    Give it to whatever in Java calls Python often, for example ``SubmissionPublisher(executor, 256)``. On a
    thread of Java's own, Python's state for the thread is made and thrown away in every call, which makes a
    signal about five times as slow and leaves ``threading.local`` empty.

    ``close`` ends the thread when the tasks before it have run; used with ``with``, at the end of the block.
    """

    def __init__(self, name: str = "java") -> None:
        """Start the thread, called ``name``."""
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False
        # Without a reference to self, so that an executor that was only forgotten could be collected.
        self._thread = threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True)
        self._thread.start()

    @java_method
    def execute(self, task: Any) -> None:
        """Run a Java ``Runnable``; called by Java."""
        if self._closed:
            raise _rejection()
        self._tasks.put(task)

    def close(self) -> None:
        """Take no more tasks, run those that wait, end the thread. Any number of times."""
        if not self._closed:
            self._closed = True
            self._tasks.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        """Use it as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _rejection() -> BaseException:
    made: BaseException = java_class("java.util.concurrent.RejectedExecutionException")(
        "this executor is closed"
    )
    return made


def _work(tasks: queue.SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        try:
            task.run()
        except Exception as error:
            drop_error(error, "a task that Java gave to a PythonExecutor")
        del task
