"""Counts of what a server, a client, a pool or a UDP socket has done so far."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

__all__ = ["PoolMetrics", "TcpMetrics", "Traffic", "UdpCounters", "UdpMetrics", "kernel_dropped"]


class Traffic:
    """The bytes of one connection. Idle timeouts look here too."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0

    def counting_received(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        def count(data: bytes) -> None:
            self.received += len(data)
            pass_on(data)

        return count

    def counting_sent(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        def count(data: bytes) -> None:
            self.sent += len(data)
            pass_on(data)

        return count


@dataclass(frozen=True, slots=True)
class TcpMetrics:
    """The counts of one server at one moment. Bytes are counted only with ``metrics()``."""

    connections_total: int = 0
    """Connections that were opened."""
    connections_active: int = 0
    """Connections that are open now."""
    connections_refused: int = 0
    """Connections beyond ``max_connections``, or that arrived while the server was being closed."""
    handshakes_failed: int = 0
    """TLS handshakes that failed."""
    proxy_headers_refused: int = 0
    """Connections closed because of their PROXY header: malformed, missing, late, or from a stranger."""
    errors: int = 0
    """Handlers that failed, and connections that were lost."""
    data_received: int = 0
    """Bytes received."""
    data_sent: int = 0
    """Bytes sent, or waiting to be sent."""

    def as_dict(self, prefix: str = "penstock.net") -> dict[str, int]:
        """The counts by name, for a metrics system."""
        return {f"{prefix}.{name.replace('_', '.', 1)}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class PoolMetrics:
    """The counts of a pool, or of one remote address of it, at one moment."""

    connections_active: int
    """Connections in use, including those that are being opened or closed."""
    connections_idle: int
    """Connections that wait for their next use."""
    connections_max: int
    """How many connections to one remote address there may be."""
    acquires_pending: int
    """Callers that wait for a connection."""
    acquires_max: int
    """How many callers may wait for one remote address."""
    acquires_total: int
    """Connections that were handed out."""
    acquires_waited: float
    """Seconds that callers have waited, all together."""

    def as_dict(self, prefix: str = "penstock.net.pool") -> dict[str, int | float]:
        """The counts by name, for a metrics system."""
        return {f"{prefix}.{name.replace('_', '.', 1)}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class UdpMetrics:
    """The counts of one socket at one moment. Bytes are counted only with ``metrics()``."""

    datagrams_received: int
    """Datagrams read from the socket, including those that were then dropped."""
    datagrams_sent: int
    """Datagrams that the system accepted for sending."""
    dropped: int
    """Datagrams that were read and dropped, because there was no demand for them in time."""
    kernel_dropped: int | None
    """Datagrams that the system dropped because the socket's buffer was full; None if it does not say."""
    refused: int
    """How often the network reported that nobody is there (ICMP). Datagrams were lost; the streams go on."""
    unsent: int
    """Datagrams that were not sent, because their address could not be reached."""
    data_received: int
    """Bytes received."""
    data_sent: int
    """Bytes sent."""

    def as_dict(self, prefix: str = "penstock.net.udp") -> dict[str, int]:
        """The counts by name, for a metrics system. Unknown ones are left out."""
        return {
            f"{prefix}.{name.replace('_', '.', 1)}": value
            for name, value in asdict(self).items()
            if value is not None
        }


class UdpCounters:
    """The counters behind UdpMetrics."""

    __slots__ = ("bytes_received", "bytes_sent", "received", "refused", "sent", "unsent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.refused = 0
        self.unsent = 0
        self.bytes_received = 0
        self.bytes_sent = 0


def kernel_dropped(opened: socket.socket) -> int | None:
    """How many datagrams Linux has dropped for this socket: the last column of its line in /proc/net/udp."""
    tables = {socket.AF_INET: "/proc/net/udp", socket.AF_INET6: "/proc/net/udp6"}
    table = tables.get(opened.family)
    if table is None or sys.platform != "linux" or opened.fileno() < 0:
        return None
    inode = str(os.fstat(opened.fileno()).st_ino)
    try:
        with open(table, encoding="ascii") as lines:
            next(lines)  # the header
            for line in lines:
                columns = line.split()
                if columns[9] == inode:
                    return int(columns[-1])
    except OSError:
        return None  # there is no /proc here
    return None
