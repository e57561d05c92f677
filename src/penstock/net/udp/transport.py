"""What a UDP channel needs from below: a socket that never blocks, and word of when it can be used.

:class:`DatagramTransport` is all that the receiver and the sender know. :class:`AsyncioDatagramTransport` is
the one for the sockets of asyncio and uvloop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol

from penstock.net.transport import EventLoop
from penstock.net.udp.datagram import Address

__all__ = ["AsyncioDatagramTransport", "DatagramTransport"]


class DatagramTransport(Protocol):
    """One open UDP socket. All methods belong to the loop's thread, and none of them waits.

    The four that move a datagram are those of a socket. They raise BlockingIOError when there is nothing to
    read, or no room, and OSError for what the system or the network has to say.
    """

    @property
    def loop(self) -> EventLoop:
        """The loop that tells when the socket can be used."""
        ...

    @property
    def socket(self) -> socket.socket:
        """The socket itself, for its options and its counts."""
        ...

    @property
    def recv(self) -> Callable[[int], bytes]:
        """Receives from the peer of a connected socket."""
        ...

    @property
    def recvfrom(self) -> Callable[[int], tuple[bytes, Address]]:
        """Receives from anybody."""
        ...

    @property
    def send(self) -> Callable[[bytes], int]:
        """Sends to the peer of a connected socket."""
        ...

    @property
    def sendto(self) -> Callable[[bytes, Address], int]:
        """Sends to this address."""
        ...

    def watch_readable(self, call: Callable[[], object]) -> None:
        """Call this whenever there is something to read."""
        ...

    def ignore_readable(self) -> None:
        """Stop telling."""
        ...

    def watch_writable(self, call: Callable[[], object]) -> None:
        """Call this whenever the socket has room."""
        ...

    def ignore_writable(self) -> None:
        """Stop telling."""
        ...

    def renew(self) -> None:
        """An error was fetched from the socket: watch it anew."""
        ...

    def close(self) -> None:
        """Stop telling anything, and close the socket."""
        ...


class AsyncioDatagramTransport:
    """A socket that an event loop watches; the same on asyncio and on uvloop.

    When an error from the network (a refusal that ICMP brought) is fetched, by a read or by a send, uvloop
    silently stops watching. :meth:`renew` begins again, in the next turn of the loop: in the middle of
    uvloop's own callback the watch would be closed once more.
    """

    __slots__ = (
        "_on_readable",
        "_on_writable",
        "_renewing",
        "loop",
        "recv",
        "recvfrom",
        "send",
        "sendto",
        "socket",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: socket.socket) -> None:
        self.loop = loop
        self.socket = opened
        # The socket's own methods: they are called for every datagram.
        self.recv: Callable[[int], bytes] = opened.recv
        self.recvfrom: Callable[[int], tuple[bytes, Any]] = opened.recvfrom
        self.send: Callable[[bytes], int] = opened.send
        self.sendto: Callable[[bytes, Address], int] = opened.sendto
        self._on_readable: Callable[[], object] | None = None
        self._on_writable: Callable[[], object] | None = None
        self._renewing = False

    def watch_readable(self, call: Callable[[], object]) -> None:
        """Call this whenever there is something to read."""
        self._on_readable = call
        self.loop.add_reader(self.socket.fileno(), call)

    def ignore_readable(self) -> None:
        """Stop telling."""
        if self._on_readable is not None:
            self._on_readable = None
            self.loop.remove_reader(self.socket.fileno())

    def watch_writable(self, call: Callable[[], object]) -> None:
        """Call this whenever the socket has room."""
        self._on_writable = call
        self.loop.add_writer(self.socket.fileno(), call)

    def ignore_writable(self) -> None:
        """Stop telling."""
        if self._on_writable is not None:
            self._on_writable = None
            self.loop.remove_writer(self.socket.fileno())

    def renew(self) -> None:
        """Watch the socket anew, in the next turn of the loop."""
        if not self._renewing:
            self._renewing = True
            self.loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._renewing = False
        readable, writable = self._on_readable, self._on_writable
        self.ignore_readable()
        self.ignore_writable()
        if readable is not None:
            self.watch_readable(readable)
        if writable is not None:
            self.watch_writable(writable)

    def close(self) -> None:
        """Stop telling anything, and close the socket."""
        self.ignore_readable()
        self.ignore_writable()
        self.socket.close()
