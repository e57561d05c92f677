"""What travels over UDP: a few bytes, and where they come from or go to."""

from __future__ import annotations

import enum
import errno
import ipaddress
import socket
import sys
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from penstock.net.errors import DatagramTooLarge, NetError, SendRefused
from penstock.net.labels import address_text

__all__ = [
    "DEFAULT_CAPACITY",
    "Address",
    "Datagram",
    "DatagramQueue",
    "Overflow",
    "UdpOverflow",
    "as_datagram",
    "refusal",
]

Address = tuple[Any, ...]
"""``(host, port)``, and for IPv6 ``(host, port, flow, scope)``; the host is an address, not a name."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram: who sent it if it was received, who is to get it if it is sent."""

    data: bytes
    address: Address

    def reply(self, data: bytes) -> Datagram:
        """A datagram with ``data`` for whoever sent this one."""
        return Datagram(data, self.address)

    def __str__(self) -> str:
        return f"{len(self.data)} bytes, {address_text(self.address)}"


_LIMITS: Final[dict[int, int]] = {socket.AF_INET: 65_507, socket.AF_INET6: 65_527}
"""What the length field of UDP leaves for data."""
_IP_MTU: Final = 14
"""``IP_MTU`` of Linux, which the socket module of Python does not name."""
_IPV6_MTU: Final = 24
_KNOWN_HOSTS: Final = 4096


def as_datagram(element: Any, peer: Address | None, family: int, label: str) -> Datagram:
    """The datagram that an element of a source stands for; SendRefused if it stands for none."""
    if isinstance(element, Datagram):
        datagram = element
        if not isinstance(datagram.data, bytes | bytearray | memoryview):
            raise SendRefused(f"{label} the data of {datagram!r:.80} is no bytes; encode it")
        if peer is None:
            _check_address(label, datagram.address)
        elif datagram.address[:2] != peer[:2]:
            raise SendRefused(
                f"{label} is connected, and a datagram is for {datagram.address!r}; send bytes here, and use "
                "a UdpServer to send to several addresses"
            )
    elif isinstance(element, bytes | bytearray | memoryview):
        if peer is None:
            raise SendRefused(
                f"{label} is not connected and was given bytes without an address; send "
                "Datagram(data, (host, port)), or datagram.reply(data) to answer one"
            )
        # A copy of what its owner may change before it leaves.
        datagram = Datagram(bytes(element), peer)
    else:
        raise SendRefused(
            f"{label} send() was given {element!r:.80}, which is no datagram; encode it before, or use "
            "send_object()"
        )
    limit = _LIMITS.get(family)
    if limit is not None and len(datagram.data) > limit:
        raise DatagramTooLarge(len(datagram.data), limit, label, "a datagram of UDP cannot be longer")
    return datagram


def refusal(datagram: Datagram, error: OSError, opened: socket.socket, label: str) -> NetError:
    """Why the system did not take a datagram."""
    size = len(datagram.data)
    if error.errno == errno.EMSGSIZE:
        refused: NetError = DatagramTooLarge(
            size,
            _carried(opened),
            label,
            "the way there carries no larger packet, or the send buffer is smaller",
        )
    else:
        everybody = '; to send to all at once, set option("SO_BROADCAST", 1)'
        refused = SendRefused(
            f"{label} a datagram of {size:,} bytes for {datagram.address!r} was not taken: "
            f"{error.strerror or error}{everybody if error.errno == errno.EACCES else ''}"
        )
    refused.__cause__ = error
    return refused


def _carried(opened: socket.socket) -> int | None:
    """How much data fits into the largest packet that is known to get through; Linux knows, if connected."""
    if sys.platform != "linux":
        return None
    level, option, headers = (
        (socket.IPPROTO_IPV6, _IPV6_MTU, 48)
        if opened.family == socket.AF_INET6
        else (socket.IPPROTO_IP, _IP_MTU, 28)
    )
    try:
        return opened.getsockopt(level, option) - headers
    except OSError:
        return None  # not connected, so that it depends on the address


@lru_cache(maxsize=_KNOWN_HOSTS)
def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_address(label: str, address: Any) -> None:
    """A name would be looked up in the middle of a send, and the event loop would stand still."""
    if not (
        isinstance(address, tuple)
        and len(address) >= 2
        and isinstance(address[0], str)
        and isinstance(address[1], int)
        and 0 < address[1] <= 65_535
    ):
        raise SendRefused(f"{label} {address!r} is no address; give (host, port)")
    if not _is_numeric(address[0]):
        raise SendRefused(
            f"{label} {address[0]!r} is a name; look it up first (await loop.getaddrinfo(…)), or let a "
            "UdpClient do so with host()"
        )


DEFAULT_CAPACITY: Final = 256
"""Datagrams that wait at most, unless told otherwise."""


class UdpOverflow(enum.Enum):
    """UDP cannot make a sender wait, so that one of these has to happen when a subscriber is slow."""

    DROP_NEWEST = "drop newest"
    """Keep what waits, and drop what comes: as the system's own buffer does."""
    DROP_OLDEST = "drop oldest"
    """Drop what has waited longest, and keep what comes."""
    LATEST = "latest"
    """Keep the last one alone."""
    ERROR = "error"
    """End ``receive()`` with an error, after what waits has been given."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """A policy, and how many datagrams may wait before it applies."""

    policy: UdpOverflow = UdpOverflow.DROP_NEWEST
    capacity: int = DEFAULT_CAPACITY

    @classmethod
    def of(cls, policy: UdpOverflow, capacity: int | None) -> Overflow:
        """Check what a user said."""
        if not isinstance(policy, UdpOverflow):
            raise TypeError(
                f"overflow({policy!r}): give one of UdpOverflow, for example UdpOverflow.DROP_OLDEST"
            )
        if policy is UdpOverflow.LATEST:
            if capacity not in (None, 1):
                raise ValueError(
                    f"overflow(LATEST, capacity={capacity!r}): LATEST keeps one datagram; "
                    "DROP_OLDEST keeps as many as you say"
                )
            return cls(policy, 1)
        if capacity is None:
            return cls(policy)
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"overflow(capacity={capacity!r}): give a whole number of at least 1")
        return cls(policy, capacity)


class DatagramQueue:
    """The datagrams that wait for demand."""

    __slots__ = ("_capacity", "_policy", "dropped", "queue")

    def __init__(self, overflow: Overflow) -> None:
        self._policy = overflow.policy
        self._capacity = overflow.capacity
        self.queue: deque[Datagram] = deque()
        """The one that has waited longest comes first."""
        self.dropped = 0
        """Datagrams that were read and given to nobody."""

    def put(self, datagram: Datagram) -> bool:
        """Keep a datagram, or drop one; False if the policy is that there is nothing more to keep."""
        queue = self.queue
        if len(queue) < self._capacity:
            queue.append(datagram)
            return True
        self.dropped += 1
        if self._policy is UdpOverflow.ERROR:
            return False
        if self._policy is not UdpOverflow.DROP_NEWEST:
            queue.popleft()
            queue.append(datagram)
        return True
