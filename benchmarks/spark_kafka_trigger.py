"""What does a trigger of Spark cost that has next to nothing to read, from a gateway and from Kafka?

As in ``spark_trigger``, each trigger reads ten records of one partition, and Spark throws them away. Spark
4.0 talks to its Python processes over TCP, which delays small packets; from 4.1 on it can do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.spark_connector import PYTHON, Kafka, kafka_when_needed, settings
from benchmarks.spark_queries import Spark, spark_when_needed
from benchmarks.spark_trigger import RECORDS, WARM_UP, from_gateway, from_rate, timed_triggers

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """The time from the end of a batch to the end of the next one."""
    with spark_when_needed(settings) as spark, kafka_when_needed() as kafka:
        yield Question(
            name="spark_kafka_trigger",
            title="a trigger with ten records in Spark 4.0, from Kafka and from a gateway",
            elements=50,
            base="Spark's source for Kafka",
            expected=lambda n: n,
            unit="trigger",
            clock=Clock.BETWEEN_PROCESSES,
            unmeasured_rounds=1,
            fewest_rounds=3,
            most_processes=1,
            python=PYTHON,
            alternatives=(
                Alternative("Spark's source for Kafka", partial(_from_kafka, spark, kafka)),
                Alternative("aquifer", partial(from_gateway, spark, 1)),
                Alternative("rate-micro-batch", partial(from_rate, spark)),
            ),
        )


def _from_kafka(spark: Spark, kafka: Kafka, triggers: int) -> Timed:
    topic = kafka.topic_of(RECORDS * (WARM_UP + triggers), partitions=1)
    frame = kafka.read(spark.session, topic, startingOffsets="earliest", maxOffsetsPerTrigger=RECORDS)
    return timed_triggers(frame, triggers)
