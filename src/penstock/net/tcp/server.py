"""A TCP server whose connections are streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Protocol, Self

from penstock.arguments import a_count
from penstock.net.bridge import AsyncioBridge
from penstock.net.connection import Connection
from penstock.net.connections import Connections
from penstock.net.endpoint import EndpointState, tell_endpoint
from penstock.net.errors import BindFailed
from penstock.net.labels import address_text, let_go
from penstock.net.lifecycle import CloseReport
from penstock.net.loops import Disposable, block_on
from penstock.net.metrics import TcpMetrics
from penstock.net.proxies.protocol import ProxyProtocol
from penstock.net.settings import TcpBuilder, TcpSettings
from penstock.net.tcp.listener import Acceptor, SocketFile, listening_sockets
from penstock.net.tls import Path, TlsSettings
from penstock.streams.spi import renew_after_fork

__all__ = ["RunningServer", "TcpServer"]


_log = logging.getLogger("penstock.net")


class Closable(Protocol):
    """Accepts connections from one socket until it is closed."""

    def close(self) -> None:
        """Accept no more."""
        ...


class TcpServer(TcpBuilder):
    """The configuration of a server. :meth:`bind` starts one; the same configuration may be bound many times.

    ::

        server = await (
            TcpServer.create()
            .port(7000)
            .handle(lambda inbound, outbound: outbound.send(inbound.receive()))
            .bind()
        )
        async with server:
            await server.wait_closed()
    """

    @classmethod
    def create(cls) -> Self:
        """A server on the loopback address and any free port, until you say otherwise."""
        return cls(TcpSettings(host="127.0.0.1"))

    def secure(
        self,
        context: ssl.SSLContext | None = None,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        password: str | None = None,
        client_authority: Path | None = None,
        names: Mapping[str, ssl.SSLContext] | None = None,
        handshake_timeout: float = 10.0,
    ) -> Self:
        """Speak TLS, with a context of yours, or with a certificate and its key from PEM files.

        With ``client_authority``, clients have to present a certificate that this authority has signed.
        ``names`` maps further names of the server to contexts of their own (``"*.example.org"`` for all names
        below one).
        """
        return self._with(
            tls=TlsSettings.for_server(
                context, certificate, key, password, client_authority, names, handshake_timeout
            )
        )

    def proxy_protocol(
        self,
        trusted: str | Iterable[str],
        *,
        required: bool = True,
        timeout: float = 5.0,
        max_size: int = 4096,
    ) -> Self:
        """Expect the header of the PROXY protocol (version 1 or 2) at the beginning of a connection.

        A proxy such as HAProxy tells the address of its client with it. That address is then the
        connection's ``remote``, the proxy's is ``via``, and the whole header is ``proxy_header``. Only peers
        in the ``trusted`` networks are believed, because anybody can write any address into a header; the
        clients of a Unix socket always are. TLS comes after the header.

        A connection is closed, logged and counted in ``metrics.proxy_headers_refused`` if its peer is not
        trusted, or if its header is malformed, missing, larger than ``max_size`` bytes or not complete after
        ``timeout`` seconds. With ``required=False`` a connection without a header is a direct one, from
        anybody. A client that waits for the server to speak then waits for the ``timeout`` first.
        """
        return self._with(proxy_protocol=ProxyProtocol.checked(trusted, required, timeout, max_size))

    def max_connections(self, most: int) -> Self:
        """Refuse a new connection when there are this many already."""
        return self._with(max_connections=a_count(most, "max_connections()"))

    def backlog(self, most: int) -> Self:
        """How many connections the system may keep waiting to be accepted (128)."""
        return self._with(backlog=a_count(most, "backlog()"))

    def reuse_port(self) -> Self:
        """Let several servers listen on this port, mostly one in each process. The system deals out callers.

        All of them have to say so, and belong to one user of the machine.
        """
        return self.option("SO_REUSEPORT", 1)

    def dual_stack(self) -> Self:
        """Listen on all addresses of the machine, IPv6 and IPv4, with one socket and one port."""
        return self.host("::")._with(dual_stack=True)

    async def bind(self) -> RunningServer:
        """Listen. The server runs on this event loop, or on those of ``run_on()``, until it is closed."""
        loops = self._settings.loops
        return await (self._bind() if loops is None else loops.open(self._bind))

    async def _bind(self) -> RunningServer:
        settings = self._settings
        if settings.handler is None and not settings.on_connection:
            raise ValueError(
                "this server has nothing to do with its connections: give it handle(…) before bind()"
            )
        loop = asyncio.get_running_loop()
        connections = Connections(settings)
        sockets: list[socket.socket] = []
        listeners: list[Closable] = []
        file: SocketFile | None = None
        try:
            sockets = await listening_sockets(settings)
            file = SocketFile.of(settings)
            for listening in sockets:
                if any((settings.loops, settings.tls, settings.proxy_protocol)):
                    acceptor = Acceptor(listening, connections)
                    acceptor.start()
                    listeners.append(acceptor)
                else:
                    listeners.append(await _plain_server(loop, listening, connections))
        except BaseException as error:
            if file is not None:
                file.remove()
            for listener in listeners:
                listener.close()
            for listening in sockets:
                if listening.fileno() >= 0:
                    # If this is cancelled while asyncio starts a server, the loop reads from its socket
                    # already. A loop that has a transport for it says so, and lets go of it itself.
                    with contextlib.suppress(RuntimeError):
                        loop.remove_reader(listening)
                    listening.close()
            if not isinstance(error, OSError):
                raise
            failed = BindFailed.at(settings.where, error)
            tell_endpoint(settings, EndpointState.FAILED, error=failed)
            raise failed from error
        running = RunningServer(settings, sockets, file, listeners, connections, loop)
        if settings.loops is not None and not running._move_in(settings.loops):
            await running.aclose(0)
            raise settings.loops.is_closed()
        _log.info("listening on %s", running.where)
        tell_endpoint(settings, EndpointState.BOUND, running.addresses)
        return running

    def bind_now(self, timeout: float = 45.0) -> RunningServer:
        """Listen, from a thread without an event loop. The server runs on one in the background."""
        loops = self._settings.loops
        if loops is not None:
            return loops.open_now(self._bind, timeout)
        return block_on(self._bind, timeout)


class RunningServer(Disposable):
    """A server that is listening. Closing it lets its connections finish."""

    def __init__(
        self,
        settings: TcpSettings,
        sockets: list[socket.socket],
        file: SocketFile | None,
        listeners: list[Closable],
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Made by ``TcpServer.bind()``."""
        super().__init__(loop)
        self._settings = settings
        self._listeners = listeners
        self._connections = connections
        self._sockets = sockets
        self._file = file
        self._addresses = [listening.getsockname() for listening in sockets]
        renew_after_fork(self)

    @property
    def host(self) -> str:
        """The address that the server listens on."""
        return str(self._addresses[0][0]) if self._settings.path is None else ""

    @property
    def port(self) -> int:
        """The port that the server listens on: the real one, even if it was bound to 0."""
        return int(self._addresses[0][1]) if self._settings.path is None else 0

    @property
    def where(self) -> str:
        """All addresses that the server listens on, as people write them."""
        return ", ".join(self.addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each address that the server listens on, as people write it."""
        return tuple(address_text(address) for address in self._addresses)

    @property
    def connections(self) -> list[Connection]:
        """The connections that are open now."""
        return self._connections.alive

    @property
    def metrics(self) -> TcpMetrics:
        """What the server has done so far."""
        return self._connections.metrics

    def reload_certificate(self) -> None:
        """Read certificate and key again. New connections use them."""
        if self._settings.tls is None:
            raise ValueError(
                "this server does not speak TLS, so it has no certificate; give it secure(…) before bind()"
            )
        self._settings.tls.reload()

    async def _close_within(self, grace: float) -> CloseReport:
        if self._file is not None:
            self._file.remove()
        for listener in self._listeners:
            listener.close()
        tell_endpoint(self._settings, EndpointState.UNBOUND, self.addresses)
        closed = await self._connections.aclose(grace)
        for label in closed.aborted:
            _log.warning("%s was cut off: its handler was still running %g s after the close", label, grace)
        self._is_over()
        return closed

    def renew_in_child(self) -> None:
        """After a fork: the child does not listen, so that the port is free when the parent has closed it."""
        for listening in self._sockets:
            let_go(listening.fileno())
        self._connections.renew_in_child()

    def __repr__(self) -> str:
        return f"<RunningServer {self.where}, {len(self._connections)} connections>"


async def _plain_server(
    loop: asyncio.AbstractEventLoop, listening: socket.socket, connections: Connections
) -> asyncio.AbstractServer:
    def accepted() -> AsyncioBridge:
        return AsyncioBridge(connections, loop)

    create = loop.create_unix_server if listening.family == socket.AF_UNIX else loop.create_server
    server: asyncio.AbstractServer = await create(
        accepted, sock=listening, backlog=connections.settings.backlog
    )
    return server
