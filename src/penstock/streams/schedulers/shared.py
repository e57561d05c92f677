"""The thread schedulers that everybody in the process may use without making their own."""

from __future__ import annotations

from penstock.streams.schedulers.elastic import ElasticScheduler
from penstock.streams.schedulers.pool import PoolScheduler
from penstock.streams.schedulers.process_wide import ProcessWide
from penstock.streams.schedulers.single import SingleThreadScheduler
from penstock.streams.schedulers.stays_open import StaysOpen


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
    """The pool of this process, of the default size: the place for blocking calls that have no own pool.

    It is shared, so `close()` raises `SharedSchedulerError`. Its threads are daemons: tasks still queued when
    the interpreter exits are dropped.
    """
    return _pool.get()


def shared_single() -> SingleThreadScheduler:
    """The single thread of this process: for short tasks that must not overlap. `close()` is refused."""
    return _single.get()


def shared_timer() -> ElasticScheduler:
    """Where timers ring by default: `timeout`, `interval`, `timer`, `delay_elements`, `retry_when`.

    It has threads of its own, and gets another one when all of them are held up, so no blocking call can keep
    a timer from ringing. `close()` is refused.
    """
    return _timer.get()
