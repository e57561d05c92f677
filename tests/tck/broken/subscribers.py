"""Subscribers that break one rule each, alone (black box) as well as with a probe of the kit (white box)."""

from __future__ import annotations

import threading
from typing import Any

from penstock.spec import Subscription, none_element, none_subscription
from tests.tck.legal.subscribers import ReferenceSubscriber


class NeverRequests(ReferenceSubscriber):
    """Breaks §2.1: waits for elements that it never asks for."""

    def trigger_request(self, n: int, /) -> None:
        pass


class RequestsNothing(ReferenceSubscriber):
    """Breaks §2.1: asks with request(0), which asks for nothing and is an error by §3.9."""

    def trigger_request(self, n: int, /) -> None:
        super().trigger_request(0)


class RequestsOneOfMany(ReferenceSubscriber):
    """Breaks §2.1: told to ask for several elements it asks for one; only a probe can tell it to."""

    def trigger_request(self, n: int, /) -> None:
        super().trigger_request(1)


class CancelsInOnComplete(ReferenceSubscriber):
    """Breaks §2.3: calls cancel inside on_complete."""

    def on_complete(self) -> None:
        self.subscription.cancel()
        super().on_complete()


class CancelsInOnError(ReferenceSubscriber):
    """Breaks §2.3: calls cancel inside on_error."""

    def on_error(self, error: BaseException, /) -> None:
        subscription = self.subscription
        super().on_error(error)
        subscription.cancel()


class RequestsInOnComplete(ReferenceSubscriber):
    """Breaks §2.3: calls request inside on_complete, in the hope of more."""

    def on_complete(self) -> None:
        self.subscription.request(1)
        super().on_complete()


class RequestsInOnError(ReferenceSubscriber):
    """Breaks §2.3: calls request inside on_error, in the hope that the failure will pass."""

    def on_error(self, error: BaseException, /) -> None:
        subscription = self.subscription
        super().on_error(error)
        subscription.request(1)


class RequestsAfterComplete(ReferenceSubscriber):
    """Breaks §2.4: goes on asking after on_complete: when told to, or by itself a moment later."""

    def on_complete(self) -> None:
        subscription = self.subscription
        super().on_complete()
        if self.probe is not None:
            self.subscription = subscription
        else:
            _a_moment_later(subscription.request, 1)


class CancelsAfterError(ReferenceSubscriber):
    """Breaks §2.4: cancels after on_error: when told to, or by itself a moment later."""

    def on_error(self, error: BaseException, /) -> None:
        subscription = self.subscription
        super().on_error(error)
        if self.probe is not None:
            self.subscription = subscription
        else:
            _a_moment_later(subscription.cancel)


def _a_moment_later(call: Any, *arguments: Any) -> None:
    timer = threading.Timer(0.005, call, arguments)
    timer.daemon = True
    timer.start()


class SecondSubscriptionIgnored(ReferenceSubscriber):
    """Breaks §2.5: keeps its Subscription and forgets the second one without cancelling it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None or self.subscription is None:
            super().on_subscribe(subscription)


class SecondSubscriptionUsed(ReferenceSubscriber):
    """Breaks §2.5: takes a second Subscription into use, beside the first or in its place."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        self.subscription = subscription
        self.begin()


class FirstSubscriptionCancelled(ReferenceSubscriber):
    """Breaks §2.5: cancels the Subscription it has, and goes on with the second."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is not None and self.subscription is not None:
            self.subscription.cancel()
            self.subscription = None
        super().on_subscribe(subscription)


class RequestsConcurrently(ReferenceSubscriber):
    """Breaks §2.7: asks from two threads at the same time, half each, and does not wait for them."""

    def begin(self) -> None:
        if self.probe is not None:
            super().begin()
        else:
            self.trigger_request(4)

    def go_on(self) -> None:
        if len(self.elements) % 4 == 0:
            self.trigger_request(4)

    def trigger_request(self, n: int, /) -> None:
        subscription = self.subscription
        if subscription is None:
            return
        start = threading.Barrier(2, timeout=1)

        def ask() -> None:
            start.wait()
            subscription.request(max(1, n // 2))

        for _ in range(2):
            threading.Thread(target=ask, daemon=True).start()


class CancelsBesideARequest(ReferenceSubscriber):
    """Breaks §2.7: asks on one thread and leaves on another, at the same moment."""

    def begin(self) -> None:
        subscription, start = self.subscription, threading.Barrier(2, timeout=5)

        def ask() -> None:
            start.wait()
            subscription.request(4)

        def leave() -> None:
            start.wait()
            self.cancelled = True
            subscription.cancel()

        # Whoever comes last to the barrier goes on first: the request has begun when the other one leaves.
        for call in (leave, ask):
            threading.Thread(target=call, daemon=True).start()

    def go_on(self) -> None:
        pass


class OnNextAfterCancelRaises(ReferenceSubscriber):
    """Breaks §2.8: cannot bear an element that arrives after it has cancelled.

    Alone, it asks for four elements and cancels when the first has come.
    """

    def begin(self) -> None:
        if self.probe is not None:
            super().begin()
        else:
            self.trigger_request(4)

    def on_next(self, element: Any, /) -> None:
        if self.cancelled and element is not None:
            raise RuntimeError("cancelled, and still an element")
        super().on_next(element)

    def go_on(self) -> None:
        self.signal_cancel()


class CompleteRaises(ReferenceSubscriber):
    """Breaks §2.9 and §2.13: on_complete raises, whenever it comes."""

    def on_complete(self) -> None:
        raise RuntimeError("I was not ready to stop")


class CompleteWithoutElementRaises(ReferenceSubscriber):
    """Breaks §2.9: an on_complete that comes before the first element finds it unprepared."""

    def on_complete(self) -> None:
        self.elements[0]
        super().on_complete()


class CompleteNotReported(ReferenceSubscriber):
    """Breaks §2.9: on_complete leaves no trace, which only a probe can see."""

    def on_complete(self) -> None:
        self.completed = True
        self.subscription = None


class ErrorRaises(ReferenceSubscriber):
    """Breaks §2.10 and §2.13: on_error raises the error at the Publisher."""

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        raise error


class ErrorWithoutElementRaises(ReferenceSubscriber):
    """Breaks §2.10: an on_error that comes before the first element finds it unprepared."""

    def on_error(self, error: BaseException, /) -> None:
        if error is not None:
            self.elements[0]
        super().on_error(error)


class ErrorReplaced(ReferenceSubscriber):
    """Breaks §2.10: makes another error of the one it receives, which only a probe can see."""

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error if error is None else RuntimeError(f"something went wrong: {error}"))


class OnSubscribeRaises(ReferenceSubscriber):
    """Breaks §2.13: on_subscribe does its work and then raises."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        raise RuntimeError("out of order")


class OnNextRaises(ReferenceSubscriber):
    """Breaks §2.13: on_next always raises."""

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("on_next")
        raise RuntimeError("cannot digest this")


class FalsyElementRaises(ReferenceSubscriber):
    """Breaks §2.13: takes an element that is false for a missing one, and raises."""

    def on_next(self, element: Any, /) -> None:
        if not element:
            raise TypeError("an element is needed")
        super().on_next(element)


class FalsyElementIgnored(ReferenceSubscriber):
    """Breaks §2.13: takes an element that is false for none at all, which only a probe can see."""

    def on_next(self, element: Any, /) -> None:
        if element or element is None:
            super().on_next(element)


class BoundToItsThread(ReferenceSubscriber):
    """Breaks §2.13: raises if a signal comes on another thread than on_subscribe, as §1.3 allows."""

    home = 0

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.home = threading.get_ident()
        super().on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        if element is not None and threading.get_ident() != self.home:
            raise RuntimeError("called on a foreign thread")
        super().on_next(element)


class RequestsBeforeKeeping(ReferenceSubscriber):
    """Breaks §2.13: asks before it keeps the Subscription; an element sent on the spot (§3.10) upsets it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None or self.subscription is not None or self.over():
            super().on_subscribe(subscription)
        else:
            subscription.request(1)
            self.subscription = subscription

    def go_on(self) -> None:
        self.subscription.request(1)


class NullSubscriptionAccepted(ReferenceSubscriber):
    """Breaks §2.13: on_subscribe(None) returns as if it were in order."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is not None:
            super().on_subscribe(subscription)


class NullElementAccepted(ReferenceSubscriber):
    """Breaks §2.13: on_next(None) returns as if it were in order."""

    def on_next(self, element: Any, /) -> None:
        if element is not None:
            super().on_next(element)


class NullErrorAccepted(ReferenceSubscriber):
    """Breaks §2.13: on_error(None) returns as if it were in order."""

    def on_error(self, error: BaseException, /) -> None:
        if error is not None:
            super().on_error(error)


class NullWrongError(ReferenceSubscriber):
    """Breaks §2.13: given None it raises, but not TypeError."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert subscription is not None
        super().on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        assert element is not None
        super().on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        assert error is not None
        super().on_error(error)
