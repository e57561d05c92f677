"""Publishers that fail, as they were asked to, but tell it in the wrong way."""

from __future__ import annotations

from typing import Any

from penstock.spec import Subscriber
from tests.tck.legal.serving import FailedPublisher, SequenceSubscription


class _Failed(FailedPublisher):
    """Calls on_subscribe and then ``tell``."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            super().subscribe(subscriber)
        subscription = SequenceSubscription(subscriber, ())
        subscriber.on_subscribe(subscription)
        if not subscription.done:
            subscription.cancel()
            self.tell(subscriber)

    def tell(self, subscriber: Any) -> None:
        raise NotImplementedError


class FailedSilent(_Failed):
    """Breaks §1.4: fails without a word."""

    def tell(self, subscriber: Any) -> None:
        pass


class FailedCompletes(_Failed):
    """Breaks §1.4: fails, and says that all went well."""

    def tell(self, subscriber: Any) -> None:
        subscriber.on_complete()


class FailedTwice(_Failed):
    """Breaks §1.7: signals its failure twice."""

    def tell(self, subscriber: Any) -> None:
        subscriber.on_error(self.error)
        subscriber.on_error(self.error)


class FailedThenCompletes(_Failed):
    """Breaks §1.7: completes after it has failed."""

    def tell(self, subscriber: Any) -> None:
        subscriber.on_error(self.error)
        subscriber.on_complete()


class FailedWithNone(_Failed):
    """Breaks §2.13: signals on_error(None)."""

    def tell(self, subscriber: Any) -> None:
        subscriber.on_error(None)


class FailedWithText(_Failed):
    """Breaks §2.13 and §1.4: what it passes to on_error is a text and no exception."""

    def tell(self, subscriber: Any) -> None:
        subscriber.on_error(str(self.error))


class FailedThrows(FailedPublisher):
    """Breaks §1.9 and §1.4: raises its failure out of subscribe."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            super().subscribe(subscriber)
        raise self.error


class FailedNoOnSubscribe(FailedPublisher):
    """Breaks §1.9: signals on_error without on_subscribe before it."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            super().subscribe(subscriber)
        subscriber.on_error(self.error)
