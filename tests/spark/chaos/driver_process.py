"""The driver of the chaos test, as a process: ``python -m tests.spark.chaos.driver_process SETTINGS``.

Two queries read the same gateway. One writes parquet files, the other writes to a second gateway. A query
that failed for one of the reasons that a kill gives it is started again, as whoever runs one in earnest would
do; any other reason ends the process, and the test. So does the end of the standard input.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.spark import reason_of, session
from tests.spark.chaos.checkpoints import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.05
"""Seconds between looks at the queries."""


class DriverSettings(msgspec.Struct):
    """What the test tells the process."""

    folder: str
    input: str
    output: str
    total: int
    batch: int
    """The most records in a batch."""
    config: dict[str, str]
    forgiven: list[str]
    """What the reason of a failed query may have in it."""

    def checkpoint(self, query: str) -> Path:
        """Where a query keeps how far it has come."""
        return Path(self.folder, f"{query}-checkpoint")


class Queries:
    """The two of them."""

    def __init__(self, settings: DriverSettings, spark: SparkSession) -> None:
        self._settings = settings
        self._spark = spark
        self._running = {"files": self._to_files(), "sink": self._to_sink()}

    def _records(self, **options: str) -> DataFrame:
        settings = self._settings
        reader = self._spark.readStream.format("aquifer").option("endpoint", settings.input)
        reader = reader.option("maxRecordsPerTrigger", str(settings.batch)).option("partitions", "2")
        return reader.options(**options).load()

    def _to_files(self) -> StreamingQuery:
        writer = self._records().select("offset", "value").writeStream.format("parquet")
        writer = writer.option("path", str(Path(self._settings.folder, "files")))
        return writer.option("checkpointLocation", str(self._settings.checkpoint("files"))).start()

    def _to_sink(self) -> StreamingQuery:
        writer = self._records(subscription="sink").select("value").writeStream.format("aquifer")
        writer = writer.option("endpoint", self._settings.output).option("value", "binary")
        return writer.option("checkpointLocation", str(self._settings.checkpoint("sink"))).start()

    def look(self) -> None:
        """Start again what has failed, if it may."""
        for name, query in self._running.items():
            error = query.exception()
            if error is None:
                continue
            reason = reason_of(error)
            print(f"{name} failed: {reason}", flush=True)
            if not any(text in str(error) for text in self._settings.forgiven):
                print(error, file=sys.stderr, flush=True)
                raise SystemExit(1)
            self._running[name] = self._to_files() if name == "files" else self._to_sink()

    def done(self) -> bool:
        """Whether both have dealt with everything."""
        total = self._settings.total
        return all(committed(self._settings.checkpoint(name)) >= total for name in self._running)

    def stop(self) -> None:
        """Stop both."""
        for query in self._running.values():
            query.stop()


def main() -> None:
    """Run the queries to the end of the stream."""
    settings = msgspec.json.decode(sys.argv[1], type=DriverSettings)
    threading.Thread(target=_leave_when_told, daemon=True).start()
    spark = session(name="chaos", master="local[2,4]", config=settings.config)
    spark.sparkContext.setLogLevel("WARN")
    queries = Queries(settings, spark)
    while not queries.done():
        queries.look()
        time.sleep(_LOOK)
    queries.stop()
    spark.stop()


def _leave_when_told() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
