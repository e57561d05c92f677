"""What does a trigger of Spark cost that has next to nothing to read?

Each trigger reads ten records, so that the time is what Spark needs for any batch at all: to ask how far the
log goes, to log that, to start tasks, to log that they are done. With state, Spark also reads the counts of
the batch before from its two partitions, and stores the new ones. The session is the one that
``penstock.spark.session()`` makes. Without a Python source in it, Spark's own share is what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import beside
from benchmarks.spark_queries import Spark, running, spark_when_needed, timed

__all__ = ["RECORDS", "WARM_UP", "from_gateway", "from_rate", "question", "timed_triggers"]

RECORDS = 10
"""In each trigger."""
WARM_UP = 30
"""Triggers before those that count."""


@contextmanager
def question() -> Iterator[Question]:
    """The time from the end of a batch to the end of the next one."""
    with spark_when_needed() as spark:
        yield Question(
            name="spark_trigger",
            title="a trigger with ten records, which Spark throws away",
            elements=50,
            base="Arrow in memory, one partition",
            expected=lambda n: n,
            unit="trigger",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=2,
            most_processes=2,
            alternatives=(
                Alternative("Arrow in memory, one partition", partial(_in_memory, spark)),
                Alternative("aquifer, one partition", partial(from_gateway, spark, 1)),
                Alternative("aquifer, two partitions", partial(from_gateway, spark, 2)),
                Alternative("aquifer, counted by key", partial(from_gateway, spark, 1, with_state=True)),
                Alternative("rate-micro-batch, one partition", partial(from_rate, spark)),
            ),
        )


def _in_memory(spark: Spark, triggers: int) -> Timed:
    records = RECORDS * (WARM_UP + triggers)
    source = spark.session.readStream.format("arrow_in_memory")
    return timed_triggers(source.options(rows=records, rowsPerTrigger=RECORDS, partitions=1).load(), triggers)


def from_gateway(spark: Spark, partitions: int, triggers: int, *, with_state: bool = False) -> Timed:
    """Triggers that read the log of a gateway; with state, they count its records by key."""
    with beside(gateways.serve_few, RECORDS * (WARM_UP + triggers)) as line:
        source = spark.session.readStream.format("aquifer").options(
            endpoint=line.hear(), maxRecordsPerTrigger=RECORDS, partitions=partitions
        )
        records = source.load()
        if with_state:
            return timed_triggers(records.groupBy("key").count(), triggers, outputMode="complete")
        return timed_triggers(records, triggers)


def from_rate(spark: Spark, triggers: int) -> Timed:
    """Triggers that read Spark's own source of numbers, inside Java."""
    source = spark.session.readStream.format("rate-micro-batch")
    return timed_triggers(source.options(rowsPerBatch=RECORDS, numPartitions=1).load(), triggers)


def timed_triggers(frame: Any, triggers: int, **options: object) -> Timed:
    """How long so many triggers take, after those that do not count."""
    with running(frame, **options) as query:
        rows = timed(query, RECORDS * WARM_UP, RECORDS * triggers, RECORDS)
    facts = {heading: fact for heading, fact in rows.facts.items() if heading.endswith("ms")}
    return Timed(rows.result // RECORDS, rows.nanoseconds, {"ms": rows.nanoseconds / triggers / 1e6} | facts)
