"""The demand of a trigger: how many records a batch should have to take about as long as requested.

A micro-batch has a fixed cost and a cost for each record: ``a + b * n`` seconds. :class:`AdaptiveDemand`
learns both from the batches that have run. A controller that only scales by the last duration would shrink
batches for ever if ``a`` alone is longer than the target; this one stops where half of the time is work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

__all__ = ["FIRST_BATCH", "AdaptiveDemand", "shares"]

FIRST_BATCH: Final = 1000
"""Records in the first batch of an adaptive query; sizes grow until the target is reached."""

_MEMORY: Final = 0.7
"""The weight of earlier batches when a new batch has run."""
_SURPRISE: Final = 2.0
"""If a batch takes this many times longer, or shorter, than expected, what was learned is outdated."""

_LEAP: Final = 4
"""How many times larger the next batch may be if this one was far too short; otherwise twice."""
_FAR_LEAP: Final = 8
"""How many times larger than the mean of recent batches the next may be if both costs are certain."""
_REMEMBERED: Final = 20
"""Among so many recent batches, the shortest counts."""


class AdaptiveDemand:
    """Learns what a batch costs, and suggests the size of the next one."""

    def __init__(self, target: float, *, start: int, least: int = 1, most: int = 2**63 - 1) -> None:
        if not target > 0:
            raise ValueError(f"the target of a batch needs more than 0 seconds, not {target!r}")
        self.target = target
        self.least = least
        self.most = most
        self.size = self._bounded(start)
        """The number of records for the next batch."""
        self.fixed = 0.0
        """Seconds for an empty batch (a)."""
        self.per_record = 0.0
        """Seconds for each record (b)."""
        self.is_sure = False
        """Whether the durations are those of batches alone, without waits for the next trigger."""
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def observed(self, records: int, seconds: float) -> None:
        """Learn from a batch."""
        if records <= 0 or seconds <= 0:
            return
        seconds = max(seconds, 1e-6)
        surprised = bool(self._durations) and _far_from(self.expected(records), seconds)
        # If the batch before took as long, with more or fewer records, then both together tell something.
        forget = surprised and _far_from(self._durations[-1], seconds)
        self._learn(records, seconds, 0.0 if forget else _MEMORY)
        told_apart = self._fit(records, seconds)
        wanted = max((self.target - self.fixed) / self.per_record, self.fixed / self.per_record)
        if not told_apart and abs(self._bounded(wanted) - records) < max(1, 0.1 * records):
            wanted = 1.2 * records + 1  # A batch of another size shows what the records cost.
        # No batch is shorter than an empty one, and the shortest so far is our best guess at that.
        acceptable = max(self.target, 2 * min(self._durations, default=0.0))
        self._durations.append(seconds)
        # After a batch that took far too long, shrink at once.
        least = self.size * (0.05 if seconds > _SURPRISE * acceptable else 0.5)
        # A batch may have been smaller than requested because there were no more records. Then the size stays
        # as it is: we have not seen yet what a batch of that size costs.
        if records < self.size and seconds <= acceptable and not told_apart:
            least = self.size
        reach: float = (_LEAP if seconds < acceptable / _LEAP else 2) * records
        if told_apart and self.is_sure:
            reach = max(reach, _FAR_LEAP * self._n / self._weight)
        most = self.size if seconds > acceptable else max(self.size, reach)
        self.size = self._bounded(min(max(wanted, least), most))

    def expected(self, records: int) -> float:
        """How long a batch of so many records should take; 0 if nothing is known yet."""
        return self.fixed + self.per_record * records

    def _learn(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t

    def _fit(self, n: float, t: float) -> bool:
        """Fit a line through the batches; False if they were all of one size."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > 1e-3 * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            # If larger batches take no longer, something else takes the time, perhaps the wait for the next
            # trigger. Then records cost next to nothing; larger batches will show how little.
            mean = self._t / self._weight
            if slope * self._n < -0.2 * self._t:
                # If smaller batches take longer, what was learned is outdated.
                self._learn(n, t, 0.0)
                return self._fit(n, t)
            self.per_record = max(slope, 0.1 * mean * self._weight / self._n)
            self.fixed = max(mean - self.per_record * self._n / self._weight, 0.0)
            if self.fixed == 0.0:
                self.per_record = self._t / self._n
            return True
        # We cannot separate the two costs, so all but the known fixed cost counts for the records.
        self.fixed = min(self.fixed, t / 2)
        self.per_record = (t - self.fixed) / n
        return False

    def _bounded(self, size: float) -> int:
        return int(max(self.least, min(size, self.most)))


def _far_from(expected: float, seconds: float) -> bool:
    return not expected / _SURPRISE < seconds < expected * _SURPRISE


def shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """How many records to take from each gateway: equal shares, as far as they have records."""
    taken = dict.fromkeys(waiting, 0)
    while most > 0 and (hungry := [e for e in waiting if taken[e] < waiting[e]]):
        share = max(1, most // len(hungry))
        for endpoint in hungry:
            more = min(share, waiting[endpoint] - taken[endpoint], most)
            taken[endpoint] += more
            most -= more
    return taken
