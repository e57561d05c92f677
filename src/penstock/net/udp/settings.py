"""How a UDP socket is set up: what it has in common with others, and what only UDP needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from penstock.net.lifecycle import ConnectionState
from penstock.net.settings import SocketBuilder, SocketSettings
from penstock.net.udp.datagram import Datagram, Overflow, UdpOverflow
from penstock.net.udp.multicast import Interface, Membership, MulticastSettings
from penstock.net.udp.pace import Pace

if TYPE_CHECKING:
    from penstock.net.udp.channel import UdpChannel
    from penstock.net.udp.sides import UdpInbound, UdpOutbound

__all__ = ["UdpBuilder", "UdpHandler", "UdpObserver", "UdpSettings", "UdpStateCallback"]

UdpHandler = Callable[["UdpInbound", "UdpOutbound"], Any]
"""Gets both sides of a socket; returns what to run: a publisher, a UdpOutbound, or a coroutine."""


@runtime_checkable
class UdpObserver(Protocol):
    """Somebody who wants to know about the life of a socket; give one to ``observe()``."""

    def on_state_change(self, channel: UdpChannel, state: ConnectionState, /) -> object:
        """The socket is in this state now. Called on the event loop: do not block."""
        ...


UdpStateCallback = Callable[["UdpChannel", ConnectionState], object]
"""An observer as a plain function."""


@dataclass(frozen=True, slots=True)
class UdpSettings(SocketSettings):
    """Everything that can be set."""

    handler: UdpHandler | None = None
    overflow: Overflow = field(default_factory=Overflow)
    memberships: tuple[Membership, ...] = ()
    multicast: MulticastSettings | None = None
    pace: Pace | None = None
    observers: tuple[UdpStateCallback, ...] = ()
    lookup_timeout: float = 10.0


class UdpBuilder(SocketBuilder[UdpSettings]):
    """What UDP servers and clients have in common. Each method returns a changed copy; the original stays."""

    def handle(self, handler: UdpHandler) -> Self:
        """What to do with the socket: called once, with its two sides, returns what to run.

        When that completes, the socket is closed; when it fails, the error is logged, and the same happens.
        """
        if not callable(handler):
            raise TypeError(f"handle({handler!r}): give a function of inbound and outbound")
        return self._with(handler=handler)

    def overflow(self, policy: UdpOverflow, *, capacity: int | None = None) -> Self:
        """What to do when more comes than is asked for: ``capacity`` datagrams wait, then ``policy`` applies.

        Without this, 256 wait and what comes then is dropped (``DROP_NEWEST``).
        """
        return self._with(overflow=Overflow.of(policy, capacity))

    def pace(self, datagrams_per_second: float, *, burst: int | None = None) -> Self:
        """Send no more than so many in a second: nobody on the way would say that it is too much.

        ``burst`` may go at once after a rest; without it, what belongs to a hundredth of a second.
        """
        return self._with(pace=Pace.of(datagrams_per_second, burst))

    def multicast(
        self, *, interface: Interface = None, ttl: int | None = None, loop: bool | None = None
    ) -> Self:
        """How datagrams to a group leave: from this interface, over up to ``ttl`` routers (IPv6: hops), and
        with ``loop`` back to this machine's own members."""
        return self._with(multicast=MulticastSettings(interface, ttl, loop))

    def encoder(self, encode: Callable[[Any], bytes | Datagram]) -> Self:
        """What makes a datagram of an object, for ``send_object()``; bytes will do on a connected socket."""
        if not callable(encode):
            raise TypeError(f"encoder({encode!r}): give a function that makes a datagram of an object")
        return self._with(encoder=encode)

    def observe(self, observer: UdpObserver | UdpStateCallback) -> Self:
        """Tell this one about every :class:`~penstock.net.ConnectionState` of the socket."""
        call = observer.on_state_change if isinstance(observer, UdpObserver) else observer
        return self._with(observers=(*self._settings.observers, call))

    def lookup_timeout(self, seconds: float) -> Self:
        """How long the name of the host may take to be looked up (10 s)."""
        if not seconds > 0:
            raise ValueError(f"lookup_timeout({seconds!r}): give seconds above 0")
        return self._with(lookup_timeout=float(seconds))
