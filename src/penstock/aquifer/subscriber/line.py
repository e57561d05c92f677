"""What is known of a connection beside its messages: whether it is up, and how many bytes have moved on it.

ØMQ shows a message when it is whole. On a slow line a large one takes long, and to whoever waits for it that
looks like silence. The system counts the bytes of a connection as they come and as they are confirmed, and
that tells a slow line from a dead one. Where the system does not tell (it does on Linux), both counts stay 0,
and only whole messages are a sign of life.
"""

from __future__ import annotations

import socket
import sys
from struct import Struct
from typing import Final, NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

__all__ = ["Line", "Moved"]

_EVENTS: Final = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)
_COUNTS: Final = Struct("=QQ")
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received`` of Linux's ``struct tcp_info``,"""
_COUNTS_AT: Final = 120
"""and where they stand in it."""


class Moved(NamedTuple):
    """Bytes that have moved since the handshake: of the present connection, not of those before it."""

    sent: int
    """How many the other side's system has confirmed."""
    received: int
    """How many have come, whether their message is whole or not."""


class Line:
    """Watches the connection of one socket; used by the thread that uses the socket."""

    def __init__(self, watched: zmq.Socket[bytes]) -> None:
        self._watched = watched
        self.monitor: zmq.Socket[bytes] = watched.get_monitor_socket(_EVENTS)
        """Readable when there is news."""
        self._file: int | None = None
        """The number of ØMQ's open file. It is only asked for its counts, and never closed here."""
        self._before = Moved(0, 0)
        """What had moved when the handshake was done."""

    def news(self) -> list[int]:
        """What has become of the connection since the last time, in order: events of ØMQ."""
        events: list[int] = []
        while int(self.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            report = parse_monitor_message(self.monitor.recv_multipart(zmq.NOBLOCK))
            event = int(report["event"])
            events.append(event)
            if event == zmq.EVENT_CONNECTED:
                self._file, self._before = int(report["value"]), Moved(0, 0)
            elif event == zmq.EVENT_DISCONNECTED:
                self._file = None
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._before = _counts(self._file)
        return events

    def moved(self) -> Moved:
        """How many bytes have moved since the handshake; zeros if the system does not tell."""
        counts = _counts(self._file)
        return Moved(counts.sent - self._before.sent, counts.received - self._before.received)

    def close(self) -> None:
        """Stop watching. Left open, the monitor would hold up the end of the context for ever."""
        self._watched.disable_monitor()
        self.monitor.close(0)


def _counts(file: int | None) -> Moved:
    if file is None or sys.platform != "linux":
        return Moved(0, 0)
    try:
        view = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=file)
    except OSError:  # ØMQ has closed it, and will say so.
        return Moved(0, 0)
    try:
        known = view.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS_AT + _COUNTS.size)
    except OSError:
        return Moved(0, 0)
    finally:
        view.detach()
    if len(known) < _COUNTS_AT + _COUNTS.size:  # An old system.
        return Moved(0, 0)
    return Moved(*_COUNTS.unpack_from(known, _COUNTS_AT))
