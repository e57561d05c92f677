"""``targetLatencySeconds``: when a batch begins, how large it is, and in how many tasks it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks import spark_latency_target
from penstock.aquifer import Gateway
from penstock.spark import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.latency_target import LatencyTarget
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadMaxRows
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

SCHEMA = StructType([StructField("value", BinaryType())])
MANY = ReadMaxRows(10**9)


def learned(seconds: float, fixed: float, per_record: float, largest: int = 800) -> LatencyTarget:
    """A target after some batches of different sizes, on a machine with four cores."""
    target = LatencyTarget(seconds, cores=4)
    for records in (largest // 8 + 1, largest // 4 + 1, largest // 2 + 1, largest, largest // 2 + 1):
        target.observed(records, fixed + per_record * records)
    return target


@pytest.mark.parametrize("workload", spark_latency_target.WORKLOADS, ids=lambda workload: str(workload.name))
def test_it_is_within_a_tenth_of_the_best_fixed_settings(workload: spark_latency_target.Workload) -> None:
    *_, best = spark_latency_target.best_fixed(workload)
    assert spark_latency_target.ratio(spark_latency_target.adaptive(workload), best) <= 1.1


@given(
    seconds=st.floats(0.1, 60),
    fixed=st.floats(0.01, 5),
    per_record=st.floats(1e-6, 1e-2),
    waiting=st.integers(0, 10**6),
    age=st.floats(0, 100),
)
def test_no_wait_makes_the_oldest_record_too_old(
    seconds: float, fixed: float, per_record: float, waiting: int, age: float
) -> None:
    target = learned(seconds, fixed, per_record)
    wait = target.wait(waiting, age)
    assert wait == 0 or age + wait + target.demand.cost.seconds(waiting) <= seconds


def test_a_batch_begins_at_once_if_nothing_is_known_or_it_is_full() -> None:
    assert LatencyTarget(10.0).wait(1, 0.0) == 0, "nobody knows what a batch takes"
    target = learned(10.0, 0.1, 1e-3)
    assert target.wait(target.demand.size, 0.0) == 0
    assert target.wait(target.demand.size - 1, 1.0) > 0
    assert target.wait(0, 0.0) == 0


@pytest.mark.parametrize(
    ("per_record", "records", "tasks"), [(1e-6, 10_000, 1), (1e-2, 100, 4), (9e-4, 100, 2), (1e-2, 1, 1)]
)
def test_work_is_shared_among_tasks_when_there_is_enough_of_it(
    per_record: float, records: int, tasks: int
) -> None:
    assert learned(4.0, 0.05, per_record, records).tasks(records) == tasks


def test_two_targets_are_refused() -> None:
    given = {"endpoint": "tcp://127.0.0.1:5556", "targetBatchSeconds": "1", "targetLatencySeconds": "2"}
    with pytest.raises(BadOption, match="either targetLatencySeconds or targetBatchSeconds"):
        SourceOptions.of(given)


# ---------------------------------------------------------------- the reader of a stream
@contextmanager
def planned(reader: AquiferStreamReader, start: dict[str, Any]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Plan the next batch on another thread."""
    ends: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: ends.append(reader.latestOffset(start, MANY)), daemon=True)
    thread.start()

    def result() -> dict[str, Any]:
        thread.join(60)
        return ends[0]

    yield result
    thread.join(60)


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_batch_waits_until_it_is_full(gateways: int) -> None:
    feeds = [ByHand() for _ in range(gateways)]
    with ExitStack() as closing:
        serving = [closing.enter_context(Gateway(feed, ANYWHERE)) for feed in feeds]
        endpoints = ",".join(gateway.endpoint for gateway in serving)
        options = {"endpoint": endpoints, "targetLatencySeconds": "600", "maxRecordsPerTrigger": "50"}
        reader = AquiferStreamReader(SCHEMA, SourceOptions.of(options | {"waitSeconds": "60"}))
        target = reader._pace._latency
        assert target is not None
        for records in (10, 20, 40):
            target.observed(records, 0.1 + 0.001 * records)
        start = reader.initialOffset()
        reader._pace.nothing_until(time.monotonic())  # However late the other thread starts.
        with planned(reader, start) as result:
            for number in range(50):
                feeds[number % gateways].give(b"%d" % number)
            end = result()
        assert sum(end["offsets"].values()) == 50
        reader.stop()


def test_a_batch_that_has_all_its_bytes_is_full() -> None:
    feed = ByHand()
    with Gateway(feed, ANYWHERE) as gateway:
        options = {"endpoint": gateway.endpoint, "targetLatencySeconds": "600", "waitSeconds": "60"}
        reader = AquiferStreamReader(SCHEMA, SourceOptions.of(options | {"maxBytesPerTrigger": "50000"}))
        target = reader._pace._latency
        assert target is not None
        for records in (10, 20, 40):
            target.observed(records, 0.1 + 0.001 * records)
        start = reader.initialOffset()
        reader._pace.nothing_until(time.monotonic())
        with planned(reader, start) as result:
            for _ in range(200):
                feed.give(bytes(1000))
            end = result()
        assert 10 < end["offsets"][gateway.endpoint] <= 50
        reader.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_gathers_records_and_reads_each_once(queries: Queries, serve: Serve) -> None:
    full = 20
    seen: list[int] = []
    stopped = threading.Event()

    def handfuls() -> Iterator[dict[str, int]]:
        """One after the other, each after the batches with the one before it."""
        for number in range(10**6):
            while not stopped.wait(0.02) and number % full == 0 and len(seen) < number:
                pass
            if stopped.is_set():
                return
            yield {"n": number}

    gateway = serve(Flux.from_iterable(handfuls()), codec="json")
    queries.during = lambda rows: seen.extend(row["n"] for row in rows)
    limits = {"targetLatencySeconds": 60, "maxRecordsPerTrigger": full}
    queries.start(gateway, "n bigint", value="json", **limits)

    try:
        # What a batch takes is known after the first ones; until then each begins with what is there.
        eventually(lambda: sum(len(batch) == full for batch in queries.batches) >= 3, "no batch is full", 400)
    finally:
        stopped.set()
    read = list(seen)  # The query still runs.
    assert read[: 3 * full] == list(range(3 * full))
    assert len(set(read)) == len(read)
