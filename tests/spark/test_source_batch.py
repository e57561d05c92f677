"""``spark.read.format("aquifer")``: a log, or a part of it, as a DataFrame."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock.aquifer import Gateway, MemoryJournal, Record
from penstock.spark import reason_of
from penstock.streams import Flux
from tests.aquifer.faults.rigs import Numbers, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def load(spark: SparkSession, gateway: Gateway | str, schema: str | None = None, **options: Any) -> DataFrame:
    endpoint = gateway if isinstance(gateway, str) else gateway.endpoint
    reader = spark.read.format("aquifer").option("endpoint", endpoint)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load()


def problem(spark: SparkSession, gateway: Gateway | str, schema: str | None = None, **options: Any) -> str:
    """What is told when such a read fails, in one line."""
    with pytest.raises(PySparkException) as failed:
        load(spark, gateway, schema, **options).collect()
    return reason_of(failed.value)


def test_a_log_is_a_table_of_its_records(spark: SparkSession, serve: Serve) -> None:
    before = time.time()
    gateway = serve([Record(b"one", key=b"k"), Record(b"two")])
    rows = load(spark, gateway).orderBy("offset").collect()
    assert [(row.endpoint, row.offset, row.key, row.value) for row in rows] == [
        (gateway.endpoint, 0, b"k", b"one"),
        (gateway.endpoint, 1, None, b"two"),
    ]
    assert all(before - 1 < row.timestamp.timestamp() < time.time() + 1 for row in rows)


@pytest.mark.parametrize("value", ["string", "json"])
def test_tasks_read_compressed_batches(spark: SparkSession, serve: Serve, value: str) -> None:
    lines = [json.dumps({"n": number, "state": "in order"}) for number in range(5000)]
    gateway = serve([line.encode() for line in lines], compress="zstd")
    assert gateway.status().bytes < sum(map(len, lines)) / 4
    schema = "n long, state string" if value == "json" else None
    frame = load(spark, gateway, schema, startingOffsets=77, endingOffsets=4900, partitions=3, value=value)
    rows = frame.collect()
    found = [row.n for row in rows] if value == "json" else [json.loads(row.value)["n"] for row in rows]
    assert sorted(found) == list(range(77, 4900))


def test_a_part_of_a_log_is_read_by_as_many_tasks_as_are_wanted(spark: SparkSession, serve: Serve) -> None:
    frame = load(
        spark, serve(numbers(1000)), startingOffsets=100, endingOffsets=900, partitions=3, value="string"
    )
    assert frame.rdd.getNumPartitions() == 3
    assert [int(row.value) for row in frame.collect()] == list(range(100, 900))


def test_several_gateways_are_one_table(spark: SparkSession, serve: Serve) -> None:
    one, other = serve(numbers(10)), serve(numbers(10, first=100))
    start = json.dumps({one.endpoint: 8, other.endpoint: 9})
    rows = load(spark, f"{one.endpoint},{other.endpoint}", startingOffsets=start, value="string").collect()
    assert sorted((row.endpoint, row.offset, row.value) for row in rows) == sorted(
        [(one.endpoint, 8, "8"), (one.endpoint, 9, "9"), (other.endpoint, 9, "109")]
    )


def test_an_empty_log_is_an_empty_table(spark: SparkSession, serve: Serve) -> None:
    frame = load(spark, serve([]))
    assert frame.columns == ["endpoint", "offset", "timestamp", "key", "value"]
    assert frame.collect() == []
    assert load(spark, serve(numbers(5)), startingOffsets="latest").count() == 0


def test_json_and_arrow_logs_have_the_columns_that_the_user_names(spark: SparkSession, serve: Serve) -> None:
    objects = serve([{"x": 1, "at": "2026-01-01T00:00:00Z", "tags": {"a": "b"}}, {"x": None}], codec="json")
    read = load(spark, objects, "x int, at timestamp, tags map<string,string>", value="json")
    assert [(row.x, row.at and row.at.year, row.tags) for row in read.collect()] == [
        (1, 2026, {"a": "b"}),
        (None, None, None),
    ]
    batches = serve([pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})], codec="arrow")
    rows = load(spark, batches, "x bigint", value="arrow").orderBy("x").collect()
    assert [row.x for row in rows] == [1, 2, 3]


def test_the_last_line_of_what_spark_says_is_what_we_say(spark: SparkSession, serve: Serve) -> None:
    gateway = serve([b"{}", b"null"])
    assert "did you mean startingOffsets?" in problem(spark, gateway, startingOffset="5")
    assert "has the offsets 0 to 1, and the next will be 2" in problem(spark, gateway, startingOffsets=3)
    assert "that is after the end" in problem(spark, gateway, startingOffsets=1, endingOffsets=0)
    assert "so give a schema" in problem(spark, gateway, value="json")
    assert "x int is not one of them" in problem(spark, gateway, "x int")
    assert "record 1 of" in problem(spark, gateway, "x int", value="json", mode="FAILFAST")
    assert "b'null' is not a JSON object" in problem(spark, gateway, "x int", value="json", mode="FAILFAST")


def test_a_gateway_that_is_not_there_is_told_in_time(spark: SparkSession, serve: Serve, nobody: str) -> None:
    begun = time.monotonic()
    load(spark, serve(numbers(1))).collect()
    usual = time.monotonic() - begun  # A busy machine may take any time for a read.
    begun = time.monotonic()
    with pytest.raises(PySparkException, match=f"no gateway answers at {nobody} after 1 s; is it running"):
        load(spark, nobody, patienceSeconds=1).collect()
    assert time.monotonic() - begun < 20 + 10 * usual


def test_a_read_of_a_log_that_goes_on_loses_nothing_to_its_own_slowness(
    spark: SparkSession, serve: Serve
) -> None:
    def slowly(rows: Any) -> Any:
        read = [int(row.value) for row in rows]
        time.sleep(0.3)  # A task that takes long.
        return iter(read)

    gateway = serve(Numbers(), journal=MemoryJournal(max_records=5_000), prefetch=1_000)
    eventually(lambda: gateway.status()["head"] >= 4_000, "the log does not fill up")
    frame = load(spark, gateway, value="string", partitions=4, leaseSeconds=600)
    rows = frame.rdd.mapPartitions(slowly).collect()
    assert rows == list(range(rows[0], rows[0] + len(rows)))
    assert len(rows) >= 4_000
    # A while after it nothing is kept for it any more, and the source goes on.
    assert [place["lease_ms"] for place in gateway.status()["absent"].values()] == [600_000]


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_records_of_a_read_are_not_kept_for_long_after_it(
    spark: SparkSession, serve: Serve, partitions: int
) -> None:
    gateway = serve(numbers(5_000))
    assert load(spark, gateway, partitions=partitions).count() == 5_000

    if partitions > 1:
        # Which task is the last nobody knows: what a task has kept, it has kept for some seconds after it.
        assert [place["lease_ms"] for place in gateway.status()["absent"].values()] in ([10_000], [])
    eventually(lambda: not gateway.status()["absent"], "the place of the read is kept", 120)


def test_a_read_that_is_planned_and_never_run_holds_nothing_up_for_long(
    spark: SparkSession, serve: Serve
) -> None:
    gateway = serve(numbers(10))
    load(spark, gateway)._jdf.queryExecution().executedPlan().execute().getNumPartitions()
    assert all(place["lease_ms"] <= 60_000 for place in gateway.status()["absent"].values())


def test_a_log_that_goes_on_is_read_as_far_as_it_is(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(Flux.from_iterable(numbers(50)).concat_with(Flux.never()))
    eventually(lambda: gateway.status()["head"] == 50, "the records do not arrive")
    assert load(spark, gateway).count() == 50
