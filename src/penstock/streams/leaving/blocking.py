"""``for x in flux``: a stream as a plain iterator."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscription, none_element, none_error, none_subscription
from penstock.streams.stages.boundaries import replenish_at

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BlockingWindow", "iterate", "on_an_event_loop"]


class _End:
    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class BlockingWindow:
    """A Subscriber that another thread reads; holds at most ``prefetch`` elements."""

    __slots__ = ("_cancelled", "_over", "_prefetch", "_subscription", "queue")

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._subscription: Subscription | None = None
        self._cancelled = self._over = False
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first window."""
        if subscription is None:
            raise none_subscription()
        if self._subscription is not None or self._cancelled:
            subscription.cancel()  # §2.5
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()  # by another thread meanwhile
            return
        subscription.request(self._prefetch)

    def on_next(self, element: Any, /) -> None:
        """Hand the element over."""
        if element is None:
            raise none_element("for")
        self.queue.put(element)

    def on_error(self, error: BaseException, /) -> None:
        """Hand the error over, after the elements."""
        if error is None:
            raise none_error()
        self._over = True
        self.queue.put(_End(error))

    def on_complete(self) -> None:
        """Hand the end over."""
        self._over = True
        self.queue.put(_End(None))

    def read(self, stream: Stream[Any]) -> Iterator[Any]:
        """Subscribe at the first step; the elements, until the end, an error, or the reader leaves."""
        get, get_now = self.queue.get, self.queue.get_nowait
        batch, taken = replenish_at(self._prefetch), 0
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
                if element.__class__ is _End:
                    if element.error is not None:
                        raise element.error
                    return
                yield element
                taken += 1
                if taken == batch and self._subscription is not None and not self._over:
                    taken = 0
                    self._subscription.request(batch)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop the stream."""
        self._cancelled = True
        if self._subscription is not None and not self._over:  # §2.4
            self._subscription.cancel()


def iterate(stream: Stream[Any], prefetch: int) -> Iterator[Any]:
    """A stream as an iterator."""
    return BlockingWindow(prefetch).read(stream)


def on_an_event_loop() -> bool:
    """Whether this thread is running an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
