"""How many records a trigger should ask for, so that a batch takes about as long as it was told to.

A micro-batch costs something even when it is empty, and then something for each record: ``a + b * n``
seconds. Both are learned from the batches that have run. A controller that only scales by the last duration
shrinks for ever when ``a`` alone is longer than the target; this one stops where half of the time is work.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["AdaptiveDemand"]

_MEMORY: Final = 0.7
"""How much of what was learned before counts when a new batch has run."""
_SURPRISE: Final = 2.0
"""A batch that takes so many times as long, or as short, as expected: what was learned is about the past."""

_REMEMBERED: Final = 20
"""Batches among which the shortest is looked for."""


class AdaptiveDemand:
    """Learns what a batch costs, and says how large the next one should be."""

    def __init__(self, target: float, *, start: int, least: int = 1, most: int = 2**63 - 1) -> None:
        if not target > 0:
            raise ValueError(f"the target of a batch has to be longer than 0 seconds, not {target!r}")
        self.target = target
        self.least = least
        self.most = most
        self.size = self._bounded(start)
        """How many records the next batch should have."""
        self.fixed = 0.0
        """Seconds that an empty batch takes (a)."""
        self.per_record = 0.0
        """Seconds for each record (b)."""
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def observed(self, records: int, seconds: float) -> None:
        """A batch of so many records took so many seconds."""
        if records <= 0 or seconds <= 0:
            return
        seconds = max(seconds, 1e-6)
        expected = self.fixed + self.per_record * records
        surprised = bool(self._durations) and _far_from(expected, seconds)
        # If the one before took as long, with more records or with fewer, that is something to learn from.
        forget = surprised and _far_from(self._durations[-1], seconds)
        self._learn(records, seconds, 0.0 if forget else _MEMORY)
        told_apart = self._fit(records, seconds)
        wanted = max((self.target - self.fixed) / self.per_record, self.fixed / self.per_record)
        if not told_apart and abs(self._bounded(wanted) - records) < max(1, 0.1 * records):
            wanted = 1.2 * records + 1  # A batch of another size will tell what the records cost.
        # No batch can be shorter than an empty one, and the shortest that was seen is the best guess at that.
        acceptable = max(self.target, 2 * min(self._durations, default=0.0))
        self._durations.append(seconds)
        # What took far too long is a reason not to wait for the next to see how much less it should be.
        least = self.size * (0.05 if seconds > _SURPRISE * acceptable else 0.5)
        # A batch may have been smaller than allowed, for want of records. That is no reason to ask for less,
        # nor for more: nobody has seen yet what a batch of that size costs.
        most = self.size if seconds > acceptable else max(self.size, 2 * records)
        self.size = self._bounded(min(max(wanted, least), most))

    def _learn(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t

    def _fit(self, n: float, t: float) -> bool:
        """The line through what is remembered; False if all batches were alike, and there is none."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > 1e-3 * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            # Larger batches that take no longer: something else takes the time, the wait for the next
            # trigger perhaps. Then records cost next to nothing; how little, larger ones will show.
            mean = self._t / self._weight
            if slope * self._n < -0.2 * self._t:
                # Smaller ones that take longer, though: what was remembered holds no more.
                self._learn(n, t, 0.0)
                return self._fit(n, t)
            self.per_record = max(slope, 0.1 * mean * self._weight / self._n)
            self.fixed = max(mean - self.per_record * self._n / self._weight, 0.0)
            if self.fixed == 0.0:
                self.per_record = self._t / self._n
            return True
        # What cannot be told apart is put on the records, less what is known of the rest.
        self.fixed = min(self.fixed, t / 2)
        self.per_record = (t - self.fixed) / n
        return False

    def _bounded(self, size: float) -> int:
        return int(max(self.least, min(size, self.most)))


def _far_from(expected: float, seconds: float) -> bool:
    return not expected / _SURPRISE < seconds < expected * _SURPRISE
