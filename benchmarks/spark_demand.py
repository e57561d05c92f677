"""How well ``targetBatchSeconds`` does beside the best fixed ``maxRecordsPerTrigger``, over twelve workloads.

``python -m benchmarks.spark_demand`` simulates queries. Each has records that arrive, and a cost of
``a + b * n`` seconds for a batch of ``n``. What counts is the mean age of a record when its batch is done, if
half of the batches take no longer than 1.1 times the target, and no more than one in ten takes twice as long.
If the fixed cost alone is above half of the target, the target is twice the fixed cost. The best fixed limit
is found by search, for each workload by itself and with full knowledge of it. The source knows nothing when
it begins. ``python -m benchmarks.spark_demand 10`` runs each workload with ten other seeds for its chances
as well, and prints the worst ratio of all.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from statistics import median
from typing import Final, NamedTuple

from penstock.spark.source.demand import FIRST_BATCH, AdaptiveDemand

__all__ = ["WORKLOADS", "Outcome", "Workload", "adaptive", "best_fixed"]

SECONDS: Final = 300.0
LIMITS: Final = sorted({round(10 ** (exponent / 12)) for exponent in range(1, 73)})
"""What the search tries: twelve limits for each power of ten."""
_TYPICAL: Final = 1.1
_TOO_LONG: Final = 2.0
_MAY_BE_LONG: Final = 0.1


@dataclass(frozen=True)
class Workload:
    """A query, and the records that arrive for it."""

    name: str
    arrivals: Callable[[random.Random], list[float]]
    fixed: float = 0.05
    per_record: Callable[[float], float] = lambda at: 1e-4
    target: float = 1.0
    noise: float = 0.0
    pauses: float = 0.0
    """The share of batches that take five times as long."""
    interval: float = 0.0
    """Seconds between triggers."""

    @property
    def best(self) -> float:
        """What a batch should take."""
        return max(self.target, 2 * self.fixed)


class Outcome(NamedTuple):
    """What came of a run."""

    age: float
    """The mean age of a record when its batch is done, in seconds."""
    typical: float
    """What half of the batches took at most, in targets."""
    too_long: float
    """The share of batches that took more than twice the target."""

    @property
    def keeps_time(self) -> bool:
        """Whether the batches are as long as they should be."""
        return self.typical <= _TYPICAL and self.too_long <= _MAY_BE_LONG


def run(
    workload: Workload, limit: Callable[[], int], observed: Callable[[int, float], None], seed: int = 0
) -> Outcome:
    """Run a workload; records that are left over at the end count with the age that they have then."""
    chance = random.Random(7 + 1000 * seed)
    arrivals, sums = _arrivals(workload.arrivals, 11 + 1000 * seed)
    now, done, age, durations = 0.0, 0, 0.0, list[float]()
    while now < SECONDS and done < len(arrivals):
        if arrivals[done] > now:
            now = arrivals[done]
        if workload.interval:
            now = -(-now // workload.interval) * workload.interval
        count = min(limit(), bisect_right(arrivals, now) - done)
        took = workload.fixed + workload.per_record(now) * count
        took *= chance.lognormvariate(0, workload.noise)
        took *= 5 if chance.random() < workload.pauses else 1
        now += took
        durations.append(took)
        observed(count, took)
        age += now * count - (sums[done + count] - sums[done])
        done += count
    left = len(arrivals) - done
    age += max(now, SECONDS) * left - (sums[-1] - sums[done])
    too_long = sum(took > _TOO_LONG * workload.best for took in durations) / len(durations)
    return Outcome(age / len(arrivals), median(durations) / workload.best, too_long)


@lru_cache(1)
def _arrivals(arrivals: Callable[[random.Random], list[float]], seed: int) -> tuple[list[float], list[float]]:
    """The times of a workload's records, and the sums of the first n of them."""
    times = arrivals(random.Random(seed))
    return times, [0.0, *accumulate(times)]


def adaptive(workload: Workload, seed: int = 0) -> Outcome:
    """With ``targetBatchSeconds``."""
    demand = AdaptiveDemand(workload.target, start=FIRST_BATCH)
    demand.is_sure = True  # The driver reports how long a batch took.
    return run(workload, lambda: demand.size, demand.observed, seed)


def best_fixed(workload: Workload, seed: int = 0) -> tuple[int, Outcome]:
    """The fixed limit with the least age, among those that keep batches short."""
    tried = [(limit, run(workload, partial(int, limit), lambda *_: None, seed)) for limit in LIMITS]
    short = [each for each in tried if each[1].keeps_time]
    return min(short or tried, key=lambda each: each[1].age)


def steady(rate: float) -> Callable[[random.Random], list[float]]:
    def arrive(chance: random.Random) -> list[float]:
        return [number / rate for number in range(int(rate * SECONDS))]

    return arrive


def _waiting(count: int) -> Callable[[random.Random], list[float]]:
    return lambda chance: [0.0] * count


def poisson(rate: float) -> Callable[[random.Random], list[float]]:
    def arrive(chance: random.Random) -> list[float]:
        return list(_until_the_end(lambda: chance.expovariate(rate)))

    return arrive


def _until_the_end(step: Callable[[], float]) -> Iterator[float]:
    at = step()
    while at < SECONDS:
        yield at
        at += step()


def bursts(count: int, every: float) -> Callable[[random.Random], list[float]]:
    starts = [number * every for number in range(int(SECONDS / every))]
    return lambda chance: [at for at in starts for _ in range(count)]


def _tenfold(at: float) -> float:
    return 1e-3 if 100 < at < 130 else 1e-4


def _rising(at: float) -> float:
    return 1e-4 * (1 + 2 * at / SECONDS)


WORKLOADS: Final = (
    Workload("a backlog", _waiting(2_000_000)),
    Workload("a backlog, high fixed cost", _waiting(1_000_000), fixed=0.4),
    Workload("fixed cost above the target", _waiting(1_000_000), fixed=1.6, target=0.2),
    Workload("a backlog, noise of 20 %", _waiting(1_500_000), noise=0.2),
    Workload("cost rises tenfold, and back", steady(3000), per_record=_tenfold),
    Workload("cost triples slowly", _waiting(1_500_000), per_record=_rising),
    Workload("bursts of 50 000", bursts(50_000, 20.0)),
    Workload("a trickle", poisson(20)),
    Workload("a trigger every 3 seconds", steady(2000), interval=3.0),
    Workload("half loaded", poisson(4000), noise=0.1),
    Workload("expensive records", _waiting(25_000), per_record=lambda at: 1e-2),
    Workload("every twentieth batch pauses", _waiting(1_200_000), pauses=0.05),
)


def worst_of(workload: Workload, seeds: range) -> float:
    """The worst ratio of several seeds; infinite if batches were too long with one of them."""
    found = [(adaptive(workload, seed), best_fixed(workload, seed)[1]) for seed in seeds]
    return max(ours.age / best.age if ours.keeps_time else float("inf") for ours, best in found)


def main() -> None:
    """Print the table."""
    seeds = range(1, 1 + int(sys.argv[1])) if len(sys.argv) > 1 else range(0)
    print(
        f"{'workload':<30} {'best limit':>10} {'its age':>9} {'adaptive':>9} {'ratio':>6}  typical  too long",
        " worst" * bool(seeds),
    )
    for workload in WORKLOADS:
        limit, best = best_fixed(workload)
        found = adaptive(workload)
        print(
            f"{workload.name:<30} {limit:>10,} {best.age:>8.2f}s {found.age:>8.2f}s "
            f"{found.age / best.age:>6.2f}  {found.typical:>7.2f}  {found.too_long:>8.0%}",
            "".join(f" {worst_of(workload, seeds):>5.2f}" for _ in seeds[:1]),
        )


if __name__ == "__main__":
    main()
