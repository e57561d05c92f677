"""Queries that are stopped while they wait: for space in a log, for a gateway that is gone, for records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.aquifer import Gateway, LogReader, MemoryJournal, Producer
from penstock.spark import QueryStopped
from penstock.spark.options import SinkOptions
from penstock.spark.sink import writers
from penstock.spark.stop_notices import QueryRun, StopNotice, StopWatch
from tests.aquifer.faults.rigs import ANYWHERE, eventually, has, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.conftest import Queries, Serve

RUN = QueryRun("a-query", "a-run")
AN_HOUR = 3600.0
ROOT = Path(__file__).parents[2]

STOPPING = """
import sys
from penstock.spark import session
from tests.spark.conftest import SPARK_SETTINGS

source, sink, folder = sys.argv[1:]
spark = session(master="local[2]", config=SPARK_SETTINGS)


def start(checkpoint, **options):
    rows = spark.readStream.format("aquifer").options(endpoint=source, **options).load().select("value")
    writer = rows.writeStream.format("aquifer").options(endpoint=sink, value="binary")
    return writer.option("checkpointLocation", f"{folder}/{checkpoint}").start()


idle = start("idle")
idle.processAllAvailable()
idle.stop()
print(sum(progress.numInputRows for progress in idle.recentProgress))
busy = start("busy", maxRecordsPerTrigger="10")
while busy.lastProgress is None and busy.isActive:
    busy.awaitTermination(1)
busy.stop()
print("stopped" if busy.exception() is None else busy.exception())
spark.stop()
"""
"""A program that stops a query that has nothing to do, and one in the middle of its work."""


class FakeQuery:
    """What the driver knows about a query, in the form of Spark's own object in Java."""

    def __init__(self, run: str) -> None:
        self.active = True
        self._run = run

    def runId(self) -> str:
        return self._run

    def isActive(self) -> bool:
        return self.active


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own for the notices, unless processes of Spark have to find it as well."""
    if "spark" not in request.fixturenames:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def query() -> FakeQuery:
    return FakeQuery(RUN.run)


@pytest.fixture
def watch(query: FakeQuery) -> StopWatch:
    return StopWatch({RUN.query: query})


def stopped(notice: StopNotice) -> bool:
    try:
        notice.check()
    except QueryStopped:
        return True
    return False


def asks(notice: StopNotice) -> bool:
    notice.check()
    return RUN.file.exists()


def test_a_sink_that_waits_learns_that_its_query_is_being_stopped(query: FakeQuery, watch: StopWatch) -> None:
    watch.begin(RUN.run)
    with StopNotice(RUN, "batch 7 waited") as notice:
        eventually(lambda: asks(notice), "it does not ask", 60)
        assert not json.loads(RUN.file.read_text())["stopped"]
        query.active = False
        eventually(lambda: stopped(notice), "it is not told", 60)
        with pytest.raises(QueryStopped, match=r"while batch 7 waited: its next run .*a-run was cancelled"):
            eventually(notice.check, "it is told once only", 60)
    assert not RUN.file.exists()
    watch.end(RUN.run)
    eventually(lambda: watch._thread is None, "the thread stays though there are no queries", 60)


def test_a_query_of_another_driver_and_a_file_left_behind_are_let_alone(
    query: FakeQuery, watch: StopWatch
) -> None:
    query.active = False
    with StopNotice(RUN, "") as notice:
        eventually(lambda: asks(notice), "it does not ask", 60)
        watch._answer(RUN.file)  # The watch does not know this run.
        assert not json.loads(RUN.file.read_text())["stopped"]
    RUN.file.write_text("half a no")
    watch._answer(RUN.file)
    watch._answer(RUN.file.with_name("waits-nobody"))
    assert RUN.file.read_text() == "half a no"


def test_a_folder_that_cannot_be_used_does_not_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    with StopNotice(RUN, "") as notice:
        notice._next = 0.0
        notice.check()
        assert notice._next > 0, "it has tried"
    with StopNotice(None, "") as none:
        none.check()


def test_a_commit_that_waits_for_space_is_given_up_and_published_later(
    query: FakeQuery, watch: StopWatch
) -> None:
    watch.begin(RUN.run)
    with (
        Gateway(None, ANYWHERE, writable=True, journal=MemoryJournal(max_records=10)) as gateway,
        LogReader(gateway.endpoint) as log,
        Producer(gateway.endpoint, "writer") as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        options = SinkOptions.of({"endpoint": gateway.endpoint, "timeoutSeconds": str(AN_HOUR)})
        log.state(name="slow", lease=AN_HOUR, acknowledge=0)
        messages = []
        for batch in range(2):
            transaction = producer.transaction(batch)
            transaction.write([b"%d" % number for number in range(8)])
            messages.append([writers.PreparedRows("writer", transaction.prepare(), RUN)])
        writers._commit([*messages[0]], 0, options)
        waiting = pool.submit(writers._commit, [*messages[1]], 1, options)
        eventually(RUN.file.exists, "it does not wait", 60)
        query.active = False
        with pytest.raises(QueryStopped, match="while batch 1 waited for the gateway at tcp://"):
            waiting.result(60)
        query.active = True
        log.state(name="slow", lease=AN_HOUR, acknowledge=8)
        writers._commit([*messages[1]], 1, options)
        assert log.state().head == 16, "it is published once"
    watch.end(RUN.run)


# -------------------------------------------------------------------------------------------- with Spark
def ended(query: StreamingQuery) -> bool:
    """Stop a query; a time limit of the test stands for "within seconds"."""
    query.stop()
    assert query.exception() is None, "a query that was stopped has not failed"
    return not query.isActive


@pytest.fixture
def crowded(serve: Serve) -> Gateway:
    """A gateway with room for 300 records, all of which somebody wants to read, but does not."""
    gateway = serve(None, writable=True, journal=MemoryJournal(max_records=300))
    with LogReader(gateway.endpoint) as log:
        log.state(name="slow", lease=AN_HOUR, acknowledge=0)
    return gateway


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["writeStream", "foreachBatch"])
def test_a_query_stops_while_its_sink_waits_for_space_and_its_next_run_publishes_the_batch(
    spark: SparkSession, serve: Serve, crowded: Gateway, tmp_path: Path, way: str
) -> None:
    source = serve([b"%d" % number for number in range(1000)])
    options = {"endpoint": crowded.endpoint, "value": "binary", "timeoutSeconds": str(AN_HOUR)}

    def write(rows: DataFrame, batch: int) -> None:
        once = {"writerId": "stopped", "batchId": str(batch)}
        rows.write.format("aquifer").mode("append").options(**options, **once).save()

    def start() -> StreamingQuery:
        frame = spark.readStream.format("aquifer").option("endpoint", source.endpoint)
        rows = frame.option("maxRecordsPerTrigger", "200").load().select("value")
        stream = rows.writeStream.option("checkpointLocation", str(tmp_path))
        if way == "foreachBatch":
            return stream.foreachBatch(write).start()
        return stream.format("aquifer").options(**options).start()

    query = start()
    eventually(lambda: crowded.status()["log"]["full_seconds"] is not None, "the log is not full", 400)
    assert ended(query)
    with LogReader(crowded.endpoint) as log:
        assert log.state().head == 200
    with reading(crowded.endpoint, id="slow") as slow:
        again = start()
        again.processAllAvailable()
        again.stop()
        eventually(has(slow, 1000), "not everything is published", 400)
        assert sorted(map(int, slow.items)) == list(range(1000))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_stops_while_its_source_waits_for_a_gateway_that_is_gone(
    queries: Queries, serve: Serve
) -> None:
    gateway = serve([b"%d" % number for number in range(10)])
    query = queries.start(gateway, patienceSeconds=AN_HOUR, waitSeconds=AN_HOUR)
    eventually(lambda: len(queries.rows) == 10, "the query does not read", 400)
    gateway.close()
    assert ended(query)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_stops_while_its_sink_waits_for_a_gateway_that_is_gone(
    spark: SparkSession, serve: Serve, crowded: Gateway, tmp_path: Path
) -> None:
    source = serve([b"%d" % number for number in range(400)])
    frame = spark.readStream.format("aquifer").option("endpoint", source.endpoint)
    rows = frame.option("maxRecordsPerTrigger", "200").load().select("value")
    writer = rows.writeStream.format("aquifer").option("checkpointLocation", str(tmp_path))
    options = {"endpoint": crowded.endpoint, "value": "binary", "timeoutSeconds": str(AN_HOUR)}
    query = writer.options(**options).start()
    eventually(lambda: crowded.status()["log"]["full_seconds"] is not None, "the log is not full", 400)
    crowded.close()
    assert ended(query)


@pytest.mark.slow
@pytest.mark.rare(20)
@pytest.mark.timeout(900)
def test_queries_that_are_stopped_leave_no_traceback_on_the_screen(serve: Serve, tmp_path: Path) -> None:
    source, sink = serve([b"%d" % number for number in range(3000)]), serve(None, writable=True)
    ended = subprocess.run(
        [sys.executable, "-c", STOPPING, source.endpoint, sink.endpoint, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ended.stdout == "3000\nstopped\n", ended.stderr[-5000:]
    assert "Traceback" not in ended.stderr, ended.stderr[-5000:]
