"""The asyncio protocol of a connection: the one place where the event loop's callbacks come in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.connection import Connection
from penstock.net.metrics import Traffic
from penstock.net.receiver import Receiver

if TYPE_CHECKING:
    from penstock.net.connections import Connections

__all__ = ["Bridge"]


class Bridge(asyncio.BaseProtocol):
    """Passes what asyncio says on to the connection, and what the socket gives straight to its receiver."""

    __slots__ = ("_connections", "_receiver", "_traffic", "connection", "data_received")

    connection: Connection
    """There from the moment that the socket is up, with TLS if there is to be any."""

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        settings = connections.settings
        self._connections = connections
        self._receiver = Receiver(loop, settings.read_ahead)
        self._traffic = Traffic(connections.metrics) if settings.counts_bytes else None
        take: Callable[[bytes], None] = self._receiver.take
        if self._traffic is not None:
            take = self._traffic.counting_received(take)
        if settings.wiretap is not None:
            take = settings.wiretap.tapped(lambda: self.connection.label, "READ", take)
        # An attribute and not a method: uvloop looks it up once, and nothing of ours is between.
        self.data_received: Callable[[bytes], None] = take

    def connection_made(self, transport: Any) -> None:
        """The socket is up; with TLS, the handshake is done."""
        self.connection = Connection(self, transport, self._receiver, self._traffic, self._connections)
        self.connection.begin()

    def eof_received(self) -> bool | None:
        """The peer sends no more; we may."""
        return self.connection.peer_ended()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed, for whatever reason."""
        self.connection.lost(error)

    def pause_writing(self) -> None:
        """The transport has as much to send as it should keep."""
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        """It can take more."""
        self.connection.resume_writing()
