"""The sockets that a server listens on, and how their connections are dealt out to several event loops.

Options are set before a socket is bound: some mean nothing afterwards (``SO_REUSEPORT``), others cannot be
set any more (``IPV6_V6ONLY``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from typing import Any, Final

from penstock.net.connections import Connections
from penstock.net.lookup import addresses_of
from penstock.net.settings import TcpSettings
from penstock.net.tcp.greeter import Greeter

__all__ = ["Acceptor", "SocketFile", "listening_sockets"]

_log = logging.getLogger("penstock.net")

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST: Final = 1.0
"""Seconds until the next attempt if the system is out of descriptors or memory."""


class Acceptor:
    """Accepts the connections of one listening socket, and deals them out to the loops of the server."""

    def __init__(self, listening: socket.socket, connections: Connections) -> None:
        self._listening = listening
        self._backlog = connections.settings.backlog
        self._loop = asyncio.get_running_loop()
        loops = connections.settings.loops
        every = [self._loop] if loops is None else loops.loops
        self._own = Greeter(connections, self._loop)
        self._greeters = [self._own if loop is self._loop else Greeter(connections, loop) for loop in every]
        self._turn = 0

    def start(self) -> None:
        """Begin to accept connections."""
        self._listening.listen(self._backlog)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more. A TLS handshake that is under way may finish; its connection is then refused."""
        for greeter in self._greeters:
            greeter.close()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for _ in range(self._backlog):
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
            self._next_greeter().take(accepted, address)

    def _next_greeter(self) -> Greeter:
        """The next in turn whose loop responds. The one of this loop does."""
        for _ in self._greeters:
            self._turn = (self._turn + 1) % len(self._greeters)
            greeter = self._greeters[self._turn]
            if not greeter.lags(self._backlog):
                return greeter
        return self._own

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)


async def listening_sockets(settings: TcpSettings) -> list[socket.socket]:
    """A bound socket for each address of the host, or the one of a Unix path."""
    if settings.path is not None:
        _make_way(settings.path)
        listening = _bound(settings, socket.AF_UNIX, settings.path)
        listening.listen(settings.backlog)
        return [listening]
    found = await addresses_of(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
        for option in settings.socket_options:
            option.apply(listening)
        listening.bind(address)
    except BaseException:
        listening.close()
        raise
    return listening


def _make_way(path: str) -> None:
    """Remove a socket that a dead server left behind; one that answers belongs to a live server.

    There is no turn of the event loop between the question and the new socket, which listens at once: two
    servers that start at the same time could otherwise take each other for dead.
    """
    if path.startswith("\0") or not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):  # somebody else has just removed it
                os.unlink(path)
            return
        except BlockingIOError:
            pass  # So many callers wait that there is no space for another one.
    raise OSError(errno.EADDRINUSE, "a server is listening there")


class SocketFile:
    """The file of a Unix socket, which is removed with its server.

    Somebody may have removed it before, and another server may have made its own there.
    """

    def __init__(self, path: str) -> None:
        """Right after it was bound."""
        self._path = os.path.abspath(path)
        self._identity = _identity(self._path)

    @classmethod
    def of(cls, settings: TcpSettings) -> SocketFile | None:
        """The one of a server that is bound; None if it listens on a port, or has an abstract name."""
        path = settings.path
        return None if path is None or path.startswith("\0") else cls(path)

    def remove(self) -> None:
        """Remove it, if it is still the same. As long as the socket is open, no other file is like it."""
        if self._identity is not None and _identity(self._path) == self._identity:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
