"""A Publisher for one subscriber in its life: what a socket receives, of whatever kind the socket is."""

from __future__ import annotations

import asyncio
from _thread import get_ident
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.net.errors import ReceiverTaken
from penstock.spec import Subscriber, check_subscriber, non_positive_request
from penstock.streams.spi import drop_error

__all__ = ["SolePublisher", "tell_end"]

E = TypeVar("E")


class SolePublisher(ABC, Generic[E]):
    """Every signal is given on the event loop; requests come from anywhere. It is its own Subscription."""

    __slots__ = ("_cancelled", "_demand", "_emitting", "_subscriber", "_taken_by", "_thread", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = get_ident()
        self._subscriber: Subscriber[E] | None = None
        self._taken_by: str | None = None
        self._demand = 0
        self._emitting = False
        self._cancelled = False

    # ---------------------------------------------------------------- what differs
    @property
    @abstractmethod
    def _name(self) -> str:
        """What is received, for a second subscriber."""

    @abstractmethod
    def _begin(self) -> None:
        """The subscriber has its Subscription: give it what is there and was asked for."""

    @abstractmethod
    def _asked(self, n: int) -> None:
        """The subscriber can take ``n`` more."""

    @abstractmethod
    def _cancel(self) -> None:
        """The subscriber wants no more; may be called again."""

    # ---------------------------------------------------------------- Publisher
    def subscribe(self, subscriber: Subscriber[E], /) -> None:
        """Give what comes in to this subscriber; a second one hears that there was a first."""
        check_subscriber(subscriber)  # §1.9
        if get_ident() == self._thread:
            self._welcome(subscriber)
        else:
            self.loop.call_soon_threadsafe(self._welcome, subscriber)

    def _welcome(self, subscriber: Subscriber[E]) -> None:
        if self._taken_by is not None:
            taken = ReceiverTaken(
                f"{self._name} is already received by {self._taken_by}; subscribe once and share what comes, "
                "with receive().share()"
            )
            subscriber.on_subscribe(_NOTHING)
            tell_end(subscriber, taken)
            return
        self._taken_by = f"a {type(subscriber).__name__}"
        self._keep(subscriber)
        # What is asked for in on_subscribe is given when that has returned.
        self._emitting = True
        try:
            subscriber.on_subscribe(self)
        except Exception as fault:
            self._subscriber_failed(fault, "on_subscribe")
        finally:
            self._emitting = False
        self._begin()

    def _keep(self, subscriber: Subscriber[E]) -> None:
        self._subscriber = subscriber

    # ---------------------------------------------------------------- Subscription
    def request(self, n: int, /) -> None:
        """Take ``n`` more elements."""
        if get_ident() == self._thread:
            self._request(n)
        else:
            self._on_loop(self._request, n)

    def cancel(self) -> None:
        """Take nothing more. The socket stays, and can send."""
        if get_ident() == self._thread:
            self._cancel()
        else:
            self._on_loop(self._cancel)

    def _on_loop(self, call: Callable[..., object], *arguments: Any) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *arguments)

    def _request(self, n: int) -> None:
        if self._cancelled:
            return  # §3.6
        if n >= 1:
            self._asked(n)
            return
        subscriber = self._subscriber
        self._cancel()
        if subscriber is not None:
            # From the loop, not from inside the subscriber's own call (§1.3).
            self.loop.call_soon(tell_end, subscriber, non_positive_request(n))  # §3.9

    # ---------------------------------------------------------------- the end
    def _subscriber_failed(self, fault: Exception, where: str) -> None:
        """§2.13: a Subscriber that raises is as good as gone."""
        self._cancel()
        drop_error(fault, f"{where} of the subscriber to receive()")

    def _release(self) -> None:
        self._cancelled = True
        self._demand = 0
        self._subscriber = None  # §3.13


def tell_end(subscriber: Subscriber[Any], error: BaseException | None) -> None:
    """The last signal: complete, or this error."""
    try:
        if error is None:
            subscriber.on_complete()
        else:
            subscriber.on_error(error)
    except Exception as fault:
        drop_error(fault, "the end of receive()")  # §2.13


class _NoDemand:
    """The Subscription of a subscriber that is turned away."""

    def request(self, n: int, /) -> None:
        """There is nothing to ask for."""

    def cancel(self) -> None:
        """There is nothing to leave."""


_NOTHING = _NoDemand()
