"""What does a record cost on its way into Spark, from a gateway and with Spark's own source for Kafka?

The records have 100 bytes, and all of them are there before the query starts: in a topic with two partitions,
in the memory of a gateway, or in its SQLite journal. Two tasks read them, and Spark throws them away. Spark's
source for Kafka runs inside Java; ours is a Python process beside it. *As Arrow rows* has the same bytes in
four columns, encoded as they come in. *Fed from the topic* has both: a gateway reads the topic as a feed, and
Spark reads the gateway, in the same time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import Facts, beside
from benchmarks.spark_connector import PYTHON, Kafka, kafka_when_needed, settings
from benchmarks.spark_queries import Spark, running, spark_when_needed, timed
from benchmarks.spark_rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["question"]

RECORDS = 1_000_000
TRIGGERS, WARM_UP = 4, 2
"""In how many triggers the records are read, and how many triggers of as many records each come before."""


@contextmanager
def question() -> Iterator[Question]:
    """All records arrive, one way or another."""
    with spark_when_needed(settings) as spark, kafka_when_needed() as kafka:
        yield Question(
            name="spark_kafka",
            title="records of 100 bytes into Spark 4.0, from Kafka and from a gateway",
            elements=RECORDS,
            base="Spark's source for Kafka",
            expected=lambda n: n,
            unit="record",
            clock=Clock.BETWEEN_PROCESSES,
            unmeasured_rounds=1,
            fewest_rounds=3,
            most_processes=1,
            python=PYTHON,
            alternatives=(
                Alternative("Spark's source for Kafka", partial(_kafka, spark, kafka)),
                Alternative("aquifer, from memory", partial(_stored, spark, on_disk=False)),
                Alternative("aquifer, from an SQLite journal", partial(_stored, spark, on_disk=True)),
                Alternative("aquifer, as Arrow rows", partial(_arrow, spark)),
                Alternative("aquifer, fed from the topic", partial(_fed, spark, kafka)),
            ),
        )


def _all(records: int) -> int:
    return records + WARM_UP * records // TRIGGERS


def _kafka(spark: Spark, kafka: Kafka, records: int) -> Timed:
    topic, size = kafka.topic_of(_all(records)), records // TRIGGERS
    frame = kafka.read(spark.session, topic, startingOffsets="earliest", maxOffsetsPerTrigger=size)
    return _timed(frame, records)


def _stored(spark: Spark, records: int, *, on_disk: bool) -> Timed:
    with tempfile.TemporaryDirectory() as folder:
        return _aquifer(spark, records, gateways.serve_stored, _all(records), folder if on_disk else None)


def _arrow(spark: Spark, records: int) -> Timed:
    size = records // TRIGGERS
    rows = _all(records) + gateways.TRIGGERS_KEPT * size
    return _aquifer(spark, records, gateways.serve_rows, rows, size, arrow=True)


def _fed(spark: Spark, kafka: Kafka, records: int) -> Timed:
    url = f"kafka://{kafka.broker.address}/{kafka.topic_of(_all(records))}"
    return _aquifer(spark, records, gateways.serve_feed, url, records // TRIGGERS)


def _aquifer(
    spark: Spark, records: int, serve: Callable[..., Facts], *arguments: Any, arrow: bool = False
) -> Timed:
    with beside(serve, *arguments) as line:
        source = spark.session.readStream.format("aquifer").options(
            endpoint=line.hear(), maxRecordsPerTrigger=records // TRIGGERS, partitions=2
        )
        return _timed((source.option("value", "arrow").schema(SCHEMA) if arrow else source).load(), records)


def _timed(frame: DataFrame, records: int) -> Timed:
    size = records // TRIGGERS
    with running(frame) as query:
        return timed(query, WARM_UP * size, records, size)
