"""A small Publisher that keeps every rule, to stand upstream of a Processor under test."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.spec import UNBOUNDED, check_subscriber, non_positive_request


class HelperPublisher:
    """Sends the elements of an iterable to one Subscriber, on the thread of whoever asks."""

    def __init__(self, elements: Iterable[Any]) -> None:
        """Send ``elements``."""
        self._elements = iter(elements)

    def subscribe(self, subscriber: Any, /) -> None:
        """Serve ``subscriber``."""
        check_subscriber(subscriber)
        subscription = _Serving(subscriber, self._elements)
        subscriber.on_subscribe(subscription)
        subscription.send()


class _Serving:
    """Counts demand, and sends in one loop at a time: a request from inside it only adds (§3.3)."""

    def __init__(self, subscriber: Any, elements: Iterator[Any]) -> None:
        self._subscriber = subscriber
        self._elements = elements
        self._lock = threading.Lock()
        self._demand = 0
        self._error: BaseException | None = None
        self._over = False
        # Held from the start: nothing is sent before on_subscribe has returned.
        self._sending = True
        self._next = next(elements, _END)

    def request(self, n: int, /) -> None:
        with self._lock:
            if n < 1:
                self._error = non_positive_request(n)
            else:
                self._demand = min(UNBOUNDED, self._demand + n)
            if self._sending or self._over:
                return
            self._sending = True
        self.send()

    def cancel(self) -> None:
        with self._lock:
            self._over = True
            self._subscriber = None

    def send(self) -> None:
        while (signal := self._next_signal()) is not None:
            signal()

    def _next_signal(self) -> Any:
        with self._lock:
            subscriber = self._subscriber
            if self._over or (self._error is None and self._next is not _END and not self._demand):
                self._sending = False
                return None
            if self._error is None and self._next is not _END:
                element, self._next = self._next, next(self._elements, _END)
                self._demand -= self._demand < UNBOUNDED
                return lambda: subscriber.on_next(element)
            error, self._over, self._subscriber, self._sending = self._error, True, None, False
            return subscriber.on_complete if error is None else lambda: subscriber.on_error(error)


_END = object()
