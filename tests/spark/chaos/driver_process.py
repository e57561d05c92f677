"""The driver of the chaos tests, as a process: ``python -m tests.spark.chaos.driver_process SETTINGS``.

There is one query for each sink, and all of them read the same gateway. A query that failed for one of the
reasons that a kill gives it is started again, as whoever runs one in earnest would do; any other reason ends
the process, and the test. So does the end of the standard input.
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
from tests.spark.lakes.formats import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ICEBERG = f"{CATALOG}.tables.iceberg"
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
    sinks: list[str]
    """What the queries write to: ``files``, ``log``, ``delta``, ``iceberg``."""
    master: str
    """With any but ``local``, the package is shipped to the executors."""

    def checkpoint(self, sink: str) -> Path:
        """Where the query of a sink keeps how far it has come."""
        return Path(self.folder, f"{sink}-checkpoint")

    def table(self, sink: str) -> Path:
        """The folder that a query writes to, unless it writes to a gateway."""
        return Path(self.folder, "tables", sink)

    def read_back(self, sink: str) -> Path:
        """Where to put what Spark reads from a table in the end."""
        return Path(self.folder, f"{sink}-read-back")


class Queries:
    """One for each sink."""

    def __init__(self, settings: DriverSettings, spark: SparkSession) -> None:
        self._settings = settings
        self._spark = spark
        self._running = {sink: self._start(sink) for sink in settings.sinks}

    def _start(self, sink: str) -> StreamingQuery:
        settings = self._settings
        reader = self._spark.readStream.format("aquifer").option("endpoint", settings.input)
        reader = reader.option("maxRecordsPerTrigger", str(settings.batch)).option("partitions", "2")
        if sink != "files":  # One of them gets the name that its checkpoint gives it.
            reader = reader.option("subscription", sink)
        columns = ["value"] if sink == "log" else ["offset", "value"]
        writer = reader.load().select(*columns).writeStream
        writer = writer.option("checkpointLocation", str(settings.checkpoint(sink)))
        if sink == "log":
            return writer.format("aquifer").options(endpoint=settings.output, value="binary").start()
        if sink == "iceberg":
            columns_there = "(offset BIGINT, value BINARY)"
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {_ICEBERG} {columns_there} USING iceberg")
            return writer.format("iceberg").toTable(_ICEBERG)
        return writer.format({"files": "parquet"}.get(sink, sink)).start(str(settings.table(sink)))

    def look(self) -> None:
        """Start again what has failed, if it may."""
        for sink, query in self._running.items():
            error = query.exception()
            if error is None:
                continue
            reason = reason_of(error)
            print(f"{sink} failed: {reason}", flush=True)
            if not any(text in str(error) for text in self._settings.forgiven):
                print(error, file=sys.stderr, flush=True)
                raise SystemExit(1)
            self._running[sink] = self._start(sink)

    def done(self) -> bool:
        """Whether all have dealt with everything."""
        total = self._settings.total
        return all(committed(self._settings.checkpoint(sink)) >= total for sink in self._running)

    def stop(self) -> None:
        """Stop all."""
        for query in self._running.values():
            query.stop()

    def read_back(self) -> None:
        """Put what the tables have where the test can read it."""
        for sink in self._running:
            if sink in ("delta", "iceberg"):
                reader, path = self._spark.read, str(self._settings.table(sink))
                table = reader.table(_ICEBERG) if sink == "iceberg" else reader.format(sink).load(path)
                table.write.parquet(str(self._settings.read_back(sink)))


def main() -> None:
    """Run the queries to the end of the stream."""
    settings = msgspec.json.decode(sys.argv[1], type=DriverSettings)
    threading.Thread(target=_leave_when_told, daemon=True).start()
    ship = not settings.master.startswith("local")
    spark = session(name="chaos", master=settings.master, config=settings.config, ship=ship)
    spark.sparkContext.setLogLevel("WARN")
    queries = Queries(settings, spark)
    while not queries.done():
        queries.look()
        time.sleep(_LOOK)
    queries.stop()
    queries.read_back()
    spark.stop()


def _leave_when_told() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
