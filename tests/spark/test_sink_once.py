"""Rows that a query writes are in the log once, whatever is run again, and no faster than they are read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from penstock.aquifer import Gateway, MemoryJournal, SqliteJournal
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import ANYWHERE, eventually, has, reading, stays
from tests.spark.conftest import Serve, failure_of
from tests.spark.sinking import PATIENCE, Files, log_of, run, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A stream of numbers: a file for each ten."""
    files = Files(tmp_path / "in", "n bigint")
    for ten in range(3):
        files.add({"n": 10 * ten + one} for one in range(10))
    return files


def forget_the_last_commit(checkpoint: Path) -> None:
    """Make Spark believe that it was killed after the sink had published and before that was written down."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


# ---------------------------------------------------------------- run again
def test_a_batch_that_is_run_again_is_not_published_again(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    gateway, checkpoint = serve(None, writable=True, codec="json"), tmp_path / "checkpoint"
    run(files.stream(spark), gateway, checkpoint)
    for _ in range(2):
        forget_the_last_commit(checkpoint)
        run(files.stream(spark), gateway, checkpoint)
        assert [row["n"] for row in log_of(gateway)] == list(range(30))

    files.add({"n": n} for n in range(30, 40))
    run(files.stream(spark), gateway, checkpoint)

    assert [row["n"] for row in log_of(gateway)] == list(range(40))


def test_a_gateway_remembers_over_a_restart_what_was_published(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        journal = SqliteJournal(tmp_path / "log.db")
        with Gateway(None, ANYWHERE, journal=journal, codec="json", writable=True) as gateway:
            run(files.stream(spark), gateway, checkpoint)
            assert [row["n"] for row in log_of(gateway)] == list(range(30))
        forget_the_last_commit(checkpoint)


def test_a_query_whose_gateway_has_another_journal_says_so_and_continues_if_it_may(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        # The first batches have no rows, and count all the same.
        run(files.stream(spark).where("n >= 20"), gateway, checkpoint)
        assert [row["n"] for row in log_of(gateway)] == list(range(20, 30))
    files.add({"n": n} for n in range(30, 40))
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        told = failure_of(start(files.stream(spark).where("n >= 20"), gateway, checkpoint))
        assert told.startswith(f"DataLoss: the gateway at {gateway.endpoint} has another journal than before")
        assert "none of this query's batches is in its log, and batch 3 would follow. Put the journal" in told
        assert log_of(gateway) == []
        run(files.stream(spark).where("n >= 20"), gateway, checkpoint, failOnDataLoss="false")
        files.add({"n": n} for n in range(40, 50))
        run(files.stream(spark).where("n >= 20"), gateway, checkpoint)
        assert [row["n"] for row in log_of(gateway)] == list(range(30, 50))


def test_a_query_with_another_checkpoint_is_another_query(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    gateway = serve(None, writable=True, codec="json")
    for name in ("one", "two"):
        run(files.stream(spark), gateway, tmp_path / name)

    assert [row["n"] for row in log_of(gateway)] == [*range(30), *range(30)]


def test_update_mode_goes_by_foreach_batch_and_each_batch_counts_once(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    gateway, checkpoint = serve(None, writable=True, codec="json"), tmp_path / "checkpoint"
    totals = files.stream(spark).selectExpr("n % 2 as odd").groupBy("odd").count()

    with pytest.raises(Exception, match="aquifer does not support Update mode"):
        run(totals, gateway, tmp_path / "directly", "update")

    def write(frame: DataFrame, batch: int) -> None:
        writer = frame.write.format("aquifer").mode("append").option("endpoint", gateway.endpoint)
        writer.option("writerId", "totals").option("batchId", str(batch)).save()

    def update() -> None:
        writer = totals.writeStream.foreachBatch(write).outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(PATIENCE)

    update()
    forget_the_last_commit(checkpoint)
    update()

    log = log_of(gateway)
    assert [row["count"] for row in log] == [5, 5, 10, 10, 15, 15]
    assert {row["odd"] for row in log} == {0, 1}


# ---------------------------------------------------------------- killed
@contextmanager
def driver(gateway: Gateway, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A query in processes of its own, which are killed (SIGKILL) at the end of the block."""
    command = [sys.executable, str(ROOT / "tests/spark/driver_process.py"), gateway.endpoint, str(folder)]
    process = subprocess.Popen(
        [*command, str(folder / "failed")], cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.rare(40)
@pytest.mark.timeout(900)
def test_a_task_that_fails_after_it_has_staged_and_a_driver_that_is_killed_leave_nothing_twice(
    serve: Serve, files: Files, tmp_path: Path
) -> None:
    numbers = list(range(30))
    rows = [*range(1000, 1095), -1, *range(1095, 1100)]
    files.add({"n": n} for n in rows)
    numbers += rows
    for ten in range(200, 208):
        files.add({"n": 10 * ten + one} for one in range(10))
        numbers += range(10 * ten, 10 * ten + 10)
    gateway = serve(None, writable=True, codec="json")

    with driver(gateway, tmp_path):
        eventually(lambda: gateway.status()["head"] > 150, "the query does not begin", timeout=PATIENCE)
    assert (tmp_path / "failed").exists(), "no task has failed"
    killed_at = gateway.status()["head"]
    with driver(gateway, tmp_path) as process:
        assert process.wait(PATIENCE) == 0

    assert 150 < killed_at < len(numbers), "it was killed too late to show anything"
    assert [row["n"] for row in log_of(gateway)] == numbers


def test_a_gateway_that_is_killed_under_a_query_has_every_row_once(
    spark: SparkSession, files: Files, tmp_path: Path, nobody: str
) -> None:
    for ten in range(3, 12):
        files.add({"n": 10 * ten + one} for one in range(10))
    journal = f"SqliteJournal({str(tmp_path / 'log.db')!r})"
    arguments = f"None, {nobody!r}, writable=True, journal={journal}"
    checkpoint = tmp_path / "checkpoint"
    with GatewayProcess(arguments) as gateway:
        # It may take any time until the gateway is back.
        query = start(files.stream(spark), gateway, checkpoint, patienceSeconds=str(PATIENCE))
        eventually(lambda: len(log_of(gateway)) >= 30, timeout=PATIENCE)
        gateway.kill()
    with GatewayProcess(arguments) as gateway:
        try:
            assert query.awaitTermination(PATIENCE)
        except StreamingQueryException as error:
            # What was staged is gone with the gateway, if it had been staged already.
            if "run the batch again" not in str(error):
                raise
        run(files.stream(spark), gateway, checkpoint)

        assert [row["n"] for row in log_of(gateway)] == list(range(120))


# ---------------------------------------------------------------- the pace of the readers
def test_a_slow_reader_behind_the_gateway_slows_the_query_down(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    for ten in range(3, 10):
        files.add({"n": 10 * ten + one} for one in range(10))
    gateway = serve(None, writable=True, journal=MemoryJournal(max_records=25))
    with reading(gateway.endpoint, 0, window=5, max_window=5, codec="json") as reader:
        eventually(lambda: gateway.status()["subscribers"])
        query = start(files.stream(spark), gateway, tmp_path / "checkpoint")
        eventually(lambda: gateway.status()["head"] == 20, timeout=PATIENCE)
        stays(lambda: gateway.status()["head"] == 20 and query.isActive, seconds=1.5)

        reader.request(10)
        eventually(lambda: gateway.status()["head"] == 30, timeout=PATIENCE)
        stays(lambda: gateway.status()["head"] == 30 and query.isActive, seconds=1.0)

        reader.request(1000)
        assert query.awaitTermination(PATIENCE)
        eventually(has(reader, 100))
        assert [row["n"] for row in reader.items] == list(range(100))


def test_a_gateway_that_is_not_there_fails_the_query_and_its_next_run_publishes_the_batch(
    spark: SparkSession, files: Files, tmp_path: Path, nobody: str
) -> None:
    endpoint, checkpoint = nobody, tmp_path / "checkpoint"
    writer = files.stream(spark).writeStream.format("aquifer").options(endpoint=endpoint, patienceSeconds="1")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    told = failure_of(writer.start())
    assert told.startswith(f"GatewayUnreachable: no gateway answers at {endpoint} after 1 s; is it running")

    with Gateway(None, endpoint, writable=True, codec="json") as gateway:
        run(files.stream(spark), gateway, checkpoint)
        assert [row["n"] for row in log_of(gateway)] == list(range(30))


def test_a_batch_that_nobody_makes_room_for_fails_the_query_and_is_published_by_the_next_run(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    gateway = serve(None, writable=True, journal=MemoryJournal(max_records=25))
    with reading(gateway.endpoint, 0, window=5, max_window=5, codec="json") as reader:
        eventually(lambda: gateway.status()["subscribers"])
        with pytest.raises(Exception, match="does anybody read from it"):
            # Long enough for the batches before it, also on a busy machine.
            run(files.stream(spark), gateway, tmp_path / "checkpoint", timeoutSeconds="10")
        assert gateway.status()["head"] == 20

        reader.request(1000)
        run(files.stream(spark), gateway, tmp_path / "checkpoint")

        eventually(has(reader, 30))
        assert [row["n"] for row in reader.items] == list(range(30))
