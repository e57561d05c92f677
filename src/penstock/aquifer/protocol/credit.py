"""How far a subscriber lets the gateway go ahead, and how many records it requests from a plain one."""

from __future__ import annotations

from typing import Final

__all__ = ["CreditAhead", "RequestRate"]

_INTERVAL: Final = 0.05
"""Seconds over which the rate is measured."""


class CreditAhead:
    """How far ahead of demand a subscriber gives credit: what may be on its way, or wait for demand.

    With twice the rate times the round trip, the gateway never runs out of credit. Neither is known at first,
    so it starts small, and grows while it is what limits the rate.
    """

    def __init__(self, start: int, most: int, most_bytes: int) -> None:
        self.size = min(start, most)
        self.most = most
        self.nbytes = most_bytes
        self.rate = 0.0
        """Records per second, lately."""
        self.round_trip = 0.0
        """Seconds."""
        self._counted = 0
        self._since: float | None = None

    def measured_round_trip(self, seconds: float) -> None:
        """A request was answered after ``seconds``."""
        self.round_trip = seconds if not self.round_trip else min(self.round_trip, seconds)

    def arrived(self, count: int, now: float) -> None:
        """``count`` records have arrived."""
        self._counted += count
        if self._since is None:
            self._since = now
            return
        elapsed = now - self._since
        if elapsed < _INTERVAL:
            return
        self.rate = self._counted / elapsed
        self._counted, self._since = 0, now
        wanted = int(2 * self.rate * max(self.round_trip, 0.001))
        if wanted > self.size:
            self.size = min(wanted, 2 * self.size, self.most)


class RequestRate:
    """How many records to request from a plain gateway at a time.

    The number falls when records were lost on the way, because the line or the reader could not keep up. It
    slowly grows while everything arrives.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = most
        self.lowest = most

    def fell_short(self, declared: int, received: int) -> None:
        """Fewer records arrived than were declared: request less than that, and not more than arrived."""
        self.size = max(1, min(self.size, declared * 4 // 5, received or declared))
        self.lowest = min(self.lowest, self.size)

    def arrived_in_full(self) -> None:
        """All declared records have arrived."""
        self.size = min(self.most, self.size + max(1, self.size // 20))
