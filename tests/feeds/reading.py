"""Reading a feed in a test: a subscriber that asks when it is told to, and a thread that waits for lines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.feeds import Feed
from penstock.spec import Subscription
from penstock.streams import Flux
from tests.cli.running import PATIENCE


class Reader:
    """Takes what comes, and requests nothing by itself."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription

    def on_next(self, line: Any, /) -> None:
        self.lines.put(line)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.ended.set()

    def on_complete(self) -> None:
        self.ended.set()

    @property
    def subscription(self) -> Subscription:
        assert self._subscription is not None
        return self._subscription

    def take(self, count: int) -> list[Any]:
        """Wait for so many lines."""
        return [self.lines.get(timeout=PATIENCE) for _ in range(count)]

    @contextmanager
    def requesting(self, count: int = 1_000_000) -> Iterator[None]:
        """Request on a thread of its own, which waits for lines; afterwards cancel."""
        asking = threading.Thread(target=self.subscription.request, args=(count,))
        asking.start()
        try:
            yield
        finally:
            self.subscription.cancel()
            asking.join(PATIENCE)
            assert not asking.is_alive()


@contextmanager
def followed(feed: Feed, journalled: int = 0) -> Iterator[Reader]:
    """The lines of a feed that has no end, as they come."""
    reader = Reader()
    feed(journalled).subscribe(reader)
    with reader.requesting():
        yield reader
    assert reader.error is None
    assert not reader.ended.is_set(), "a file that is followed has no end"


def read(feed: Feed, journalled: int = 0) -> list[Any]:
    """Everything to the end; all of it is then in the journal, as the feed is told."""
    lines = list(Flux.from_publisher(feed(journalled)))
    feed.journalled(journalled + len(lines))
    feed.close()
    return lines
