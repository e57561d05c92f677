"""Identity processors that keep every rule: the reference, and legal oddities derived from it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from penstock.spec import (
    UNBOUNDED,
    Subscriber,
    Subscription,
    none_element,
    none_error,
    none_subscriber,
    none_subscription,
)
from tests.tck.legal.serving import Serving


class Outlet(Serving):
    """One Subscriber of a processor, with the elements that it has not asked for yet."""

    def __init__(self, subscriber: Subscriber[Any], parent: Any) -> None:
        super().__init__(subscriber)
        self.parent = parent
        self.queue: deque[Any] = deque()
        self.completing = False

    def request(self, n: int, /) -> None:
        super().request(n)
        self.parent.demand_came()

    def emit(self) -> None:
        try:
            super().emit()
        finally:
            self.leave_if_done()

    def cancel(self) -> None:
        super().cancel()
        self.leave_if_done()

    def leave_if_done(self) -> None:
        if self.done:
            self.queue.clear()
            self.parent.left(self)

    def push(self, element: Any) -> None:
        with self.lock:
            self.queue.append(element)
        self.drain()

    def complete(self) -> None:
        self.completing = True
        self.drain()

    def fail(self, error: BaseException) -> None:
        """An error goes ahead of the elements that wait: §4.2 says at once."""
        with self.lock:
            if self.failure is None:
                self.failure = error
        self.drain()

    def has_next(self) -> bool:
        return bool(self.queue)

    def take(self) -> Any:
        return self.queue.popleft()

    def exhausted(self) -> bool:
        return self.completing and not self.queue


class IdentityProcessor:
    """Gives all its Subscribers what it receives; a queue for each, and at most ``buffer_size`` in a queue.

    It asks upstream for nothing before a Subscriber asks, so Subscribers that come before the first demand
    all see the whole stream. When the last one leaves it cancels upstream.
    """

    Outlet = Outlet

    def __init__(self, buffer_size: int) -> None:
        self.buffer_size = max(1, buffer_size)
        self.lock = threading.RLock()
        self.upstream: Any = None
        self.outlets: list[Any] = []
        self.closed = False
        self.error: BaseException | None = None
        self.in_flight = 0
        self.asking = False
        self.flowing = False

    # The Subscriber's side.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        with self.lock:
            if accepted := self.upstream is None and not self.closed:
                self.upstream = subscription
        if accepted:
            self.refill()
        else:
            subscription.cancel()

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("on_next")
        with self.lock:
            if self.closed:
                return
            self.in_flight -= 1
        self.spread(element)
        self.refill()

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        for outlet in self.close(error):
            outlet.fail(error)

    def on_complete(self) -> None:
        for outlet in self.close(None):
            outlet.complete()

    def close(self, error: BaseException | None) -> list[Any]:
        """The stream is over, with ``error`` if it failed; returns those who have to be told."""
        with self.lock:
            if self.closed:
                return []
            self.closed = True
            self.error = error
            self.upstream = None
            told, self.outlets = self.outlets, []
            return told

    # The Publisher's side.

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        outlet = self.Outlet(subscriber, self)
        with self.lock:
            if not self.closed:
                self.outlets.append(outlet)
            elif self.error is None:
                outlet.completing = True
            else:
                outlet.failure = self.error
        self.connect(subscriber, outlet)

    def connect(self, subscriber: Subscriber[Any], outlet: Any) -> None:
        subscriber.on_subscribe(outlet)
        outlet.start()
        self.refill()

    def left(self, outlet: Any) -> None:
        """A Subscriber cancelled or was turned away; with the last one goes the stream."""
        with self.lock:
            if outlet not in self.outlets:
                return
            self.outlets.remove(outlet)
            abandoned = None if self.outlets else self.upstream
            if abandoned is not None:
                self.close(RuntimeError("the stream was cancelled when its last subscriber left"))
        if abandoned is not None:
            abandoned.cancel()
        else:
            self.refill()

    # Between the two.

    def spread(self, element: Any) -> None:
        for outlet in list(self.outlets):
            outlet.push(element)

    def demand_came(self) -> None:
        self.refill()

    def room(self) -> int:
        """How many elements may still be asked for; called under the lock."""
        self.flowing = self.flowing or any(outlet.demand for outlet in self.outlets)
        if not self.flowing or not self.outlets:
            return 0
        room = self.buffer_size - self.in_flight - max(len(outlet.queue) for outlet in self.outlets)
        return room if 2 * room >= self.buffer_size else 0

    def refill(self) -> None:
        """Ask upstream for what there is room for; never on two threads at once: §2.7."""
        while True:
            with self.lock:
                if self.asking or self.upstream is None or (room := self.room()) <= 0:
                    return
                self.asking = True
                self.in_flight += room
                upstream = self.upstream
            try:
                upstream.request(room)
            finally:
                self.asking = False


class LockStepProcessor(IdentityProcessor):
    """Sends an element when all its Subscribers have asked for it, and then to all: coordinated emission."""

    def __init__(self, buffer_size: int) -> None:
        super().__init__(buffer_size)
        self.waiting: deque[Any] = deque()
        self.completing = False

    def spread(self, element: Any) -> None:
        with self.lock:
            self.waiting.append(element)
        self.step()

    def demand_came(self) -> None:
        self.step()
        self.refill()

    def left(self, outlet: Any) -> None:
        super().left(outlet)
        self.step()

    def room(self) -> int:
        return super().room() if not self.waiting else 0

    def on_complete(self) -> None:
        with self.lock:
            self.completing = True
        self.step()

    def step(self) -> None:
        while True:
            with self.lock:
                if self.waiting and self.outlets and all(o.demand > len(o.queue) for o in self.outlets):
                    element, together = self.waiting.popleft(), list(self.outlets)
                    for outlet in together:
                        outlet.queue.append(element)
                else:
                    over = self.completing and not self.waiting
                    break
            for outlet in together:
                outlet.drain()
        if over:
            super().on_complete()


class SubscribesLazily(IdentityProcessor):
    """Keeps its Subscribers waiting for on_subscribe until it has an upstream itself."""

    def __init__(self, buffer_size: int) -> None:
        super().__init__(buffer_size)
        self.postponed: list[tuple[Subscriber[Any], Any]] = []

    def connect(self, subscriber: Subscriber[Any], outlet: Any) -> None:
        with self.lock:
            if self.upstream is None and not self.closed:
                self.postponed.append((subscriber, outlet))
                return
        super().connect(subscriber, outlet)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        with self.lock:
            postponed, self.postponed = self.postponed, []
        for subscriber, outlet in postponed:
            super().connect(subscriber, outlet)


class AsksOnlyWhenAsked(IdentityProcessor):
    """Fetches nothing ahead: asks upstream for one element, when somebody waits for one."""

    def room(self) -> int:
        waiting = any(outlet.demand > len(outlet.queue) for outlet in self.outlets)
        return 1 if waiting and self.in_flight == 0 else 0


class AsksForEverything(IdentityProcessor):
    """Asks upstream for all there is as soon as somebody asks; its queues grow, but no rule is broken."""

    def room(self) -> int:
        wanted = self.in_flight <= 0 and any(outlet.demand for outlet in self.outlets)
        return UNBOUNDED if wanted else 0


class EagerUnicastProcessor(IdentityProcessor):
    """Fills its buffer before anybody subscribes, and serves one Subscriber; others are turned away."""

    def __init__(self, buffer_size: int) -> None:
        super().__init__(buffer_size)
        self.stored: deque[Any] = deque()
        self.taken = False

    def room(self) -> int:
        stored = len(self.outlets[0].queue) if self.outlets else len(self.stored)
        room = self.buffer_size - self.in_flight - stored
        return room if 2 * room >= self.buffer_size else 0

    def spread(self, element: Any) -> None:
        with self.lock:
            if not self.outlets:
                self.stored.append(element)
                return
        super().spread(element)

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        outlet = self.Outlet(subscriber, self)
        with self.lock:
            if self.taken:
                outlet.failure = RuntimeError("this processor has its subscriber already")
            else:
                self.taken = True
                outlet.queue, self.stored = self.stored, deque()
                outlet.completing = self.closed and self.error is None
                outlet.failure = self.error
                if not self.closed:
                    self.outlets.append(outlet)
        self.connect(subscriber, outlet)
