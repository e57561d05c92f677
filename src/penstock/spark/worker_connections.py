"""The connections of Spark's Python processes to Java, where these are TCP: always in Spark 4.0.

Both ends send in small pieces. Java sends a task, and then its first rows; Python sends a status, and then
its counters. TCP holds back the second of two small packets until the first is acknowledged, and the other
side delays that by up to 40 ms, because it hopes to send it along with data. Java's end cannot be changed
from here. This end can send without such a pause, and acknowledge without a delay.
"""

from __future__ import annotations

import io
import os
import socket
import stat
from typing import Any

__all__ = ["PromptReader", "acknowledge_at_once"]


class PromptReader(io.RawIOBase):
    """Reads from a TCP connection, and acknowledges at once what it has read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """It is all that it can do."""
        return True

    def fileno(self) -> int:
        """The descriptor of the connection."""
        return self._connection.fileno()

    def readinto(self, buffer: Any, /) -> int:
        """Read what there is; wait if there is nothing."""
        count = self._connection.recv_into(buffer)
        # Not once and for all: the kernel delays acknowledgements again when data went the other way.
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count

    def close(self) -> None:
        """Close the descriptor."""
        self._connection.close()
        super().close()


def acknowledge_at_once() -> None:
    """Let ``os.fdopen`` make a :class:`PromptReader` of a TCP connection.

    With that function, a worker of Spark opens its connection to Java, anew for each task.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return  # Not Linux.
    fdopen = os.fdopen

    def prompt_fdopen(descriptor: int, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        connection = _connection_of(descriptor) if mode == "rb" and buffering > 1 else None
        if connection is None:
            return fdopen(descriptor, mode, buffering, *rest, **named)
        # For what is written to the same connection, too.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return io.BufferedReader(PromptReader(connection), buffering)

    os.fdopen = prompt_fdopen  # type: ignore[assignment]


def _connection_of(descriptor: int) -> socket.socket | None:
    """The TCP connection that has this descriptor, and closes it; None if it belongs to something else."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    found = socket.socket(fileno=descriptor)
    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
        return found
    found.detach()
    return None
