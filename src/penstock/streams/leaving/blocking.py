"""``for x in flux``: a stream as a plain iterator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.spec import none_element, none_error
from penstock.streams.leaving.reading import Reader
from penstock.streams.stages.boundaries import PREFETCH, replenish_at
from penstock.streams.stages.read_ahead import SMALL, ReadAhead, step_of

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BlockingWindow", "iterate", "on_an_event_loop", "refuse_to_block"]


class BlockingWindow(Reader):
    """A Subscriber that another thread reads; holds at most ``prefetch`` elements.

    An element costs an append and one look at a flag. The reader's thread is woken only when it had run out
    of elements, not for each of them. The order matters: a source appends and then looks at the flag, the
    reader sets the flag and then looks at the queue, so one of them sees the other.
    """

    __slots__ = ("_idle", "_queue", "_woken")

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._queue: deque[Any] = deque()
        self._idle = False
        self._woken: SimpleQueue[None] = SimpleQueue()

    def on_next(self, element: Any, /) -> None:
        """Hand the element over."""
        if element is None:
            raise none_element("for")
        self._queue.append(element)
        if self._idle:
            self._wake()

    def on_error(self, error: BaseException, /) -> None:
        """Hand the error over, after the elements."""
        if error is None:
            raise none_error()
        self._keep(error)
        self._wake()

    def on_complete(self) -> None:
        """Hand the end over."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        self._idle = False
        self._woken.put(None)  # one too many does not matter: the reader looks at the queue again

    def read(self, stream: Stream[Any]) -> Iterator[Any]:
        """Subscribe at the first step; the elements, until the end, an error, or the reader leaves."""
        queue, take = self._queue, self._queue.popleft
        batch, taken, ahead = replenish_at(self._first), 0, self._ahead
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
                if self._over and not queue:
                    error = self._take_error()
                    if error is not None:
                        raise error
                    return
                self._idle = True
                if not queue and not self._over:
                    if on_an_event_loop():
                        raise RuntimeError(
                            "this stream waits for others, and waiting here would block the event loop; "
                            "use 'async for' or 'await'"
                        )
                    self._woken.get()
                self._idle = False
        finally:
            self.cancel()


class BlockingByteWindow(BlockingWindow):
    """The same for elements that can be large: bounded in bytes as well."""

    __slots__ = ("_bound", "_small")

    def __init__(self, prefetch: int, step: int) -> None:
        super().__init__(prefetch)
        self._ahead = self._bound = ReadAhead(
            step, prefetch, lambda: list(self._queue), on_window=self._skip_small
        )
        self._small = 0
        """Elements below this size need not be measured."""

    def _skip_small(self) -> None:
        self._small = SMALL

    def on_next(self, element: Any, /) -> None:
        """Hand the element over, and see whether there is room for more."""
        if type(element) is bytes and len(element) < self._small:
            self._queue.append(element)
            if self._idle:
                self._wake()
            return
        super().on_next(element)
        self._bound.came(element)


def iterate(stream: Stream[Any], prefetch: int | None) -> Iterator[Any]:
    """A stream as an iterator, which reads so many elements ahead; None is the usual number."""
    step = step_of(stream._source) if prefetch is None else None
    if step is not None:
        return BlockingByteWindow(PREFETCH, step).read(stream)
    return BlockingWindow(prefetch or PREFETCH).read(stream)


def on_an_event_loop() -> bool:
    """Whether this thread is running an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_to_block(what: str, instead: str) -> None:
    """Raise if waiting here would make an event loop, and everything on it, stand still."""
    if on_an_event_loop():
        raise RuntimeError(f"{what} would block the event loop that runs here; use '{instead}'")
