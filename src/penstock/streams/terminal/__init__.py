"""Consuming a stream: callbacks, ``for``, ``async for``, ``await``, futures.

Each is a Subscriber that asks for a bounded number of elements ahead, and for more when three quarters of
them have been used.
"""

from penstock.streams.terminal.async_reader import AsyncReader, await_one, iterate_async, opened
from penstock.streams.terminal.callbacks import Running
from penstock.streams.terminal.readers import BlockingReader, first_future, iterate, wait_for_one

__all__ = [
    "AsyncReader",
    "BlockingReader",
    "Running",
    "await_one",
    "first_future",
    "iterate",
    "iterate_async",
    "opened",
    "wait_for_one",
]
