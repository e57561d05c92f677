"""What a client says before its connection begins: the request to a proxy, and the PROXY protocol's header.

Both come before TLS. So they are said on the bare socket, and a transport takes it over afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.net.bridge import AsyncioBridge, RoutedBridge
from penstock.net.connections import Connections
from penstock.net.proxies.raw_socket import RawSocket
from penstock.net.proxies.tunnel import Tunnel
from penstock.net.settings import TcpSettings
from penstock.net.tcp.dialer import dial, dial_path
from penstock.net.tcp.handover import handed_over

__all__ = ["Prelude"]


class Prelude:
    """Connects one socket, perhaps to a proxy, and says what is to be said on it."""

    def __init__(self, settings: TcpSettings) -> None:
        self._settings = settings
        self._host, self._port = settings.host or "localhost", settings.port
        self._tunnel: Tunnel | None = None
        self._via: str | None = None
        proxy = settings.proxy
        if proxy is not None and settings.path is None and proxy.serves(self._host, self._port):
            self._tunnel = Tunnel(proxy, self._host, self._port)
            self._via = proxy.where
            self._host, self._port = proxy.host, proxy.port

    @classmethod
    def of(cls, settings: TcpSettings) -> Prelude | None:
        """The prelude of a client's connection; None if nothing is said before it."""
        if settings.proxy is None and settings.proxy_header is None:
            return None
        prelude = cls(settings)
        return None if prelude._tunnel is None and settings.proxy_header is None else prelude

    @property
    def where(self) -> str:
        """The server, and the proxy on the way, as people write them."""
        if self._tunnel is None:
            return self._settings.where
        return f"{self._tunnel.target} through the proxy {self._via}"

    def telling(self) -> AbstractContextManager[None]:
        """Turns the errors of the way to the proxy into those of the proxy."""
        return nullcontext() if self._tunnel is None else self._tunnel.telling()

    def bridge(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> AsyncioBridge:
        """The bridge for the connection."""
        remote = None if self._tunnel is None else self._tunnel.target
        return RoutedBridge(connections, loop, remote=remote, via=self._via)

    async def connection(
        self, loop: asyncio.AbstractEventLoop, made: Callable[[], AsyncioBridge], tls: dict[str, Any]
    ) -> tuple[Any, AsyncioBridge]:
        """Connect, say what is to be said, and hand the socket over to a transport."""
        path = self._settings.path
        if path is None:
            calling = await dial(self._settings, self._host, self._port)
        else:
            calling = await dial_path(path)
        try:
            raw = RawSocket(calling, loop)
            if self._tunnel is not None:
                await self._tunnel.open(raw)
            if self._settings.proxy_header is not None:
                await raw.send(self._settings.proxy_header.encode())
        except BaseException:
            calling.close()
            raise
        return await handed_over(loop, made, calling, tls)
