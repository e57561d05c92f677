"""The sockets that a server listens on, and how TLS connections are accepted.

Options are set before a socket is bound: some mean nothing afterwards (``SO_REUSEPORT``), others cannot be
set any more (``IPV6_V6ONLY``). For TLS there is an acceptor of our own, because the servers of both event
loops silently drop a connection whose handshake fails. Here every failure is logged at once, with the peer's
address and the reason.
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

from penstock.net.bridge import AsyncioBridge
from penstock.net.connections import Connections
from penstock.net.labels import address_text, new_id
from penstock.net.settings import TcpSettings
from penstock.net.tls import TlsSettings, alerting, choosing

__all__ = ["Acceptor", "listening_sockets"]

_log = logging.getLogger("penstock.net")

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST: Final = 1.0
"""Seconds until the next attempt if the system is out of descriptors or memory."""


class Acceptor:
    """Accepts TLS connections on one listening socket."""

    def __init__(self, listening: socket.socket, connections: Connections, tls: TlsSettings) -> None:
        self._listening = listening
        self._connections = connections
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept connections."""
        self._listening.listen(self._connections.settings.backlog)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more. A handshake that is under way may finish; its connection is then refused."""
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
            handshake = self._loop.create_task(self._shake_hands(accepted, address_text(address)))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    async def _shake_hands(self, accepted: socket.socket, remote: str) -> None:
        bridge = AsyncioBridge(self._connections, self._loop)
        ends = address_text(accepted.getsockname()), remote
        names = self._tls.names
        choosing.set(None if names is None else names.context_for)
        alerting.set(lambda alert: _send_alert(accepted, alert))
        try:
            await self._loop.connect_accepted_socket(
                lambda: bridge,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.handshake_timeout,
                ssl_shutdown_timeout=max(self._connections.settings.linger, 0.1),
            )
        except OSError as error:
            self._failed(*ends, self._reason(error))
        else:
            if not hasattr(bridge, "connection"):
                self._failed(*ends, _GONE)  # Both loops take a peer that has gone for one that has finished.

    def _failed(self, local: str, remote: str, why: str) -> None:
        if not self._connections.closed:
            self._connections.metrics.handshakes_failed += 1
            _log.warning("[%s, L:%s ! R:%s] a TLS handshake failed: %s", new_id(), local, remote, why)

    def _reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.reason or error}: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return str(error.reason or error)
        if isinstance(error, ConnectionAbortedError | TimeoutError):
            return f"the peer had not finished after {self._tls.handshake_timeout:g} s"
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
    listening = socket.socket(family, socket.SOCK_STREAM)
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
