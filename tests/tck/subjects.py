"""Subjects of other spellings, and a few that misbehave in ways that endanger the test run itself."""

from __future__ import annotations

import threading
from typing import Any

from tests.tck.legal.processors import IdentityProcessor
from tests.tck.legal.serving import FailedPublisher, RangePublisher
from tests.tck.legal.subscribers import ReferenceSubscriber

# ---------------------------------------------------------------- camelCase


class CamelSubscriber:
    """A Subscriber as it is spelled on the JVM."""

    def __init__(self, probe: Any = None) -> None:
        self._inner = ReferenceSubscriber(probe)

    def onSubscribe(self, subscription: Any) -> None:
        self._inner.on_subscribe(subscription)

    def onNext(self, element: Any) -> None:
        self._inner.on_next(element)

    def onError(self, error: Any) -> None:
        self._inner.on_error(error)

    def onComplete(self) -> None:
        self._inner.on_complete()


class _FromCamel:
    """What a publisher of our spelling needs to talk to a Subscriber in camelCase."""

    def __init__(self, theirs: Any) -> None:
        self.on_subscribe = theirs.onSubscribe
        self.on_next = theirs.onNext
        self.on_error = theirs.onError
        self.on_complete = theirs.onComplete


class CamelPublisher:
    """A Publisher that calls its Subscribers in camelCase."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def subscribe(self, subscriber: Any) -> None:
        self._inner.subscribe(None if subscriber is None else _FromCamel(subscriber))


class CamelProcessor(CamelPublisher):
    """A Processor in camelCase."""

    def __init__(self, buffer_size: int) -> None:
        super().__init__(IdentityProcessor(buffer_size))
        self.onSubscribe = self._inner.on_subscribe
        self.onNext = self._inner.on_next
        self.onError = self._inner.on_error
        self.onComplete = self._inner.on_complete


# ---------------------------------------------------------------- rsocket


class RSocketSubscriber(ReferenceSubscriber):
    """A Subscriber whose elements may say that they are the last."""

    def on_next(self, value: Any, is_complete: bool = False) -> None:  # type: ignore[override]
        super().on_next(value)
        if is_complete:
            self.on_complete()


class RSocketPublisher:
    """A Publisher that announces the end with its last element, as rsocket-py does."""

    def __init__(self, elements: int) -> None:
        self._elements = elements

    def subscribe(self, subscriber: Any) -> None:
        held = None if subscriber is None else _HoldsTheLast(subscriber, self._elements)
        RangePublisher(self._elements).subscribe(held)  # type: ignore[arg-type]


class _HoldsTheLast:
    def __init__(self, theirs: Any, elements: int) -> None:
        self._theirs, self._last = theirs, elements - 1
        self.on_subscribe = theirs.on_subscribe
        self.on_error = theirs.on_error

    def on_next(self, element: Any, /) -> None:
        self._theirs.on_next(element, is_complete=element == self._last)

    def on_complete(self) -> None:
        if self._last < 0:
            self._theirs.on_complete()


def rsocket_failed_publisher() -> Any:
    """A failed Publisher is spelled alike."""
    return FailedPublisher()


# ---------------------------------------------------------------- dangers


class LocksWhileAsking(ReferenceSubscriber):
    """Breaks §3.10 and §3.11: an answer from inside ``request`` waits for a lock that the request holds."""

    def __init__(self, probe: Any = None) -> None:
        super().__init__(probe)
        self._lock = threading.Lock()

    def trigger_request(self, n: int, /) -> None:
        with self._lock:
            super().trigger_request(n)

    def on_next(self, element: Any, /) -> None:
        with self._lock:
            pass
        super().on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        with self._lock:
            pass
        super().on_error(error)

    def on_complete(self) -> None:
        with self._lock:
            pass
        super().on_complete()


class NeverReturns(RangePublisher):
    """Its request waits for something that never happens."""

    class Subscription(RangePublisher.Subscription):
        def request(self, n: int, /) -> None:
            threading.Event().wait()


class NeverStops(RangePublisher):
    """Its request sends elements for ever, whatever was asked for."""

    class Subscription(RangePublisher.Subscription):
        def request(self, n: int, /) -> None:
            while True:
                self.subscriber.on_next(0)

        def cancel(self) -> None:
            pass
