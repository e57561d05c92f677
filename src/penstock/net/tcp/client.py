"""A TCP client whose connection is two streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Self

from penstock.arguments import a_number, a_whole_number
from penstock.net.bridge import AsyncioBridge
from penstock.net.connection import Connection
from penstock.net.connections import Connections
from penstock.net.errors import ConnectFailed, HandshakeFailed
from penstock.net.loops import block_on
from penstock.net.settings import TcpBuilder, TcpSettings
from penstock.net.tls import Path, TlsSettings

__all__ = ["TcpClient"]

_NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""


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

    async def connect(self) -> Connection:
        """Open a connection; ConnectFailed says why there is none."""
        settings = self._settings
        if settings.path is None and not settings.port:
            raise ValueError("connect() needs a port: TcpClient.create().host(…).port(…)")
        loop = asyncio.get_running_loop()
        connections = Connections(settings)
        tls: dict[str, Any] = {}
        if settings.tls is not None:
            tls = {
                "ssl": settings.tls.context,
                "server_hostname": settings.tls.server_hostname or settings.host or "localhost",
                "ssl_handshake_timeout": settings.tls.handshake_timeout,
                "ssl_shutdown_timeout": max(settings.linger, 0.1),
            }

        def made() -> AsyncioBridge:
            return AsyncioBridge(connections, loop)

        try:
            async with asyncio.timeout(settings.connect_timeout):
                if settings.path is not None:
                    _, bridge = await _unix_connection(loop, made, settings.path, tls)
                else:
                    _, bridge = await _tcp_connection(loop, made, settings, tls)
        except ssl.SSLError as error:
            raise HandshakeFailed.to(settings.where, error) from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            kind = ConnectFailed if settings.tls is None else HandshakeFailed
            raise kind.to(settings.where, error) from error
        except OSError as error:  # TimeoutError is one
            raise ConnectFailed.to(settings.where, error) from error
        except ExceptionGroup as errors:
            # Several addresses were tried. The reason of the last one is enough.
            raise ConnectFailed.to(settings.where, errors.exceptions[-1]) from errors
        return bridge.connection

    def connect_now(self, timeout: float = 45.0) -> Connection:
        """Connect, from a thread without an event loop. The connection lives on one in the background."""
        return block_on(self.connect(), timeout)


async def _tcp_connection(
    loop: asyncio.AbstractEventLoop,
    made: Callable[[], AsyncioBridge],
    settings: TcpSettings,
    tls: dict[str, Any],
) -> tuple[Any, AsyncioBridge]:
    host = settings.host or "localhost"
    if not settings.options:
        return await loop.create_connection(
            made,
            host,
            settings.port,
            local_addr=settings.local_address,
            **tls,
            **_several_addresses(loop),
        )
    # Options belong before the connection: the size of a window is settled with the first packet.
    failed: OSError | None = None
    for family, _, _, _, address in await loop.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM):
        calling = socket.socket(family, socket.SOCK_STREAM)
        try:
            calling.setblocking(False)
            await _prepare(loop, calling, settings)
            await loop.sock_connect(calling, address)
            return await loop.create_connection(made, sock=calling, **tls)
        except OSError as error:
            calling.close()
            if isinstance(error, ssl.SSLError):
                raise
            failed = error  # The next address may answer.
        except BaseException:
            calling.close()
            raise
    raise failed or ConnectionRefusedError(f"{host} has no address")


async def _prepare(loop: asyncio.AbstractEventLoop, calling: socket.socket, settings: TcpSettings) -> None:
    """Set the options, and bind to the local address, before the socket is connected."""
    for option in settings.options:
        with contextlib.suppress(OSError):  # A connection warns of it when it begins.
            option.apply(calling)
    if settings.local_address is not None:
        host, port = settings.local_address
        found = await loop.getaddrinfo(host, port, family=calling.family, type=socket.SOCK_STREAM)
        calling.bind(found[0][4])


async def _unix_connection(
    loop: asyncio.AbstractEventLoop, made: Callable[[], AsyncioBridge], path: str, tls: dict[str, Any]
) -> tuple[Any, AsyncioBridge]:
    if not path.startswith("\0"):
        return await loop.create_unix_connection(made, path, **tls)
    # An abstract name, without a file: uvloop cannot connect to one itself.
    calling = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        calling.setblocking(False)
        await loop.sock_connect(calling, path)
        return await loop.create_unix_connection(made, sock=calling, **tls)
    except BaseException:
        calling.close()
        raise


def _several_addresses(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Try the addresses of a host side by side where the loop can; uvloop tries them one after the other."""
    return {"happy_eyeballs_delay": _NEXT_ADDRESS} if isinstance(loop, asyncio.BaseEventLoop) else {}
