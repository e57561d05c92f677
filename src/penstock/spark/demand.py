"""How many records a trigger should ask for, so that a batch takes about as long as it was told to.

A micro-batch costs something even when it is empty, and then something for each record: ``a + b * n``
seconds. Both are learned from the batches that have run. A controller that only scales by the last duration
shrinks for ever when ``a`` alone is longer than the target; this one stops where half of the time is work.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AdaptiveDemand"]

_MEMORY: Final = 0.7
"""How much of what was learned before counts when a new batch has run."""
_SURPRISE: Final = 2.0
"""A batch that takes so many times as long, or as short, as expected: what was learned is about the past."""


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

    def observed(self, records: int, seconds: float) -> None:
        """A batch of so many records took so many seconds."""
        if records <= 0 or seconds <= 0:
            return
        expected = self.fixed + self.per_record * records
        surprised = self.per_record > 0 and not 1 / _SURPRISE < seconds / expected < _SURPRISE
        self._learn(records, seconds, 0.05 if surprised else _MEMORY)
        self._fit(records, seconds)
        wanted = max((self.target - self.fixed) / self.per_record, self.fixed / self.per_record)
        # A batch that was smaller than allowed, for want of records, is no reason to ask for less; one that
        # took far too long is a reason not to wait for the next to see how much less.
        floor = 0.05 if seconds > _SURPRISE * self.target else 0.5
        self.size = self._bounded(min(max(wanted, floor * self.size), 2.0 * max(self.size, records)))

    def _learn(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t

    def _fit(self, n: float, t: float) -> None:
        """The line through what is remembered; a flat or falling one tells nothing about records."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > 1e-3 * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            if slope > 0:
                self.per_record = slope
                self.fixed = max((self._t - slope * self._n) / self._weight, 0.0)
                if self.fixed == 0.0:
                    self.per_record = self._t / self._n
                return
        # All batches alike: what cannot be told apart is put on the records, less what is known of the rest.
        self.fixed = min(self.fixed, t / 2)
        self.per_record = (t - self.fixed) / n

    def _bounded(self, size: float) -> int:
        return int(max(self.least, min(size, self.most)))
