"""When a socket can be read or written, told by the event loop: the same on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

__all__ = ["Readiness"]


class Readiness:
    """Watches one socket.

    After an error that came from the network (a refusal that ICMP brought), uvloop has closed its watch
    without a word, whoever fetched the error: a read, or a send. :meth:`renew` makes it anew. It does so in
    the next turn of the loop: in the middle of uvloop's own callback it would be closed again.
    """

    __slots__ = ("_loop", "_on_readable", "_on_writable", "_renewing", "_socket")

    def __init__(self, loop: asyncio.AbstractEventLoop, watched: socket.socket) -> None:
        self._loop = loop
        self._socket = watched
        self._on_readable: Callable[[], object] | None = None
        self._on_writable: Callable[[], object] | None = None
        self._renewing = False

    def watch_readable(self, call: Callable[[], object]) -> None:
        """Call this whenever there is something to read."""
        self._on_readable = call
        self._loop.add_reader(self._socket.fileno(), call)

    def ignore_readable(self) -> None:
        """Read no more."""
        if self._on_readable is not None:
            self._on_readable = None
            self._loop.remove_reader(self._socket.fileno())

    def watch_writable(self, call: Callable[[], object]) -> None:
        """Call this whenever the socket takes more."""
        self._on_writable = call
        self._loop.add_writer(self._socket.fileno(), call)

    def ignore_writable(self) -> None:
        """There is nothing to write."""
        if self._on_writable is not None:
            self._on_writable = None
            self._loop.remove_writer(self._socket.fileno())

    def renew(self) -> None:
        """An error was fetched from the socket: watch it anew."""
        if not self._renewing:
            self._renewing = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._renewing = False
        readable, writable = self._on_readable, self._on_writable
        if readable is not None:
            self.ignore_readable()
        if writable is not None:
            self.ignore_writable()
        if readable is not None:
            self.watch_readable(readable)
        if writable is not None:
            self.watch_writable(writable)

    def close(self) -> None:
        """Watch no more."""
        self.ignore_readable()
        self.ignore_writable()
