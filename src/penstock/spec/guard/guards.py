"""The guards that ``strict`` returns: around a Publisher, a Subscriber or a Processor."""

from __future__ import annotations

import threading
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from penstock.spec.guard.conversation import Conversation
from penstock.spec.guard.reports import (
    Guard,
    Propagates,
    Report,
    dependable,
    name_of,
    propagates,
    subscribed_twice,
)
from penstock.spec.interfaces import Processor, Publisher, Subscriber, Subscription
from penstock.spec.violations import check_publisher, check_subscriber

T = TypeVar("T")


class StrictSubscriber(Conversation[T]):
    """A guard around a Subscriber, which protects it and its Publisher from each other.

    Like the Subscriber inside, it serves one Subscription (§2.12).
    """

    __slots__ = ()

    def __init__(
        self, subscriber: Subscriber[T], report: Report | None = None, propagates: Propagates = propagates
    ) -> None:
        """Guard ``subscriber``; violations go to ``report``, or to the log."""
        check_subscriber(subscriber)
        super().__init__(
            subscriber,
            dependable(report),
            source="the Publisher",
            guards_subscriber=True,
            propagates=propagates,
        )


T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class StrictPublisher(Guard, Generic[R_co]):
    """A guard around a Publisher: its Subscribers always see a legal stream."""

    __slots__ = ("_conversations", "_lock", "_propagates", "_publisher", "_report")

    def __init__(
        self, publisher: Publisher[R_co], report: Report | None = None, propagates: Propagates = propagates
    ) -> None:
        """Guard ``publisher``; violations go to ``report``, or to the log."""
        check_publisher(publisher)
        super().__init__(publisher)
        self._propagates = propagates
        self._publisher = publisher
        self._report = dependable(report)
        self._lock = threading.Lock()
        # Weak: the guard must not keep a Subscriber alive that the Publisher has let go of (§3.13).
        self._conversations: WeakValueDictionary[int, Conversation[Any]] = WeakValueDictionary()

    def subscribe(self, subscriber: Subscriber[R_co], /) -> None:
        """Subscribe through a new guard; an exception of the Publisher becomes ``on_error`` (§1.9)."""
        check_subscriber(subscriber)
        source = name_of(self._publisher)
        conversation = Conversation(subscriber, self._report, source=source, propagates=self._propagates)
        if self._is_new(subscriber, conversation):
            try:
                self._publisher.subscribe(conversation)
            except BaseException as error:
                conversation.subscribe_raised(error)
                if self._propagates(error):
                    raise
        else:
            # A second on_subscribe would break §2.12, so there is no legal way to tell the Subscriber.
            self._report(subscribed_twice(source, name_of(subscriber)))

    def _is_new(self, subscriber: object, conversation: Conversation[Any]) -> bool:
        with self._lock:
            present = self._conversations.get(id(subscriber))
            if present is not None and present.serves(subscriber):
                return False
            self._conversations[id(subscriber)] = conversation
            return True


class StrictProcessor(Guard, Generic[T_contra, R_co]):
    """A guard around each side of a Processor (§4.1)."""

    __slots__ = ("_inlet", "_outlet")

    def __init__(
        self,
        processor: Processor[T_contra, R_co],
        report: Report | None = None,
        propagates: Propagates = propagates,
    ) -> None:
        """Guard ``processor``; violations go to ``report``, or to the log."""
        super().__init__(processor)
        self._inlet: StrictSubscriber[T_contra] = StrictSubscriber(processor, report, propagates)
        self._outlet: StrictPublisher[R_co] = StrictPublisher(processor, report, propagates)

    def subscribe(self, subscriber: Subscriber[R_co], /) -> None:
        """Subscribe to what comes out of the Processor."""
        self._outlet.subscribe(subscriber)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Receive the Subscription for what goes into the Processor."""
        self._inlet.on_subscribe(subscription)

    def on_next(self, element: T_contra, /) -> None:
        """Put an element into the Processor."""
        self._inlet.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        """Tell the Processor that its source failed."""
        self._inlet.on_error(error)

    def on_complete(self) -> None:
        """Tell the Processor that its source is exhausted."""
        self._inlet.on_complete()
