"""The driver of the chaos tests, as a process: ``python -m tests.spark.chaos.driver_process SETTINGS``.

Each line of its standard input is an order: the queries of one storm. There is one query for each sink. All
of them read the same gateway. A query that failed for one of the reasons that a kill gives it is started
again, as whoever runs one in earnest would do; any other reason ends the process, and the test. The end of
the standard input ends it in good order if there is nothing to do, and at once otherwise.
"""

from __future__ import annotations

import os
import queue
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

_LOOK = 0.05
"""Seconds between looks at the queries."""


class SessionSettings(msgspec.Struct):
    """What the session has to be like."""

    master: str
    """With any but ``local``, the package is shipped to the executors."""
    config: dict[str, str]


class QuerySettings(msgspec.Struct):
    """What the queries of a storm have to know."""

    folder: str
    input: str
    output: str
    total: int
    batch: int
    """The most records in a batch."""
    forgiven: list[str]
    """What the reason of a failed query may have in it."""
    sinks: list[str]
    """What the queries write to: ``files``, ``log``, ``delta``, ``iceberg``."""

    @property
    def done(self) -> Path:
        """A file that is there when all has been done."""
        return Path(self.folder, "done")

    @property
    def iceberg(self) -> str:
        """The name of Iceberg's table; its warehouse is where the folder is."""
        return f"{CATALOG}.`{Path(self.folder).name}`.tables.iceberg"

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

    def __init__(self, settings: QuerySettings, spark: SparkSession) -> None:
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
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {settings.iceberg} {columns_there} USING iceberg")
            return writer.format("iceberg").toTable(settings.iceberg)
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
                table = (
                    reader.table(self._settings.iceberg)
                    if sink == "iceberg"
                    else reader.format(sink).load(path)
                )
                table.write.parquet(str(self._settings.read_back(sink)))


def main() -> None:
    """Run the queries of one storm after the other."""
    settings = msgspec.json.decode(sys.argv[1], type=SessionSettings)
    orders = Orders()
    threading.Thread(target=orders.listen, daemon=True).start()
    ship = not settings.master.startswith("local")
    spark = session(name="chaos", master=settings.master, config=settings.config, ship=ship)
    spark.sparkContext.setLogLevel("WARN")
    while (queries := orders.next()) is not None:
        _run(Queries(queries, spark))
        orders.carried_out(queries)
    spark.stop()


def _run(queries: Queries) -> None:
    """Run them to the end of the stream."""
    while not queries.done():
        queries.look()
        time.sleep(_LOOK)
    queries.stop()
    queries.read_back()


class Orders:
    """What comes in through the standard input."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[QuerySettings | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0

    def listen(self) -> None:
        """Take what comes, until nothing can come any more."""
        for line in sys.stdin.buffer:
            with self._lock:
                self._open += 1
            self._given.put(msgspec.json.decode(line, type=QuerySettings))
        with self._lock:
            if self._open:
                os._exit(1)
        self._given.put(None)

    def next(self) -> QuerySettings | None:
        """The next one, when it is there; None at the end."""
        return self._given.get()

    def carried_out(self, order: QuerySettings) -> None:
        """Say that all of it has been done."""
        with self._lock:
            self._open -= 1
        order.done.touch()


if __name__ == "__main__":
    main()
