"""What a server or a client has done so far, counted."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

__all__ = ["TcpMetrics", "Traffic", "UdpCounters", "UdpMetrics", "kernel_dropped"]


class Traffic:
    """Bytes of one connection; whoever watches for idleness looks here, too."""

    __slots__ = ("_total", "received", "sent")

    def __init__(self, total: TcpMetrics) -> None:
        self._total = total
        self.received = 0
        self.sent = 0

    def counting_received(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        total = self._total

        def count(data: bytes) -> None:
            size = len(data)
            self.received += size
            total.data_received += size
            pass_on(data)

        return count

    def counting_sent(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        total = self._total

        def count(data: bytes) -> None:
            size = len(data)
            self.sent += size
            total.data_sent += size
            pass_on(data)

        return count


@dataclass(slots=True)
class TcpMetrics:
    """The figures of one server or client. Bytes are counted with ``metrics()`` alone; the rest is free."""

    connections_total: int = 0
    """Connections that came about."""
    connections_active: int = 0
    """Those that are there now."""
    connections_refused: int = 0
    """Those beyond ``max_connections``, and those that came while the server was being closed."""
    handshakes_failed: int = 0
    """Those that TLS did not come about on."""
    errors: int = 0
    """Handlers that failed, and connections that were lost."""
    data_received: int = 0
    """Bytes that were received."""
    data_sent: int = 0
    """Bytes that were sent, or wait to be."""

    def as_dict(self, prefix: str = "penstock.net") -> dict[str, int]:
        """The figures by name, for whatever collects them."""
        return {f"{prefix}.{name.replace('_', '.', 1)}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class UdpMetrics:
    """The figures of one socket at one moment. Bytes are counted with ``metrics()`` alone."""

    datagrams_received: int
    """Datagrams that were read from the socket, dropped ones among them."""
    datagrams_sent: int
    """Datagrams that the system took."""
    dropped: int
    """Datagrams that were read and dropped, because nobody asked for them in time."""
    kernel_dropped: int | None
    """Datagrams that the system dropped because the socket's buffer was full; None where it does not tell."""
    refused: int
    """How often the network said that nobody is there (ICMP); datagrams are lost then, streams go on."""
    unsent: int
    """Datagrams that the system did not take, because there was no way to their address."""
    data_received: int
    """Bytes."""
    data_sent: int
    """Bytes."""

    def as_dict(self, prefix: str = "penstock.net.udp") -> dict[str, int]:
        """The figures by name, for whatever collects them; those that are not known are left out."""
        return {
            f"{prefix}.{name.replace('_', '.', 1)}": value
            for name, value in asdict(self).items()
            if value is not None
        }


class UdpCounters:
    """The same, still being counted."""

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
            next(lines)  # the names of the columns
            for line in lines:
                columns = line.split()
                if columns[9] == inode:
                    return int(columns[-1])
    except OSError:
        return None  # no /proc here
    return None
