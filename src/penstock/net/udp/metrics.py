"""What a UDP socket has done so far, and what the system dropped before it could be read."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict, dataclass

__all__ = ["Counts", "UdpMetrics", "kernel_dropped"]


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


class Counts:
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
