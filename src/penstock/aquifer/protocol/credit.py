"""How far ahead a subscriber lets the gateway go, and how much it asks of a plain one."""

from __future__ import annotations

from typing import Final

__all__ = ["RequestRate", "Window"]

_INTERVAL: Final = 0.05
"""Seconds over which the rate is measured."""


class Window:
    """The credit that is on its way or waiting, sized to keep the line busy.

    A window of twice the rate times the round trip never runs dry, if it is filled up early. Neither is known
    beforehand, so the window starts small and grows while it is the window that holds the rate down.
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
        """A request was answered after so many seconds."""
        self.round_trip = seconds if not self.round_trip else min(self.round_trip, seconds)

    def arrived(self, count: int, now: float) -> None:
        """So many records have come."""
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
    """How many records to ask a plain gateway for at a time.

    Fewer when records were lost on the way, because the line or the reader could not keep up; slowly more
    again as long as everything arrives.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = most
        self.lowest = most

    def fell_short(self, declared: int, received: int) -> None:
        """Fewer records arrived than were declared: ask for fewer than that, and for no more than came."""
        self.size = max(1, min(self.size, declared * 4 // 5, received or declared))
        self.lowest = min(self.lowest, self.size)

    def arrived_in_full(self) -> None:
        """Everything that was declared has arrived."""
        self.size = min(self.most, self.size + max(1, self.size // 20))
