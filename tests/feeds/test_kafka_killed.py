"""Broker, gateway and sender are killed in turn; a full topic and a slow reader; a broker that is down.

``PENSTOCK_FEED_RECORDS=200000`` makes it the long run.
"""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, Record, SqliteJournal
from penstock.streams import Flux
from tests.feeds.brokers import Process, gateway_command, resident, storm, wait_until
from tests.feeds.chaos import HEAD, asked_of
from tests.feeds.reading import Reader, followed
from tests.free_ports import free_port
from tests.kafka.broker import KafkaBroker

RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "6000"))
KILLS = 3 if RECORDS < 10_000 else 15
PARTITIONS = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + RECORDS / 50)]


def test_broker_gateway_and_sender_are_killed_in_turn_and_every_record_is_stored_once(tmp_path: Path) -> None:
    log, noted, enough = tmp_path / "log.db", tmp_path / "noted", tmp_path / "enough"
    with KafkaBroker(tmp_path / "kafka") as kafka:
        topic = kafka.topic(PARTITIONS)
        sending = (sys.executable, "-m", "tests.feeds.kafka_sender", kafka.address, topic)
        source = f"kafka://{kafka.address}/{topic}"

        def sent() -> int:
            return noted.read_bytes().count(b"\n") if noted.exists() else 0

        with (
            Process(tmp_path / "sender.log", *sending, str(noted), str(enough)) as sender,
            Process(tmp_path / "gateway.log", *gateway_command(source, "--journal", str(log))) as gateway,
        ):
            stages = {"broker": kafka, "sender": sender, "gateway": gateway}
            storm(stages, sent, KILLS, max(300, RECORDS // KILLS // 2))
            _wait_for(sent, RECORDS, "the sender does not go on")
            enough.touch()
            assert sender.wait() == 0, sender.log.read_text()
            committed = list(_committed(kafka, topic))
            # The last gateway may not have got as far as making the log.
            _wait_for(asked_of(log, HEAD), len(committed), "not everything is stored")
    stored = _records(log)
    print(len(stored), "records")
    by_key, expected = defaultdict(list), defaultdict(list)
    for record in stored:
        by_key[record.key].append(record.value)
    for key, value in committed:
        expected[key].append(value)
    assert by_key == expected, "each once, in the order of its key"
    assert set(noted.read_bytes().split()) <= {record.value for record in stored}
    assert len(stored) >= RECORDS


def _wait_for(progress: Callable[[], int], goal: int, what: str) -> None:
    """Any time is right for the whole; there has to be progress."""
    for step in [*range(progress(), goal, 2000), goal]:
        wait_until(partial(_is_there, progress, step), what)


def _is_there(progress: Callable[[], int], goal: int) -> bool:
    return progress() >= goal


def _committed(kafka: KafkaBroker, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """What the topic has, in the order of its partitions."""
    settings = {"bootstrap.servers": kafka.address, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        open_ones = PARTITIONS
        while open_ones:
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                else:
                    assert error.code() == error._PARTITION_EOF, error
                    open_ones -= 1
    finally:
        consumer.close()


def _stored(log: Path) -> int:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as database:
        (head,) = database.execute("select coalesce(max(first + count), 0) from batches").fetchone()
    return int(head)


def _records(log: Path) -> list[Record]:
    nothing: Flux[bytes] = Flux.empty()
    with Gateway(nothing, "tcp://127.0.0.1:0", journal=SqliteJournal(log)) as gateway:
        return list(AquiferPublisher(gateway.endpoint, records=True).flux())


@pytest.mark.rare(15)
def test_a_slow_reader_leaves_the_records_in_kafka_and_the_memory_flat(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.send(topic, (b"%07d" % number + b"x" * 993 for number in range(100_000)))
    port = free_port()
    source = f"kafka://{kafka.address}/{topic}?group={topic}"
    command = gateway_command(source, "--max-bytes", "4M", "--journal", str(tmp_path / "log.db"), port=port)
    with Process(tmp_path / "gateway.log", *command) as gateway:
        reader = Reader()
        AquiferPublisher(f"tcp://127.0.0.1:{port}", id="slow").subscribe(reader)
        at_first = 0
        for second in range(20):
            reader.subscription.request(1000)
            for number, value in enumerate(reader.take(1000), 1000 * second):
                assert int(value[:7]) == number
            if second == 4:
                at_first = resident(gateway.pid)
        assert resident(gateway.pid) - at_first < 20_000_000
        head = _stored(tmp_path / "log.db")
        assert head < 30_000, "the rest stays in Kafka"
        reader.subscription.cancel()


@pytest.mark.rare(25)
def test_a_feed_goes_on_while_one_of_two_brokers_is_killed(tmp_path: Path) -> None:
    with (
        KafkaBroker(tmp_path / "kafka") as first,
        KafkaBroker(tmp_path / "second", joins=first) as second,
    ):
        wait_until(lambda: len(first.admin.list_topics(timeout=60).brokers) == 2, "there is only one broker")
        first.create("copied", 2, copies=2)
        with (
            feeds.open(f"kafka://{second.address},{first.address}/copied") as feed,
            followed(feed) as reader,
        ):
            for turn in range(3):
                sent = [b"%d of %d in %d" % (n, partition, turn) for partition in (0, 1) for n in range(100)]
                for partition in (0, 1):
                    first.send("copied", sent[100 * partition : 100 * (partition + 1)], partition)
                assert sorted(reader.take(200)) == sorted(sent)
                if turn == 0:
                    second.kill()  # One of the partitions was led by it.
                elif turn == 1:
                    second.start()
    assert reader.error is None


@pytest.mark.rare(15)
def test_a_broker_that_is_down_is_a_state_and_the_feed_continues(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        topic = kafka.topic()
        kafka.send(topic, [b"1"])
        with feeds.open(f"kafka://{kafka.address}/{topic}?group=g") as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(1)
            assert reader.take(1) == [b"1"]
            kafka.kill()
            wait_until(lambda: feed.state.status == "down", "without demand it does not say that it is down")
            reader.subscription.request(10)
            wait_until(lambda: feed.state.attempts > 0, "it does not try again")
            assert feed.state.reason is not None
            assert "Connection refused" in feed.state.reason
            kafka.start()
            kafka.send(topic, [b"2"])
            assert reader.take(1) == [b"2"]
            assert feed.state.status == "up"
            kafka.send(topic, [b"3"])
            reader.take(1)
            kafka.kill()
            reader.subscription.cancel()
    left = [each for each in threading.enumerate() if each.name.startswith("penstock-kafka")]
    wait_until(lambda: not any(each.is_alive() for each in left), "it waits for a broker that is gone")
