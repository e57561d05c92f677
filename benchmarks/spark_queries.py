"""One Spark session for all alternatives of a question, and what Spark itself says of a query's batches.

A query is timed by its progress reports: each says when its batch began and how long it took, to the
millisecond. The time of some batches is that from the end of the batch before them to their own end, so
everything between two batches counts as well. The first batches of each query warm it up: Python processes
are started, and Java compiles.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import Timed
from penstock.spark.versions import has_admission_control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "PATIENCE",
    "Batch",
    "Spark",
    "batch_of",
    "last_batch",
    "reported",
    "running",
    "silenced",
    "spark_when_needed",
    "timed",
]

PATIENCE = 180.0
"""Seconds after which a query that does nothing counts as lost: on a busy machine its start takes long."""
_LOOK = 0.05
"""Seconds between looks at a query."""


class Batch(NamedTuple):
    """What Spark reports of a batch with rows in it."""

    number: int
    rows: int
    records: int
    """The same by the offsets of its source."""
    ended: float
    """In milliseconds since 1970."""
    durations: Mapping[str, int]
    """Milliseconds by phase."""


class Spark:
    """The session of this process: started when it is first asked for, as Penstock tunes it."""

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """Ready and warm, with the sources that the alternatives read from."""
        if self._session is None:
            settings = self._settings()
            with silenced():
                self._session = _started(settings)
            if has_admission_control():
                _warm_up(self._session)
        return self._session

    def stop(self) -> None:
        """Stop it, if it was started."""
        if self._session is not None:
            with silenced():
                self._session.stop()


@contextmanager
def spark_when_needed(settings: Callable[[], Mapping[str, str]] = dict) -> Iterator[Spark]:
    """A session that costs nothing until it is used; printing the tables does not use it.

    Before Spark 4.2 it has no sources in memory, because these need what is new there, and is not warm.
    """
    spark = Spark(settings)
    try:
        yield spark
    finally:
        spark.stop()


def _started(settings: Mapping[str, str]) -> SparkSession:
    from penstock.spark import session

    # Spark's Python processes import the sources by name.
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    started = session("benchmarks", "local[2]", settings)
    # To stop a query in the middle of a batch is no error here, but Spark writes pages about it.
    started.sparkContext.setLogLevel("OFF")
    if has_admission_control():
        from benchmarks.spark_sources import ArrowInMemory, TuplesInMemory

        started.dataSource.register(ArrowInMemory)
        started.dataSource.register(TuplesInMemory)
    return started


def _warm_up(session: SparkSession) -> None:
    """What Java compiles once, it has compiled for whoever comes first, too.

    After two million rows its compiler still took a fifth of both processors; after twenty it is done.
    """
    rows = 500_000
    source = session.readStream.format("arrow_in_memory")
    with running(source.options(rows=40 * rows, rowsPerTrigger=rows, partitions=2).load()) as query:
        _batches(query, 40 * rows, rows)


@contextmanager
def silenced() -> Iterator[None]:
    """Java, and the Python processes that it starts, keep what they were given here as their output.

    What they would write on it is of no use: a query that fails says so by itself.
    """
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for descriptor, number in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nowhere)


@contextmanager
def running(
    rows: DataFrame, into: str | Callable[[DataFrame, int], None] = "noop", **options: object
) -> Iterator[StreamingQuery]:
    """A query that runs with a new checkpoint, and is stopped at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stream = rows.writeStream.option("checkpointLocation", folder)
        for name, value in options.items():
            stream = stream.option(name, str(value))
        if "outputMode" in options:
            stream = stream.outputMode(str(options["outputMode"]))
        stream = stream.format(into) if isinstance(into, str) else stream.foreachBatch(into)
        query = stream.start()
        try:
            yield query
        finally:
            query.stop()


def timed(query: StreamingQuery, unmeasured: int, rows: int, rows_per_trigger: int) -> Timed:
    """How long the query takes for so many rows, after the first that do not count.

    Batches may end a little later than that: the time is scaled. The result is how many rows Spark has
    counted for as many records by the offsets.
    """
    batches = _batches(query, unmeasured + rows, rows_per_trigger)
    seen = list(accumulate(batch.rows for batch in batches))
    start = next(index for index, total in enumerate(seen) if total >= unmeasured)
    measured = batches[start + 1 :]
    counted = seen[-1] - seen[start]
    taken = (batches[-1].ended - batches[start].ended) * rows / counted
    facts = {"thousand per s": rows / taken}
    facts |= {
        f"{phase}, ms": median(batch.durations.get(phase, 0) for batch in measured)
        for phase in ("triggerExecution", "addBatch", "latestOffset")
    }
    return Timed(rows * counted // sum(batch.records for batch in measured), round(taken * 1e6), facts)


def _batches(query: StreamingQuery, rows: int, rows_per_trigger: int) -> list[Batch]:
    """The batches up to the one with this row, as soon as it is done."""
    fewest = -(-rows // rows_per_trigger)  # All reports are long: not asked for before they can be enough.
    deadline = time.monotonic() + PATIENCE
    last = -1
    while time.monotonic() < deadline:
        error = query.exception()
        if error is not None:
            raise error
        newest = last_batch(query)
        if newest > last:
            last, deadline = newest, time.monotonic() + PATIENCE
            batches = [] if last + 1 < fewest else reported(query)
            totals = list(accumulate(batch.rows for batch in batches))
            if totals and totals[-1] >= rows:
                return batches[: next(i for i, total in enumerate(totals) if total >= rows) + 1]
        time.sleep(_LOOK)
    raise TimeoutError(f"no batch has ended for {PATIENCE:g} s")


def last_batch(query: StreamingQuery) -> int:
    """The number of the last batch that has ended; -1 if none has.

    ``query.lastProgress`` has Java write the whole report as JSON, and parses it. Whoever looks often would
    measure that as well.
    """
    newest = query._jsq.lastProgress()
    return -1 if newest is None else int(newest.batchId())


def reported(query: StreamingQuery) -> list[Batch]:
    """The last batches that had rows."""
    # Their JSON: in PySpark 4.0, the attributes of a report have offsets as Python writes dictionaries.
    reports = (json.loads(report.json) for report in query.recentProgress)
    return [batch_of(report) for report in reports if report["numInputRows"]]


def batch_of(report: Mapping[str, Any]) -> Batch:
    """What a report says of its batch."""
    durations = report["durationMs"]
    began = datetime.fromisoformat(report["timestamp"]).timestamp() * 1000
    source = report["sources"][0]
    records = _offset(source["endOffset"]) - _offset(source["startOffset"])
    return Batch(
        report["batchId"], report["numInputRows"], records, began + durations["triggerExecution"], durations
    )


def _offset(offset: Mapping[str, Any] | None) -> int:
    """The number in an offset of ours, of the sources in memory, or of Spark's own; none at the beginning."""
    if offset is None:
        return 0
    if "offsets" in offset:
        return sum(offset["offsets"].values())
    if "offset" in offset:
        number: int = offset["offset"]
        return number
    return sum(sum(partitions.values()) for partitions in offset.values())  # Kafka's, by topic and partition.
