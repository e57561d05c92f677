"""``targetLatencySeconds``: how large a batch is, when it begins, and in how many tasks it runs.

A record is as old as the target at most if it waits no longer than the batch that is running when it arrives,
and its own batch takes no longer than the other half of the target. That bounds the size of a batch. A batch
has a fixed cost as well, so the fewer there are, the less work it is. So a batch that is not full waits for
more records, until the oldest of them would get too old.
"""

from __future__ import annotations

import math
import os
from typing import Final

from penstock.spark.source.demand import FIRST_BATCH, AdaptiveDemand

__all__ = ["LatencyTarget"]

_AIM: Final = 0.98
"""The share of the target at which the oldest record of a batch should be done."""
_A_MOMENT: Final = 0.005
"""Seconds for which a wait does not pay: it is a question to the gateways."""
_FIRST_MARGIN: Final = 1.2
"""How many times longer than expected a batch may take, before anything is known about that."""
_MOST_MARGIN: Final = 3.0
_LATE_STEP: Final = 0.06
"""How much the margin grows after a batch that took longer; others shrink it by a nineteenth of that. So it
comes to rest where one batch in twenty takes longer."""
_WORTH_A_TASK: Final = 0.05
"""Seconds of work for which another task pays: it costs about half of that."""


class LatencyTarget:
    """Chooses the size, the beginning and the tasks of each batch, so that no record gets too old."""

    def __init__(self, seconds: float, *, most: int = 2**63 - 1, cores: int | None = None) -> None:
        self.seconds = seconds
        self.demand = AdaptiveDemand(seconds / 2, start=min(FIRST_BATCH, most), most=most)
        """The size of a batch, and what one costs."""
        self._margin = _FIRST_MARGIN
        self._cores = cores or os.cpu_count() or 2
        self._tasks = 1
        """The tasks of the last batch."""

    def observed(self, records: int, seconds: float) -> None:
        """Learn from a batch."""
        expected = self.demand.cost.seconds(records)
        if expected > 0 and records > 0:
            late = seconds > expected * self._margin
            step = _LATE_STEP if late else -_LATE_STEP / 19
            self._margin = min(max(self._margin * (1 + step), 1.0), _MOST_MARGIN)
        self.demand.observed(records, seconds)

    def wait(self, waiting: int, age: float) -> float:
        """Seconds to wait for more records, if so many wait now and the oldest is of this age.

        Records keep arriving meanwhile, as fast as these did, and make the batch longer.
        """
        cost = self.demand.cost
        if waiting <= 0 or waiting >= self.demand.size or cost.seconds(1) <= 0:
            return 0.0
        needed = self._margin * cost.seconds(waiting)
        rate = waiting / max(age, 0.001)
        left = (_AIM * self.seconds - age - needed) / (1 + self._margin * cost.per_record * rate)
        return left if left > _A_MOMENT else 0.0

    def tasks(self, records: int) -> int:
        """How many tasks a batch of so many records should have: more if its records take longer."""
        work = self.demand.cost.per_record * records * self._tasks
        self._tasks = max(1, min(self._cores, records, math.ceil(work / _WORTH_A_TASK)))
        return self._tasks
