"""A Subscriber that keeps what it gets and asks for what it is told to."""

from __future__ import annotations

import threading
from typing import Any

from penstock.spec import UNBOUNDED, Subscription

PATIENCE = 400.0
"""Seconds that anything may take: the first batch of a session takes half a minute on a busy machine."""


class Collector:
    """Asks for ``demand`` elements at first, and for more when a test says so."""

    def __init__(self, demand: int = UNBOUNDED) -> None:
        self.elements: list[Any] = []
        self.error: BaseException | None = None
        self.subscription: Subscription | None = None
        self._demand = demand
        self._done = False
        self._changed = threading.Condition()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        if self._demand:
            subscription.request(self._demand)

    def on_next(self, element: Any, /) -> None:
        with self._changed:
            self.elements.append(element)
            self._changed.notify_all()

    def on_error(self, error: BaseException, /) -> None:
        with self._changed:
            self.error, self._done = error, True
            self._changed.notify_all()

    def on_complete(self) -> None:
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        """The elements, as soon as there are so many."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.elements) >= count or self._done, PATIENCE)
            assert arrived, f"{len(self.elements)} elements of {count}"
            assert len(self.elements) >= count, f"ended after {len(self.elements)}: {self.error!r}"
            return list(self.elements)

    def wait_for_end(self) -> list[Any]:
        """The elements, when there will be no more."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._done, PATIENCE), f"{len(self.elements)} and no end"
            return list(self.elements)

    @property
    def ended(self) -> bool:
        """Whether the end was signalled."""
        return self._done


class Source:
    """A Publisher for one Subscriber that counts what it was asked for, and gives numbers without end."""

    def __init__(self, make: Any = lambda number: {"n": number}) -> None:
        self.asked = 0
        self.given = 0
        self.cancelled = threading.Event()
        self._make = make
        self._lock = threading.Lock()
        self._subscriber: Any = None

    def subscribe(self, subscriber: Any, /) -> None:
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        with self._lock:
            self.asked += n
            while self.given < self.asked and not self.cancelled.is_set():
                self.given += 1
                self._subscriber.on_next(self._make(self.given - 1))

    def cancel(self) -> None:
        self.cancelled.set()
