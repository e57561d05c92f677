"""How large a batch should be: the controller against simulated queries, steady and shaky, quick and slow."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import spark_demand
from penstock.spark.source.demand import AdaptiveDemand

SECONDS = st.floats(0.02, 5.0)
PER_RECORD = st.floats(1e-6, 1e-2)
SEEDS = st.integers(0, 2**32)


class Query:
    """Takes ``fixed`` seconds for a batch and ``per_record`` for each record, more or less."""

    def __init__(self, fixed: float, per_record: float, noise: float = 0.0, seed: int = 0) -> None:
        self.fixed = fixed
        self.per_record = per_record
        self.interval = 0.0
        """Seconds between the triggers, at least."""
        self.warm_up = 0.0
        """How many times its fixed cost a batch takes in addition, because the query has just started."""
        self.cools = 0.6
        """How much of that is left in the next batch."""
        self._noise = noise
        self._random = random.Random(seed)

    def seconds(self, records: int) -> float:
        """What a batch takes, without noise."""
        return self.fixed + self.per_record * records

    def best(self, target: float) -> float:
        """What a batch should take: the target, or twice what an empty one takes."""
        return max(target, 2 * self.fixed, self.seconds(1))

    def run(self, demand: AdaptiveDemand, batches: int, available: int | None = None) -> list[int]:
        """Run batches, and return their sizes."""
        sizes = []
        for _ in range(batches):
            size = demand.size if available is None else min(demand.size, available)
            sizes.append(size)
            seconds = self.seconds(size) + self.warm_up * self.fixed
            self.warm_up *= self.cools
            seconds *= self._random.lognormvariate(0, self._noise)
            demand.observed(size, max(seconds, self.interval))
        return sizes


@given(fixed=SECONDS, per_record=PER_RECORD, target=SECONDS, start=st.integers(1, 10**6))
def test_batches_come_to_take_as_long_as_they_should(
    fixed: float, per_record: float, target: float, start: int
) -> None:
    query, demand = Query(fixed, per_record), AdaptiveDemand(target, start=start)
    query.run(demand, 40)
    best = query.best(target)
    for size in query.run(demand, 10):
        assert query.seconds(size) == pytest.approx(best, rel=0.35) or abs(size - best / per_record) < 2


@given(
    fixed=SECONDS,
    per_record=PER_RECORD,
    target=SECONDS,
    noise=st.floats(0, 0.3),
    seed=SEEDS,
)
def test_noise_makes_batches_vary_but_not_explode_nor_collapse(
    fixed: float, per_record: float, target: float, noise: float, seed: int
) -> None:
    query, demand = Query(fixed, per_record, noise, seed), AdaptiveDemand(target, start=10_000)
    query.run(demand, 30)
    best = query.best(target)
    seconds = [query.seconds(size) for size in query.run(demand, 60)]
    assert max(seconds) < 8 * best
    assert sum(seconds) / len(seconds) < 2 * best
    # At the worst, half of what the query could do.
    assert sum(seconds) / len(seconds) > max(fixed, best / 4)


@given(per_record=st.floats(1e-6, 1e-4), target=st.floats(0.5, 5.0), slower=st.floats(1.5, 20.0))
def test_a_query_that_gets_slower_has_smaller_batches_within_three(
    per_record: float, target: float, slower: float
) -> None:
    query, demand = Query(target / 20, per_record), AdaptiveDemand(target, start=10_000)
    query.run(demand, 40)
    query.per_record *= slower
    query.run(demand, 3)
    assert query.seconds(demand.size) < 1.7 * target


@given(per_record=st.floats(1e-5, 1e-3), target=st.floats(0.5, 5.0))
def test_a_query_that_recovers_has_large_batches_again(per_record: float, target: float) -> None:
    query, demand = Query(target / 20, per_record), AdaptiveDemand(target, start=10_000)
    query.run(demand, 40)
    query.per_record /= 10
    query.run(demand, 8)
    assert 0.7 * target < query.seconds(demand.size) < 1.5 * target


def test_a_fixed_cost_above_the_target_does_not_make_batches_shrink_for_ever() -> None:
    query, demand = Query(1.6, 1e-4), AdaptiveDemand(0.2, start=10_000)
    query.run(demand, 40)
    assert all(0.25 < query.per_record * size / query.fixed < 2 for size in query.run(demand, 40))


@pytest.mark.parametrize("interval", [2.0, 10.0, 60.0])
def test_waiting_for_the_next_trigger_is_not_taken_for_work(interval: float) -> None:
    query, demand = Query(0.1, 1e-4), AdaptiveDemand(1.0, start=10_000)
    query.interval = interval
    query.run(demand, 40)
    for size in query.run(demand, 20):
        assert size > 5_000, "batches collapse though the query does next to nothing"
        assert query.seconds(size) < 2.5 * interval


def test_a_trickle_of_records_teaches_nothing_about_large_batches() -> None:
    query, demand = Query(0.1, 1e-4, noise=0.2), AdaptiveDemand(1.0, start=10_000)
    query.run(demand, 500, available=20)
    assert demand.size <= 10_000
    # And when many come at once, the first batch of them is no larger than that.
    assert query.run(demand, 1)[0] <= 10_000


def test_a_very_slow_first_batch_is_followed_by_a_small_one() -> None:
    query, demand = Query(0.1, 1e-2), AdaptiveDemand(1.0, start=10_000)
    assert query.run(demand, 3) == [10_000, 500, pytest.approx(250, rel=0.1)]


@given(
    observations=st.lists(
        st.tuples(st.integers(0, 2**40), st.floats(0, 1e6) | st.just(1e-9)), min_size=1, max_size=60
    ),
    least=st.integers(1, 1000),
    room=st.integers(0, 10**6),
)
def test_the_bounds_hold_whatever_is_observed(
    observations: list[tuple[int, float]], least: int, room: int
) -> None:
    demand = AdaptiveDemand(1.0, start=10_000, least=least, most=least + room)
    for records, seconds in observations:
        demand.observed(records, seconds)
        assert least <= demand.size <= least + room


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_a_target_that_is_no_time_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        AdaptiveDemand(target, start=1)


@pytest.mark.parametrize("fixed", [0.05, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("per_record", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize(("warm_up", "cools"), [(5.0, 0.6), (5.0, 0.7), (10.0, 0.7)])
def test_a_query_that_is_slow_at_first_does_not_have_long_batches_later(
    fixed: float, per_record: float, warm_up: float, cools: float
) -> None:
    query, demand = Query(fixed, per_record), AdaptiveDemand(0.5, start=1000)
    demand.is_sure = True
    query.warm_up, query.cools = warm_up, cools
    query.run(demand, 18)
    best = query.best(demand.target)
    assert all(0.7 * best < query.seconds(size) < 1.5 * best for size in query.run(demand, 5))


@pytest.mark.parametrize("fixed", [0.05, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("per_record", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("paused", [5.0, 60.0])
def test_one_slow_batch_makes_only_the_next_one_small(fixed: float, per_record: float, paused: float) -> None:
    query, demand = Query(fixed, per_record, noise=0.1), AdaptiveDemand(0.5, start=1000)
    demand.is_sure = True
    query.run(demand, 30)
    usual = demand.size
    demand.observed(demand.size, query.seconds(demand.size) + paused)
    [next_size] = query.run(demand, 1)
    assert next_size < 0.5 * usual, "the query may have become slower"
    assert demand.size > 0.5 * usual, "it has not"


@given(per_record=st.floats(1e-5, 1e-3), fixed=st.floats(0.02, 0.2), slower=st.floats(5.0, 20.0))
def test_two_slow_batches_are_not_taken_for_chance(per_record: float, fixed: float, slower: float) -> None:
    query, demand = Query(fixed, per_record), AdaptiveDemand(1.0, start=1000)
    query.run(demand, 40)
    query.per_record *= slower
    query.run(demand, 2)
    assert query.seconds(demand.size) < 1.7


def test_costs_that_may_be_chance_are_no_reason_for_a_leap() -> None:
    demand = AdaptiveDemand(0.5, start=1000)
    demand.is_sure = True
    demand.observed(1000, 1.0)
    demand.observed(500, 0.95)
    # The two are 0.05 s apart. If each is wrong by a twentieth, a record costs up to 0.3 ms.
    assert 0.95 + 3e-4 * (demand.size - 500) < 2.0


def test_a_first_batch_of_one_record_does_not_make_the_next_small() -> None:
    demand = AdaptiveDemand(1.0, start=1000)
    demand.observed(1, 0.05)
    assert demand.size == 1000


@given(
    fixed=st.floats(0.02, 0.4),
    costs=st.tuples(st.floats(1e-5, 1e-3), st.floats(1e-5, 1e-3)),
    backlogs=st.sampled_from([(10**9, 10**9), (10**9, 3), (10**9, 0), (0, 10**9)]),
)
def test_two_sources_of_a_query_come_to_the_target_together(
    fixed: float, costs: tuple[float, float], backlogs: tuple[int, int]
) -> None:
    demands = [AdaptiveDemand(1.0, start=1000), AdaptiveDemand(1.0, start=1000)]
    durations = []
    for _ in range(80):
        sizes = [min(demand.size, waiting) for demand, waiting in zip(demands, backlogs, strict=True)]
        seconds = fixed + sum(size * cost for size, cost in zip(sizes, costs, strict=True))
        for demand, size in zip(demands, sizes, strict=True):
            if size:  # A source without records is in no batch, and learns nothing.
                demand.observed(size, seconds)
        durations.append(seconds)
    settled = sum(durations[40:]) / 40
    assert 0.5 < settled < 1.35
    assert max(durations[40:]) < 2.5


@pytest.mark.parametrize("workload", spark_demand.WORKLOADS, ids=lambda workload: str(workload.name))
def test_the_target_is_within_a_tenth_of_the_best_fixed_limit(workload: spark_demand.Workload) -> None:
    _, best = spark_demand.best_fixed(workload)
    found = spark_demand.adaptive(workload)
    assert found.keeps_time
    assert found.age <= 1.1 * best.age


@pytest.mark.parametrize(
    "workload",
    [workload for workload in spark_demand.WORKLOADS if workload.noise or workload.pauses],
    ids=lambda workload: str(workload.name),
)
def test_that_is_not_the_luck_of_one_seed(workload: spark_demand.Workload) -> None:
    assert spark_demand.worst_of(workload, range(1, 4)) <= 1.1
