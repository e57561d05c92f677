"""``async for x in flux`` and ``await mono``: a stream on an event loop."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from penstock.spec import none_element, none_error
from penstock.streams.operators.boundaries import PREFETCH, replenish_at
from penstock.streams.operators.read_ahead import SMALL, ReadAhead, step_of
from penstock.streams.terminal.readers import TerminalReader

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AsyncReader", "await_one", "iterate_async"]


class AsyncReader(TerminalReader):
    """A Subscriber that a coroutine reads; elements may come from any thread.

    An element costs an append and one look at a flag. The event loop is woken only when it had run out of
    elements, not for each of them.
    """

    __slots__ = (
        "_idle",
        "_loop",
        "_mutex",
        "_queue",
        "_thread",
        "_waiting",
    )

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._queue: deque[Any] = deque()
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._mutex = allocate_lock()
        self._idle = False
        self._waiting: asyncio.Future[None] | None = None

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("async for")
        self._queue.append(element)
        if self._idle:
            self._wake()

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self._keep(error)
        self._wake()

    def on_complete(self) -> None:
        self._over = True
        self._wake()

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


class AsyncByteReader(AsyncReader):
    """The same for elements that can be large: bounded in bytes as well."""

    __slots__ = ("_bound", "_small")

    def __init__(self, prefetch: int, step: int) -> None:
        super().__init__(prefetch)
        self._ahead = self._bound = ReadAhead(
            step, prefetch, lambda: list(self._queue), on_pausable=self._skip_small
        )
        self._small = 0
        """Elements below this size need not be measured."""

    def _skip_small(self) -> None:
        self._small = SMALL

    def on_next(self, element: Any, /) -> None:
        """Hand the element over, and measure it if it may be large."""
        if type(element) is bytes and len(element) < self._small:
            self._queue.append(element)
            if self._idle:
                self._wake()
            return
        super().on_next(element)
        self._bound.came(element)


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
