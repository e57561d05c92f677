"""The settings of UDP sockets, and their builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from penstock.arguments import a_count, a_number
from penstock.net.lifecycle import ConnectionState
from penstock.net.settings import SocketBuilder, SocketSettings
from penstock.net.udp.datagram import Datagram, OverflowSettings, UdpOverflow
from penstock.net.udp.multicast import Interface, Membership, MulticastSettings

if TYPE_CHECKING:
    from penstock.net.udp.channel import UdpChannel
    from penstock.net.udp.sides import UdpInbound, UdpOutbound

__all__ = ["SendPace", "UdpBuilder", "UdpHandler", "UdpObserver", "UdpSettings", "UdpStateCallback"]

UdpHandler = Callable[["UdpInbound", "UdpOutbound"], Any]
"""Takes both sides of a socket, and returns what to run: a publisher, a UdpOutbound, or a coroutine."""


@runtime_checkable
class UdpObserver(Protocol):
    """Hears of the states of a socket. Pass one to ``observe()``."""

    def on_state_change(self, channel: UdpChannel, state: ConnectionState, /) -> object:
        """The socket is in this state now. Called on the event loop, so it must not block."""
        ...


UdpStateCallback = Callable[["UdpChannel", ConnectionState], object]
"""An observer as a plain function."""


@dataclass(frozen=True, slots=True)
class SendPace:
    """So many datagrams per second, and up to ``burst`` of them at once after a rest."""

    datagrams_per_second: float
    burst: int

    @classmethod
    def of(cls, datagrams_per_second: float, burst: int | None) -> SendPace:
        """Check what a user said. Without a ``burst``, it is what belongs to a hundredth of a second.

        The timers of event loops count in milliseconds: with bursts of one, only a few hundred datagrams per
        second would go out.
        """
        rate = a_number(datagrams_per_second, "pace()", above=0)
        return cls(rate, max(1, int(rate / 100)) if burst is None else a_count(burst, "burst of pace()"))


@dataclass(frozen=True, slots=True)
class UdpSettings(SocketSettings):
    """The settings of UDP servers and clients. A builder offers those that apply to it."""

    handler: UdpHandler | None = None
    overflow: OverflowSettings = field(default_factory=OverflowSettings)
    memberships: tuple[Membership, ...] = ()
    multicast: MulticastSettings | None = None
    pace: SendPace | None = None
    observers: tuple[UdpStateCallback, ...] = ()
    lookup_timeout: float = 10.0


class UdpBuilder(SocketBuilder[UdpSettings]):
    """What UDP servers and clients have in common. Each method returns a changed copy."""

    def handle(self, handler: UdpHandler) -> Self:
        """What to do with the socket. The handler is called once, with its two sides, and returns what to
        run.

        When that completes, the socket is closed. When it fails, the error is logged, and the socket is
        closed.
        """
        if not callable(handler):
            raise TypeError(f"handle({handler!r}): pass a function of inbound and outbound")
        return self._with(handler=handler)

    def overflow(self, policy: UdpOverflow, *, capacity: int | None = None) -> Self:
        """What to do when more arrives than there is demand for: ``capacity`` datagrams wait, then ``policy``
        applies.

        By default 256 wait, and then those that arrive are dropped (``DROP_NEWEST``).
        """
        return self._with(overflow=OverflowSettings.of(policy, capacity))

    def pace(self, datagrams_per_second: float, *, burst: int | None = None) -> Self:
        """Send no more than this per second: nobody on the way would say that it is too much.

        Up to ``burst`` may go at once after a rest; by default as many as belong to a hundredth of a second.
        """
        return self._with(pace=SendPace.of(datagrams_per_second, burst))

    def multicast(
        self, *, interface: Interface = None, ttl: int | None = None, loop: bool | None = None
    ) -> Self:
        """How to send to a group: from this interface, over up to ``ttl`` routers (IPv6: hops).

        ``loop`` says whether members on this machine receive it too.
        """
        return self._with(multicast=MulticastSettings(interface, ttl, loop))

    def encoder(self, encode: Callable[[Any], bytes | Datagram]) -> Self:
        """The function that turns an object into a datagram, or into bytes on a connected socket."""
        if not callable(encode):
            raise TypeError(f"encoder({encode!r}): pass a function that turns an object into a datagram")
        return self._with(encoder=encode)

    def observe(self, observer: UdpObserver | UdpStateCallback) -> Self:
        """Tell this observer of every :class:`~penstock.net.ConnectionState` of the socket."""
        call = observer.on_state_change if isinstance(observer, UdpObserver) else observer
        return self._with(observers=(*self._settings.observers, call))

    def lookup_timeout(self, seconds: float) -> Self:
        """How many seconds looking up the host's name may take (10 s)."""
        return self._with(lookup_timeout=a_number(seconds, "lookup_timeout()", above=0))
