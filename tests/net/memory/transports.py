"""Transports without a socket, on an event loop without a clock: a test decides what happens next, and when.

What takes luck with a real socket is one call here: a kernel that takes a single byte, a reset in the middle
of an element, a peer that closes its side while the window is full, an hour in which nothing happens.
"""

from __future__ import annotations

import errno
import heapq
import os
import socket
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from penstock.net import Address, Connection, TcpServer
from penstock.net.bridge import Bridge
from penstock.net.connections import Connections
from penstock.net.settings import TcpBuilder
from penstock.net.transport import HIGH_WATER, TransportEvents


class MemoryTimer:
    """A call in a MemoryLoop."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class MemoryLoop:
    """The calls of an event loop, made when the test says so; time passes in :meth:`pass_time` alone."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, MemoryTimer]] = []
        self._numbers = count()
        self._closed = False

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> None:
        self._ready.append(lambda: callback(*args))

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        self.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> MemoryTimer:
        timer = MemoryTimer(lambda: callback(*args))
        heapq.heappush(self._timers, (self._now + delay, next(self._numbers), timer))
        return timer

    def time(self) -> float:
        return self._now

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nothing is called any more."""
        self._closed = True

    @property
    def due(self) -> int:
        """How many calls the next turn will make."""
        return len(self._ready)

    def turn(self) -> bool:
        """Make the calls that are due now, not those that they lead to; whether there were any."""
        due = len(self._ready)
        for _ in range(due):
            self._ready.popleft()()
        return due > 0

    def settle(self, most: int = 10_000) -> None:
        """Turn until nothing is left to do."""
        for _ in range(most):
            if not self.turn():
                return
        raise AssertionError(f"the loop was still busy after {most} turns")

    def pass_time(self, seconds: float) -> None:
        """Let this much time pass, and make the calls that are due by then, each at its time."""
        end = self._now + seconds
        self.settle()
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()
            self.settle()
        self._now = end


class MemoryFlush:
    """Done when the kernel of a MemoryTransport has taken everything."""

    def __init__(self, transport: MemoryTransport, done: Callable[[], object]) -> None:
        self._transport = transport
        self._done: Callable[[], object] | None = done

    def check(self) -> None:
        if self._done is not None and not self._transport.unsent:
            done, self._done = self._done, None
            done()
        elif self._done is not None:
            self._transport.tight = True

    def cancel(self) -> None:
        self._done = None
        self._transport.tight = False


class MemoryTransport:
    """A connection whose peer, kernel and network are the test."""

    local = "here:1"
    remote = "there:2"
    via = None
    socket = None
    tls = None

    def __init__(self, loop: MemoryLoop, *, room: int = 1 << 60, half_closes: bool = True) -> None:
        self.loop = loop
        self.room = room
        """How many more bytes the kernel takes before it is full."""
        self.arrived = bytearray()
        """What the kernel has taken, in order."""
        self.writes: list[bytes] = []
        self.unsent = bytearray()
        self.tight = False
        """Whether to tell when nothing at all is left."""
        self.full = False
        self.reading = True
        self.pauses = 0
        self.events: TransportEvents
        self.ended = self.closing = self.gone = False
        self.cut = False
        """Whether the connection was closed so that the peer sees a cut."""
        self.on_the_way = 0
        """How many bytes the peer's kernel has not taken."""
        self._half_closes = half_closes

    # ---------------------------------------------------------------- what a connection calls
    def write(self, data: bytes, /) -> None:
        assert type(data) is bytes
        assert data, "an empty write would be a mistake"
        assert not self.ended, "nothing may be written after the end"
        self.writes.append(data)
        if self.closing:
            return
        self.unsent += data
        self._push()
        if len(self.unsent) > HIGH_WATER and not self.full:
            self.full = True
            self.events.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def pause_reading(self) -> None:
        self.pauses += 1
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, events: TransportEvents) -> None:
        self.events = events

    def flush(self, done: Callable[[], object]) -> MemoryFlush:
        return MemoryFlush(self, done)

    def can_write_eof(self) -> bool:
        return self._half_closes

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._close_when_empty()

    def unacknowledged(self) -> int:
        return self.on_the_way

    def abort(self) -> None:
        self.closing = True
        self.unsent.clear()
        self.loop.call_soon(self._lose, None)

    def reset(self) -> None:
        self.cut = True
        self.abort()

    # ---------------------------------------------------------------- what a test calls
    def receive(self, *chunks: bytes) -> None:
        """Chunks arrive from the peer. As with a kernel, none is handed over while reading is paused."""
        for chunk in chunks:
            assert self.reading, f"{chunk!r:.20} arrives, but nothing is read at the moment"
            self.events.data_received(chunk)

    def take(self, size: int) -> None:
        """The kernel takes this many more bytes."""
        self.room += size
        self._push()
        low = 0 if self.tight else HIGH_WATER // 4
        if (self.full or self.tight) and len(self.unsent) <= low:
            self.full = False
            self.events.resume_writing()
        if self.closing:
            self._close_when_empty()

    def peer_ends(self) -> None:
        """The peer closes its side."""
        if not self.events.eof_received():
            self.close()

    def peer_resets(self) -> None:
        """The peer, or somebody on the way, resets the connection."""
        self.closing = True
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _push(self) -> None:
        size = min(self.room, len(self.unsent))
        self.arrived += self.unsent[:size]
        del self.unsent[:size]
        self.room -= size

    def _close_when_empty(self) -> None:
        if not self.unsent:
            self.loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self.gone:
            self.gone = True
            self.events.connection_lost(error)


def connected(
    configured: TcpBuilder | None = None, transport: MemoryTransport | None = None
) -> tuple[Connection, MemoryTransport, MemoryLoop]:
    """A connection over memory, with the settings of a server or client."""
    transport = transport or MemoryTransport(MemoryLoop())
    bridge = Bridge(Connections((configured or TcpServer.create()).settings), transport.loop)
    transport.events = bridge
    bridge.open(transport)
    return bridge.connection, transport, transport.loop


class NoSocket:
    """The family is all that a sender asks of its socket."""

    family = socket.AF_INET


class MemoryDatagrams:
    """A datagram transport whose every answer the test chooses; its socket is connected to a peer."""

    socket: Any = NoSocket()

    def __init__(self, loop: MemoryLoop) -> None:
        self.loop = loop
        self.sent: list[bytes] = []
        self.answers: deque[int | None] = deque()
        """What the system says to the next datagrams: None or nothing takes it, a number is an errno."""
        self.incoming: deque[bytes | int] = deque()
        """What the next reads bring: a datagram, or an errno."""
        self.writable: Callable[[], object] | None = None
        self.readable: Callable[[], object] | None = None
        self.renewed = 0

    def send(self, data: bytes, /) -> int:
        answer = self.answers.popleft() if self.answers else None
        if answer is not None:
            raise OSError(answer, os.strerror(answer))
        self.sent.append(data)
        return len(data)

    def sendto(self, data: bytes, address: Address, /) -> int:
        return self.send(data)

    def recv(self, size: int, /) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        one = self.incoming.popleft()
        if isinstance(one, int):
            raise OSError(one, os.strerror(one))
        return one

    def recvfrom(self, size: int, /) -> tuple[bytes, Address]:
        return self.recv(size), ("192.0.2.1", 9)

    def watch_readable(self, call: Callable[[], object]) -> None:
        self.readable = call

    def ignore_readable(self) -> None:
        self.readable = None

    def watch_writable(self, call: Callable[[], object]) -> None:
        self.writable = call

    def ignore_writable(self) -> None:
        self.writable = None

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.ignore_readable()
        self.ignore_writable()
