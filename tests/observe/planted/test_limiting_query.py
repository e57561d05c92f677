"""A real Spark query between two gateways: it is slow itself, its sink is, or the last reader is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.observe import Observer, Verdict
from penstock.streams import Flux
from tests.observe.planted.pipeline_process import SlowDisk
from tests.spark.conftest import SPARK_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ANYWHERE = "tcp://127.0.0.1:0"
WITHIN = float(os.environ.get("PENSTOCK_NAMED_WITHIN", "40"))
"""Seconds. Five are enough on a machine with nothing else to do; beside other tests it may take longer."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from penstock.spark import session

    running = session(name="planted", master="local[2]", config=SPARK_SETTINGS)
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()


def started(spark: SparkSession, source: str, sink: str, folder: Path, nap: float) -> StreamingQuery:
    """A query that naps for each record."""
    from pyspark.sql.functions import udf

    def think(value: bytes) -> bytes:
        if nap:
            time.sleep(nap)
        return bytes(value)

    rows = spark.readStream.format("aquifer").option("endpoint", source)
    frame = rows.option("maxRecordsPerTrigger", "200").option("partitions", "1").load()
    slow = udf(think, "binary")
    return (
        frame.select(slow("value").alias("value"))
        .writeStream.format("aquifer")
        .queryName("rollup")
        .option("endpoint", sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ("query", "/query/"),
        ("sink", "/log"),
        ("reader", "/cursor/last"),
        ("query and reader", "/cursor/last"),  # The reader is slower.
        ("none", "Nobody limits the flow: the source gives"),
    ],
)
def test_the_planted_hop_is_named(spark: SparkSession, tmp_path: Path, slow: str, expected: str) -> None:
    with ExitStack() as closing:
        ticks = Flux.interval(0.05) if slow == "none" else Flux.range(10**9)
        numbers = ticks.map(lambda n: b"%d" % n)
        journal = MemoryJournal(max_records=2000)
        source = closing.enter_context(Gateway(numbers, ANYWHERE, journal=journal, prefetch=500))
        room = MemoryJournal(max_records=250 if slow == "query and reader" else 500)
        kept = slow_disk(tmp_path / "sink.db") if slow == "sink" else room
        sink = closing.enter_context(Gateway(None, ANYWHERE, journal=kept, writable=True))
        read_from(sink.endpoint, {"reader": 0.05, "query and reader": 0.5}.get(slow, 0.0))
        nap = {"query": 0.05, "query and reader": 0.005}.get(slow, 0.0)
        query = started(spark, source.endpoint, sink.endpoint, tmp_path, nap)
        closing.callback(query.stop)
        wait_until_it_runs(source, query)
        verdict = named_in_time(source.endpoint, expected)
        if slow == "none":
            assert verdict.limiting is None
            return
        assert verdict.limiting is not None
        assert verdict.limiting.startswith(source.endpoint if slow == "query" else sink.endpoint)
        if slow == "query":
            assert "The query `rollup` limits the flow" in verdict.sentence
            assert "`addBatch`" in verdict.sentence


def slow_disk(path: Path) -> SlowDisk:
    """A journal that takes longer for a transaction than Spark for a batch."""
    journal = SlowDisk(path)
    journal.nap = 3.0
    return journal


def read_from(endpoint: str, nap: float) -> None:
    def read() -> None:
        for _ in AquiferPublisher(endpoint, id="last", window=32).flux().on_error_complete():
            if nap:
                time.sleep(nap)

    threading.Thread(target=read, daemon=True).start()


def wait_until_it_runs(source: Gateway, query: StreamingQuery) -> None:
    """Until the gateway was told about a batch: Spark needs its time to start."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert query.isActive, query.exception()
        cursors = source.status().saved.values()
        if any(isinstance(cursor.batches, list) and cursor.batches[-1].sink for cursor in cursors):
            return
        threading.Event().wait(0.5)
    raise AssertionError("the query did not report a batch")


def named_in_time(endpoint: str, expected: str) -> Verdict:
    with Observer(endpoint) as observer:
        began = observer.look().clock
        while True:
            time.sleep(0.5)
            snapshot = observer.look()
            verdict = snapshot.verdict
            assert verdict is not None
            if expected in f"{verdict.limiting} {verdict.sentence}":
                return verdict
            assert snapshot.clock - began < WITHIN, f"{verdict} does not name {expected!r}"
