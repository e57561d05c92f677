"""Subscribers and sources that do what a test says and remember what happened."""

from __future__ import annotations

from typing import Any

from penstock.spec import Subscriber, Subscription


class Reader:
    """Asks when the test says so, and keeps every signal."""

    def __init__(self, demand: int = 0) -> None:
        self.got: list[Any] = []
        self.completed = False
        self.error: BaseException | None = None
        self.subscription: Subscription
        self._demand = demand

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        if self._demand:
            subscription.request(self._demand)

    def on_next(self, element: Any, /) -> None:
        self.got.append(element)

    def on_error(self, error: BaseException, /) -> None:
        assert not self.ended, "one end is enough"
        self.error = error

    def on_complete(self) -> None:
        assert not self.ended, "one end is enough"
        self.completed = True

    @property
    def ended(self) -> bool:
        return self.completed or self.error is not None


class Tap:
    """A Publisher for one subscriber: gives what the test puts in, and counts what was asked for."""

    def __init__(self) -> None:
        self.demand = 0
        self.cancelled = False
        self.subscriber: Subscriber[Any]

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.demand += n

    def cancel(self) -> None:
        self.cancelled = True

    def give(self, *elements: bytes) -> None:
        for element in elements:
            assert self.demand, "nobody asked for this"
            self.demand -= 1
            self.subscriber.on_next(element)
