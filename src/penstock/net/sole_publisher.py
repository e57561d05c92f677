"""A Publisher that has one subscriber in its life: what a socket receives, over TCP or UDP."""

from __future__ import annotations

from _thread import get_ident
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from penstock.arguments import whole
from penstock.net.errors import ConnectionAborted, ReceiverTaken
from penstock.net.parent_loops import know
from penstock.net.transport import EventLoop, call_on
from penstock.spec import Subscriber, check_subscriber, non_positive_request
from penstock.streams.spi import drop_raised

__all__ = ["SolePublisher", "tell_end"]

E = TypeVar("E")


class SolePublisher(ABC, Generic[E]):
    """Gives every signal on the event loop; requests may come from any thread. It is its own Subscription."""

    __slots__ = ("_cancelled", "_demand", "_emitting", "_subscriber", "_taken_by", "_thread", "loop")

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        know(loop)
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
        """How the error for a second subscriber names what is received."""

    @abstractmethod
    def _begin(self) -> None:
        """The subscriber has its Subscription: give it what has arrived, as far as there is demand."""

    @abstractmethod
    def _asked(self, n: int) -> None:
        """The subscriber has demand for ``n`` more."""

    @abstractmethod
    def _cancel(self) -> None:
        """The subscriber wants no more. May be called more than once."""

    # ---------------------------------------------------------------- Publisher
    def subscribe(self, subscriber: Subscriber[E], /) -> None:
        """Give this subscriber what arrives; a second one fails with ReceiverTaken."""
        check_subscriber(subscriber)  # §1.9
        if get_ident() == self._thread:
            self._welcome(subscriber)
        elif not call_on(self.loop, self._welcome, subscriber):
            lost = f"the event loop of {self._name} is closed, or has stayed in the parent process at a fork"
            _refuse(subscriber, ConnectionAborted(lost))  # §1.9

    def _welcome(self, subscriber: Subscriber[E]) -> None:
        if self._taken_by is not None:
            taken = ReceiverTaken(
                f"{self._name} is already received by {self._taken_by}; subscribe once and share what comes, "
                "with receive().share()"
            )
            _refuse(subscriber, taken)
            return
        self._taken_by = f"a {type(subscriber).__name__}"
        self._keep(subscriber)
        # What is asked for in on_subscribe is given when that has returned.
        self._emitting = True
        try:
            subscriber.on_subscribe(self)
        except BaseException as fault:
            self._subscriber_failed(fault, "on_subscribe")
        finally:
            self._emitting = False
        self._begin()

    def _keep(self, subscriber: Subscriber[E]) -> None:
        self._subscriber = subscriber

    # ---------------------------------------------------------------- Subscription
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements."""
        if get_ident() == self._thread:
            self._request(n)
        else:
            call_on(self.loop, self._request, n)

    def cancel(self) -> None:
        """Stop receiving. The socket stays open and can send."""
        if get_ident() == self._thread:
            self._cancel()
        else:
            call_on(self.loop, self._cancel)

    def _request(self, n: int) -> None:
        if self._cancelled:
            return  # §3.6
        number = n if type(n) is int else whole(n)
        if number is not None and number >= 1:
            self._asked(number)
            return
        subscriber = self._subscriber
        self._cancel()
        if subscriber is not None:
            # From the loop, not from inside the subscriber's own call (§1.3).
            self.loop.call_soon(tell_end, subscriber, non_positive_request(n))  # §3.9

    # ---------------------------------------------------------------- the end
    def _subscriber_failed(self, fault: BaseException, where: str) -> None:
        """A Subscriber that raises has cancelled (§2.13)."""
        self._cancel()
        drop_raised(fault, f"{where} of the subscriber to receive()")

    def _release(self) -> None:
        self._cancelled = True
        self._demand = 0
        self._subscriber = None  # §3.13


def tell_end(subscriber: Subscriber[Any], error: BaseException | None) -> None:
    """Give the last signal: complete, or this error."""
    try:
        if error is None:
            subscriber.on_complete()
        else:
            subscriber.on_error(error)
    except BaseException as fault:
        drop_raised(fault, "the end of receive()")  # §2.13


def _refuse(subscriber: Subscriber[Any], error: BaseException) -> None:
    try:
        subscriber.on_subscribe(_NOTHING)
    except BaseException as fault:
        drop_raised(fault, "on_subscribe of the subscriber to receive()")  # §2.13
    else:
        tell_end(subscriber, error)


class _NoDemand:
    """The Subscription of a subscriber that is refused."""

    def request(self, n: int, /) -> None:
        """Nothing will come."""

    def cancel(self) -> None:
        """Nothing is running."""


_NOTHING = _NoDemand()
