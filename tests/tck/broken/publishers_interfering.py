"""Publishers that go wrong when somebody interferes: inside a signal, on another thread, or by raising."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, none_subscriber
from tests.tck.broken.publishers_demand import BrokenPublisher
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import SequenceSubscription, Signal


class CancelUnheardWhenUnbounded(BrokenPublisher):
    """Breaks §3.12 and §1.8: asked for everything it takes a short cut, in which nobody looks for cancel."""

    class Subscription(SequenceSubscription):
        def emit(self) -> None:
            if self.demand != UNBOUNDED:
                super().emit()
                return
            subscriber = self.subscriber
            while subscriber is not None and self.has_next():
                subscriber.on_next(self.take())
            if not self.done:
                super().emit()


class TickerIgnoresCancel(BrokenPublisher):
    """Breaks §3.12: sends an element every 30 milliseconds, whoever has left."""

    class Subscription(SequenceSubscription):
        def cancel(self) -> None:
            if self.position == 0 or self.demand == 0:
                super().cancel()

        def run(self) -> None:
            threading.Thread(target=self.emit, daemon=True).start()

        def deliver(self, signal: Signal) -> None:
            time.sleep(0.03)
            signal()


class CancelInOnSubscribeLost(BrokenPublisher):
    """Breaks §1.8: a cancellation inside on_subscribe is forgotten when on_subscribe has returned."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.newcomer: Any = subscriber

        def start(self) -> None:
            self.done, self.subscriber, self.newcomer = False, self.newcomer, None
            super().start()


class BadRequestInOnSubscribeLost(BrokenPublisher):
    """Breaks §3.9: an illegal request counts for nothing while on_subscribe runs."""

    class Subscription(SequenceSubscription):
        started = False

        def start(self) -> None:
            self.started = True
            super().start()

        def refuse(self, n: Any) -> None:
            if self.started:
                super().refuse(n)


class BadRequestInOnNextIgnored(BrokenPublisher):
    """Breaks §3.9: an illegal request counts for nothing while elements are sent."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            if not self.draining:
                super().refuse(n)


class BadRequestAfterUnboundedIgnored(BrokenPublisher):
    """Breaks §3.9: once everything was asked for, requests are not looked at any more."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            if self.demand != UNBOUNDED:
                super().request(n)


class ServesEveryThreadByItself(BrokenPublisher):
    """Breaks §1.3: a request is served on the thread that makes it, though another one signals."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.signalling: set[int] = set()

        def drain(self) -> None:
            me = threading.get_ident()
            if me in self.signalling:
                return
            self.signalling.add(me)
            try:
                self.emit()
            finally:
                self.signalling.discard(me)


class ForgetsRequestsOfOtherThreads(BrokenPublisher):
    """Breaks §3.8: a request that comes from another thread while an element is sent is lost."""

    class Subscription(SequenceSubscription):
        sender = 0

        def emit(self) -> None:
            self.sender = threading.get_ident()
            super().emit()

        def request(self, n: int, /) -> None:
            if not self.draining or self.sender in (0, threading.get_ident()):
                super().request(n)


class AddsWithoutTheLock(BrokenPublisher):
    """Breaks §1.1 and §3.8: adds to the demand while another thread, with the lock, subtracts from it."""

    class Subscription(ThreadedPublisher.Subscription):
        def request(self, n: int, /) -> None:
            if self.done:
                return
            if isinstance(n, int) and n > 0:
                self.demand = self.add(n)
            else:
                self.refuse(n)
            self.drain()


class AddsConvertedWithoutTheLock(BrokenPublisher):
    """Breaks §1.1 and §3.8: the same with ``int(n)``, which is a plain number."""

    class Subscription(AddsWithoutTheLock.Subscription):
        def add(self, n: int) -> int:
            return self.demand + int(n)


class SubtractsWithoutTheLock(BrokenPublisher):
    """Breaks §3.8: subtracts what it sends without the lock, so what is added meanwhile is lost."""

    class Subscription(ThreadedPublisher.Subscription):
        def emit(self) -> None:
            while self.failure is None and self.demand > 0 and self.has_next():
                subscriber = self.subscriber
                if subscriber is None:
                    return
                self.demand -= 1
                self.deliver(partial(subscriber.on_next, self.take()))
            super().emit()


class LooksAwayBeforeItRests(BrokenPublisher):
    """Breaks §3.8: sees that nothing is left to send, and a moment later says that it rests."""

    class Subscription(ThreadedPublisher.Subscription):
        def emit(self) -> None:
            while not self.done and (self.failure or self.exhausted() or self.demand > 0):
                with self.lock:
                    signal = self.next_signal()
                if signal is not None:
                    self.deliver(signal)
            self.draining = False


class LocksWhileItSignals(BrokenPublisher):
    """Breaks §3.5: holds its lock while it signals, so that cancel waits for on_next on another thread."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            with self.lock:
                signal()


class GoesOnWhenOnNextRaises(BrokenPublisher):
    """Breaks §2.13: whatever a Subscriber raises, it gets its next element."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            try:
                signal()
            except Exception:
                self.complaints = getattr(self, "complaints", 0) + 1


class FailsTheSubscriberThatRaised(BrokenPublisher):
    """Breaks §2.13: a Subscriber that raised is sent on_error, although it counts as cancelled."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            try:
                signal()
            except Exception as error:
                self.failure = error


class KeepsReferenceAfterError(BrokenPublisher):
    """Breaks §1.6 and §3.13: after on_error the Subscription still holds its Subscriber."""

    class Subscription(SequenceSubscription):
        def refuse(self, n: Any) -> None:
            self.refused = self.subscriber
            super().refuse(n)


class _Knowing(BrokenPublisher):
    """A Publisher that its Subscriptions know."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscription: Any = self.Subscription(subscriber, self.elements)
        subscription.publisher = self
        subscriber.on_subscribe(subscription)
        subscription.start()


class SilentAfterTheEnd(_Knowing):
    """Breaks §1.9: who comes when the stream is over gets a Subscription, and never hears anything."""

    over = False

    class Subscription(SequenceSubscription):
        publisher: Any

        def next_signal(self) -> Signal | None:
            return None if self.publisher.over else super().next_signal()

        def end(self, last: Signal) -> Signal:
            self.publisher.over = True
            return super().end(last)


class StarvesOthersWhenOneLeaves(_Knowing):
    """Breaks §1.11: sends only when all have asked, and counts a Subscriber who has left among them."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.present: list[Any] = []

    class Subscription(SequenceSubscription):
        publisher: Any
        satisfied = False

        def start(self) -> None:
            self.publisher.present.append(self)
            super().start()

        def next_signal(self) -> Signal | None:
            waits = not all(other.demand or other.satisfied for other in self.publisher.present)
            return None if waits and self.failure is None else super().next_signal()

        def end(self, last: Signal) -> Signal:
            self.satisfied = True
            return super().end(last)

        def request(self, n: int, /) -> None:
            super().request(n)
            for other in self.publisher.present:
                other.drain()

        def cancel(self) -> None:
            super().cancel()
            self.demand = 0
