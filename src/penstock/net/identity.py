"""What a connection is: its name, its two addresses, and the event loop that it lives on."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.metrics import Traffic
from penstock.net.settings import TcpSettings
from penstock.net.tls import TlsSession
from penstock.net.transport import Transport, call_on

if TYPE_CHECKING:
    from penstock.net.connections import Connections

__all__ = ["ConnectionIdentity", "LoopBound"]


class LoopBound:
    """Something that lives on the event loop of a transport, and can be called from other threads."""

    __slots__ = ("_loop", "_thread")

    def __init__(self, transport: Transport) -> None:
        """Made on the thread of the loop."""
        self._loop = transport.loop
        self._thread = get_ident()

    def on_loop(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Make a call on the connection's event loop: now if we are on it. False if that loop is closed."""
        if get_ident() == self._thread:
            call(*arguments)
            return True
        return call_on(self._loop, call, *arguments)

    @property
    def on_closed_loop(self) -> bool:
        """Whether its event loop is closed, so that nothing happens to it any more."""
        return self._loop.is_closed()


class ConnectionIdentity(LoopBound):
    """The part of a connection that does not change while it is open."""

    __slots__ = ("_connections", "_lost", "_traffic", "id", "transport")

    def __init__(self, transport: Transport, traffic: Traffic | None, connections: Connections) -> None:
        """Made by a bridge, as a part of its connection."""
        super().__init__(transport)
        self.id = connections.next_id()
        """Eight characters that identify this connection in every line of the log."""
        self.transport = transport
        """What carries the bytes (:class:`~penstock.net.Transport`); only for the event loop's thread."""
        self._connections = connections
        self._traffic = traffic
        self._lost = False

    @property
    def settings(self) -> TcpSettings:
        """The settings of the server or client that this connection belongs to."""
        return self._connections.settings

    @property
    def local(self) -> str:
        """The address of this side, as people write it."""
        return self.transport.local

    @property
    def remote(self) -> str:
        """The address of the peer, as people write it. A proxy in between is not the peer."""
        return self.transport.remote

    @property
    def via(self) -> str | None:
        """The address of the proxy that the connection goes through, or None."""
        return self.transport.via

    @property
    def label(self) -> str:
        """``[id, L:local - R:remote]``, with ``!`` instead of ``-`` once it is closed."""
        return f"[{self.id}, L:{self.local} {'!' if self._lost else '-'} R:{self.remote}]"

    @property
    def tls(self) -> TlsSession | None:
        """The TLS session (an ``ssl.SSLObject`` with version, cipher and the peer's certificate), or None."""
        return self.transport.tls

    @property
    def traffic(self) -> Traffic | None:
        """The bytes received and sent, or None: they are counted with ``metrics()`` or a timeout."""
        return self._traffic

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._lost

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"
