"""The stream reader of Spark 4.0 and 4.1, called as these versions call it: it is told nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.aquifer import Gateway
from penstock.spark.options import SourceOptions
from penstock.spark.query_listener import StartingTriggers
from penstock.spark.source.self_paced import TRIGGER_VARIABLE, SelfPacedStreamReader
from penstock.spark.versions import has_admission_control
from penstock.streams import Flux
from tests.spark.conftest import Serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = StructType([StructField("offset", LongType())])
RECORDS = 25


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(Flux.range(RECORDS).map(lambda n: b"%d" % n), "tcp://127.0.0.1:0") as serving:
        assert serving.join(60)
        yield serving


def reader(gateway: Gateway, **options: object) -> SelfPacedStreamReader:
    given = {"endpoint": gateway.endpoint, "waitSeconds": "0.1", "partitions": "1"}
    return SelfPacedStreamReader(
        SCHEMA, SourceOptions.of(given | {name: str(value) for name, value in options.items()})
    )


def offsets(planned: SelfPacedStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    pieces = planned.partitions(start, end)
    batches = [batch for piece in pieces for batch in planned.read(piece)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_each_answer_continues_after_the_one_before(gateway: Gateway) -> None:
    query = reader(gateway, maxRecordsPerTrigger=10)
    ends = [query.latestOffset() for _ in range(4)]
    assert [sum(end["offsets"].values()) for end in ends] == [10, 20, 25, 25]
    assert ends[2] == ends[3], "Spark takes another answer for new records"
    assert offsets(query, query.initialOffset(), ends[0]) == list(range(10))
    query.stop()


def test_a_new_run_continues_at_the_last_position_of_spark_s_log(gateway: Gateway) -> None:
    first = reader(gateway, maxRecordsPerTrigger=10)
    start, logged = first.initialOffset(), first.latestOffset()
    first.stop()

    again = reader(gateway, maxRecordsPerTrigger=10)
    assert list(again.partitions(logged, logged)) == [], "the first thing that Spark asks for"
    assert offsets(again, start, logged) == list(range(10)), "a batch that was not committed is there yet"
    following = again.latestOffset()
    assert offsets(again, logged, following) == list(range(10, 20))
    again.stop()


def test_naming_the_last_position_acknowledges_nothing(gateway: Gateway) -> None:
    first = reader(gateway, maxRecordsPerTrigger=10)
    first.initialOffset()
    logged = first.latestOffset()
    first.stop()

    again = reader(gateway)
    again.partitions(logged, logged)
    state = again._logs.state(gateway.endpoint, name=logged["name"])
    assert state.acknowledged == 0, "the batch that ends there may have to run again"
    again.stop()


@pytest.mark.parametrize("trigger", ["AvailableNowTrigger", "OneTimeTrigger"])
def test_a_trigger_with_one_batch_has_everything_in_it(
    gateway: Gateway, trigger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRIGGER_VARIABLE, trigger)
    query = reader(gateway, maxRecordsPerTrigger=10)
    assert query.latestOffset()["offsets"] == {gateway.endpoint: RECORDS}
    query.stop()


def test_a_trigger_with_many_batches_keeps_to_the_limit(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRIGGER_VARIABLE, "ProcessingTimeTrigger")
    query = reader(gateway, maxRecordsPerTrigger=10)
    assert query.latestOffset()["offsets"] == {gateway.endpoint: 10}
    query.stop()


# ---------------------------------------------------------------- queries that start at the same time
class FakeStart:
    """A query in Java that has started, and whose processes read the note of its trigger a little later."""

    def __init__(self, trigger: str, notes: list[str]) -> None:
        self._trigger = trigger
        self._notes = notes
        self._initialized = threading.Event()
        self.read: list[str] = []
        """What its processes have read."""
        self.awaited = threading.Event()

    def trigger(self) -> FakeStart:
        return self

    def getClass(self) -> FakeStart:
        return self

    def getSimpleName(self) -> str:
        return f"{self._trigger}$"

    def awaitInitialization(self, milliseconds: int) -> None:
        self.awaited.set()
        assert self._initialized.wait(milliseconds / 1000)
        if self._trigger == "Fails":
            raise RuntimeError("the query failed")

    def initialize(self) -> None:
        self.read.append(self._notes[-1])
        self._initialized.set()


def test_a_query_with_another_trigger_waits_until_those_before_it_have_read_theirs() -> None:
    triggers, notes = StartingTriggers(), ["nothing"]
    one, two, other = (FakeStart(name, notes) for name in ("AvailableNow", "AvailableNow", "ProcessingTime"))
    for query in (one, two):
        triggers.begin(repr(query), query, notes.append)
    starting = threading.Thread(target=triggers.begin, args=("other", other, notes.append))
    starting.start()
    assert one.awaited.wait(60)
    one.initialize()
    assert two.awaited.wait(60)
    two.initialize()
    starting.join(60)
    other.initialize()
    assert (one.read, two.read, other.read) == (["AvailableNow"], ["AvailableNow"], ["ProcessingTime"])


def test_a_query_does_not_wait_for_one_that_has_been_planned_or_has_failed() -> None:
    triggers, notes = StartingTriggers(), ["nothing"]
    planned, failing, third = (FakeStart(name, notes) for name in ("AvailableNow", "Fails", "OneTime"))
    triggers.begin("planned", planned, notes.append)
    triggers.end("planned")
    triggers.begin("failing", failing, notes.append)
    failing.initialize()
    triggers.begin("third", third, notes.append)
    assert not planned.awaited.is_set()
    assert failing.awaited.is_set()
    assert notes[1:] == ["AvailableNow", "Fails", "OneTime"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(has_admission_control(), reason="Spark tells these readers their trigger")
def test_queries_with_different_triggers_that_start_together_keep_their_own(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """The processes of the first query start one after the other, while the second query starts."""
    gateways = [serve([b"%d" % number for number in range(RECORDS)]) for _ in range(3)]
    streams = [
        spark.readStream.format("aquifer").options(endpoint=each.endpoint, maxRecordsPerTrigger="10").load()
        for each in gateways
    ]
    first, second = streams[0].unionAll(streams[1]).unionAll(streams[2]), streams[0]

    def start(rows: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        writer = rows.writeStream.format("json").option("path", str(tmp_path / name))
        return writer.option("checkpointLocation", f"{tmp_path}/{name}-state").trigger(**trigger).start()

    all_at_once = start(first, "first", availableNow=True)
    in_batches = start(second, "second", processingTime="10 milliseconds")
    try:
        assert all_at_once.awaitTermination(400)
        in_batches.processAllAvailable()
    finally:
        in_batches.stop()
    assert spark.read.json(str(tmp_path / "first")).count() == 3 * RECORDS
    assert {each["numInputRows"] for each in in_batches.recentProgress} - {0} == {10, 5}
