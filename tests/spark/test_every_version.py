"""What works with which Spark: each of these is a row of the table in ``docs/spark-versions.md``.

The file runs on the newest version with all other tests, and on others by ``make test-spark40``,
``make test-spark41 ARGS='$(EVERY_SPARK)'`` and ``make test-spark42``. With
the variable ``PENSTOCK_OUTCOMES`` it writes what came of it, and ``python -m tests.spark.version_table``
makes the page of that.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.programs import java_home, python_for_workers
from penstock.spark.versions import has_admission_control, installed
from tests.spark.connect_server import RECORDS, ClientRun
from tests.spark.sinking import log_of
from tests.spark.version_table import FEATURES, PAGE, column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Queries, Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1300)]

NUMBERS = [{"n": number} for number in range(RECORDS)]
PROJECT = Path(__file__).parents[2] / "examples" / "spark_pipelines"

CONNECT = pytest.mark.rare(60) if installed() < (4, 3) else pytest.mark.slow
PIPELINES = pytest.mark.rare(30) if (4, 1) <= installed() < (4, 3) else pytest.mark.slow
"""What takes a minute, or half of one, runs each time on the newest version."""

outcomes: dict[str, str] = {}
"""What came of each feature, by its name."""


def feature(name: str) -> Callable[[Callable[..., str | None]], Callable[..., None]]:
    """Note what comes of a test; what it returns is a remark for the page."""

    def noted(test: Callable[..., str | None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*arguments: Any, **named: Any) -> None:
            outcomes[name] = "fails"
            outcomes[name] = test(*arguments, **named) or "yes"

        return run

    return noted


def lines_of(folder: Path) -> list[Any]:
    """The rows of JSON files that Spark has written."""
    return [
        json.loads(line) for file in folder.glob("*.json") for line in file.read_text("utf-8").splitlines()
    ]


@feature("batch")
def test_a_batch_is_read(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(NUMBERS, codec="json")
    rows = spark.read.format("aquifer").schema("n bigint").options(endpoint=gateway.endpoint, value="json")
    assert sorted(row.n for row in rows.load().collect()) == list(range(RECORDS))


@feature("stream")
def test_a_stream_is_read_in_batches_of_a_limit_and_resumed(queries: Queries, serve: Serve) -> None:
    gateway = serve([b"%d" % number for number in range(RECORDS)])
    for until in (RECORDS // 2, RECORDS):
        query = queries.start(gateway, maxRecordsPerTrigger=125)
        while len(set(queries.offsets)) < until and query.isActive:
            query.awaitTermination(0.05)  # type: ignore[arg-type]
        query.stop()
        assert query.exception() is None
    assert sorted(set(queries.offsets)) == list(range(RECORDS))
    assert {len(batch) for batch in queries.batches} - {0} == {125}


@feature("AvailableNow")
def test_available_now_reads_what_is_there_and_ends(queries: Queries, serve: Serve) -> str | None:
    gateway = serve([b"%d" % number for number in range(RECORDS)])
    for _ in range(2):
        query = queries.start(gateway, trigger={"availableNow": True}, maxRecordsPerTrigger=400)
        assert query.awaitTermination(400)
    assert sorted(queries.offsets) == list(range(RECORDS))
    batches = [len(batch) for batch in queries.batches]
    if has_admission_control():
        assert batches == [400, 400, 200]
        return None
    assert batches == [RECORDS]
    return "in one batch"


@feature("sink")
def test_a_stream_is_written_once(queries: Queries, serve: Serve, tmp_path: Path) -> None:
    gateway, sink = serve(NUMBERS, codec="json"), serve(None, writable=True)
    for _ in range(2):
        rows = queries.frame(gateway, "n bigint", value="json", maxRecordsPerTrigger=300)
        writer = rows.writeStream.format("aquifer").option("endpoint", sink.endpoint)
        query = writer.option("checkpointLocation", str(tmp_path / "sink")).trigger(availableNow=True).start()
        assert query.awaitTermination(400)
    assert sorted(row["n"] for row in log_of(sink)) == list(range(RECORDS))


@feature("foreachBatch")
def test_a_batch_that_runs_twice_is_written_once(queries: Queries, serve: Serve, tmp_path: Path) -> None:
    gateway, sink = serve(NUMBERS, codec="json"), serve(None, writable=True)

    def write(rows: DataFrame, batch: int) -> None:
        for _ in range(2):
            options = {"endpoint": sink.endpoint, "writerId": "copy", "batchId": str(batch)}
            rows.write.format("aquifer").mode("append").options(**options).save()

    writer = queries.frame(gateway, "n bigint", value="json").writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(tmp_path / "each")).trigger(availableNow=True).start()
    assert query.awaitTermination(400)
    assert sorted(row["n"] for row in log_of(sink)) == list(range(RECORDS))


@feature("stateful")
def test_counts_go_on_after_a_restart(queries: Queries, serve: Serve, tmp_path: Path) -> None:
    gateway = serve([{"n": number % 10} for number in range(RECORDS)], codec="json")
    counted: dict[int, int] = {}

    def take(rows: DataFrame, batch: int) -> None:
        counted.update((row.n, row["count"]) for row in rows.collect())

    for limit in (RECORDS // 2, RECORDS):
        rows = queries.frame(gateway, "n bigint", value="json", maxRecordsPerTrigger=RECORDS // 2)
        writer = rows.groupBy("n").count().writeStream.outputMode("update").foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path / "counts")).start()
        while sum(counted.values()) < limit and query.isActive:
            query.awaitTermination(0.05)  # type: ignore[arg-type]
        query.stop()
        assert query.exception() is None
    assert counted == dict.fromkeys(range(10), RECORDS // 10)


@CONNECT
@feature("Connect")
def test_a_client_of_a_server_reads_and_writes(run_of_client: ClientRun) -> str | None:
    found, written = run_of_client.found, run_of_client.doubled
    assert found["copied"] == {"total": sum(range(RECORDS)), "failure": None}
    assert found["pipeline"]["rows"] == list(range(0, RECORDS, 100))
    assert found["sql"]["written"] == [-1, *range(990, RECORDS)]
    if has_admission_control():
        assert written == [2 * number for number in range(RECORDS)]
        return None
    assert len(written) == 400, "the server's driver does not tell the reader that it has one batch only"
    return "yes; AvailableNow ends after one batch of the limit"


@PIPELINES
@feature("pipelines")
def test_a_project_of_declarative_pipelines_reads_and_writes(serve: Serve, tmp_path: Path) -> str | None:
    if find_spec("pyspark.pipelines") is None:
        return "no: Spark has them from 4.1 on"
    import shutil

    import pyarrow.parquet as pq

    source, sink = serve(NUMBERS, codec="json"), serve(None, writable=True)
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    specification = project / "spark-pipeline.yml"
    specification.write_text(
        specification.read_text("utf-8").replace("STORAGE", f"file://{tmp_path}/storage"), "utf-8"
    )
    ran = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", specification],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=project,
        env=os.environ
        | {
            "READINGS": source.endpoint,
            "WARM": sink.endpoint,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": python_for_workers(),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-5000:]
    assert sorted(row["n"] for row in log_of(sink)) == list(range(500, RECORDS))
    hottest = pq.read_table(project / "spark-warehouse" / "hottest")
    assert sorted(hottest.column("n").to_pylist()) == list(range(990, RECORDS))
    return None


def test_the_page_says_what_works_with_the_installed_version() -> None:
    noted = os.environ.get("PENSTOCK_OUTCOMES")
    if noted is not None:
        if outcomes.keys() == set(FEATURES):
            Path(noted).write_text(json.dumps(outcomes), "utf-8")
        return
    version = ".".join(map(str, installed()))
    said = column_of(PAGE.read_text("utf-8"), version)
    assert said.keys() == set(FEATURES), "python -m tests.spark.version_table"
    # Of those that were tried: the others are rare, or were not asked for.
    assert {name: said[name] for name in outcomes} == outcomes, "python -m tests.spark.version_table"
