"""A bounded number of threads for work that blocks."""

from __future__ import annotations

import os

from penstock.streams.schedulers.threaded import ThreadedScheduler


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
