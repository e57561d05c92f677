"""The broker that tests use: it keeps what it has acknowledged when it is killed."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.broker import KafkaBroker


@pytest.mark.rare(10)
@pytest.mark.slow
def test_a_broker_that_was_killed_has_what_it_acknowledged(tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(1000)]
    with KafkaBroker(tmp_path / "kafka") as kafka:
        topic = kafka.topic()
        kafka.send(topic, sent)
        kafka.kill()
        assert not kafka.answers()
        kafka.start()
        assert kafka.end(topic) == 1000
        consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "readers"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < 1000:
            found += [message.value() for message in consumer.consume(1000, timeout=10)]
        consumer.close()
    assert found == sent
