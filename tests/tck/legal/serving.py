"""The small correct core from which the other subjects are derived, right ones and wrong ones.

``Serving`` is a Subscription that keeps every rule: it counts demand, signals one at a time, never recurses
and lets go of its Subscriber at the end. What there is to send it asks of three methods of the subclass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, non_positive_request, none_subscriber

Signal = Callable[[], None]


class Serving:
    """Serves one Subscriber, on whichever thread asks; a broken Subscription overrides one of its methods."""

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self.lock = threading.RLock()
        self.subscriber: Any = subscriber
        self.demand = 0
        self.failure: BaseException | None = None
        self.done = False
        self.draining = True
        """Somebody is signalling, or on_subscribe has not returned: new demand will be seen without us."""

    def request(self, n: int, /) -> None:
        with self.lock:
            if self.done:
                return
            if isinstance(n, int) and n > 0:
                self.demand = self.add(n)
            else:
                self.refuse(n)
        self.drain()

    def cancel(self) -> None:
        with self.lock:
            self.done = True
            self.subscriber = None

    def add(self, n: int) -> int:
        """The demand after ``request(n)``."""
        return min(UNBOUNDED, self.demand + n)

    def refuse(self, n: Any) -> None:
        """Remember that ``request(n)`` asked for nothing; the error is the next signal."""
        self.failure = non_positive_request(n)

    def drain(self) -> None:
        """Signal what can be signalled, unless somebody is already doing so."""
        with self.lock:
            if self.draining:
                return
            self.draining = True
        self.run()

    def start(self) -> None:
        """on_subscribe has returned: signal what was asked for meanwhile."""
        self.run()

    def run(self) -> None:
        """Call ``emit``; overridden by whoever signals somewhere else."""
        self.emit()

    def emit(self) -> None:
        while True:
            with self.lock:
                signal = self.next_signal()
                if signal is None:
                    self.draining = False
                    return
            try:
                self.deliver(signal)
            except BaseException:
                # §2.13: a Subscriber that raises counts as cancelled, and somebody has to hear of it.
                self.cancel()
                self.draining = False
                raise

    def deliver(self, signal: Signal) -> None:
        signal()

    def next_signal(self) -> Signal | None:
        """The next thing to do, or None if there is nothing; called under the lock."""
        if self.done:
            return None
        if self.failure is not None:
            return self.end(partial(self.subscriber.on_error, self.failure))
        if self.exhausted():
            return self.end(self.subscriber.on_complete)
        if self.demand > 0 and self.has_next():
            if self.demand != UNBOUNDED:
                self.demand -= 1
            return partial(self.subscriber.on_next, self.take())
        return None

    def end(self, last: Signal) -> Signal:
        """Everything is over once ``last`` has been signalled: §1.6."""
        self.done = True
        self.subscriber = None
        return last

    def has_next(self) -> bool:
        raise NotImplementedError

    def take(self) -> Any:
        raise NotImplementedError

    def exhausted(self) -> bool:
        raise NotImplementedError


class SequenceSubscription(Serving):
    """Serves the elements of a sequence; a range of 2**31 numbers costs no more than one of three."""

    def __init__(self, subscriber: Subscriber[Any], elements: Sequence[Any]) -> None:
        super().__init__(subscriber)
        self.elements = elements
        self.position = 0

    def has_next(self) -> bool:
        return self.position < len(self.elements)

    def take(self) -> Any:
        element = self.elements[self.position]
        self.position += 1
        return element

    def exhausted(self) -> bool:
        return not self.has_next()


class SequencePublisher:
    """Gives every Subscriber all elements of a sequence, on the thread that asks, and then completes."""

    Subscription = SequenceSubscription

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = elements

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscription = self.Subscription(subscriber, self.elements)
        subscriber.on_subscribe(subscription)
        subscription.start()


class RangePublisher(SequencePublisher):
    """The numbers from 0 up to ``count``; the reference from which the broken publishers are derived."""

    def __init__(self, count: int) -> None:
        super().__init__(range(count))


class EmptyPublisher(SequencePublisher):
    """Completes at once, without waiting for a request."""

    def __init__(self) -> None:
        super().__init__(())


class FailedPublisher:
    """Fails at once, with ``error``: on_subscribe, on_error, and that is all."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or OSError("the source could not be opened")

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscription = SequenceSubscription(subscriber, ())
        subscription.failure = self.error
        subscriber.on_subscribe(subscription)
        subscription.start()
