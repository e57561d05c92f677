"""Reading a feed in a test: a subscriber that asks when it is told to, and a thread that waits for lines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.feeds import Delivery, Feed
from penstock.spec import Subscription
from tests.cli.running import PATIENCE


class Reader:
    """Takes what comes, and requests nothing by itself; keeps the marks of deliveries as a journal does."""

    def __init__(self, marks: dict[str, str] | None = None) -> None:
        self.marks = {} if marks is None else marks
        self.lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription

    def on_next(self, element: Any, /) -> None:
        if not isinstance(element, Delivery):
            self.lines.put(element)
            return
        self.marks.update({name: mark for name, mark in element.marks.items() if mark is not None})
        for line in element.records:
            self.lines.put(line)
        if element.stored is not None:
            element.stored()

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
def followed(feed: Feed, journalled: int = 0, marks: dict[str, str] | None = None) -> Iterator[Reader]:
    """The lines of a feed that has no end, as they come."""
    reader = Reader(marks)
    feed(journalled).subscribe(reader)
    with reader.requesting():
        yield reader
    assert reader.error is None
    assert not reader.ended.is_set(), "a file that is followed has no end"


def read(feed: Feed, journalled: int = 0, marks: dict[str, str] | None = None) -> list[Any]:
    """Everything to the end; all of it is then in the journal, as the feed is told."""
    reader = Reader(marks)
    feed(journalled).subscribe(reader)
    reader.subscription.request(1_000_000)
    assert reader.ended.wait(PATIENCE)
    lines = [reader.lines.get() for _ in range(reader.lines.qsize())]
    feed.journalled(journalled + len(lines))
    feed.close()
    if reader.error is not None:
        raise reader.error
    return lines
