"""``async for x in flux`` and ``await mono``: a stream on an event loop."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock, get_ident
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from penstock.streams.operators.boundaries import PREFETCH, replenish_at
from penstock.streams.operators.read_ahead import step_of
from penstock.streams.terminal.readers import MeasuringReader, QueueReader

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AsyncReader", "await_one", "iterate_async"]


class AsyncReader(QueueReader):
    """A Subscriber that a coroutine reads; elements may come from any thread."""

    __slots__ = ("_loop", "_mutex", "_thread", "_waiting")
    way = "async for"

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._mutex = allocate_lock()
        self._waiting: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        with self._mutex:
            if not self._idle:
                return
            self._idle = False
            waiting = self._waiting
        if waiting is None:
            return
        if get_ident() == self._thread:
            _settle(waiting)
            return
        try:
            self._loop.call_soon_threadsafe(_settle, waiting)
        except RuntimeError:
            self.cancel()  # the loop is closed, so nobody reads any more

    async def read(self, stream: Stream[Any]) -> AsyncIterator[Any]:
        """The elements; subscribes at the first step, and cancels when the reader leaves."""
        queue, take = self._queue, self._queue.popleft
        batch, taken = replenish_at(self._first), 0
        ahead, turn = self._ahead, 0
        self.home.start_turn()
        try:
            stream._connect(self)
            while True:
                while queue:
                    yield take()
                    taken += 1
                    if ahead is not None and ahead.stalled and not self._over:
                        ahead.took()
                    if taken == batch and self._subscription is not None and not self._over:
                        taken = 0
                        if ahead is None or ahead.holds:
                            self._subscription.request(batch)
                        turn += 1
                        if turn == 4:  # a synchronous source refills at once; let others run, too
                            turn = 0
                            await asyncio.sleep(0)
                            self.home.start_turn()
                if self._over and not queue:
                    error = self._take_error()
                    if error is not None:
                        raise error
                    return
                with self._mutex:
                    self._waiting = self._loop.create_future()
                    self._idle = True
                if queue or self._over:
                    self._idle = False
                    continue
                await self._waiting
                self.home.start_turn()
        finally:
            # Leaving the loop cancels the stream's tasks and waits for them, as with any async generator.
            left = set(self.home.running)
            self.cancel()
            if left:
                await self.home.cleaned_up(left)


class AsyncByteReader(MeasuringReader, AsyncReader):
    """The same for elements that can be large."""

    __slots__ = ()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def iterate_async(stream: Stream[Any], prefetch: int | None) -> AsyncIterator[Any]:
    """A stream as an asynchronous iterator that reads ``prefetch`` elements ahead; None means the default."""
    step = step_of(stream) if prefetch is None else None
    if step is not None:
        return AsyncByteReader(PREFETCH, step).read(stream)
    return AsyncReader(prefetch or PREFETCH).read(stream)


async def await_one(stream: Stream[Any]) -> Any:
    """The only element of a stream, or None if there is none."""
    value = None
    async for element in AsyncReader(1).read(stream):
        value = element
    return value
