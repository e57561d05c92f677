"""Ways out of a stream: callbacks, ``for``, ``async for``, ``await``, futures.

Each is a Subscriber with a bounded window of demand, which it refills when three quarters of it are used up.
"""

from penstock.streams.leaving.awaiting import AsyncWindow, await_one, iterate_async
from penstock.streams.leaving.blocking import BlockingWindow, iterate
from penstock.streams.leaving.callbacks import Running
from penstock.streams.leaving.single import first_future, wait_for_one

__all__ = [
    "AsyncWindow",
    "BlockingWindow",
    "Running",
    "await_one",
    "first_future",
    "iterate",
    "iterate_async",
    "wait_for_one",
]
