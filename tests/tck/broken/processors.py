"""Identity processors that break one rule each."""

from __future__ import annotations

from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription, none_error, none_subscription
from tests.tck.legal.processors import IdentityProcessor, Outlet


class SwallowsError(IdentityProcessor):
    """Breaks §4.2: an error from upstream is not passed on."""

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()


class ErrorBecomesComplete(IdentityProcessor):
    """Breaks §4.2: an error from upstream is passed on as if all had gone well."""

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self.on_complete()


class WrapsError(IdentityProcessor):
    """Breaks §4.2: passes another error on than the one that came."""

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error if error is None else RuntimeError(f"upstream failed: {error}"))


class ErrorWaitsForDemand(IdentityProcessor):
    """Breaks §4.2: an error waits behind the elements, until the Subscriber has asked for these."""

    class Outlet(Outlet):
        late: BaseException | None = None

        def fail(self, error: BaseException) -> None:
            self.late = error
            self.drain()

        def next_signal(self) -> Any:
            if self.late is not None and not self.queue and self.failure is None:
                self.failure = self.late
            return super().next_signal()


class ErrorNeedsDemand(IdentityProcessor):
    """Breaks §4.2: an error is passed on only to those who have asked for an element."""

    class Outlet(Outlet):
        late: BaseException | None = None

        def fail(self, error: BaseException) -> None:
            self.late = error
            self.drain()

        def next_signal(self) -> Any:
            if self.late is not None and self.demand > 0 and self.failure is None:
                self.failure = self.late
            return super().next_signal()


class ErrorReachesFirstOnly(IdentityProcessor):
    """Breaks §1.4 and §4.2: of several Subscribers only the first learns of an error."""

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        for outlet in self.close(error)[:1]:
            outlet.fail(error)


class SwallowsComplete(IdentityProcessor):
    """Breaks §1.5: the end of the stream is not passed on."""

    def on_complete(self) -> None:
        pass


class NeverCancelsUpstream(IdentityProcessor):
    """Breaks §2.6 by way of §4.1: nobody is left downstream, and it does not cancel upstream."""

    def left(self, outlet: Any) -> None:
        with self.lock:
            if outlet in self.outlets:
                self.outlets.remove(outlet)


class KeepsSubscriber(IdentityProcessor):
    """Breaks §3.13: a Subscriber that has cancelled stays on the list."""

    class Outlet(Outlet):
        def cancel(self) -> None:
            self.kept = self.subscriber
            super().cancel()


class DropsElements(IdentityProcessor):
    """Breaks §3.8 by way of §4.1: passes on only the first of every two elements, so demand is not met."""

    odd = False

    def spread(self, element: Any) -> None:
        self.odd = not self.odd
        if self.odd:
            super().spread(element)


class ReordersElements(IdentityProcessor):
    """Breaks §1.12: elements that wait are sent the latest first, so two Subscribers see different orders."""

    class Outlet(Outlet):
        def take(self) -> Any:
            return self.queue.pop()


class SwapsElements(IdentityProcessor):
    """Breaks §4.1: sends the second of two elements before the first, which it holds back until then."""

    def __init__(self, buffer_size: int) -> None:
        super().__init__(max(2, buffer_size))
        self.held: list[Any] = []

    def spread(self, element: Any) -> None:
        if not self.held:
            self.held.append(element)
        else:
            super().spread(element)
            super().spread(self.held.pop())

    def on_complete(self) -> None:
        if self.held:
            super().spread(self.held.pop())
        super().on_complete()


class SecondUpstreamKept(IdentityProcessor):
    """Breaks §2.5: takes a second upstream into use without cancelling either."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        with self.lock:
            self.upstream = subscription
            self.in_flight = 0
        self.refill()


class CancelsInOnComplete(IdentityProcessor):
    """Breaks §2.3: cancels upstream inside on_complete."""

    def on_complete(self) -> None:
        upstream = self.upstream
        super().on_complete()
        if upstream is not None:
            upstream.cancel()


class NullAccepted(IdentityProcessor):
    """Breaks §2.13: on_subscribe(None), on_next(None) and on_error(None) return as if they were in order."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is not None:
            super().on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        if element is not None:
            super().on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        if error is not None:
            super().on_error(error)


class NullSubscriberAccepted(IdentityProcessor):
    """Breaks §1.9 by way of §4.1: subscribe(None) returns as if it were in order."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is not None:
            super().subscribe(subscriber)


class NeverAsksUpstream(IdentityProcessor):
    """Breaks §2.1 by way of §4.1: what its Subscribers ask for is not asked for upstream."""

    def refill(self) -> None:
        pass


class IgnoresDownstreamDemand(IdentityProcessor):
    """Breaks §1.1 by way of §4.1: passes elements on whether anybody has asked for them or not."""

    class Outlet(Outlet):
        def push(self, element: Any) -> None:
            self.demand = UNBOUNDED
            super().push(element)


class OnNextAfterCancelRaises(IdentityProcessor):
    """Breaks §2.8 by way of §4.1: an element that comes when all Subscribers have left makes it raise."""

    def on_next(self, element: Any, /) -> None:
        if element is not None and not self.outlets:
            raise RuntimeError("nobody is here to take this")
        super().on_next(element)


class ForgetsEarlyDemand(IdentityProcessor):
    """Breaks §4.1: what a Subscriber asks for before there is an upstream is never asked for."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        for outlet in self.outlets if subscription is not None and self.upstream is None else ():
            outlet.demand = 0
        self.flowing = False
        super().on_subscribe(subscription)


class LeavesWithTheFirst(IdentityProcessor):
    """Breaks §4.1: cancels upstream as soon as one of its Subscribers leaves."""

    def left(self, outlet: Any) -> None:
        upstream = self.upstream
        super().left(outlet)
        if upstream is not None and self.upstream is not None:
            self.close(RuntimeError("one has left"))
            upstream.cancel()
