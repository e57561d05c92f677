"""The thread schedulers that everybody in the process may use without making their own."""

from __future__ import annotations

from penstock.streams.schedulers.pool import PoolScheduler
from penstock.streams.schedulers.process_wide import ProcessWide
from penstock.streams.schedulers.single import SingleThreadScheduler
from penstock.streams.schedulers.stays_open import StaysOpen


class SharedPool(StaysOpen, PoolScheduler):
    """The pool of this process; see `shared_pool`."""


class SharedSingle(StaysOpen, SingleThreadScheduler):
    """The single thread of this process; see `shared_single`."""


_pool = ProcessWide(lambda: SharedPool(name="shared-pool"))
_single = ProcessWide(lambda: SharedSingle(name="shared-single"))


def shared_pool() -> PoolScheduler:
    """The pool of this process, of the default size: the place for blocking calls that have no own pool.

    It is shared, so `close()` raises `SharedSchedulerError`. Its threads are daemons: tasks still queued when
    the interpreter exits are dropped.
    """
    return _pool.get()


def shared_single() -> SingleThreadScheduler:
    """The single thread of this process: for short tasks that must not overlap. `close()` is refused."""
    return _single.get()
