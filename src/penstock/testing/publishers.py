"""Publishers for tests: one that does what the test says, and one that tells what was done to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from penstock.arguments import whole
from penstock.spec import (
    UNBOUNDED,
    NoneViolation,
    Publisher,
    Subscriber,
    Subscription,
    check_subscriber,
    non_positive_request,
    none_element,
    rule,
)
from penstock.streams import Flux, Mono

__all__ = ["PublisherProbe", "TestPublisher"]

T = TypeVar("T")


class TestPublisher(Generic[T]):
    """A Publisher that sends what the test tells it to.

    >>> source = TestPublisher()
    >>> seen = []
    >>> running = source.flux().map(str).subscribe(seen.append)
    >>> source.next(1, 2)
    >>> source.complete()
    >>> seen
    ['1', '2']

    It keeps the rules, and refuses to send an element for which there is no demand. To see what a subscriber
    does with a publisher that is wrong, let it break a rule on purpose: ``TestPublisher(breaks="1.1")``. The
    rules that it can break are in :attr:`BREAKABLE`. Call its methods from one thread.
    """

    __test__ = False  # for pytest, which would take the class for a test

    BREAKABLE: ClassVar[dict[str, str]] = {
        "1.1": "sends elements that nobody has asked for",
        "1.7": "sends signals after the stream has ended",
        "1.8": "sends signals after the subscription was cancelled",
        "1.9": "never calls on_subscribe",
        "2.13": "sends None",
        "3.9": "ignores a request for zero or fewer elements",
    }
    """The rules that it can break, and how it does that."""

    def __init__(self, *, breaks: str | None = None) -> None:
        """Keep all rules but ``breaks``, which is the number of a rule."""
        if breaks is not None and breaks not in self.BREAKABLE:
            rule(breaks)  # raises, with a list, for what is not a rule at all
            known = ", ".join(self.BREAKABLE)
            raise ValueError(f"TestPublisher cannot break §{breaks}; it can break {known}")
        self._breaks = breaks
        self._subscriptions: list[_TestSubscription] = []

    def subscribe(self, subscriber: Subscriber[T], /) -> None:
        """Keep the subscriber, and send nothing before the test says so."""
        check_subscriber(subscriber)
        subscription = _TestSubscription(subscriber, self._breaks)
        self._subscriptions.append(subscription)
        if self._breaks != "1.9":
            subscriber.on_subscribe(subscription)

    def flux(self) -> Flux[T]:
        """The stream of what is sent here. The guard watches it, as it does any foreign publisher."""
        return Flux.from_publisher(self)

    def mono(self) -> Mono[T]:
        """The first element of what is sent here."""
        return Mono.from_publisher(self)

    # ---------------------------------------------------------------- what the test sends
    def next(self, *elements: T) -> None:
        """Send these elements to every subscriber."""
        for element in elements:
            if element is None and self._breaks != "2.13":
                raise none_element("TestPublisher.next()")
            for subscription in self._open():
                subscription.send(element)

    def error(self, error: BaseException) -> None:
        """Fail, for every subscriber."""
        for subscription in self._open():
            subscription.ended = True
            subscription.subscriber.on_error(error)

    def complete(self) -> None:
        """Complete, for every subscriber."""
        for subscription in self._open():
            subscription.ended = True
            subscription.subscriber.on_complete()

    # ---------------------------------------------------------------- what the subscribers did
    @property
    def subscribers(self) -> int:
        """How many subscribers have neither cancelled nor received the end."""
        return sum(not (each.cancelled or each.ended) for each in self._subscriptions)

    @property
    def subscribed(self) -> int:
        """How often it was subscribed to."""
        return len(self._subscriptions)

    @property
    def cancelled(self) -> int:
        """How many subscribers have cancelled."""
        return sum(each.cancelled for each in self._subscriptions)

    @property
    def requested(self) -> int:
        """How many elements all subscribers have asked for, in total; at most ``UNBOUNDED``."""
        return min(UNBOUNDED, sum(each.requested for each in self._subscriptions))

    def _open(self) -> list[_TestSubscription]:
        return [
            each
            for each in self._subscriptions
            if (not each.cancelled or self._breaks == "1.8") and (not each.ended or self._breaks == "1.7")
        ]


class _TestSubscription:
    """One subscriber of a TestPublisher."""

    def __init__(self, subscriber: Subscriber[Any], breaks: str | None) -> None:
        self.subscriber = subscriber
        self.requested = 0
        self.sent = 0
        self.cancelled = False
        self.ended = False
        self._breaks = breaks
        self._lock = threading.Lock()

    def request(self, n: int, /) -> None:
        more = whole(n) or 0
        if more < 1:
            if self._breaks != "3.9" and not self.ended and not self.cancelled:
                self.ended = True
                self.subscriber.on_error(non_positive_request(n))
            return
        with self._lock:
            self.requested = min(UNBOUNDED, self.requested + more)

    def cancel(self) -> None:
        self.cancelled = True

    def send(self, element: Any) -> None:
        if self.sent >= self.requested and self._breaks not in ("1.1", "1.9"):
            raise AssertionError(
                f"TestPublisher cannot send {element!r:.200}: {self.requested} elements were requested and "
                f"{self.sent} sent; request more, or make it with breaks='1.1'"
            )
        self.sent += 1
        try:
            self.subscriber.on_next(element)
        except NoneViolation:
            if element is not None:  # §2.13 asks the subscriber to raise for None
                raise


class PublisherProbe(Generic[T]):
    """Put round a publisher, or in the place of one, it tells whether that was used.

    >>> from penstock.streams import Flux
    >>> fallback = PublisherProbe(Flux.just("nothing"))
    >>> Flux.just("a").switch_if_empty(fallback.flux()).collect_list().block()
    ['a']
    >>> fallback.subscribed
    0
    """

    def __init__(self, publisher: Publisher[T] | None = None) -> None:
        """Watch ``publisher``; without one, a stream that completes at once."""
        self._publisher: Publisher[Any] = Flux.empty() if publisher is None else publisher
        self._lock = threading.Lock()
        self.subscribed = 0
        """How often it was subscribed to."""
        self.requested = 0
        """How many elements were asked for, in total; at most ``UNBOUNDED``."""
        self.sent = 0
        """How many elements it has sent."""
        self.cancelled = 0
        """How often it was cancelled before its end."""
        self.ended = 0
        """How often it completed or failed."""

    def subscribe(self, subscriber: Subscriber[T], /) -> None:
        """Pass the subscriber on, and count."""
        check_subscriber(subscriber)
        self._count("subscribed")
        self._publisher.subscribe(_ProbedSubscriber(self._count, subscriber))

    def flux(self) -> Flux[T]:
        """The probe as a Flux."""
        return Flux.from_publisher(self)

    def mono(self) -> Mono[T]:
        """The probe as a Mono."""
        return Mono.from_publisher(self)

    def _count(self, what: str, n: int = 1) -> None:
        with self._lock:
            setattr(self, what, min(UNBOUNDED, getattr(self, what) + n))


class _ProbedSubscriber:
    """Between the watched publisher and its subscriber, and the Subscription for the latter."""

    __slots__ = ("_count", "_open", "_subscriber", "_subscription")

    def __init__(self, count: Callable[..., None], subscriber: Subscriber[Any]) -> None:
        self._count = count
        self._subscriber = subscriber
        self._subscription: Subscription | None = None
        self._open = True

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        self._subscriber.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        self._count("sent")
        self._subscriber.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        self._end("ended")
        self._subscriber.on_error(error)

    def on_complete(self) -> None:
        self._end("ended")
        self._subscriber.on_complete()

    def request(self, n: int, /) -> None:
        more = whole(n) or 0
        if more > 0:
            self._count("requested", more)
        if self._subscription is not None:
            self._subscription.request(n)

    def cancel(self) -> None:
        self._end("cancelled")
        if self._subscription is not None:
            self._subscription.cancel()

    def _end(self, what: str) -> None:
        if self._open:
            self._open = False
            self._count(what)
