"""The latest update, for any number of browsers: each gets the newest one when it is ready for it.

There is no queue. A browser that reads slowly misses updates in between, and the server keeps one update
however many browsers there are and however slow they are.
"""

from __future__ import annotations

import asyncio
import threading

__all__ = ["LatestUpdate"]


class LatestUpdate:
    """One value that a thread sets and coroutines of one event loop wait for."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._value: bytes | None = None
        self._number = 0
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more."""
        return self._closed

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the loop that the waiting coroutines run on."""
        with self._mutex:
            self._loop = loop

    def set(self, value: bytes) -> None:
        """Replace the value, from any thread; after :meth:`close` nothing happens."""
        with self._mutex:
            if self._closed:
                return
            self._value = value
            self._number += 1
            self._wake()

    def close(self) -> None:
        """Let everyone who waits know that there will be no more."""
        with self._mutex:
            self._closed = True
            self._wake()
            self._loop = None

    def _wake(self) -> None:
        # The loop runs for as long as it is known here: it is forgotten, under the mutex, before it ends.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def current(self) -> tuple[int, bytes | None]:
        """The number and the value; None before the first."""
        with self._mutex:
            return self._number, self._value

    async def after(self, number: int, timeout: float) -> tuple[int, bytes] | None:
        """Wait for a value that is newer than this number; None after the timeout or at the end."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not self._closed:
            changed = self._changed  # first: what is set from now on rings this one
            found, value = self.current
            if found > number and value is not None:
                return found, value
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                return None
        return None
