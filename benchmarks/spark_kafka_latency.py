"""How long is a record under way through Spark, with gateways and with Spark's own source and sink for Kafka?

As in ``spark_latency``, a record carries the time at which it was made, and 10 000 are made in a second. They
are sent to a broker, or made in a gateway. They end in a function that the query calls with each batch; or,
by way of a sink, at a consumer of another topic or at a subscriber of another gateway. Spark's sink for Kafka
may write a record twice, ours does not. *Fed from a topic* has both: a producer, a broker, a gateway that
reads the topic as a feed, and Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import beside
from benchmarks.spark_connector import (
    PARTITIONS,
    PYTHON,
    Kafka,
    consuming,
    kafka_when_needed,
    produce_live,
    settings,
)
from benchmarks.spark_latency import RATE, Arrivals, arrived, read_latest, to_a_subscriber
from benchmarks.spark_queries import Spark, running, spark_when_needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["question"]

_STAMP = "cast(conv(hex(substring(value, 1, 8)), 16, 10) as bigint) as stamp"
"""The time in a record, in SQL."""


@contextmanager
def question() -> Iterator[Question]:
    """Each record has the same way to go."""
    with spark_when_needed(settings) as spark, kafka_when_needed() as kafka:
        yield Question(
            name="spark_kafka_latency",
            title="how long a record is under way through Spark 4.0, with Kafka and with gateways",
            elements=4 * RATE,
            base="Kafka, into a function",
            expected=lambda n: n,
            unit="record (half of them)",
            clock=Clock.BETWEEN_PROCESSES,
            unmeasured_rounds=1,
            fewest_rounds=2,
            most_processes=1,
            python=PYTHON,
            alternatives=(
                Alternative("Kafka, into a function", partial(_kafka_function, spark, kafka)),
                Alternative("aquifer, into a function", partial(_gateway_function, spark)),
                Alternative("aquifer, fed from a topic, into a function", partial(_fed, spark, kafka)),
                Alternative("Kafka, to a consumer of another topic", partial(_kafka_consumer, spark, kafka)),
                Alternative("aquifer, to a subscriber of another gateway", partial(to_a_subscriber, spark)),
            ),
        )


def _kafka_function(spark: Spark, kafka: Kafka, records: int) -> Timed:
    with _topic(kafka) as topic:
        return _into_a_function(kafka.read(spark.session, topic), records)


def _gateway_function(spark: Spark, records: int) -> Timed:
    with beside(gateways.serve_live, RATE) as line:
        return _into_a_function(read_latest(spark, line.hear()), records)


def _fed(spark: Spark, kafka: Kafka, records: int) -> Timed:
    with (
        _topic(kafka) as topic,
        beside(gateways.serve_feed, f"kafka://{kafka.broker.address}/{topic}", 100 * RATE) as line,
    ):
        return _into_a_function(read_latest(spark, line.hear()), records)


def _kafka_consumer(spark: Spark, kafka: Kafka, records: int) -> Timed:
    arrivals, results = Arrivals(records), kafka.broker.topic(PARTITIONS)
    brokers = kafka.broker.address
    into = {"kafka.bootstrap.servers": brokers, "topic": results}
    with _topic(kafka) as topic, consuming(brokers, results, arrivals):
        values = kafka.read(spark.session, topic).select("value")
        with running(values, "kafka", **into) as query:
            return arrived(arrivals, query)


@contextmanager
def _topic(kafka: Kafka) -> Iterator[str]:
    """A topic into which stamped records are produced."""
    topic = kafka.broker.topic(PARTITIONS)
    with beside(produce_live, kafka.broker.address, topic, RATE) as line:
        line.hear()
        yield topic


def _into_a_function(frame: DataFrame, records: int) -> Timed:
    arrivals = Arrivals(records)

    def take(rows: DataFrame, batch: int) -> None:
        arrivals.came(rows.selectExpr(_STAMP).toArrow().column("stamp").to_pylist())

    with running(frame, take) as query:
        return arrived(arrivals, query)
