"""A TCP client whose connection is two streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Self

from penstock.arguments import a_number, a_whole_number
from penstock.net.bridge import AsyncioBridge
from penstock.net.connection import Connection
from penstock.net.connections import Connections
from penstock.net.endpoint import EndpointState, tell_endpoint
from penstock.net.errors import ConnectFailed, HandshakeFailed, NetError
from penstock.net.labels import address_text
from penstock.net.loops import block_on
from penstock.net.proxies.header import ProxyHeader
from penstock.net.proxies.proxy import Proxy
from penstock.net.settings import TcpBuilder, TcpSettings
from penstock.net.tcp.dialer import Resolver, dial, dial_path
from penstock.net.tcp.handover import handed_over
from penstock.net.tcp.pool import ConnectionPool, acquire
from penstock.net.tcp.prelude import Prelude
from penstock.net.tls import Path, TlsSettings

__all__ = ["TcpClient"]


class TcpClient(TcpBuilder):
    """The configuration of a client. :meth:`connect` opens a connection, as often as you like.

    ::

        connection = await TcpClient.create().host("localhost").port(7000).connect()
        async with connection:
            await connection.outbound.send(b"hello\\n")

    With ``handle(…)`` the handler runs by itself, and the connection is closed when it ends. Without it, you
    use the two sides and close the connection.
    """

    @classmethod
    def create(cls) -> Self:
        """A client of this machine, until you say otherwise."""
        return cls(TcpSettings(host="127.0.0.1"))

    def secure(
        self,
        context: ssl.SSLContext | None = None,
        *,
        trust: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        password: str | None = None,
        server_hostname: str | None = None,
        handshake_timeout: float = 10.0,
    ) -> Self:
        """Speak TLS.

        The server's certificate is checked against the authorities that this machine trusts, or against
        ``trust``. ``certificate`` is the one that the client presents. ``server_hostname`` is the name to
        expect, if it is not the host.
        """
        return self._with(
            tls=TlsSettings.for_client(
                context, trust, certificate, key, password, server_hostname, handshake_timeout
            )
        )

    def connect_timeout(self, seconds: float) -> Self:
        """How many seconds connecting may take (10 s)."""
        return self._with(connect_timeout=a_number(seconds, "connect_timeout()", above=0))

    def local_address(self, host: str, port: int = 0) -> Self:
        """The address of this machine to connect from. With port 0, the system chooses the port."""
        if not isinstance(host, str) or not host:
            raise ValueError(f"local_address({host!r}): pass an address of this machine as text")
        return self._with(
            local_address=(host, a_whole_number(port, "port of local_address()", least=0, most=65_535))
        )

    def resolver(self, resolve: Resolver | None) -> Self:
        """Look up the host with this function instead of asking the system (None).

        It is a coroutine function of host and port. It returns IP addresses in the order in which to try
        them, as text, or as pairs of an address and another port.
        """
        if resolve is not None and not callable(resolve):
            raise TypeError(f"resolver({resolve!r}): pass a coroutine function of host and port, or None")
        return self._with(resolver=resolve)

    def pool(self, pool: ConnectionPool | None) -> Self:
        """Take connections from this pool, and give them back instead of closing them (None: from no pool).

        Leaving ``async with`` gives a connection back, and so do ``close()`` and the end of a handler. If
        something failed, or bytes are unread or unsent, it is closed.
        """
        if pool is not None and not isinstance(pool, ConnectionPool):
            raise TypeError(f"pool({pool!r}): pass a ConnectionPool, or None")
        return self._with(pool=pool)

    def proxy(
        self,
        url: str | None,
        *,
        no_proxy: str | Iterable[str] = (),
        username: str | None = None,
        password: str | None = None,
    ) -> Self:
        """Connect through a proxy: ``http://user:password@host:port`` (CONNECT) or ``socks5://…``.

        The name of the host is left to the proxy to look up. With ``secure()``, TLS goes through the proxy to
        the host. Special characters in the credentials are percent-encoded in the URL; or pass them as
        ``username`` and ``password``. ``connect_timeout()`` covers everything, and ProxyFailed says how far
        it came.

        Hosts that match ``no_proxy`` are connected to directly. As in the environment variable of that name,
        it is a list with commas: a name matches itself and everything below it, an address or a network such
        as ``10.0.0.0/8`` matches addresses, ``host:port`` matches one port only, and ``*`` matches all. Unix
        sockets are always direct. ``proxy(None)`` takes the proxy away.
        """
        if url is None:
            return self._with(proxy=None)
        return self._with(proxy=Proxy.parse(url, no_proxy=no_proxy, username=username, password=password))

    def proxy_protocol(self, header: ProxyHeader | None) -> Self:
        """Begin the connection with this header of the PROXY protocol, before TLS.

        A proxy passes on the address of its client with it: ``proxy_protocol(ProxyHeader.of(connection))``.
        The server has to expect the header. None takes it away.
        """
        if header is not None and not isinstance(header, ProxyHeader):
            raise TypeError(
                f"proxy_protocol({header!r:.80}): pass a ProxyHeader, or ProxyHeader.of(connection)"
            )
        return self._with(proxy_header=header)

    async def connect(self) -> Connection:
        """Open a connection, or take one from the pool; ConnectFailed says why there is none.

        With a pool that may be AcquireTimeout, PoolFull or PoolClosed, too; with ``run_on()``, LoopsClosed.
        """
        loops = self._settings.loops
        return await (self._connect() if loops is None else loops.open(self._connect))

    async def _connect(self) -> Connection:
        settings = self._settings
        if settings.path is None and not settings.port:
            raise ValueError("connect() needs a port: TcpClient.create().host(…).port(…)")
        try:
            if settings.pool is not None:
                connection = await acquire(settings.pool, settings, self._open)
            else:
                connection = await self._open(Connections(settings))
            if settings.loops is not None and not connection._connections.move_in(settings.loops):
                connection.abort()
                raise settings.loops.is_closed()
            return connection
        except BaseException as error:
            tell_endpoint(settings, EndpointState.FAILED, error=error)
            raise

    async def _open(self, connections: Connections) -> Connection:
        settings = self._settings
        loop = asyncio.get_running_loop()
        prelude = Prelude.of(settings)
        where = settings.where if prelude is None else prelude.where
        tls: dict[str, Any] = {}
        if settings.tls is not None:
            tls = {
                "ssl": settings.tls.context,
                "server_hostname": settings.tls.server_hostname or settings.host or "localhost",
                "ssl_handshake_timeout": settings.tls.handshake_timeout,
                "ssl_shutdown_timeout": max(settings.linger, 0.1),
            }

        def made() -> AsyncioBridge:
            return AsyncioBridge(connections, loop) if prelude is None else prelude.bridge(connections, loop)

        try:
            with nullcontext() if prelude is None else prelude.telling():
                async with asyncio.timeout(settings.connect_timeout):
                    if prelude is not None:
                        _, bridge = await prelude.connection(loop, made, tls)
                    elif settings.path is not None:
                        _, bridge = await _unix_connection(loop, made, settings, tls)
                    else:
                        _, bridge = await _tcp_connection(loop, made, settings, tls)
        except NetError:
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed.to(where, error) from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            kind = ConnectFailed if settings.tls is None else HandshakeFailed
            raise kind.to(where, error) from error
        except OSError as error:  # TimeoutError is one
            raise ConnectFailed.to(where, error) from error
        return bridge.connection

    def connect_now(self, timeout: float = 45.0) -> Connection:
        """Connect, from a thread without an event loop. The connection lives on one in the background."""
        loops = self._settings.loops
        if loops is not None:
            return loops.open_now(self._connect, timeout)
        return block_on(self._connect, timeout)


async def _tcp_connection(
    loop: asyncio.AbstractEventLoop,
    made: Callable[[], AsyncioBridge],
    settings: TcpSettings,
    tls: dict[str, Any],
) -> tuple[Any, AsyncioBridge]:
    calling = await dial(settings, settings.host or "localhost", settings.port)
    return await handed_over(loop, made, calling, tls)


async def _unix_connection(
    loop: asyncio.AbstractEventLoop,
    made: Callable[[], AsyncioBridge],
    settings: TcpSettings,
    tls: dict[str, Any],
) -> tuple[Any, AsyncioBridge]:
    path = settings.path or ""
    tell_endpoint(settings, EndpointState.CONNECTING, (address_text(path),))
    return await handed_over(loop, made, await dial_path(path), tls)
