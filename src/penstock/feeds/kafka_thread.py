"""The thread of a Kafka consumer: all its calls are made there, and wait in turn.

A pool of :mod:`concurrent.futures` takes no work when the program is ending, so a feed that is still read
then fails with an error that is nobody's fault; and the program waits for the pool. This one ends with the
program. Who wants a consumer to leave its group in an orderly way closes the feed, which waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["ConsumerThread"]

_T = TypeVar("_T")


class ConsumerThread:
    """Calls functions one after the other, in the order in which they were given."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, function: Callable[[], _T]) -> Future[_T]:
        """Call it after those before it; one that is cancelled before its turn is not called."""
        called: Future[_T] = Future()

        def call() -> None:
            if not called.set_running_or_notify_cancel():
                return
            try:
                result = function()
            except BaseException as error:
                called.set_exception(error)
            else:
                called.set_result(result)

        self._calls.put(call)
        return called

    def end(self) -> None:
        """End after the calls that were given so far."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
