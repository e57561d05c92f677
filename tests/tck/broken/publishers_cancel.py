"""Publishers that handle bad requests or cancellation wrongly."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, ClassVar

from penstock.spec import Subscriber, non_positive_request
from tests.tck.broken.publishers_demand import BrokenPublisher
from tests.tck.legal.serving import SequenceSubscription, Signal


class BadRequestIgnored(BrokenPublisher):
    """Breaks §3.9: request(0) does nothing."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            pass


class BadRequestRaises(BrokenPublisher):
    """Breaks §3.9 and §3.16: request(0) raises at the caller instead of signalling on_error."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            raise non_positive_request(n)


class BadRequestPoorMessage(BrokenPublisher):
    """Against the SHOULD of §3.9: the error for request(0) does not say what was wrong."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            self.failure = ValueError("no")


class BadRequestWrongType(BrokenPublisher):
    """Breaks §3.9: the error for request(0) is not a ValueError, whatever it says."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            self.failure = RuntimeError(f"§3.9: non-positive subscription request {n}")


class BadRequestCompletes(BrokenPublisher):
    """Breaks §3.9: request(0) ends the stream as if it had been sent to the end."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            self.elements = ()


class NegativeRequestIgnored(BrokenPublisher):
    """Breaks §3.9: it knows that request(0) is wrong, and thinks no further."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            if n == 0:
                super().refuse(n)


class NegativeRequestSubtracts(BrokenPublisher):
    """Breaks §3.9: request(-3) takes back three requests."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            if n == 0:
                super().refuse(n)
            else:
                self.demand = max(0, self.demand + n)


class BadRequestAfterCancelSignals(BrokenPublisher):
    """Breaks §3.6: request(0) on a cancelled Subscription is answered with on_error."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.left: Any = None

        def cancel(self) -> None:
            self.left = self.left or self.subscriber  # Which breaks §3.13 as well.
            super().cancel()

        def request(self, n: int, /) -> None:
            if self.left is not None and n <= 0:
                self.left.on_error(non_positive_request(n))
            super().request(n)


class RequestAfterCancelRaises(BrokenPublisher):
    """Breaks §3.6 and §3.16: request on a cancelled Subscription raises instead of doing nothing."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            if self.done:
                raise RuntimeError("the subscription has been cancelled")
            super().request(n)


class CancelOnlyResetsDemand(BrokenPublisher):
    """Breaks §3.6: cancel forgets the demand, and with the next request the stream goes on."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            self.demand = 0


class CancelIgnored(BrokenPublisher):
    """Breaks §3.12 and §1.8: cancel does nothing at all."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            pass


class CancelSeenLate(BrokenPublisher):
    """Breaks §3.12 and §1.8: cancel is looked at only when all that was requested has been sent."""

    class Subscription(SequenceSubscription):
        leaving = False

        def cancel(self) -> None:
            self.leaving = True
            if not self.draining or self.demand == 0:
                super().cancel()

        def next_signal(self) -> Signal | None:
            if self.leaving and self.demand == 0:
                super().cancel()
            return super().next_signal()


class CancelTwiceRaises(BrokenPublisher):
    """Breaks §3.7 and §3.15: the second cancel raises."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            if self.done:
                raise RuntimeError("cancelled already")
            super().cancel()


class CancelRaises(BrokenPublisher):
    """Breaks §3.15: cancel does its work and then raises."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            super().cancel()
            raise RuntimeError("could not close the source")


class CancelSignalsError(BrokenPublisher):
    """Breaks §1.8: cancel is answered with on_error."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            subscriber = self.subscriber
            super().cancel()
            if subscriber is not None:
                subscriber.on_error(RuntimeError("cancelled"))


class CancelSignalsComplete(BrokenPublisher):
    """Breaks §1.8: cancel is answered with on_complete."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            subscriber = self.subscriber
            super().cancel()
            if subscriber is not None:
                subscriber.on_complete()


class CompletesLongAfterCancel(BrokenPublisher):
    """Breaks §1.8: sends no element after cancel, but five milliseconds later it completes."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            subscriber = self.subscriber
            super().cancel()
            if subscriber is not None:
                timer = threading.Timer(0.005, subscriber.on_complete)
                timer.daemon = True
                timer.start()


class SlowCancel(BrokenPublisher):
    """Breaks §3.5: the first cancel of a Subscription takes 150 milliseconds."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            if not self.done:
                time.sleep(0.15)
            super().cancel()


class CancelWaitsForTheSignal(BrokenPublisher):
    """Breaks §3.5: cancel waits for the running signal to return, for itself if it is called inside one.

    It gives up after 150 milliseconds.
    """

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.signalling = threading.Lock()

        def deliver(self, signal: Signal) -> None:
            with self.signalling:
                signal()

        def cancel(self) -> None:
            got = self.signalling.acquire(timeout=0.15)
            super().cancel()
            if got:
                self.signalling.release()


class CancelFromAnotherThreadRaises(BrokenPublisher):
    """Breaks §3.5 and §3.15: cancel is safe on the thread that subscribed only, and raises on others."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.home = threading.get_ident()

        def cancel(self) -> None:
            if threading.get_ident() != self.home:
                raise RuntimeError("not on the thread of the event loop")
            super().cancel()


class KeepsReference(BrokenPublisher):
    """Breaks §3.13: remembers everybody who ever subscribed (the last hundred, to spare the test run)."""

    seen: ClassVar[deque[Any]] = deque(maxlen=100)

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self.seen.append(subscriber)
        super().subscribe(subscriber)


class KeepsReferenceInSubscription(BrokenPublisher):
    """Breaks §3.13: the cancelled Subscription holds on to its Subscriber."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            self.done = True
