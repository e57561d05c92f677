"""Where the events of a transport come in, for connections of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.asyncio_transport import AsyncioTransport
from penstock.net.connection import Connection
from penstock.net.metrics import Traffic
from penstock.net.receiver import Receiver
from penstock.net.transport import EventLoop, Transport

if TYPE_CHECKING:
    from penstock.net.connections import Connections
    from penstock.net.proxies.header import ProxyHeader

__all__ = ["AsyncioBridge", "Bridge", "RoutedBridge"]


class Bridge:
    """Passes the events of a transport on to its connection, and each chunk straight to the receiver."""

    __slots__ = ("_connections", "_receiver", "_traffic", "connection", "data_received")

    connection: Connection
    """Exists once the socket is up, and TLS with it if there is to be any."""
    remote: str | None = None
    """The address of the other end, if it is not the peer of the socket."""
    via: str | None = None
    """The address of the proxy in between, if there is one."""
    proxy_header: ProxyHeader | None = None
    """The header of the PROXY protocol that the connection began with."""

    def __init__(self, connections: Connections, loop: EventLoop) -> None:
        settings = connections.settings
        self._connections = connections
        self._receiver = Receiver(loop, settings.read_ahead)
        self._traffic = Traffic() if settings.counts_bytes else None
        take: Callable[[bytes], None] = self._receiver.take
        if self._traffic is not None:
            take = self._traffic.counting_received(take)
        if settings.wiretap is not None:
            take = settings.wiretap.tapped(lambda: self.connection.label, "READ", take)
        # An attribute and not a method: uvloop looks it up once, and nothing of ours is between.
        self.data_received: Callable[[bytes], None] = take

    def open(self, transport: Transport) -> None:
        """The transport is up: make the connection and let it begin."""
        self.connection = Connection(self, transport, self._receiver, self._traffic, self._connections)
        self.connection.begin()

    def eof_received(self) -> bool | None:
        """The peer sends no more; we may."""
        return self.connection.peer_ended()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed, for whatever reason."""
        self.connection.lost(error)

    def pause_writing(self) -> None:
        """The transport holds as many bytes as it should."""
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self.connection.resume_writing()


class AsyncioBridge(Bridge, asyncio.BaseProtocol):
    """The same as a protocol of asyncio, which is what the loops' servers and clients take."""

    __slots__ = ("_loop",)

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connections, loop)
        self._loop = loop

    def connection_made(self, transport: Any) -> None:
        """The socket is up; with TLS, the handshake is done."""
        ours = AsyncioTransport(transport, self._loop, self.remote, self.via)
        self.open(ours)
        if not self._connections.settings.read_ahead and ours.tls is not None:
            # Nothing is read yet, so the last message of the handshake would wait.
            self._loop.call_soon(ours.push_out)


class RoutedBridge(AsyncioBridge):
    """The bridge of a connection with a proxy between this side and the other end."""

    __slots__ = ("_early", "proxy_header", "remote", "via")

    def __init__(
        self,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
        *,
        remote: str | None,
        via: str | None,
        header: ProxyHeader | None = None,
        early: bytes = b"",
    ) -> None:
        super().__init__(connections, loop)
        self.remote = remote
        self.via = via
        self.proxy_header = header
        self._early = early

    def open(self, transport: Transport) -> None:
        """The transport is up. Bytes that were read too early come first."""
        self.connection = Connection(self, transport, self._receiver, self._traffic, self._connections)
        if self._early:
            self.data_received(self._early)
        self.connection.begin()
