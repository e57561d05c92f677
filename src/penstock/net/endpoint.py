"""What happens before a connection exists and after a server's last one: binding, looking up, connecting.

The states of connections and those of endpoints are told to the same observers, by the same function.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.net.lifecycle import tell_state

if TYPE_CHECKING:
    from penstock.net.settings import TcpSettings

__all__ = ["EndpointCallback", "EndpointObserver", "EndpointState", "SocketEndpoint", "tell_endpoint"]


class EndpointState(enum.Enum):
    """What a server or a client does with an address."""

    BOUND = "bound"
    """A server listens. Its addresses have the real ports."""
    UNBOUND = "unbound"
    """A server listens no more. Its connections may still be there."""
    RESOLVING = "resolving"
    """A client looks up its host."""
    RESOLVED = "resolved"
    """The host has been looked up. The addresses are in the order in which they are tried."""
    CONNECTING = "connecting"
    """A client calls one address. If it answers, the connection is ``CONNECTED`` next."""
    FAILED = "failed"
    """``bind()`` or ``connect()`` fails with this error."""


@dataclass(frozen=True, slots=True)
class SocketEndpoint:
    """Where a server listens, or where a client wants to go."""

    where: str
    """The address as it was configured."""
    addresses: tuple[str, ...] = ()
    """The addresses that this is about, as people write them; none as long as they are not known."""
    error: BaseException | None = None
    """Why it failed, or None."""

    @property
    def label(self) -> str:
        """Its name in the log."""
        return f"[{self.where}]"


@runtime_checkable
class EndpointObserver(Protocol):
    """Hears of binding, looking up and connecting. Pass one to ``observe()``.

    An object that has ``on_state_change()`` as well hears of the connections, too.
    """

    def on_endpoint_change(self, endpoint: SocketEndpoint, state: EndpointState, /) -> object:
        """The endpoint is in this state now. Called on the event loop, so it must not block."""
        ...


EndpointCallback = Callable[[SocketEndpoint, EndpointState], object]
"""The method of an observer."""


def tell_endpoint(
    settings: TcpSettings,
    state: EndpointState,
    addresses: tuple[str, ...] = (),
    error: BaseException | None = None,
    where: str | None = None,
) -> None:
    """Tell the observers, if there are any."""
    if settings.endpoint_observers:
        endpoint = SocketEndpoint(where or settings.where, addresses, error)
        tell_state(endpoint, state, None, settings.endpoint_observers)
