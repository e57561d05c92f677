"""How far a query is behind: in records, in seconds, and how fast more arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.aquifer import Gateway, Record
from penstock.spark.options import SourceOptions
from penstock.spark.source.lag import Lag
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadMaxRows
from penstock.spark.versions import has_admission_control
from penstock.streams import Flux
from tests.spark.conftest import Queries

SCHEMA = StructType([StructField("offset", LongType())])
HERE, THERE = "tcp://127.0.0.1:5556", "tcp://127.0.0.1:5557"
AN_HOUR = 3600


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A hundred records, one for each minute; the last is of this minute."""
    now = time.time()
    records = [Record(b"x" * 50, timestamp=int((now - 60 * (99 - minute)) * 1e6)) for minute in range(100)]
    with Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0") as serving:
        assert serving.join(60)
        yield serving


def planned(gateway: Gateway, limit: int) -> dict[str, Any]:
    """What is reported after a batch of some records was planned."""
    reader = AquiferStreamReader(
        SCHEMA, SourceOptions.of({"endpoint": gateway.endpoint, "waitSeconds": "0.1"})
    )
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(limit))
    reported = reader.reportLatestOffset()
    reader.stop()
    assert reported is not None
    return reported


def test_a_query_is_behind_by_what_is_in_no_batch_yet(gateway: Gateway) -> None:
    reported = planned(gateway, 40)
    assert reported["offsets"] == {gateway.endpoint: 100}
    assert reported["recordsBehind"] == 60
    assert reported["bytesBehind"] == round(0.6 * reported["logBytes"])
    assert AN_HOUR - 120 < reported["secondsBehind"] < AN_HOUR + 600, "the record 40 is 59 minutes old"
    assert reported["logBytes"] >= 100 * 50


def test_a_query_that_has_everything_is_not_behind(gateway: Gateway) -> None:
    reported = planned(gateway, 1000)
    assert [reported[f"{what}Behind"] for what in ("records", "bytes", "seconds")] == [0, 0, 0]


def test_the_oldest_record_of_all_logs_counts_and_gateways_are_not_asked_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.spark.source.lag._LOOK_EVERY", AN_HOUR)  # Longer than this can take.
    asked: list[tuple[str, int]] = []
    now = time.time()
    times = {HERE: int((now - 10) * 1e6), THERE: int((now - AN_HOUR) * 1e6)}

    def time_of(endpoint: str, offset: int) -> int | None:
        asked.append((endpoint, offset))
        return times[endpoint]

    lag = Lag(time_of)
    for _ in range(50):
        lag.planned({HERE: 10, THERE: 20}, {HERE: 5, THERE: 5}, 0.25, {HERE: (10, 500), THERE: (5, 100)})
    assert asked == [(HERE, 5), (THERE, 5)]
    figures = lag.figures()
    assert figures["recordsBehind"] == 20
    assert figures["bytesBehind"] == 5 * 50 + 15 * 20
    assert figures["logBytes"] == 600
    assert figures["waitedSeconds"] == 0.25
    assert AN_HOUR <= figures["secondsBehind"] < AN_HOUR + 600


def test_a_record_that_is_gone_has_no_age() -> None:
    lag = Lag(lambda endpoint, offset: None)
    lag.planned({HERE: 10}, {HERE: 5}, 0.0, {HERE: (0, 0)})
    assert lag.figures()["secondsBehind"] == 0


def test_a_clock_that_was_set_back_does_not_make_a_query_early() -> None:
    lag = Lag(lambda endpoint, offset: int((time.time() + AN_HOUR) * 1e6))
    lag.planned({HERE: 10}, {HERE: 5}, 0.0, {HERE: (0, 0)})
    assert lag.figures()["secondsBehind"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not has_admission_control(), reason="Spark shows it from 4.2 on")
def test_the_progress_of_a_query_says_how_far_it_is_behind(gateway: Gateway, queries: Queries) -> None:
    query = queries.start(gateway, trigger={"availableNow": True}, maxRecordsPerTrigger=40)
    assert query.awaitTermination(400)
    reported = [json.loads(each["sources"][0]["latestOffset"]) for each in query.recentProgress]
    assert [each["recordsBehind"] for each in reported][:3] == [60, 20, 0]
    assert AN_HOUR - 120 < reported[0]["secondsBehind"] < AN_HOUR + 600, "the record 40 is 59 minutes old"
    assert reported[0]["bytesBehind"] == round(0.6 * reported[0]["logBytes"])
    assert (reported[2]["secondsBehind"], reported[2]["bytesBehind"]) == (0, 0)
    assert {"recordsPerSecond", "waitedSeconds"} <= reported[0].keys()
