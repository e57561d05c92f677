"""The index of a log in Kafka: opening reads the end of the log, or all of it if the topic is another."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Generator

import pytest
from confluent_kafka import TopicPartition

from penstock.aquifer.log import KafkaJournal
from penstock.aquifer.log.kafka_index import BatchPlace
from penstock.aquifer.log.kafka_topics import KafkaTopics
from penstock.aquifer.records.batch import Batch
from tests.aquifer.log.making import NO_WATERMARK, everything, fill
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow

SEGMENT = 4
"""Batches in a segment, in these tests."""


@pytest.fixture
def topic() -> str:
    return f"log-{secrets.token_hex(4)}"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first offset of each batch that was read from the topic in order."""
    offsets: list[int] = []
    batches = KafkaTopics.batches

    def counted(topics: KafkaTopics, place: int = 0) -> Generator[tuple[BatchPlace, Batch], None, None]:
        for found in batches(topics, place):
            offsets.append(found[0].position.offset)
            yield found

    monkeypatch.setattr(KafkaTopics, "batches", counted)
    return offsets


def keys(journal: KafkaJournal) -> list[str]:
    """The segments that the compacted topic has."""
    return sorted(key for key in journal._topics.state() if key.startswith("segment "))


def test_opening_reads_only_what_no_segment_has(kafka: KafkaBroker, topic: str, read: list[int]) -> None:
    first = KafkaJournal(kafka.address, topic)
    made = [batch for _ in range(5 * SEGMENT + 2) for batch in fill(first, [10])]
    first.close()
    read.clear()

    second = KafkaJournal(kafka.address, topic)

    assert read == [190, 200, 210], "the last batch that has a segment, and those after it"
    assert (second.first, second.head, second.held) == (0, 220, first.held)
    assert everything(second) == made
    second.close()


def test_segments_of_forgotten_batches_are_deleted(kafka: KafkaBroker, topic: str, read: list[int]) -> None:
    first = KafkaJournal(kafka.address, topic, max_records=100)
    for _ in range(3 * SEGMENT):
        assert first.make_space(10, 0, NO_WATERMARK)
        fill(first, [10])
    fill(first, [5])
    assert keys(first) == [f"segment {offset:020}" for offset in (0, 40, 80)]
    assert first.make_space(50, 0, NO_WATERMARK)
    fill(first, [5])
    assert keys(first) == [f"segment {80:020}"]
    first.close()
    read.clear()

    second = KafkaJournal(kafka.address, topic)

    assert read == [110, 120, 125]
    assert (second.first, second.head) == (80, 130)
    assert [batch.count for batch in everything(second)] == [10, 10, 10, 10, 5, 5]
    second.close()


def test_what_kafka_has_deleted_is_missing_with_a_warning(
    kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = KafkaJournal(kafka.address, topic)
    for _ in range(3 * SEGMENT):
        fill(first, [10])
    gone = first._index.at(50)
    assert gone is not None
    first.close()
    kafka.admin.delete_records([TopicPartition(topic, 0, gone.place)])[TopicPartition(topic, 0)].result(60)

    with caplog.at_level(logging.WARNING, "penstock.aquifer"):
        second = KafkaJournal(kafka.address, topic)

    assert "does not have the offsets 0 to 49 any more" in caplog.text
    assert (second.first, second.head) == (50, 120)
    assert len(everything(second)) == 7
    second.close()
    third = KafkaJournal(kafka.address, topic)
    assert (third.first, third.head) == (50, 120)
    assert len(everything(third)) == 7
    third.close()
