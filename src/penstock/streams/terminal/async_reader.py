"""``async for x in flux`` and ``await mono``: a stream on an event loop."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock, get_ident
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from penstock.streams.home import loop_here
from penstock.streams.operators.boundaries import PREFETCH, replenish_at
from penstock.streams.terminal.readers import QueueReader

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AsyncReader", "await_one", "iterate_async", "opened"]


class AsyncReader(QueueReader):
    """A Subscriber that a coroutine reads; elements may come from any thread."""

    __slots__ = ("_loop", "_mutex", "_waiting")
    way = "async for"

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._loop = loop_here()
        self._thread = get_ident()
        self._mutex = allocate_lock()
        self._waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if not self._is_fed:
            if get_ident() == self._thread:
                self._is_own = True
                self.idle = False
                return  # a reader that waits has said before that it is fed
            self.is_fed()
        with self._mutex:
            if not self.idle:
                return
            self.idle = False
            waiting = self._waiting
        if waiting is None:
            return
        try:
            if get_ident() == self._thread:
                _settle(waiting)
            else:
                self._loop.call_soon_threadsafe(_settle, waiting)
        except RuntimeError:
            self.cancel()  # the loop is closed, so nobody reads any more

    async def read(self, stream: Stream[Any]) -> AsyncGenerator[Any, None]:
        """The elements; subscribes at the first step, and cancels when the reader leaves."""
        queue, take = self._queue, self._queue.popleft
        batch, taken = replenish_at(self._first), 0
        turn = 0
        guard = _Leaving(self)  # noqa: F841 - It goes when these variables do.
        self.home.start_turn()
        try:
            self.connect(stream)
            while True:
                while queue:
                    yield take()
                    taken += 1
                    ahead = self._ahead
                    if ahead is not None and ahead.stalled and not self._over:
                        ahead.took()
                    if taken == batch and self._subscription is not None and not self._over:
                        taken = 0
                        if ahead is None or ahead.holds:
                            self._subscription.request(batch)
                        if not self._is_fed:
                            self.idle = True
                        turn += 1
                        if turn == 4:  # a synchronous source refills at once; let others run, too
                            turn = 0
                            await asyncio.sleep(0)
                            self.home.start_turn()
                if self._over and not queue:
                    error = self._error_at_end()
                    if error is not None:
                        raise error
                    return
                self.is_fed()
                with self._mutex:
                    self._waiting = self._loop.create_future()
                    self.idle = True
                if queue or self._over:
                    self.idle = False
                    continue
                await self._waiting
                self.home.start_turn()
        finally:
            # Leaving the loop cancels the stream's tasks and waits for them, as with any async generator.
            left = set(self.home.running)
            self.cancel()
            if left:
                await self.home.cleaned_up(left)

    async def leave(self, elements: AsyncGenerator[Any, None]) -> None:
        """Cancel the stream, and wait until all that works for it, here or elsewhere, has cleaned up."""
        if elements.ag_running:  # type: ignore[attr-defined]
            self.cancel()
            self.on_complete()  # the other task sees the end
            raise RuntimeError(
                "another task was still reading the stream when its block was left; it has been cancelled. "
                "Wait for such tasks inside the block"
            )
        await elements.aclose()
        await self.home.unreleased.none_left()


class _Leaving:
    """Cancels a stream when the coroutine that reads it is gone, if that was not closed.

    A loop that is closed without ``shutdown_asyncgens()`` never runs the rest of an asynchronous generator.
    """

    __slots__ = ("_reader",)

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader

    def __del__(self) -> None:
        if not self._reader._cancelled:
            self._reader.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reader(stream: Stream[Any], prefetch: int | None) -> AsyncReader:
    reader = AsyncReader(prefetch or PREFETCH)
    if prefetch is None:
        reader.bound_bytes(stream)
    return reader


def iterate_async(stream: Stream[Any], prefetch: int | None) -> AsyncIterator[Any]:
    """A stream as an asynchronous iterator that reads ``prefetch`` elements ahead; None means the default."""
    return _reader(stream, prefetch).read(stream)


@asynccontextmanager
async def opened(stream: Stream[Any], prefetch: int | None = None) -> AsyncIterator[AsyncIterator[Any]]:
    """The elements of a stream, for a block that has cancelled and cleaned up when it is left."""
    reader = _reader(stream, prefetch)
    elements = reader.read(stream)
    try:
        yield elements
    finally:
        await _to_its_end(reader.leave(elements))


async def _to_its_end(cleanup: Coroutine[Any, Any, None]) -> None:
    """Wait for the clean-up, whoever cancels us meanwhile: a block is not left before it is done."""
    task = asyncio.ensure_future(cleanup)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    try:
        task.result()
    finally:
        if cancelled is not None:
            raise cancelled


async def await_one(stream: Stream[Any]) -> Any:
    """The only element of a stream, or None if there is none."""
    value = None
    async for element in AsyncReader(1).read(stream):
        value = element
    return value
