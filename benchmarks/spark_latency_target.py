"""How well ``targetLatencySeconds`` does beside the best fixed settings, over twelve workloads.

``python -m benchmarks.spark_latency_target`` simulates queries. Each has records that arrive, and a cost of
``a + b * n`` seconds for a batch of ``n``. A record is late if it is older than the target when its batch is
done. What counts is how long the query works, if no more than one record in twenty is late; if no fixed
settings achieve that, the share of late records counts. The fixed settings are a trigger's interval and
``maxRecordsPerTrigger``. A search finds the best pair, for each workload by itself and with full knowledge of
it. The source knows nothing when it begins.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from benchmarks.spark_demand import bursts, poisson, steady
from penstock.spark.source.latency_target import LatencyTarget

__all__ = ["WORKLOADS", "Outcome", "Workload", "adaptive", "best_fixed", "ratio"]

SECONDS: Final = 300.0
INTERVALS: Final = (0.0, *(2 ** (step / 8) for step in range(-32, 33)))
"""Seconds; eight for each power of two, of the target. 0 is the default trigger."""
LIMITS: Final = (2**62, *(10 ** (step / 3) for step in range(3, 16)))
MAY_BE_LATE: Final = 0.05


@dataclass(frozen=True)
class Workload:
    """A query, and the records that arrive for it."""

    name: str
    arrivals: Callable[[random.Random], list[float]]
    target: float = 1.0
    fixed: float = 0.1
    per_record: Callable[[float], float] = lambda at: 1e-4
    noise: float = 0.0
    pauses: float = 0.0
    """The share of batches that take three times as long."""


class Outcome(NamedTuple):
    """What came of a run."""

    work: float
    """The share of the time for which the query worked."""
    late: float
    """The share of records that were older than the target when their batch was done."""
    batches: int


class Batches:
    """A run of a workload: batch after batch, at the times and of the sizes that somebody chooses."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._chance = random.Random(7)
        self.arrivals = _arrivals(workload.arrivals)
        self.now = 0.0
        self.done = 0
        self._work = 0.0
        self._late = self._batches = 0

    def waiting(self) -> int:
        """How many records have arrived, and are in no batch yet."""
        return bisect_right(self.arrivals, self.now) - self.done

    def unfinished(self) -> bool:
        """Whether there are records, and time, left."""
        return self.now < SECONDS and self.done < len(self.arrivals)

    def run(self, count: int) -> float:
        """Run a batch now, and return how long it took."""
        workload, chance = self._workload, self._chance
        took = workload.fixed + workload.per_record(self.now) * count
        took *= chance.lognormvariate(0, workload.noise)
        took *= 3 if chance.random() < workload.pauses else 1
        self.now += took
        self._work += took
        self._batches += 1
        late = bisect_right(self.arrivals, self.now - workload.target) - self.done
        self._late += min(max(late, 0), count)
        self.done += count
        return took

    def outcome(self) -> Outcome:
        """What came of it; records that are left over count as late."""
        left = len(self.arrivals) - self.done
        return Outcome(self._work / SECONDS, (self._late + left) / len(self.arrivals), self._batches)


def fixed(workload: Workload, interval: float, limit: int) -> Outcome:
    """With a trigger that has an interval, and ``maxRecordsPerTrigger``."""
    batches = Batches(workload)
    while batches.unfinished():
        batches.now = max(batches.now, batches.arrivals[batches.done])
        if interval:
            batches.now = -(-batches.now // interval) * interval
        batches.run(min(limit, batches.waiting()))
    return batches.outcome()


def adaptive(workload: Workload) -> Outcome:
    """With ``targetLatencySeconds``."""
    batches, target = Batches(workload), LatencyTarget(workload.target)
    target.demand.is_sure = True
    since = 0.0
    while batches.unfinished():
        if batches.arrivals[batches.done] > batches.now:  # The gateway answers when a record arrives.
            since = batches.now = batches.arrivals[batches.done]
        while (left := target.wait(batches.waiting(), batches.now - since)) > 0:
            full = batches.done + target.demand.size - 1
            filled = batches.arrivals[full] if full < len(batches.arrivals) else float("inf")
            batches.now = min(batches.now + left, max(filled, batches.now))
        waiting = batches.waiting()
        count = min(waiting, target.demand.size)
        since = batches.now if count == waiting else since
        target.observed(count, batches.run(count))
    return batches.outcome()


def best_fixed(workload: Workload) -> tuple[float, int, Outcome]:
    """The fixed settings with the least work, among those with which few records are late."""
    tried = [
        (interval * workload.target, int(limit), fixed(workload, interval * workload.target, int(limit)))
        for interval in INTERVALS
        if interval <= 2
        for limit in LIMITS
        if not interval or limit > 10**6
    ]
    fresh = [each for each in tried if each[2].late <= MAY_BE_LATE]
    return min(fresh, key=lambda each: each[2].work) if fresh else min(tried, key=lambda each: each[2].late)


def ratio(found: Outcome, best: Outcome) -> float:
    """How much worse than the best fixed settings: in work, or in late records if there are many."""
    if best.late > MAY_BE_LATE:
        return found.late / best.late
    return found.work / best.work if found.late <= MAY_BE_LATE else float("inf")


@lru_cache(1)
def _arrivals(arrivals: Callable[[random.Random], list[float]]) -> list[float]:
    return arrivals(random.Random(11))


def _tenfold(at: float) -> float:
    return 1e-3 if 100 < at < 130 else 1e-4


def _swelling(chance: random.Random) -> list[float]:
    def arrive() -> Iterator[float]:
        at = 0.0
        while at < SECONDS:
            yield at
            at += chance.expovariate(50 + 2000 * at / SECONDS)

    return list(arrive())


WORKLOADS: Final = (
    Workload("a trickle", poisson(2), target=5.0),
    Workload("20 records a second", poisson(20)),
    Workload("1000 records a second", steady(1000), target=2.0),
    Workload("half loaded", poisson(4000), target=2.0),
    Workload("half loaded, noise of 20 %", poisson(4000), target=2.0, noise=0.2),
    Workload("high fixed cost", poisson(500), target=3.0, fixed=0.8),
    Workload("fixed cost of 2/3 of the target", poisson(500), target=1.2, fixed=0.8),
    Workload("expensive records", poisson(20), target=4.0, per_record=lambda at: 1e-2),
    Workload("cost rises tenfold, and back", poisson(600), target=2.0, per_record=_tenfold),
    Workload("bursts of 5000", bursts(5000, 20.0), target=2.0),
    Workload("more and more records", _swelling),
    Workload("every hundredth batch pauses", poisson(500), target=2.0, pauses=0.01),
)


def main() -> None:
    """Print the table."""
    print(f"{'workload':<30} {'interval':>8} {'limit':>9} {'its work':>9} {'late':>5}", end="")
    print(f" {'adaptive':>9} {'late':>5} {'batches':>8} {'ratio':>6}")
    for workload in WORKLOADS:
        interval, limit, best = best_fixed(workload)
        found = adaptive(workload)
        shown = str(limit) if limit < 2**62 else "none"
        print(
            f"{workload.name:<30} {interval:>7.2f}s {shown:>9} {best.work:>9.3f} "
            f"{best.late:>5.1%} {found.work:>9.3f} {found.late:>5.1%} {found.batches:>8} "
            f"{ratio(found, best):>6.2f}"
        )


if __name__ == "__main__":
    main()
