"""``for x in flux``: a stream as a plain iterator."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.spec import none_element, none_error
from penstock.streams.leaving.reading import Reader
from penstock.streams.stages.boundaries import PREFETCH, replenish_at
from penstock.streams.stages.read_ahead import SMALL, ReadAhead, step_of

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BlockingWindow", "iterate", "on_an_event_loop", "refuse_to_block"]


_END: Any = object()
"""Follows the last element in the queue."""


class BlockingWindow(Reader):
    """A Subscriber that another thread reads; holds at most ``prefetch`` elements."""

    __slots__ = ("queue",)

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_next(self, element: Any, /) -> None:
        """Hand the element over."""
        if element is None:
            raise none_element("for")
        self.queue.put(element)

    def on_error(self, error: BaseException, /) -> None:
        """Hand the error over, after the elements."""
        if error is None:
            raise none_error()
        self._keep(error)
        self.queue.put(_END)

    def on_complete(self) -> None:
        """Hand the end over."""
        self._over = True
        self.queue.put(_END)

    def read(self, stream: Stream[Any]) -> Iterator[Any]:
        """Subscribe at the first step; the elements, until the end, an error, or the reader leaves."""
        get, get_now = self.queue.get, self.queue.get_nowait
        batch, taken, ahead = replenish_at(self._first), 0, self._ahead
        try:
            stream._connect(self)
            while True:
                try:
                    element = get_now()
                except queue.Empty:
                    if on_an_event_loop():
                        raise RuntimeError(
                            "this stream waits for others, and waiting here would block the event loop; "
                            "use 'async for' or 'await'"
                        ) from None
                    element = get()
                if element is _END:
                    error = self._take_error()
                    if error is not None:
                        raise error
                    return
                yield element
                if ahead is not None:
                    if ahead.stalled and not self._over:
                        ahead.took()
                    if not ahead.holds:
                        continue
                taken += 1
                if taken == batch and self._subscription is not None and not self._over:
                    taken = 0
                    self._subscription.request(batch)
        finally:
            self.cancel()


class BlockingByteWindow(BlockingWindow):
    """The same for elements that can be large: bounded in bytes as well."""

    __slots__ = ("_bound", "_copies", "_small")

    def __init__(self, prefetch: int, step: int) -> None:
        super().__init__(prefetch)
        self._ahead = self._bound = ReadAhead(step, prefetch, self._waiting, on_window=self._skip_small)
        self._small = 0
        """Elements below this size need not be measured."""
        self._copies: deque[Any] = deque()
        """What is in the queue, which nobody can look into, and perhaps some that have been taken."""

    def _skip_small(self) -> None:
        self._small = SMALL

    def on_next(self, element: Any, /) -> None:
        """Hand the element over, and see whether there is room for more."""
        super().on_next(element)
        self._copies.append(element)
        if type(element) is not bytes or len(element) >= self._small:
            self._bound.came(element)
        elif len(self._copies) > 2 * PREFETCH:
            self._waiting()

    def _waiting(self) -> deque[Any]:
        copies = self._copies
        for _ in range(len(copies) - self.queue.qsize()):
            copies.popleft()
        return copies


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
