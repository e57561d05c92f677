"""A driver is killed in the middle of a batch: every record is once in the output, or once a dead letter."""

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

from penstock.spark import settings
from tests.aquifer.faults.rigs import ByHand, eventually
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOON = 400
WRONG = b"\xff"
"""Not a text, so a dead letter."""

DRIVER = """
import os, sys, time
from pyspark.sql import SparkSession          # And nothing of Penstock: Spark finds the format by itself.
from pyspark.sql.functions import udf

endpoint, letters, folder, trap, settings = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for setting in settings.split("\\n"):
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()

def walk_into_the_trap(value):
    if value == trap:
        parent = os.getppid()
        open(folder + "/caught", "w").close()
        while os.getppid() == parent:         # Until the test has killed the others.
            time.sleep(0.05)
        os._exit(1)
    return value

walk = udf(walk_into_the_trap, "string", useArrow=False)
frame = (
    spark.readStream.format("aquifer").option("endpoint", endpoint).option("startingOffsets", "latest")
    .option("maxRecordsPerTrigger", "10").option("partitions", "2")
    .option("value", "string").option("deadLetter", letters).load()
    .select("offset", walk("value").alias("value"))
)
writer = frame.writeStream.format("parquet").option("path", folder + "/out")
if trap == "none":
    writer = writer.trigger(availableNow=True)
writer.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""


@contextmanager
def driver(endpoint: str, letters: str, folder: Path, trap: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a session of its own; at the end everything in that session is killed."""
    confs = settings("local[2]", **SPARK_SETTINGS)
    texts = "\n".join(f"{key}={value}" for key, value in confs.items())
    arguments = [endpoint, letters, str(folder), trap, texts]
    with (folder / f"stderr-{trap}").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments], stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            for member in _session(process.pid):
                try:
                    os.kill(member, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()


def _session(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                members.append(int(entry.name))
        except (ProcessLookupError, PermissionError):
            continue
    return members


@pytest.mark.rare(40)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the processes to kill in /proc")
def test_a_driver_killed_in_its_first_batch_and_in_a_later_one(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    source, caught = ByHand(), tmp_path / "caught"
    gateway, letters = serve(source), serve(None, writable=True, codec="json")

    def give(first: int, stop: int) -> None:
        source.give(*[WRONG if number % 4 == 0 else str(number).encode() for number in range(first, stop)])
        eventually(lambda: gateway.status()["head"] == stop)

    def status_of(process: subprocess.Popen[bytes]) -> str:
        logs = sorted(tmp_path.glob("stderr-*"), key=lambda log: log.stat().st_mtime)
        return f"{process.poll()}: {logs[-1].read_text()[-3000:]}"

    give(0, 20)
    with driver(gateway.endpoint, letters.endpoint, tmp_path, "22") as process:
        eventually(lambda: gateway.status()["absent"] or process.poll() is not None, timeout=SOON)
        give(20, 40)
        eventually(lambda: caught.exists() or process.poll() is not None, "no first batch", SOON)
        assert caught.exists(), status_of(process)
    # The log has gone on: "latest" would be another offset now.
    give(40, 60)
    caught.unlink()
    with driver(gateway.endpoint, letters.endpoint, tmp_path, "45") as process:
        eventually(lambda: caught.exists() or process.poll() is not None, "no later batch", SOON)
        assert caught.exists(), status_of(process)
        # The beginning that was made up for nothing is forgotten.
        eventually(lambda: len(gateway.status()["absent"]) == 1)
    with driver(gateway.endpoint, letters.endpoint, tmp_path, "none") as process:
        eventually(lambda: process.poll() is not None, "the query does not end", SOON)
        assert process.returncode == 0, status_of(process)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.offset, int(row.value)) for row in rows) == [(n, n) for n in range(20, 60) if n % 4]
    # Some were written by tasks whose batch came to nothing, and had to be run again.
    assert sorted(letter["offset"] for letter in log_of(letters)) == list(range(20, 60, 4))
