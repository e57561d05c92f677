"""The subscriber of a subscription, as the subscription sees it: its demand, what it got, and its end.

Elements go to it in lists. Each is a call of ``on_next``; a subscriber that is an inbox, as a ``for`` loop
is, takes the whole list at once. A subscriber that raises gets nothing more (§2.13).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import length_hint
from typing import Any, Final

from penstock.aquifer.client.demand import Demand
from penstock.spec import Subscriber, Subscription
from penstock.streams.spi import ElementInbox, announce_large, asks_main_thread_to_stop, drop_raised

__all__ = ["Recipient"]

_LARGE_AT_ONCE: Final = 2
"""How many large elements to ask for at a time, for a stage that asks for a few."""


class Recipient:
    """Signals one subscriber; one thread at a time does so, and holds ``handing_over`` meanwhile."""

    def __init__(self, subscriber: Subscriber[Any], endpoint: str, demand: Demand | None = None) -> None:
        self._subscriber: Subscriber[Any] | None = subscriber
        self._name = f"a subscriber of {endpoint}"
        self.inbox: ElementInbox | None = None
        """The subscriber, if it only keeps elements for somebody: it gets many of them at once."""
        self._choose_way(subscriber)
        self._is_announced = False
        self.demand = demand or Demand()
        self.cancelled = False
        """No more signals: the subscription was cancelled, or has ended."""
        self.delivered = 0
        """How many elements it got."""
        self.handing_over = threading.Lock()
        """Held while elements go to the subscriber."""
        self.is_at_work = False
        """The subscriber, or what stands before it, is at work."""

    def begin(self, subscription: Subscription) -> None:
        """Signal on_subscribe."""
        assert self._subscriber is not None
        try:
            self._subscriber.on_subscribe(subscription)
        except BaseException as error:
            self._drop(error)

    def _choose_way(self, subscriber: Subscriber[Any]) -> None:
        takes_many = isinstance(subscriber, ElementInbox) and subscriber.takes_elements()
        self.inbox = subscriber if isinstance(subscriber, ElementInbox) and takes_many else None

    def announce_large(self) -> None:
        """Large elements come: the subscriber may pause its subscription while too many bytes wait.

        It asked for a number of elements when it did not know that. From now on a loop measures what it
        gets, so it is no inbox any more.
        """
        if not self._is_announced:
            self._is_announced = True
            assert self._subscriber is not None
            announce_large(self._subscriber, _LARGE_AT_ONCE)
            self._choose_way(self._subscriber)

    def take(self, elements: list[Any]) -> int:
        """Signal elements that were requested; return how many: fewer after a cancel or a pause."""
        self.is_at_work = True
        count = self._signal(elements)
        self.is_at_work = False
        self.demand.spend(count)
        self.delivered += count
        return count

    def _signal(self, elements: list[Any]) -> int:
        """Signal elements, and return how many.

        An element for which the subscriber raised does not count. It was not processed, and the next
        subscriber with this id gets it again.
        """
        if self.inbox is not None:
            return self._put_into(self.inbox, elements)
        assert self._subscriber is not None
        on_next, demand = self._subscriber.on_next, self.demand
        left = iter(elements)
        try:
            for element in left:
                on_next(element)
                if self.cancelled or demand.is_paused:
                    break
        except BaseException as error:
            self._drop(error)
            return len(elements) - length_hint(left) - 1
        return len(elements) - length_hint(left)

    def _put_into(self, inbox: ElementInbox, elements: list[Any]) -> int:
        try:
            inbox.extend(elements)
            if inbox.idle:
                inbox.wake()
        except BaseException as error:
            if asks_main_thread_to_stop(error):
                raise  # A Ctrl-C while the loop itself asks for more: the loop ends with it.
            self._drop(error)
            return 0
        return len(elements)

    def _drop(self, error: BaseException) -> None:
        """The subscriber has raised: it counts as cancelled (§2.13)."""
        self.cancelled = True
        drop_raised(error, self._name)

    def complete(self) -> None:
        """Signal on_complete."""
        self._end(lambda subscriber: subscriber.on_complete())

    def fail(self, error: BaseException) -> None:
        """Signal on_error."""
        self._end(lambda subscriber: subscriber.on_error(error))

    def _end(self, signal: Callable[[Subscriber[Any]], None]) -> None:
        with self.handing_over:  # No element comes after the end.
            self.cancelled = True
        assert self._subscriber is not None
        try:
            signal(self._subscriber)
        except BaseException as error:
            self._drop(error)

    def let_go(self) -> None:
        """Forget the subscriber (§3.13)."""
        self._subscriber = self.inbox = None
