"""Where the time of a hop goes: into waiting for demand, into waiting for data, or into work.

The threads of a gateway tell a clock what they do when that changes, a few times for each group of records,
never for each record. What has no thread of its own, such as the cursor of a subscriber, is looked at a few
times a second.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Final

from penstock.aquifer.status_object import HopTimes

__all__ = ["Doing", "HopClock", "Samples"]

_EVERY: Final = 0.1
"""Seconds between two looks at a hop that has no thread of its own."""


class Doing(IntEnum):
    """What a hop does with its time."""

    WAITING_FOR_DEMAND = 0
    """It has records, and nobody below it takes them."""
    WAITING_FOR_DATA = 1
    WORKING = 2


class HopClock:
    """Sums up seconds on a monotonic clock. One thread writes, others may read."""

    __slots__ = ("_doing", "_seconds", "_since")

    def __init__(self, doing: Doing = Doing.WAITING_FOR_DATA) -> None:
        self._doing = doing
        self._since = time.monotonic()
        self._seconds = [0.0, 0.0, 0.0]

    def now(self, doing: Doing, at: float | None = None) -> None:
        """From now on it does this."""
        if at is None:
            at = time.monotonic()
        self._seconds[self._doing] += at - self._since
        self._doing, self._since = doing, at

    @property
    def doing(self) -> Doing:
        """What it does now."""
        return self._doing

    def times(self) -> HopTimes:
        """The sums, up to this moment."""
        seconds = list(self._seconds)
        seconds[self._doing] += max(0.0, time.monotonic() - self._since)
        demand, data, working = (round(each, 3) for each in seconds)
        return HopTimes(waiting_for_demand=demand, waiting_for_data=data, working=working)


class Samples:
    """Says when it is time to look again at the hops that have no thread of their own."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether to look now; at most ten times a second."""
        if now < self._next:
            return False
        self._next = now + _EVERY
        return True
