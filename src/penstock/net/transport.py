"""The seam between streams and the event loop: what a connection calls, and what it is called with.

Connection, receiver and sender know these protocols and nothing of asyncio. Two implementations exist:
:mod:`penstock.net.asyncio_transport`, for the sockets of asyncio and uvloop, and the one in the tests, which
has no socket and fails whenever a test tells it to.

A method that asyncio also has carries asyncio's name and does the same. The methods that are called for every
chunk may be plain attributes, so that nothing of ours stands between a sender and the socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.net.parent_loops import is_of_parent

if TYPE_CHECKING:
    from penstock.net.tls import TlsSession

__all__ = [
    "HIGH_WATER",
    "EventLoop",
    "Flush",
    "SocketHandle",
    "TimerHandle",
    "Transport",
    "TransportEvents",
    "call_on",
]


HIGH_WATER: Final = 64 * 1024
"""With this many bytes that the kernel has not taken, a transport says that it is full."""


class TimerHandle(Protocol):
    """A call that has been scheduled for later."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


class EventLoop(Protocol):
    """The part of an event loop that a connection uses; every asyncio loop has it."""

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Call this in the next turn; on the loop's own thread only."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Call this in the next turn; from any thread."""
        ...

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> TimerHandle:
        """Call this after so many seconds."""
        ...

    def time(self) -> float:
        """Seconds, on a clock that never goes back."""
        ...

    def is_closed(self) -> bool:
        """Whether nothing will be called any more."""
        ...


def call_on(loop: EventLoop, call: Callable[..., object], *arguments: Any) -> bool:
    """Make a call in the next turn of a loop, from any thread. False if the loop is closed.

    It is the same with a loop of the parent process, in a forked child.
    """
    if is_of_parent(loop):
        return False
    try:
        # Not after a look: the loop may be closed between the two.
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


class SocketHandle(Protocol):
    """The part of a socket that is of use while a transport owns it."""

    def fileno(self) -> int:
        """The descriptor, or -1 once it is closed."""
        ...

    def setsockopt(self, level: int, name: int, value: Any, /) -> None:
        """Set an option."""
        ...

    def getsockopt(self, level: int, name: int, /) -> int:
        """Read an option."""
        ...


class Flush(Protocol):
    """Waits, once, until everything that was written has been handed to the kernel."""

    def check(self) -> None:
        """Look whether that is so. To be called first, and whenever the transport says that it has room."""
        ...

    def cancel(self) -> None:
        """Stop waiting."""
        ...


class TransportEvents(Protocol):
    """What a transport calls, always on the loop's thread."""

    @property
    def data_received(self) -> Callable[[bytes], None]:
        """Takes each chunk as it arrives."""
        ...

    def eof_received(self) -> bool | None:
        """The peer sends no more. If this returns true, our own direction stays open."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed: because we closed it, or with the error that did."""
        ...

    @property
    def pause_writing(self) -> Callable[[], None]:
        """Called when the transport holds as many bytes as it should."""
        ...

    @property
    def resume_writing(self) -> Callable[[], None]:
        """Called when it has room again."""
        ...


class Transport(Protocol):
    """One open connection, as bytes.

    All methods belong to the loop's thread, and none of them raises because of the peer or the network: a
    connection that breaks closes itself, and ``connection_lost`` tells why, exactly once and as the last
    event. After ``close()`` or ``abort()`` everything else may still be called and does nothing. Both may be
    called again, and ``abort()`` after ``close()`` gives up what ``close()`` still wanted to send.
    """

    @property
    def loop(self) -> EventLoop:
        """The loop that calls the events."""
        ...

    @property
    def local(self) -> str:
        """Our address, as people write it."""
        ...

    @property
    def remote(self) -> str:
        """The peer's address, as people write it. With a proxy in between, that is the end behind it."""
        ...

    @property
    def via(self) -> str | None:
        """The address of the proxy in between; None if there is none."""
        ...

    @property
    def socket(self) -> SocketHandle | None:
        """The socket, for its options; None if there is none."""
        ...

    @property
    def tls(self) -> TlsSession | None:
        """The TLS session, or None."""
        ...

    @property
    def write(self) -> Callable[[bytes], None]:
        """Sends these bytes as the peer takes them. It neither waits nor raises.

        It takes exactly ``bytes``, at least one of them. After ``end()`` it must not be called; after
        ``close()`` the bytes are dropped.
        """
        ...

    @property
    def get_write_buffer_size(self) -> Callable[[], int]:
        """How many bytes wait for the kernel to take them."""
        ...

    @property
    def pause_reading(self) -> Callable[[], None]:
        """Stops reading, so that the peer has to wait. It may be called again, and while nothing is read."""
        ...

    @property
    def resume_reading(self) -> Callable[[], None]:
        """Reads again. It may be called again, and while nothing was paused."""
        ...

    def is_closing(self) -> bool:
        """Whether the transport is closed, or is being closed."""
        ...

    def set_protocol(self, events: TransportEvents) -> None:
        """Pass all further events to this object; not after ``connection_lost``."""
        ...

    def flush(self, done: Callable[[], object]) -> Flush:
        """A way to learn that everything written has been handed to the kernel.

        ``done`` is called once, and never if the connection breaks or the Flush is cancelled before.
        """
        ...

    def can_write_eof(self) -> bool:
        """Whether one direction can be closed alone. TLS cannot do that."""
        ...

    def end(self) -> Flush | None:
        """Tell the peer that we send no more, once it has been sent what was written. At most once.

        If a Flush is returned, it needs to be checked whenever the transport has room.
        """
        ...

    def close(self) -> None:
        """Send what was written, then close. ``connection_lost(None)`` follows, not before this returns."""
        ...

    def unacknowledged(self) -> int:
        """How many bytes the kernel has that the peer's has not; 0 if nobody knows."""
        ...

    def abort(self) -> None:
        """Close now. What has not left is lost. ``connection_lost`` follows, not before this returns."""
        ...

    def reset(self) -> None:
        """Close now, in such a way that the peer sees a cut (RST) and not an end."""
        ...
