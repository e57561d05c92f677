"""Datagrams: what can be sent as one, the errors for what cannot, and the queue of those without demand."""

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

from penstock.arguments import a_count
from penstock.net.errors import DatagramTooLarge, NetError, SendRefused
from penstock.net.labels import address_text

__all__ = [
    "DEFAULT_CAPACITY",
    "Address",
    "Datagram",
    "DatagramQueue",
    "OverflowSettings",
    "UdpOverflow",
    "as_datagram",
    "refusal",
]

Address = tuple[Any, ...]
"""``(host, port)``, and for IPv6 ``(host, port, flow, scope)``; the host is an address, not a name."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram: its bytes, and the address that it came from or goes to."""

    data: bytes
    address: Address

    def reply(self, data: bytes) -> Datagram:
        """A datagram with ``data``, addressed to the sender of this one."""
        return Datagram(data, self.address)

    def __str__(self) -> str:
        return f"{len(self.data)} bytes, {address_text(self.address)}"


_LIMITS: Final[dict[int, int]] = {socket.AF_INET: 65_507, socket.AF_INET6: 65_527}
"""The most bytes of data that a UDP datagram can have."""
_IP_MTU: Final = 14
"""``IP_MTU`` of Linux, which Python's socket module does not name."""
_IPV6_MTU: Final = 24
_KNOWN_HOSTS: Final = 4096


def as_datagram(element: Any, peer: Address | None, family: int, label: str) -> Datagram:
    """The datagram for an element of a source; SendRefused if it cannot be one."""
    if isinstance(element, Datagram):
        datagram = element
        if not isinstance(datagram.data, bytes | bytearray | memoryview):
            raise SendRefused(f"{label} the data of {datagram!r:.80} is not bytes; encode it first")
        if peer is None:
            _check_address(label, datagram.address)
        elif datagram.address[:2] != peer[:2]:
            raise SendRefused(
                f"{label} is connected, but a datagram is meant for {datagram.address!r}; send bytes here, "
                "or use a UdpServer to send to several addresses"
            )
    elif isinstance(element, bytes | bytearray | memoryview):
        if peer is None:
            raise SendRefused(
                f"{label} is not connected, but was given bytes without an address; send "
                "Datagram(data, (host, port)), or datagram.reply(data) to answer one"
            )
        # A copy, because its owner may change it before it leaves.
        datagram = Datagram(bytes(element), peer)
    else:
        raise SendRefused(
            f"{label} send() was given {element!r:.80}, which is not a datagram; encode it first, or "
            "use send_object()"
        )
    limit = _LIMITS.get(family)
    if limit is not None and len(datagram.data) > limit:
        raise DatagramTooLarge(len(datagram.data), limit, label, "a UDP datagram cannot be longer")
    return datagram


def refusal(datagram: Datagram, error: OSError, opened: socket.socket, label: str) -> NetError:
    """The error for a datagram that the system did not accept."""
    size = len(datagram.data)
    if error.errno == errno.EMSGSIZE:
        refused: NetError = DatagramTooLarge(
            size,
            _carried(opened),
            label,
            "the network on the way carries no larger packet, or the send buffer is smaller",
        )
    else:
        everybody = '; to send to a broadcast address, set option("SO_BROADCAST", 1)'
        refused = SendRefused(
            f"{label} a datagram of {size:,} bytes for {datagram.address!r} was not accepted: "
            f"{error.strerror or error}{everybody if error.errno == errno.EACCES else ''}"
        )
    refused.__cause__ = error
    return refused


def _carried(opened: socket.socket) -> int | None:
    """The data that fits into the largest packet known to get through. Linux knows it once connected."""
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
        return None  # not connected: it depends on the address


@lru_cache(maxsize=_KNOWN_HOSTS)
def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_address(label: str, address: Any) -> None:
    """Refuse a name: looking it up in the middle of a send would block the event loop."""
    if not (
        isinstance(address, tuple)
        and len(address) >= 2
        and isinstance(address[0], str)
        and isinstance(address[1], int)
        and 0 < address[1] <= 65_535
    ):
        raise SendRefused(f"{label} {address!r} is not an address; use (host, port)")
    if not _is_numeric(address[0]):
        raise SendRefused(
            f"{label} {address[0]!r} is a name, not an address; look it up first "
            "(await loop.getaddrinfo(…)), or let a UdpClient do so with host()"
        )


DEFAULT_CAPACITY: Final = 256
"""How many datagrams may wait by default."""


class UdpOverflow(enum.Enum):
    """What to do when a subscriber is slow. UDP cannot make a sender wait, so something has to give."""

    DROP_NEWEST = "drop newest"
    """Drop the datagram that arrives, as the system's own buffer does."""
    DROP_OLDEST = "drop oldest"
    """Drop the datagram that has waited longest."""
    LATEST = "latest"
    """Keep only the last datagram."""
    ERROR = "error"
    """End ``receive()`` with an error, after the waiting datagrams have been emitted."""


@dataclass(frozen=True, slots=True)
class OverflowSettings:
    """An overflow policy, and how many datagrams may wait before it applies."""

    policy: UdpOverflow = UdpOverflow.DROP_NEWEST
    capacity: int = DEFAULT_CAPACITY

    @classmethod
    def of(cls, policy: UdpOverflow, capacity: int | None) -> OverflowSettings:
        """Check what a user said."""
        if not isinstance(policy, UdpOverflow):
            raise TypeError(f"overflow({policy!r}): pass a UdpOverflow, for example UdpOverflow.DROP_OLDEST")
        if policy is UdpOverflow.LATEST:
            if capacity not in (None, 1):
                raise ValueError(
                    f"overflow(LATEST, capacity={capacity!r}): LATEST keeps one datagram; "
                    "DROP_OLDEST keeps as many as you like"
                )
            return cls(policy, 1)
        if capacity is None:
            return cls(policy)
        return cls(policy, a_count(capacity, "capacity of overflow()"))


class DatagramQueue:
    """The datagrams that wait for demand."""

    __slots__ = ("_capacity", "_policy", "dropped", "queue")

    def __init__(self, overflow: OverflowSettings) -> None:
        self._policy = overflow.policy
        self._capacity = overflow.capacity
        self.queue: deque[Datagram] = deque()
        """The datagram that has waited longest is the first."""
        self.dropped = 0
        """Datagrams that were read and dropped."""

    def put(self, datagram: Datagram) -> bool:
        """Keep this datagram or drop one, by the policy. False if that is an error."""
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
