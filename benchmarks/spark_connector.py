"""Spark's own connector for Kafka, and a broker with topics to read from and to write to.

Maven has the connector for Spark 4.0 only, with all that it needs. So these questions are measured by the
Python of ``.venv-spark40``, and all alternatives run in the same Spark. The broker is that of the tests, one
process on this machine, with the heap that Kafka's own script gives it.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import RECORD, Facts, Line
from benchmarks.spark_gateways import STAMP, stamped
from benchmarks.spark_latency import Arrivals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.kafka.broker import KafkaBroker

__all__ = ["PARTITIONS", "PYTHON", "Kafka", "consuming", "kafka_when_needed", "produce_live", "settings"]

PYTHON = Path(__file__).resolve().parents[1] / ".venv-spark40" / "bin" / "python"
PARTITIONS = 2
"""Of a topic: as many as Spark has processors here."""
_HEAP = ("-Xms1g", "-Xmx1g")
_FILLING: Mapping[str, object] = {
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 0,  # As many as there are.
}


def settings() -> Mapping[str, str]:
    """What a session of Spark needs for the connector."""
    from tests.spark.kafka import connector

    return connector.settings()


class Kafka:
    """A broker that is started when somebody needs it."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._filled: dict[tuple[int, int], str] = {}

    @cached_property
    def broker(self) -> KafkaBroker:
        """The one of the tests."""
        from tests.kafka.broker import KafkaBroker

        folder = self._running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        return self._running.enter_context(KafkaBroker(Path(folder, "kafka"), _HEAP))

    def topic_of(self, records: int, partitions: int = PARTITIONS) -> str:
        """A topic with so many records of 100 bytes, filled once."""
        if (records, partitions) not in self._filled:
            topic = self.broker.topic(partitions)
            for partition in range(partitions):
                share = records // partitions + (partition < records % partitions)
                self.broker.send(topic, (RECORD for _ in range(share)), partition, **_FILLING)
            self._filled[records, partitions] = topic
        return self._filled[records, partitions]

    def read(self, session: SparkSession, topic: str, **options: object) -> DataFrame:
        """The records of a topic, read with Spark's own source."""
        source = session.readStream.format("kafka").option("kafka.bootstrap.servers", self.broker.address)
        for name, value in options.items():
            source = source.option(name, str(value))
        return source.option("subscribe", topic).load()


@contextmanager
def kafka_when_needed() -> Iterator[Kafka]:
    """A broker that costs nothing until somebody uses it."""
    with ExitStack() as running:
        yield Kafka(running)


def produce_live(line: Line, brokers: str, topic: str, records_per_second: int) -> Facts:
    """Stamped records at this rate, into the partitions in turn; says so when the first are there."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    for number, records in enumerate(stamped(records_per_second)):
        for record in records:
            producer.produce(topic, record.value, partition=number % PARTITIONS)
        producer.poll(0)
        if number == 0:
            producer.flush()
            line.say("there are records")
        if line.waiting():
            break
    line.hear()
    producer.flush()
    return {}


@contextmanager
def consuming(brokers: str, topic: str, arrivals: Arrivals) -> Iterator[None]:
    """A consumer of the stamped records of a topic, on a thread of this process."""
    stopped = threading.Event()
    thread = threading.Thread(target=_consume, args=(brokers, topic, arrivals, stopped), name="consumer")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _consume(brokers: str, topic: str, arrivals: Arrivals, stopped: threading.Event) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    # It has its partitions by assignment, and commits nothing: the group is a formality.
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        while not stopped.is_set():
            first = consumer.poll(0.1)
            if first is None:
                continue
            messages = [first, *consumer.consume(10_000, 0)]
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            arrivals.came([STAMP.unpack_from(message.value() or b"")[0] for message in messages])
    except BaseException as error:
        arrivals.failed(error)
    finally:
        consumer.close()
