"""What becomes of datagrams that come while nobody asks for any: named, bounded, and counted."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.net.udp.datagram import Datagram

__all__ = ["DEFAULT_CAPACITY", "Overflow", "UdpOverflow", "Waiting"]

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


class Waiting:
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
