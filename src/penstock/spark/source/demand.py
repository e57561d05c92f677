"""The demand of a trigger: how many records a batch should have to take about as long as requested.

A micro-batch has a fixed cost and a cost for each record. :class:`AdaptiveDemand` learns both from the
batches that have run. A controller that only scales by the last duration would shrink batches for ever if the
fixed cost alone is longer than the target; this one stops where half of the time is work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import sqrt
from typing import Final

from penstock.spark.source.batch_cost import SURPRISE, BatchCost, is_far_from

__all__ = ["FIRST_BATCH", "AdaptiveDemand", "shares"]

FIRST_BATCH: Final = 1000
"""Records in the first batch of an adaptive query; sizes grow until the target is reached."""

_LEAP: Final = 4
"""How many times larger the next batch may be if this one was far too short; otherwise twice."""
_FAR_LEAP: Final = 8
"""How many times larger than the mean of recent batches the next may be if both costs are certain."""
_PROBE: Final = 1.2
"""How many times larger, or smaller, a batch is that has to show what the records cost."""
_SETTLED: Final = 4
"""After so many batches of one size, what was learned from others may be outdated."""
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
        self.cost = BatchCost()
        self.is_sure = False
        """Whether the durations are those of batches alone, without waits for the next trigger."""
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._settled = 0
        """How many batches in a row have had about the size that seems to be the best."""
        self._strange: tuple[int, float] | None = None
        """The last batch, if it took so much longer than expected that it may have been chance."""

    def observed(self, records: int, seconds: float) -> None:
        """Learn from a batch."""
        if records <= 0 or seconds <= 0:
            return
        seconds = max(seconds, 1e-6)
        # No batch is shorter than an empty one, and the shortest so far is our best guess at that.
        acceptable = max(self.target, 2 * min(self._durations, default=0.0))
        is_known = self._learn(records, seconds)
        self._durations.append(seconds)
        cost = self.cost if is_known else self.cost.suspected(records, seconds)
        told_apart = is_known and cost.is_told_apart
        wanted = cost.best_size(self.target)
        if is_known:
            wanted = self._probed(wanted, records, seconds, acceptable)
        # After a batch that took far too long, shrink at once.
        least = self.size * (0.05 if seconds > SURPRISE * acceptable else 0.5)
        # A batch may have been smaller than requested because there were no more records. Then the size stays
        # as it is: we have not seen yet what a batch of that size costs.
        if records < self.size and seconds <= acceptable and not told_apart:
            least = self.size
        reach: float = (_LEAP if seconds < acceptable / _LEAP else 2) * records
        if told_apart and self.is_sure:
            reach = max(reach, min(_FAR_LEAP * cost.mean_size, cost.safe_size(acceptable)))
        most = self.size if seconds > acceptable else max(self.size, reach)
        self.size = self._bounded(min(max(wanted, least), most))

    def _learn(self, records: int, seconds: float) -> bool:
        """Learn from a batch; False if it took so long that the next one has to confirm it."""
        expected = self.cost.seconds(records)
        strange, self._strange = self._strange, None
        if strange is not None:
            # A pause of the machine makes one batch long. If the query has become slower, so is the next one.
            suspected = self.cost.suspected(*strange).seconds(records)
            if seconds > max(sqrt(expected * suspected), suspected / SURPRISE):
                self.cost.learn_anew(*strange)
            self.cost.learn(records, seconds)
        # If the batch before took as long, with more or fewer records, then both together tell something.
        elif self._durations and is_far_from(expected, seconds) and is_far_from(self._durations[-1], seconds):
            if seconds > expected:
                self._strange = records, seconds
                return False
            self.cost.learn_anew(records, seconds)
        else:
            self.cost.learn(records, seconds)
        return True

    def _probed(self, wanted: float, records: int, seconds: float, acceptable: float) -> float:
        """Another size than the one that is wanted, if that tells more about the costs."""
        is_settled = abs(self._bounded(wanted) - records) < max(1, 0.1 * records)
        self._settled = self._settled + 1 if is_settled else 0
        # If batches are long because an empty one is, that has to be looked at now and then: a query that
        # has just started is slower, and batches of one size do not show that it no longer is.
        is_doubtful = self.cost.fixed > self.target / 2 and self._settled >= _SETTLED
        if not is_settled or (self.cost.is_told_apart and not is_doubtful):
            return wanted
        self._settled = 0
        return records / _PROBE if seconds > acceptable else records * _PROBE + 1

    def _bounded(self, size: float) -> int:
        return int(max(self.least, min(size, self.most)))


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
