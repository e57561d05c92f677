"""Publishers that begin or end a stream in the wrong way."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.spec import Subscriber, non_positive_request, none_subscriber
from tests.tck.broken.publishers_demand import BrokenPublisher
from tests.tck.legal.serving import SequenceSubscription, Signal


class NeverCompletes(BrokenPublisher):
    """Breaks §1.5: falls silent after its last element."""

    class Subscription(SequenceSubscription):
        def exhausted(self) -> bool:
            return False


class _SpeaksAfterTheEnd(SequenceSubscription):
    """After on_complete it calls ``afterwards`` with the Subscriber."""

    def afterwards(self, subscriber: Any) -> None:
        raise NotImplementedError

    def end(self, last: Signal) -> Signal:
        subscriber = self.subscriber
        super().end(last)
        if self.failure is not None:
            return last

        def both() -> None:
            last()
            self.afterwards(subscriber)

        return both


class CompletesTwice(BrokenPublisher):
    """Breaks §1.7: signals on_complete twice."""

    class Subscription(_SpeaksAfterTheEnd):
        def afterwards(self, subscriber: Any) -> None:
            subscriber.on_complete()


class NextAfterComplete(BrokenPublisher):
    """Breaks §1.7: an element follows on_complete."""

    class Subscription(_SpeaksAfterTheEnd):
        def afterwards(self, subscriber: Any) -> None:
            subscriber.on_next("too late")


class ErrorAfterComplete(BrokenPublisher):
    """Breaks §1.7: on_error follows on_complete."""

    class Subscription(_SpeaksAfterTheEnd):
        def afterwards(self, subscriber: Any) -> None:
            subscriber.on_error(RuntimeError("too late"))


class ContinuesAfterError(BrokenPublisher):
    """Breaks §1.7: after the on_error for a bad request the stream goes on as if nothing had happened."""

    class Subscription(SequenceSubscription):
        def next_signal(self) -> Signal | None:
            if self.failure is None or self.done:
                return super().next_signal()
            error, self.failure = self.failure, None
            return partial(self.subscriber.on_error, error)


class EndRaises(BrokenPublisher):
    """Breaks §1.5 and §3.16: at the end StopIteration leaves request, and on_complete never comes."""

    class Subscription(SequenceSubscription):
        def exhausted(self) -> bool:
            if super().exhausted():
                raise StopIteration
            return False

        def start(self) -> None:
            if self.has_next():
                super().start()
            else:
                self.draining = False

        def emit(self) -> None:
            try:
                super().emit()
            finally:
                self.draining = False


class KeepsReferenceAfterComplete(BrokenPublisher):
    """Breaks §1.6: the Subscription, which is over, holds on to the Subscriber after on_complete."""

    class Subscription(SequenceSubscription):
        def end(self, last: Signal) -> Signal:
            self.done = True
            return last


class RequestAfterCompleteRaises(BrokenPublisher):
    """Breaks §1.6 and §3.6: once the stream is over, request raises instead of doing nothing."""

    class Subscription(SequenceSubscription):
        over = False

        def request(self, n: int, /) -> None:
            if self.over:
                raise RuntimeError("the stream is over")
            super().request(n)

        def end(self, last: Signal) -> Signal:
            self.over = True
            return super().end(last)


class CancelAfterCompleteRaises(BrokenPublisher):
    """Breaks §1.6 and §3.7: once the stream is over, cancel raises instead of doing nothing."""

    class Subscription(SequenceSubscription):
        over = False

        def cancel(self) -> None:
            if self.over:
                raise RuntimeError("the stream is over")
            super().cancel()

        def end(self, last: Signal) -> Signal:
            self.over = True
            return super().end(last)


class BadRequestAfterCompleteSignals(BrokenPublisher):
    """Breaks §1.7 and §1.6: request(0) after on_complete is answered with on_error."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.told: Any = None

        def end(self, last: Signal) -> Signal:
            self.told = self.subscriber
            return super().end(last)

        def request(self, n: int, /) -> None:
            if self.told is not None and n <= 0:
                self.told.on_error(non_positive_request(n))
            super().request(n)


class NextBeforeSubscribe(BrokenPublisher):
    """Breaks §1.9: an element comes before on_subscribe."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscriber.on_next("too early")
        super().subscribe(subscriber)


class OnSubscribeTwice(BrokenPublisher):
    """Breaks §2.12: calls on_subscribe a second time, with a Subscription that leads nowhere."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        super().subscribe(subscriber)
        subscriber.on_subscribe(self.Subscription(subscriber, ()))


class NoOnSubscribe(BrokenPublisher):
    """Breaks §1.9: never calls on_subscribe, so nobody can ask for anything."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()


class EmptyWithoutOnSubscribe(BrokenPublisher):
    """Breaks §1.9: if there is nothing to send it completes at once, without on_subscribe."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is not None and not self.elements:
            subscriber.on_complete()
        else:
            super().subscribe(subscriber)


class OnSubscribeNone(BrokenPublisher):
    """Breaks §2.13 and §1.9: calls on_subscribe with None."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        nothing: Any = None
        subscriber.on_subscribe(nothing)


class NullAccepted(BrokenPublisher):
    """Breaks §1.9: subscribe(None) returns as if it were in order."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is not None:
            super().subscribe(subscriber)


class NullWrongError(BrokenPublisher):
    """Breaks §1.9: subscribe(None) raises, but not TypeError: it fails by accident when it calls None."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        subscription = self.Subscription(subscriber, self.elements)
        subscriber.on_subscribe(subscription)
        subscription.start()


class SubscribeRaises(BrokenPublisher):
    """Breaks §1.9: subscribe raises instead of signalling on_subscribe and on_error."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        raise ConnectionError("no such source")


class SubscribeRaisesAfterwards(BrokenPublisher):
    """Breaks §1.9: serves its Subscriber as it should, and then raises out of subscribe."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        super().subscribe(subscriber)
        raise ConnectionError("closed in an unexpected way")


class _ServesOne(BrokenPublisher):
    """Serves its first Subscriber and calls ``turn_away`` with any other."""

    taken = False

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if self.taken and subscriber is not None:
            self.turn_away(subscriber)
            return
        self.taken = self.taken or subscriber is not None
        super().subscribe(subscriber)

    def turn_away(self, subscriber: Subscriber[Any]) -> None:
        raise NotImplementedError


class SecondSubscriberIgnored(_ServesOne):
    """Breaks §1.9: serves one Subscriber and leaves others without on_subscribe and without on_error."""

    def turn_away(self, subscriber: Subscriber[Any]) -> None:
        pass


class SecondSubscriberRaises(_ServesOne):
    """Breaks §1.9: serves one Subscriber and turns others away with an exception."""

    def turn_away(self, subscriber: Subscriber[Any]) -> None:
        raise RuntimeError("there is a subscriber already")


class SecondSubscriberRejectedTooEarly(_ServesOne):
    """Breaks §1.9: serves one Subscriber and turns others away with on_error, but without on_subscribe."""

    def turn_away(self, subscriber: Subscriber[Any]) -> None:
        subscriber.on_error(RuntimeError("there is a subscriber already"))


class SecondSubscriberReplacesFirst(BrokenPublisher):
    """Breaks §1.11: takes a second Subscriber and never says another word to the first."""

    serving: Any = None

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        if self.serving is not None:
            self.serving.cancel()
        self.serving = self.Subscription(subscriber, self.elements)
        subscriber.on_subscribe(self.serving)
        self.serving.start()
