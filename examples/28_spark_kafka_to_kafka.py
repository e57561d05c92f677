"""Kafka to Kafka through Spark, each record once, without a connector of Kafka in Spark.

The pipeline reads a topic with a feed, whose offsets are in the journal of the pipeline's gateway. What Spark
makes of a batch goes into another topic in one transaction of Kafka. The same transaction notes the number of
the batch, as the offset of a consumer group that is named after the query. If the driver dies before the
batch is in the checkpoint, Spark runs the batch again, and the group shows that the topic has it already.

Needs the extras ``spark`` and ``kafka``, and a broker, which ``KAFKA`` names: ``KAFKA=127.0.0.1:9092``.
"""

import json
import os
import secrets
import tempfile
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

from penstock.spark import Pipeline, session

PAYMENTS = 5000
LARGE = "cents >= 9000"
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""The broker that has the offsets of a group has just been started, or another one takes its place."""


class TransactionalTopic:
    """A function for foreachBatch that sends the columns ``key`` and ``value``, each batch once."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._producer: Producer | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        # Before the transaction begins, because Kafka aborts one that takes more than a minute.
        messages = rows.select("key", "value").collect()
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        producer, self._producer = self._producer, None  # After an error, begin with a new one.
        if producer is None:
            producer = Producer({"bootstrap.servers": self._brokers, "transactional.id": query})
            # Ends what a dead driver has left open, and fences one that is not dead.
            producer.init_transactions()
        group = Consumer({"bootstrap.servers": self._brokers, "group.id": query})
        try:
            if self._noted(group) <= batch:
                producer.begin_transaction()
                for message in messages:
                    self._send(producer, message.key, message.value)
                next_batch = TopicPartition(self._topic, 0, batch + 1)
                producer.send_offsets_to_transaction([next_batch], group.consumer_group_metadata())
                producer.commit_transaction()
        finally:
            group.close()
        self._producer = producer

    def _noted(self, group: Consumer) -> int:
        """The number of the first batch that the topic does not have; negative if it has none."""
        deadline = time.monotonic() + 60
        while True:
            try:
                (noted,) = group.committed([TopicPartition(self._topic, 0)], timeout=60)
            except KafkaException as error:
                if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return int(noted.offset)

    def _send(self, producer: Producer, key: str, value: str) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key)
            except BufferError:
                producer.poll(1)  # The queue is full: wait until the broker has some of it.
            else:
                producer.poll(0)
                return


def pay(brokers: str, topic: str, numbers: range) -> None:
    """Send payments."""
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for number in numbers:
        payment = {"number": number, "account": f"a{number % 7}", "cents": number * 7919 % 10_007}
        producer.produce(topic, json.dumps(payment), payment["account"])
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("Kafka did not accept the payments")


def received(consumer: Consumer, count: int) -> list[int]:
    """The numbers of the next payments."""
    numbers: list[int] = []
    while len(numbers) < count:
        for message in consumer.consume(count - len(numbers), timeout=1):
            if message.error() is not None:
                raise SystemExit(message.error().str())
            numbers.append(json.loads(message.value())["number"])
    return numbers


def main() -> None:
    brokers, run = os.environ["KAFKA"], secrets.token_hex(4)
    payments, large = f"payments-{run}", f"large-payments-{run}"
    topics = [NewTopic(payments, num_partitions=3), NewTopic(large, num_partitions=1)]
    admin = AdminClient({"bootstrap.servers": brokers})
    for created in admin.create_topics(topics).values():
        created.result(60)
    send = TransactionalTopic(brokers, large)

    def twice(rows: DataFrame, batch: int) -> None:
        """As after a crash: each batch comes again."""
        send(rows, batch)
        send(rows, batch)

    pipeline = (
        Pipeline(
            f"kafka://{brokers}/{payments}",
            schema="number long, account string, cents long",
            options={"maxRecordsPerTrigger": "1000"},
        )
        .through(lambda rows: rows.where(LARGE).selectExpr("account AS key", "to_json(struct(*)) AS value"))
        .into(twice)
    )
    expected = [number for number in range(PAYMENTS) if number * 7919 % 10_007 >= 9000]
    reader = Consumer({"bootstrap.servers": brokers, "group.id": run, "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(large, 0, 0)])
    spark, found = session(master="local[2]"), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        for part in (range(PAYMENTS // 2), range(PAYMENTS // 2, PAYMENTS)):
            pay(brokers, payments, part)
            with pipeline.start(spark=spark, checkpoint=folder):
                found += received(reader, sum(number in part for number in expected))
            print(f"after payment {part.stop}: {len(found)} large ones")
    # Whatever came twice would be here now.
    found += [json.loads(message.value())["number"] for message in reader.consume(1, timeout=2)]
    print("each once:", sorted(found) == expected)
    reader.close()
    spark.stop()


if __name__ == "__main__":
    main()
