"""The transport of asyncio and uvloop, and how to know that everything written has left this process.

A plain transport tells that itself: if its buffer may hold nothing at all, it is full with the first byte and
says when it is empty. Under TLS there is a second transport below, whose buffer is hidden. It holds
bytes only as long as the kernel takes none, so what counts is whether the socket can be written to. An event
loop does not let others watch a socket that belongs to one of its transports. A poll object of our own does,
and the loop can watch that like any other descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary, ref

from penstock.net.labels import local_of, remote_of
from penstock.net.tls import TlsSession
from penstock.net.transport import HIGH_WATER, Flush, SocketHandle, TransportEvents

try:
    import fcntl
    import termios
except ImportError:  # Windows has neither.
    fcntl = None  # type: ignore[assignment]

__all__ = ["AsyncioFlush", "AsyncioTransport"]

_READ_SIZE: Final = 64 * 1024

_LOOKS: Final = 2
"""The kernel is believed to have everything when it would take more this many times in a row."""

_FIRST_LOOK: Final = 0.01
_LAST_LOOK: Final = 1.0
"""Where the system does not tell that a socket is writable: seconds between the first looks, and at most."""


class AsyncioTransport:
    """A :class:`~penstock.net.transport.Transport` over one of asyncio's or uvloop's."""

    __slots__ = (
        "get_write_buffer_size",
        "local",
        "loop",
        "pause_reading",
        "raw",
        "remote",
        "resume_reading",
        "via",
        "write",
    )

    def __init__(
        self,
        raw: Any,
        loop: asyncio.AbstractEventLoop,
        remote: str | None = None,
        via: str | None = None,
    ) -> None:
        """Made by a server or a client, for each connection. With a proxy, the ``remote`` end is known."""
        self.raw = raw
        """The event loop's own transport, for what is not offered here."""
        self.loop = loop
        self.local = local_of(raw)
        self.remote = remote_of(raw) if remote is None else remote
        self.via = via
        # The methods themselves and not methods of ours: they are called for every chunk.
        self.write: Callable[[bytes], None] = raw.write
        self.get_write_buffer_size: Callable[[], int] = raw.get_write_buffer_size
        self.pause_reading: Callable[[], None] = raw.pause_reading
        self.resume_reading: Callable[[], None] = raw.resume_reading
        raw.set_write_buffer_limits(high=HIGH_WATER)
        if hasattr(raw, "max_size"):
            raw.max_size = _READ_SIZE  # asyncio's own: otherwise every small read costs a large allocation

    @property
    def socket(self) -> SocketHandle | None:
        """The socket, for its options."""
        socket: SocketHandle | None = self.raw.get_extra_info("socket")
        return socket

    @property
    def tls(self) -> TlsSession | None:
        """The TLS session, or None."""
        session: TlsSession | None = self.raw.get_extra_info("ssl_object")
        return session

    def is_closing(self) -> bool:
        """Whether the transport is closed, or is being closed."""
        return bool(self.raw.is_closing())

    def set_protocol(self, events: TransportEvents) -> None:
        """Pass all further events to this object."""
        self.raw.set_protocol(events)

    def flush(self, done: Callable[[], object]) -> Flush:
        """Calls ``done`` when everything written has been handed to the kernel."""
        return AsyncioFlush(self.loop, self.raw, done)

    def can_write_eof(self) -> bool:
        """Whether one direction can be closed alone: not under TLS."""
        return bool(self.raw.can_write_eof())

    def end(self) -> Flush | None:
        """Tell the peer that we send no more, after what was written.

        Plain TCP closes its half. TLS has ``close_notify``. The transports of both loops send that only
        together with a close, and give up if the peer is still sending, so it is sent here.
        """
        if self.can_write_eof():
            # Not now: we may be in a callback of the transport, which would then end a second time.
            self.loop.call_soon(self._write_eof)
            return None
        flush = self.flush(self._close_notify)
        self.loop.call_soon(flush.check)
        return flush

    def _write_eof(self) -> None:
        if not self.is_closing():
            try:
                self.raw.write_eof()
            except OSError:
                self.abort()  # The peer has reset the connection, and the loop has not told us yet.

    def _close_notify(self) -> None:
        session = self.tls
        if session is None or self.is_closing():
            return
        # unwrap() wants the peer's own end as well, or finds that the peer is still sending.
        with contextlib.suppress(ssl.SSLError):
            session.unwrap()
        self.push_out()

    def push_out(self) -> None:
        """Send what TLS itself has to say. Both loops keep that until something is read or written.

        Otherwise a peer could wait for the last message of the handshake, for instance.
        """
        if self.is_closing():
            return
        protocol = getattr(self.raw, "_ssl_protocol", None)
        if protocol is None:
            self.raw.writelines([])  # uvloop: sends what waits, and nothing else
        else:
            protocol._process_outgoing()  # asyncio has no other way that writes no bytes

    def close(self) -> None:
        """Send what was written, then close."""
        # Not now: we may be in a callback of the transport, which would then be lost a second time.
        self.loop.call_soon(self.raw.close)

    def unacknowledged(self) -> int:
        """How many bytes the kernel has that the peer's has not; 0 if nobody knows."""
        opened = self.socket
        if fcntl is None or opened is None:
            return 0
        try:
            (left,) = struct.unpack("i", fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, bytes(4)))
        except OSError:
            return 0  # It is closed, or the system does not tell.
        return int(left)

    def abort(self) -> None:
        """Close now, which is after the present callback of the transport; see close()."""
        self.loop.call_soon(self.raw.abort)

    def reset(self) -> None:
        """Close now, so that the peer sees a cut and not an end: what the kernel has is thrown away, too."""
        opened = self.socket
        if opened is not None and not self.is_closing():
            with contextlib.suppress(OSError):  # it is broken already
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()


class AsyncioFlush:
    """Waits, once, until one transport has nothing left, then calls ``done``."""

    __slots__ = ("_done", "_loop", "_pause", "_tight", "_transport", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Any, done: Callable[[], object]) -> None:
        self._loop = loop
        self._transport = transport
        self._done: Callable[[], object] | None = done
        self._tight = False
        """Whether the transport was told to say when it is empty."""
        self._watched: tuple[_Writable, int] | None = None
        """What tells us that the socket can be written to, and the socket's descriptor."""
        self._pause = _FIRST_LOOK

    def check(self) -> None:
        """Look whether that is so. Call this first, and whenever the transport says that it has room."""
        if self._done is None:
            return
        if self._transport.get_write_buffer_size():
            # If it may hold nothing, the transport is full now, and says so when it is empty.
            self._tight = True
            self._transport.set_write_buffer_limits(high=0)
        elif self._transport.get_extra_info("ssl_object") is None:
            self._end()
        else:
            # The transport below writes in turns of the loop, so look after the next one.
            self._loop.call_soon(self._check_below, _LOOKS)

    def cancel(self) -> None:
        """Stop waiting."""
        self._done = None
        self._loosen()

    def _check_below(self, looks: int) -> None:
        if self._done is None:
            return
        if self._transport.is_closing():
            self._end()  # The peer has ended TLS, which flushes what there is.
        elif self._transport.get_write_buffer_size():
            self.check()
        elif not _takes_more(self._transport):
            self._wait_below()
        elif looks > 1:
            self._loop.call_soon(self._check_below, looks - 1)
        else:
            self._end()

    def _wait_below(self) -> None:
        if self._watched is not None:
            return
        if not hasattr(select, "epoll"):
            self._loop.call_later(self._pause, self.check)
            self._pause = min(self._pause * 2, _LAST_LOOK)
            return
        writable, descriptor = _Writable.of(self._loop), _descriptor(self._transport)
        writable.wait(descriptor, self._can_be_written)
        self._watched = writable, descriptor

    def _can_be_written(self) -> None:
        self._watched = None
        self.check()

    def _end(self) -> None:
        done, self._done = self._done, None
        self._loosen()
        if done is not None:
            done()

    def _loosen(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            writable, descriptor = watched
            writable.forget(descriptor)
        if self._tight:
            self._tight = False
            self._transport.set_write_buffer_limits(high=HIGH_WATER)


class _Writable:
    """Watches sockets of one event loop until they can be written to. It exists only while there are some."""

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _Writable]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # a loop may be dropped without being closed: it holds us, we do not hold it
        self._poll = select.epoll()
        self._calls: dict[int, Callable[[], object]] = {}
        loop.add_reader(self._poll.fileno(), self._look)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Writable:
        writable = cls._of.get(loop)
        if writable is None:
            writable = cls._of[loop] = cls(loop)
        return writable

    def wait(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call this once the socket can be written to, or is broken."""
        self._poll.register(descriptor, select.EPOLLOUT)
        self._calls[descriptor] = call

    def forget(self, descriptor: int) -> None:
        """Stop watching this socket."""
        self._remove(descriptor)
        self._close_if_unused()

    def _remove(self, descriptor: int) -> Callable[[], object] | None:
        with contextlib.suppress(OSError):  # a closed socket has been removed already
            self._poll.unregister(descriptor)
        return self._calls.pop(descriptor, None)

    def _look(self) -> None:
        calls = [self._remove(descriptor) for descriptor, _ in self._poll.poll(0)]
        for call in calls:
            if call is not None:
                call()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        loop = self._loop()
        if not self._calls and not self._poll.closed:
            if loop is not None:
                loop.remove_reader(self._poll.fileno())
                self._of.pop(loop, None)
            self._poll.close()


def _descriptor(transport: Any) -> int:
    return int(transport.get_extra_info("socket").fileno())


def _takes_more(transport: Any) -> bool:
    """Whether the kernel would take bytes from this transport."""
    descriptor = _descriptor(transport)
    if descriptor < 0 or not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
