"""What does a row cost on its way from a gateway into Spark, beside sources that have their rows in memory?

The rows have about 100 bytes and come in Arrow batches of 10 000, two partitions read them, and Spark throws
them away. The source in memory yields the same batch again and again: no Python source can be faster. The
gateway runs in a process of its own on the same machine. Where it says *as they come in*, the log has room
for three triggers, so that a batch is encoded and stored for each one that is read, in the same time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import Facts, beside
from benchmarks.spark_queries import Spark, running, spark_when_needed, timed

__all__ = ["question"]

ROWS = 8_000_000
TRIGGERS, WARM_UP = 4, 2
"""In how many triggers the rows are read, and how many triggers of as many rows each come before.

Large triggers, so that what counts is the rows: what a trigger costs is a question of its own. So whatever is
compared has triggers of the same size; only tuples, which are four times slower, have smaller ones.
"""
VALUE_AND_OFFSET = "offset bigint, value binary"
"""Two of the five columns of records: what a schema does not name is neither made nor read by Spark."""


@contextmanager
def question() -> Iterator[Question]:
    """All rows arrive, one way or another."""
    with spark_when_needed() as spark, ExitStack() as stack:
        stored = _Stored(stack)
        yield Question(
            name="spark_throughput",
            title="rows of 100 bytes into Spark, which throws them away",
            elements=ROWS,
            base="Arrow in memory",
            expected=lambda n: n,
            unit="row",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=2,
            most_processes=2,
            alternatives=(
                Alternative("Arrow in memory", partial(_in_memory, spark, "arrow")),
                Alternative("tuples in memory", partial(_in_memory, spark, "tuples"), share=0.4),
                Alternative("rate-micro-batch", partial(_rate, spark)),
                Alternative("aquifer, as they come in", partial(_live, spark, gateways.serve_rows, 2)),
                Alternative(
                    "aquifer, as they come in, one partition", partial(_live, spark, gateways.serve_rows, 1)
                ),
                Alternative("aquifer, from an SQLite journal", partial(_stored, spark, stored)),
                Alternative(
                    "aquifer, as they come in, SQLite journal",
                    partial(_live, spark, gateways.serve_on_disk, 2),
                ),
                Alternative(
                    "aquifer, as they come in, records of 100 bytes",
                    partial(_live, spark, gateways.serve_records, 2, arrow=False),
                ),
                Alternative(
                    "aquifer, as they come in, records of 100 bytes, value and offset alone",
                    partial(_live, spark, gateways.serve_records, 2, arrow=False, schema=VALUE_AND_OFFSET),
                ),
                Alternative(
                    "aquifer, as they come in, records of 80 to 120 bytes",
                    partial(_live, spark, gateways.serve_uneven, 2, arrow=False),
                ),
            ),
        )


def _in_memory(spark: Spark, kind: str, rows: int) -> Timed:
    source = spark.session.readStream.format(f"{kind}_in_memory")
    size = rows // TRIGGERS
    sizes = {"rows": rows + WARM_UP * size, "rowsPerTrigger": size, "partitions": 2}
    return _timed(source.options(**sizes).load(), rows)


def _rate(spark: Spark, rows: int) -> Timed:
    source = spark.session.readStream.format("rate-micro-batch")
    return _timed(source.options(rowsPerBatch=rows // TRIGGERS, numPartitions=2).load(), rows)


def _live(
    spark: Spark,
    serve: Callable[..., Facts],
    partitions: int,
    rows: int,
    *,
    arrow: bool = True,
    schema: str | None = None,
) -> Timed:
    size = rows // TRIGGERS
    # More than are read: at the end of the measured time the log is as full as it was at its beginning.
    with beside(serve, rows + (WARM_UP + gateways.TRIGGERS_KEPT) * size, size) as line:
        return _timed(_aquifer(spark, line.hear(), rows, partitions, arrow=arrow, schema=schema), rows)


class _Stored:
    """A journal on the disk: written once, and read in each round."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._path: Path | None = None

    def path(self, rows: int) -> str:
        """Where there are at least so many rows."""
        if self._path is None:
            self._path = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "journal.db"
            with beside(gateways.store, str(self._path), rows) as line:
                line.hear()
        return str(self._path)


def _stored(spark: Spark, stored: _Stored, rows: int) -> Timed:
    path = stored.path(rows + WARM_UP * rows // TRIGGERS)
    with beside(gateways.serve_a_journal, path) as line:
        return _timed(_aquifer(spark, line.hear(), rows, 2), rows)


def _aquifer(
    spark: Spark,
    endpoint: str,
    rows: int,
    partitions: int,
    *,
    arrow: bool = True,
    schema: str | None = None,
) -> Any:
    from benchmarks.spark_rows import SCHEMA

    source = spark.session.readStream.format("aquifer").options(
        endpoint=endpoint, maxRecordsPerTrigger=rows // TRIGGERS, partitions=partitions
    )
    if arrow:
        source = source.option("value", "arrow").schema(SCHEMA)
    elif schema is not None:
        source = source.schema(schema)
    return source.load()


def _timed(frame: Any, rows: int) -> Timed:
    size = rows // TRIGGERS
    with running(frame) as query:
        return timed(query, WARM_UP * size, rows, size)
