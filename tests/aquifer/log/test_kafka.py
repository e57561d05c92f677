"""The journal in Kafka: another gateway continues, the one before is fenced, and a broker may be away."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    Gateway,
    JournalDamaged,
    JournalError,
    JournalInUse,
    JournalUnavailable,
    KafkaJournal,
)
from penstock.aquifer import Producer as Writer
from penstock.aquifer.log import Cursor, annotated_journal, kafka_topics
from penstock.aquifer.records import unpack_values
from penstock.streams import Flux
from tests.aquifer.log.making import NO_WATERMARK, Clock, batch_at, batches_from, everything, fill
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow


@pytest.fixture
def topic() -> str:
    return f"log-{secrets.token_hex(4)}"


def test_another_one_continues_where_a_dead_one_was(kafka: KafkaBroker, topic: str) -> None:
    dead = KafkaJournal(kafka.address, topic, max_records=50)
    dead.use_codec("json")
    fill(dead, [20, 20])
    assert dead.make_space(20, 0, NO_WATERMARK)
    dead.save_cursor("ann", Cursor(25, 1000, 3.5, "key"))
    dead.append([batch_at(40, 5)], {"source": "7", "gone": "1"})
    dead.append([], {"gone": None})

    other = KafkaJournal(kafka.address, topic, cache_bytes=1)

    assert (other.epoch, other.first, other.head) == (dead.epoch, 20, 45)
    assert everything(other) == everything(dead)
    assert other.cursors == {"ann": Cursor(25, 1000, 3.5, "key")}
    assert other.marks == {"source": "7"}
    assert other.held == dead.held
    with pytest.raises(JournalError, match="codec 'json'"):
        other.use_codec("text")
    other.close()


def test_the_one_before_is_fenced_and_stores_nothing_more(kafka: KafkaBroker, topic: str) -> None:
    before = clients()
    first = KafkaJournal(kafka.address, topic)
    fill(first, [3])
    second = KafkaJournal(kafka.address, topic)
    ours = fill(second, [2], author="second")

    for _ in range(2):
        with pytest.raises(JournalInUse, match="another gateway has opened the log kafka://"):
            first.append([batch_at(3, 2, author="first")])
    fill(second, [4], author="second")
    first.close()

    third = KafkaJournal(kafka.address, topic)
    assert third.head == 9
    assert third.find(3) == ours[0]
    third.close()
    second.close()
    wait_until(lambda: clients() <= before, "a client goes on")


def test_one_that_writes_all_the_time_gives_way_to_one_that_opens_the_log(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = KafkaJournal(kafka.address, topic)
    ours = fill(first, [3])

    def meanwhile() -> None:
        with pytest.raises(JournalUnavailable, match="another gateway is opening the log"):
            first.append([batch_at(3, 2, author="first")])

    second = opened_and_before(meanwhile, kafka, topic, monkeypatch)
    assert everything(second) == ours
    with pytest.raises(JournalInUse, match="another gateway has opened the log kafka://"):
        first.append([batch_at(3, 2, author="first")])
    first.close()
    second.close()


def test_one_that_was_fenced_goes_on_if_the_other_one_cannot_open_the_log(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = KafkaJournal(kafka.address, topic, patience=5.0)
    ours = fill(first, [3])

    def fail() -> None:
        raise JournalError("the other one cannot read this")

    with pytest.raises(JournalError, match="cannot read"):
        opened_and_before(fail, kafka, topic, monkeypatch)

    more = [batch_at(3, 2, author="first")]

    def is_stored() -> bool:
        with suppress(JournalUnavailable):
            first.append(more)
        return first.head == 5

    wait_until(is_stored, "it does not go on")
    assert everything(first) == [*ours, *more]
    first.close()


def opened_and_before(
    act: Callable[[], None], kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> KafkaJournal:
    """Open the log, and do something when whoever had it is fenced and the log was not read yet."""
    load = KafkaJournal._load

    def act_and_load(self: KafkaJournal) -> None:
        act()
        load(self)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaJournal, "_load", act_and_load)
        return KafkaJournal(kafka.address, topic)


def test_that_it_is_fenced_is_understood_although_the_client_calls_back_with_an_exception(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the fatal error and the answer for each message come at the same time."""

    class Slow:
        """A producer that is asked late."""

        def __init__(self, producer: Producer) -> None:
            self._producer = producer

        def flush(self, patience: float) -> int:
            time.sleep(1)  # Meanwhile everything arrives.
            return self._producer.flush(patience)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

    first = KafkaJournal(kafka.address, topic)
    KafkaJournal(kafka.address, topic).close()
    assert first._topics._producer is not None
    monkeypatch.setattr(first._topics, "_producer", Slow(first._topics._producer))
    with pytest.raises(JournalInUse, match="another gateway has opened the log kafka://"):
        fill(first, [3, 2])
    first.close()


def test_of_two_gateways_on_one_topic_one_is_told_that_it_is_fenced(kafka: KafkaBroker, topic: str) -> None:
    here = "tcp://127.0.0.1:0"
    with Gateway(None, here, journal=KafkaJournal(kafka.address, topic), writable=True) as old:
        later = KafkaJournal(kafka.address, topic)
        with Gateway(Flux.just(b"1", b"2"), here, journal=later) as new:
            assert list(AquiferPublisher(new.endpoint).flux()) == [b"1", b"2"]
        with Writer(old.endpoint) as writer, pytest.raises(AquiferError, match="another gateway has opened"):
            _write(writer, b"3")
        assert old.failure is not None
        assert "another gateway has opened the log" in old.failure


def _write(writer: Writer, value: bytes) -> None:
    with writer.transaction(1) as transaction:
        transaction.write([value])


def test_batches_that_are_forgotten_are_deleted_from_the_topic(kafka: KafkaBroker, topic: str) -> None:
    journal = KafkaJournal(kafka.address, topic, max_records=10, cache_bytes=1)
    for _ in range(20):
        assert journal.make_space(5, 0, NO_WATERMARK)
        fill(journal, [5])
    journal.flush()
    wait_until(lambda: kafka.start_of(topic) > 0, "Kafka deletes nothing")
    assert [batch.first for batch in everything(journal)] == [90, 95]
    journal.close()
    again = KafkaJournal(kafka.address, topic)
    assert (again.first, again.head) == (90, 100)
    again.close()


def test_records_that_are_acknowledged_are_deleted_from_the_topic_although_none_is_left(
    kafka: KafkaBroker, topic: str
) -> None:
    log = KafkaJournal(kafka.address, topic, keep_acknowledged=False)
    fill(log, [20, 20])
    log.retire(log.head)

    def is_deleted() -> bool:
        log.flush()
        return kafka.start_of(topic) >= 2

    wait_until(is_deleted, "they stay in the topic")
    log.close()
    other = KafkaJournal(kafka.address, topic)
    assert (other.epoch, other.first, other.head) == (log.epoch, 40, 40)
    assert everything(other) == []
    other.append(more := batches_from(40, [3]))
    assert everything(other) == more
    other.close()


def test_a_clock_that_is_set_makes_nothing_older_or_younger(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(time.time())
    monkeypatch.setattr(annotated_journal, "time", clock)
    journal = KafkaJournal(kafka.address, topic, max_age=60)
    fill(journal, [5])
    clock.set(clock.now + 86_400)
    journal.retire(NO_WATERMARK)
    assert journal.first == 0
    fill(journal, [5])
    clock.set(clock.now - 200_000)
    clock.now += 59
    journal.retire(NO_WATERMARK)
    assert journal.first == 0
    clock.now += 2
    journal.retire(NO_WATERMARK)
    assert journal.first == 10
    journal.close()


def test_a_clock_that_was_set_makes_nothing_older_for_the_next_owner(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(time.time())
    for module in (annotated_journal, kafka_topics):
        monkeypatch.setattr(module, "time", clock)
    journal = KafkaJournal(kafka.address, topic, max_age=60)
    fill(journal, [5])
    clock.set(clock.now + 3000)  # Brokers refuse a time that is an hour ahead of theirs.
    fill(journal, [5])
    clock.set(clock.now - 3000)
    journal.close()

    again = KafkaJournal(kafka.address, topic, max_age=60)
    again.retire(NO_WATERMARK)
    assert again.first == 0
    clock.now += 61
    again.retire(NO_WATERMARK)
    assert again.first == 10
    again.close()


def clients() -> set[str]:
    """The clients of Kafka that this process has: each has one thread of this name."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # It has ended meanwhile.
            if (task / "comm").read_text() == "rdk:main\n":
                found.add(task.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list threads")
def test_a_journal_that_is_closed_or_cannot_be_opened_leaves_no_client(
    kafka: KafkaBroker, topic: str
) -> None:
    kafka.send(foreign := kafka.topic(), [b"not a batch"])
    before = clients()
    kept: list[object] = []  # Nothing goes because nobody needs it any more.
    for _ in range(2):  # The second one finds the topics.
        journal = KafkaJournal(kafka.address, topic)
        fill(journal, [3])
        assert not clients() <= before
        journal.close()
        kept.append(journal)
    with pytest.raises(JournalDamaged) as refused:
        KafkaJournal(kafka.address, foreign)
    kept.append(refused)
    wait_until(lambda: clients() <= before, "a client goes on")


def test_a_batch_of_some_megabytes_comes_back(kafka: KafkaBroker, topic: str) -> None:
    journal = KafkaJournal(kafka.address, topic, cache_bytes=1)
    large = batches_from(0, [3, 1, 3], width=2_000_000)
    journal.append(large)
    assert everything(journal) == large
    journal.close()


def test_a_batch_that_is_too_large_for_the_topic_fails_for_its_writer_and_others_go_on(
    kafka: KafkaBroker, topic: str
) -> None:
    kafka.create(topic, retention_ms=-1, max_message_bytes=100_000)
    with (
        Gateway(
            None, "tcp://127.0.0.1:0", journal=KafkaJournal(kafka.address, topic), writable=True
        ) as gateway,
        Writer(gateway.endpoint) as writer,
        Writer(gateway.endpoint) as other,
    ):
        with pytest.raises(AquiferError, match="a batch is too large for the topic"):
            _write(writer, bytes(200_000))
        _write(other, b"small")
        _write(writer, b"smaller")
        assert gateway.status().head == 2
        assert gateway.failure is None


def test_a_topic_of_another_program_is_refused(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"not a batch"])
    with pytest.raises(JournalDamaged, match="is not a batch; another program has written to it"):
        KafkaJournal(kafka.address, topic)


def test_what_a_killed_gateway_had_not_committed_is_not_in_the_log(kafka: KafkaBroker, topic: str) -> None:
    journal = KafkaJournal(kafka.address, topic)
    before = fill(journal, [3])
    # The transaction of a process that dies before the commit.
    settings = {"bootstrap.servers": kafka.address, "transactional.id": f"penstock-journal-{topic}"}
    dying = Producer(settings)
    dying.init_transactions(30)
    dying.begin_transaction()
    dying.produce(topic, b"half", partition=0)
    dying.flush(30)

    other = KafkaJournal(kafka.address, topic)
    assert everything(other) == before
    other.close()


def test_a_broker_that_is_away_is_told_and_survived(tmp_path: Path, topic: str) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        journal = KafkaJournal(kafka.address, topic, cache_bytes=1, patience=PATIENCE)
        stored = fill(journal, [3, 2])
        kafka.kill()
        journal._topics._patience = 2.0  # Nobody will answer.
        new = batches_from(5, [4])
        with pytest.raises(JournalUnavailable, match="do not answer as they should"):
            journal.append(new, {"mark": "1"})
        with pytest.raises(JournalUnavailable):
            journal.find(0)
        kafka.start()
        journal._topics._patience = PATIENCE
        _until_it_answers(journal, new)
        assert everything(journal) == stored + new
        assert journal.marks == {"mark": "1"}
        journal.close()
        _readers_wait(kafka, KafkaJournal(kafka.address, topic, cache_bytes=1, patience=PATIENCE))
    with pytest.raises(JournalUnavailable, match="do not answer"):
        KafkaJournal(kafka.address, topic, patience=1.0)


def _readers_wait(kafka: KafkaBroker, journal: KafkaJournal) -> None:
    """Those that need what is not in memory get it when the broker is back."""
    expected = [value for batch in everything(journal) for value in unpack_values(batch.payload)]
    with Gateway(None, "tcp://127.0.0.1:0", journal=journal, writable=True) as gateway:
        kafka.kill()
        journal._topics._patience = 8.0
        readers = [Reader(), Reader()]
        for reader, dialect in zip(readers, ("extended", "plain"), strict=True):
            AquiferPublisher(gateway.endpoint, dialect=dialect, patience=PATIENCE).subscribe(reader)
            reader.subscription.request(len(expected))
        wait_until(lambda: len(gateway.status().subscribers) == 2, "the readers do not come")
        assert all(reader.lines.empty() for reader in readers)
        kafka.start()
        for reader in readers:
            assert reader.take(len(expected)) == expected
            reader.subscription.cancel()


def _until_it_answers(journal: KafkaJournal, new: list[object]) -> None:
    def stored() -> bool:
        try:
            journal.append(new, {"mark": "1"})  # type: ignore[arg-type]
        except JournalUnavailable:
            return False
        return True

    wait_until(stored, "the journal does not recover")


def test_a_topic_that_was_deleted_is_not_taken_for_the_log(kafka: KafkaBroker, topic: str) -> None:
    first = KafkaJournal(kafka.address, topic)
    fill(first, [10])
    first.close()
    kafka.delete(topic)
    for _ in range(2):  # The first of them creates the topic.
        with pytest.raises(JournalDamaged, match=f"deleted and created again.*{topic}-state"):
            KafkaJournal(kafka.address, topic)
    kafka.delete(f"{topic}-state")

    second = KafkaJournal(kafka.address, topic)
    assert (second.first, second.head) == (0, 0)
    assert second.epoch != first.epoch
    second.close()
