"""The four interfaces of Reactive Streams, as Python protocols.

A class takes part by *having the methods*; it does not have to inherit anything. ``isinstance`` works
(the protocols are runtime-checkable) and looks only at method names, so an object from another library
with the same spelling is as welcome as one of ours.

All methods are plain calls that return nothing and do not block. Failure travels as a signal
(``on_error``), never as an exception: §1.9, §2.13, §3.15, §3.16.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

UNBOUNDED: Final[int] = 2**63 - 1
"""A demand so large that counting it is pointless (§3.17).

``subscription.request(UNBOUNDED)`` says: send everything, as fast as you like. Demand that adds up to this
number or more stays at this number.
"""


@runtime_checkable
class Subscription(Protocol):
    """The connection between one Publisher and one Subscriber, held by the Subscriber.

    A Publisher makes a Subscription for each Subscriber and hands it over in ``on_subscribe``. No other
    object gets it, so no other object can request on behalf of that Subscriber (§3.1).
    """

    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements, on top of those asked for before (§3.8).

        ``n`` is at least 1; anything less comes back as ``on_error`` with a violation of §3.9. May be called
        from inside ``on_subscribe`` and ``on_next`` (§3.2). After ``cancel`` it does nothing (§3.6).
        """
        ...

    def cancel(self) -> None:
        """Say that no more signals are wanted; may be called from anywhere and more than once (§3.5, §3.7).

        Elements already on their way may still arrive (§2.8).
        """
        ...


@runtime_checkable
class Subscriber(Protocol[T_contra]):
    """The receiving end: gets ``on_subscribe``, then ``on_next`` as often as it asked, then at most one end.

    The calls come one after the other and never overlap (§1.3), in this order::

        on_subscribe  on_next*  (on_error | on_complete)?

    Nothing is sent until the Subscriber calls ``subscription.request(n)`` (§2.1). Its methods must not raise;
    a Subscriber that cannot go on cancels its Subscription (§2.13).
    """

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Receive the Subscription: keep it, and call ``request`` now or later to start the flow."""
        ...

    def on_next(self, element: T_contra, /) -> None:
        """Receive one element; never ``None``, and never more often than was requested (§1.1, §2.13)."""
        ...

    def on_error(self, error: BaseException, /) -> None:
        """Learn that the stream failed: the last signal (§1.7). Do not touch the Subscription here (§2.3)."""
        ...

    def on_complete(self) -> None:
        """Learn that the stream ended well: the last signal (§1.7). Do not touch the Subscription (§2.3)."""
        ...


@runtime_checkable
class Publisher(Protocol[T_co]):
    """A source of elements that sends no faster than its Subscribers ask (§1.1)."""

    def subscribe(self, subscriber: Subscriber[T_co], /) -> None:
        """Connect ``subscriber``: call its ``on_subscribe`` first, then serve what it requests.

        Returns normally whatever happens: a refusal arrives as ``on_subscribe`` followed by ``on_error``. The
        one exception is ``subscribe(None)``, which raises ``TypeError`` at the caller (§1.9).
        """
        ...


@runtime_checkable
class Processor(Subscriber[T_contra], Publisher[R_co], Protocol[T_contra, R_co]):
    """A stage that is a Subscriber on one side and a Publisher on the other, bound as both (§4.1)."""
