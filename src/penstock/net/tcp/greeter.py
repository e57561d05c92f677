"""What happens on an event loop between an accepted socket and its connection: the PROXY header, and TLS.

The servers of both event loops silently drop a connection whose TLS handshake fails. Here every failure is
logged at once, with the peer's address and the reason. The header of the PROXY protocol comes before TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import deque
from typing import Any, Final

from penstock.net.bridge import AsyncioBridge, RoutedBridge
from penstock.net.connections import Connections
from penstock.net.labels import address_text, new_id
from penstock.net.proxies.introduction import Introduction
from penstock.net.proxies.protocol import ProxyProtocol
from penstock.net.tls import TlsSettings, alerting, choosing
from penstock.net.transport import call_on

__all__ = ["Greeter"]

_log = logging.getLogger("penstock.net")

_LAG: Final = 0.1
"""Seconds after which a loop that has not taken an accepted socket gets no more of them."""


class Greeter:
    """Makes connections of accepted sockets, on one event loop."""

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._connections = connections
        self._tls = connections.settings.tls
        self._loop = loop
        self._waiting: deque[tuple[socket.socket, Any, float]] = deque()
        """Sockets on their way from another loop, and since when."""
        self._closed = False
        self._handshakes: set[asyncio.Task[None]] = set()
        self._introductions: set[asyncio.Task[None]] = set()
        """The handshakes that wait for a PROXY header."""

    # ---------------------------------------------------------------- what the acceptor calls
    def take(self, accepted: socket.socket, address: Any) -> None:
        """Make a connection of this socket."""
        if asyncio.get_running_loop() is self._loop:
            self._welcome_soon(accepted, address)
            return
        self._waiting.append((accepted, address, time.monotonic()))
        if not call_on(self._loop, self._take_next):
            self._drop_waiting()

    def lags(self, most: int) -> bool:
        """Whether the loop does not respond, or has too much to do: somebody blocks it."""
        try:
            since = self._waiting[0][2]
        except IndexError:
            return False
        return len(self._waiting) >= most or time.monotonic() - since > _LAG

    def close(self) -> None:
        """Make no more connections. A TLS handshake may finish; its connection is then refused."""
        if asyncio.get_running_loop() is self._loop:
            self._close()
            return
        if not call_on(self._loop, self._close):
            self._drop_waiting()

    # ---------------------------------------------------------------- on the loop of the connections
    def _take_next(self) -> None:
        try:
            accepted, address, _ = self._waiting.popleft()
        except IndexError:
            return  # It was dropped.
        if self._closed:
            accepted.close()
        else:
            self._welcome_soon(accepted, address)

    def _close(self) -> None:
        self._closed = True
        for waiting in self._introductions:
            waiting.cancel()

    def _drop_waiting(self) -> None:
        while self._waiting:
            with contextlib.suppress(IndexError):
                self._waiting.popleft()[0].close()

    def _welcome_soon(self, accepted: socket.socket, address: Any) -> None:
        handshake = self._loop.create_task(self._welcome(accepted, address))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _welcome(self, accepted: socket.socket, address: Any) -> None:
        local, remote = address_text(accepted.getsockname()), address_text(address)
        bridge: AsyncioBridge | None = None
        try:
            expected = self._connections.settings.proxy_protocol
            if expected is None:
                bridge = AsyncioBridge(self._connections, self._loop)
            else:
                introduction = await self._introduction(accepted, address, expected)
                if introduction.refusal is not None:
                    self._connections.count_header_refused()
                    _log.warning(
                        "[%s, L:%s ! R:%s] refused: %s", new_id(), local, remote, introduction.refusal
                    )
                elif not introduction.left:
                    bridge = self._introduced(introduction, remote)
        finally:
            if bridge is None:
                accepted.close()
        if bridge is not None:
            await self._begin(bridge, accepted, local, remote)

    async def _introduction(
        self, accepted: socket.socket, address: Any, expected: ProxyProtocol
    ) -> Introduction:
        task = asyncio.current_task()
        assert task is not None
        self._introductions.add(task)
        try:
            read = await Introduction.read(accepted, address, expected, self._loop)
        finally:
            self._introductions.discard(task)
        if read.early and self._tls is not None:
            return Introduction(refusal="it begins neither with a PROXY header nor with TLS")
        return read

    def _introduced(self, introduction: Introduction, peer: str) -> AsyncioBridge:
        header = introduction.header
        client = None if header is None or header.source is None else address_text(header.source)
        return RoutedBridge(
            self._connections,
            self._loop,
            remote=client,
            via=None if client is None else peer,
            header=header,
            early=introduction.early,
        )

    async def _begin(self, bridge: AsyncioBridge, accepted: socket.socket, local: str, remote: str) -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(lambda: bridge, accepted)
            return
        names = self._tls.names
        choosing.set(None if names is None else names.context_for)
        alerting.set(lambda alert: _send_alert(accepted, alert))
        remote = bridge.remote or remote
        try:
            await self._loop.connect_accepted_socket(
                lambda: bridge,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.handshake_timeout,
                ssl_shutdown_timeout=max(self._connections.settings.linger, 0.1),
            )
        except OSError as error:
            self._failed(local, remote, _reason(error, self._tls))
        else:
            if not hasattr(bridge, "connection"):
                # Both loops take a peer that has gone for one that has finished.
                self._failed(local, remote, _GONE)

    def _failed(self, local: str, remote: str, why: str) -> None:
        if not self._connections.closed:
            self._connections.count_handshake_failed()
            _log.warning("[%s, L:%s ! R:%s] a TLS handshake failed: %s", new_id(), local, remote, why)


def _reason(error: OSError, tls: TlsSettings) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.reason or error}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return f"the peer had not finished after {tls.handshake_timeout:g} s"
    return _GONE if isinstance(error, ConnectionError) else str(error)


def _send_alert(accepted: socket.socket, alert: bytes) -> None:
    # The kernel has room for a few bytes, or the peer does not read and would not see them anyway.
    with contextlib.suppress(OSError):
        accepted.send(alert)


_GONE: Final = "the peer went away"
