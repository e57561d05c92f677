"""A TCP client whose connection is two streams."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Self

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
    """Says how to connect; :meth:`connect` does it. The same one may connect many times.

    ::

        connection = await TcpClient.create().host("localhost").port(7000).connect()
        async with connection:
            await connection.outbound.send(b"hello\\n")

    With ``handle(…)`` the handler runs by itself and the connection closes when it ends; without, the two
    sides are yours and you close it.
    """

    @classmethod
    def create(cls) -> Self:
        """A client of this machine, until it is told otherwise."""
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
        """Speak TLS. The server's certificate is checked against the authorities that this machine trusts, or
        against ``trust``; ``certificate`` is what the client shows. ``server_hostname`` is the name to check
        if it is not that of the host."""
        return self._with(
            tls=TlsSettings.for_client(
                context, trust, certificate, key, password, server_hostname, handshake_timeout
            )
        )

    def connect_timeout(self, seconds: float) -> Self:
        """How long to try (10 s)."""
        if not seconds > 0:
            raise ValueError(f"connect_timeout({seconds!r}): give seconds above 0")
        return self._with(connect_timeout=float(seconds))

    async def connect(self) -> Connection:
        """The connection, as soon as it is there; ConnectFailed says why it is not."""
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
                    _, bridge = await loop.create_connection(
                        made,
                        settings.host or "localhost",
                        settings.port,
                        **tls,
                        **_several_addresses(loop),
                    )
        except ssl.SSLError as error:
            raise HandshakeFailed.to(settings.where, error) from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            kind = ConnectFailed if settings.tls is None else HandshakeFailed
            raise kind.to(settings.where, error) from error
        except OSError as error:  # TimeoutError is one
            raise ConnectFailed.to(settings.where, error) from error
        except ExceptionGroup as errors:
            # Several addresses were tried; the last one's reason will do.
            raise ConnectFailed.to(settings.where, errors.exceptions[-1]) from errors
        return bridge.connection

    def connect_now(self, timeout: float = 45.0) -> Connection:
        """Connect, from a thread that has no event loop; the connection lives on one in the background."""
        return block_on(self.connect(), timeout)


async def _unix_connection(
    loop: asyncio.AbstractEventLoop, made: Callable[[], AsyncioBridge], path: str, tls: dict[str, Any]
) -> tuple[Any, AsyncioBridge]:
    if not path.startswith("\0"):
        return await loop.create_unix_connection(made, path, **tls)
    # The name of no file: uvloop cannot connect to one itself.
    calling = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        calling.setblocking(False)
        await loop.sock_connect(calling, path)
        return await loop.create_unix_connection(made, sock=calling, **tls)
    except BaseException:
        calling.close()
        raise


def _several_addresses(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Try the addresses of a host side by side, where the loop can do that; uvloop tries them in turn."""
    return {"happy_eyeballs_delay": _NEXT_ADDRESS} if isinstance(loop, asyncio.BaseEventLoop) else {}
