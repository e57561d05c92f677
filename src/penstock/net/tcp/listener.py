"""The sockets that a server listens on, and how TLS connections are accepted.

Options are set before a socket is bound: some mean nothing afterwards (``SO_REUSEPORT``), others cannot be
set any more (``IPV6_V6ONLY``). For TLS there is an acceptor of our own, because the servers of both event
loops silently drop a connection whose handshake fails. Here every failure is logged at once, with the peer's
address and the reason. It also reads the header of the PROXY protocol, which comes before TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from typing import Any, Final

from penstock.net.bridge import AsyncioBridge, RoutedBridge
from penstock.net.connections import Connections
from penstock.net.labels import address_text, new_id
from penstock.net.proxies.introduction import Introduction
from penstock.net.proxies.protocol import ProxyProtocol
from penstock.net.settings import TcpSettings
from penstock.net.tls import TlsSettings, alerting, choosing

__all__ = ["Acceptor", "listening_sockets"]

_log = logging.getLogger("penstock.net")

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST: Final = 1.0
"""Seconds until the next attempt if the system is out of descriptors or memory."""


class Acceptor:
    """Accepts connections that begin with a PROXY header or with TLS, on one listening socket."""

    def __init__(self, listening: socket.socket, connections: Connections) -> None:
        self._listening = listening
        self._connections = connections
        self._tls = connections.settings.tls
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._introductions: set[asyncio.Task[None]] = set()
        """The handshakes that wait for a PROXY header."""

    def start(self) -> None:
        """Begin to accept connections."""
        self._listening.listen(self._connections.settings.backlog)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more. A TLS handshake that is under way may finish; its connection is then refused."""
        for waiting in self._introductions:
            waiting.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for _ in range(self._connections.settings.backlog):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.error("cannot accept a connection now: %s; trying again in a second", error.strerror)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_REST, self._accept_again)
                return
            accepted.setblocking(False)
            handshake = self._loop.create_task(self._welcome(accepted, address))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

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
                    self._connections.metrics.proxy_headers_refused += 1
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
            self._connections.metrics.handshakes_failed += 1
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


async def listening_sockets(settings: TcpSettings) -> list[socket.socket]:
    """A bound socket for each address of the host, or the one of a Unix path."""
    if settings.path is not None:
        await _make_way(settings.path)
        return [_bound(settings, socket.AF_UNIX, settings.path)]
    found = await asyncio.get_running_loop().getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            try:
                sockets.append(_bound(settings, family, address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error  # A name may have an IPv6 address on a machine without IPv6.
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    if not sockets and missing is not None:
        raise missing
    return sockets


def _bound(settings: TcpSettings, family: int, address: Any) -> socket.socket:
    # asyncio looks at the protocol: without it, accepted connections would wait for more bytes (Nagle).
    protocol = 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP
    listening = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        listening.setblocking(False)
        if family != socket.AF_UNIX and os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Whatever the system's default is: "::" and "0.0.0.0" may be two servers, unless one wants both.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not settings.dual_stack))
        for option in settings.options:
            option.apply(listening)
        listening.bind(address)
    except BaseException:
        listening.close()
        raise
    return listening


async def _make_way(path: str) -> None:
    """Remove a socket that a dead server left behind; one that answers belongs to a live server."""
    if path.startswith("\0") or not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(probe, path), 1.0)
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):  # somebody else has just removed it
            os.unlink(path)
        return
    finally:
        probe.close()
    raise OSError(errno.EADDRINUSE, "a server is listening there")
