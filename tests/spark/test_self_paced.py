"""The stream reader of Spark 4.0 and 4.1, called as these versions call it: it is told nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.aquifer import Gateway
from penstock.spark.options import SourceOptions
from penstock.spark.source.self_paced import TRIGGER_VARIABLE, SelfPacedStreamReader
from penstock.streams import Flux

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
