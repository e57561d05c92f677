"""One thread that runs tasks in the order they were submitted."""

from __future__ import annotations

from penstock.streams.schedulers.threaded import ThreadedScheduler


class SingleThreadScheduler(ThreadedScheduler):
    """Runs every task on one daemon thread, first in first out, never two at a time.

    The thread starts with the first task. Use it for what must not run in parallel: a connection, a file, a
    library that is not thread-safe. A task that blocks holds up all those behind it.
    """

    def __init__(self, name: str = "single") -> None:
        super().__init__(1, name)
