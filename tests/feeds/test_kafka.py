"""Kafka topics: each record becomes one of the log exactly once, in the order of its partition."""

import asyncio
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, Record, SqliteJournal
from penstock.feeds import BadFeed, FeedOptions
from tests.cli.running import PATIENCE
from tests.feeds.brokers import records_of, wait_until
from tests.feeds.reading import Reader, followed
from tests.free_ports import free_port
from tests.kafka.broker import KafkaBroker

HERE = "tcp://127.0.0.1:0"


def url(kafka: KafkaBroker, topic: str, more: str = "") -> str:
    return f"kafka://{kafka.address}/{topic}{more}"


def numbers(*of: int) -> list[bytes]:
    return [b"%d" % number for number in range(*of)]


def committed(kafka: KafkaBroker, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": group, "log_level": 0})
    try:
        [found] = consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE)
        return int(found.offset)
    finally:
        consumer.close()


def _is_told(kafka: KafkaBroker, group: str, topic: str, end: int) -> bool:
    return committed(kafka, group, topic) == end


def _has(journal: SqliteJournal, count: int) -> bool:
    return journal.head >= count


@pytest.mark.parametrize("group", ["", "?group=restarts&member=one"])
def test_a_restart_continues_after_the_journal_and_the_group_is_told_after_the_commit(
    kafka: KafkaBroker, tmp_path: Path, group: str
) -> None:
    topic = kafka.topic()
    for start in (0, 700, 1400):
        kafka.send(topic, numbers(start, start + 700))
        journal = SqliteJournal(tmp_path / "log.db")
        with feeds.open(url(kafka, topic, group)) as feed, Gateway(feed, HERE, journal=journal):
            wait_until(partial(_has, journal, start + 700), "not all records are stored")
            assert feed.state.status == "up"
            if group:
                wait_until(partial(_is_told, kafka, "restarts", topic, start + 700), "the group is not told")
    assert records_of(tmp_path / "log.db") == numbers(2100)


def test_what_was_read_and_not_stored_is_read_again(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(2000))
    marks: dict[str, str] = {}
    dying = Reader(marks)
    with feeds.open(url(kafka, topic)) as feed:
        feed(0).subscribe(dying)
        dying.subscription.request(1)
        first = dying.take(1)
        dying.subscription.cancel()
    stored = len(first) + dying.lines.qsize()
    assert 0 < stored < 2000, "one delivery is not everything"
    with feeds.open(url(kafka, topic)) as feed, followed(feed) as reader:
        assert reader.take(2000) == numbers(2000), "without marks all is read again"
    with feeds.open(url(kafka, topic)) as feed:
        feed.resume(marks)
        with followed(feed) as reader:
            assert reader.take(2000 - stored) == numbers(stored, 2000)


def test_keys_and_times_are_kept_and_the_order_of_each_key(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=3, retention_ms=-1)  # The records look old enough to be deleted.
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(600):
        producer.produce(
            topic, b"%d" % number, key=b"%d" % (number % 5), timestamp=1_700_000_000_000 + number
        )
    producer.flush(PATIENCE)
    with feeds.open(url(kafka, topic, "?timestamps")) as feed, Gateway(feed, HERE) as gateway:
        reading = AquiferPublisher(gateway.endpoint, records=True).flux().take(600)
        records: list[Record] = reading.collect_list().block(PATIENCE)
    for key in range(5):
        mine = [record for record in records if record.key == b"%d" % key]
        assert [record.value for record in mine] == numbers(key, 600, 5)
        assert [record.timestamp for record in mine] == [
            1_700_000_000_000_000 + number * 1000 for number in range(key, 600, 5)
        ]


def test_records_of_a_transaction_come_when_it_is_committed_and_not_if_it_is_aborted(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    for value, ends in ((b"no", producer.abort_transaction), (b"yes", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE)
        ends(PATIENCE)
    with feeds.open(url(kafka, topic)) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"yes"]
    with feeds.open(url(kafka, topic, "?isolation=read_uncommitted")) as feed, followed(feed) as reader:
        assert reader.take(2) == [b"no", b"yes"]


def test_from_now_begins_at_the_end_and_stays_there_over_a_restart(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, numbers(100))
    marks: dict[str, str] = {}
    source = url(kafka, topic, "?from=now")
    with feeds.open(source) as feed, followed(feed, marks=marks):
        wait_until(lambda: len(marks) == 2, "it does not say where it begins")
    kafka.send(topic, numbers(100, 103))
    with feeds.open(source) as feed:
        feed.resume(marks)
        with followed(feed) as reader:
            assert reader.take(3) == numbers(100, 103)


def test_a_partition_that_is_added_is_read_from_its_beginning(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"old"])
    with feeds.open(url(kafka, topic)) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"old"]
        kafka.add_partitions(topic, 2)
        kafka.send(topic, [b"new"], partition=1)
        assert reader.take(1) == [b"new"]


def test_two_gateways_of_a_group_share_the_partitions_and_hand_over_without_a_gap_or_a_repetition(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.topic(partitions=4)
    source = url(kafka, topic, f"?group={topic}")

    def send(start: int) -> None:
        for partition in range(4):
            kafka.send(topic, [b"%d of %d" % (n, partition) for n in range(start, start + 100)], partition)

    def assigned(count: int) -> bool:
        found: Any = kafka.admin.describe_consumer_groups([topic])[topic].result(PATIENCE)
        shares = [len(member.assignment.topic_partitions) for member in found.members]
        return found.state.name == "STABLE" and len(shares) == count and sum(shares) == 4

    first, second = SqliteJournal(tmp_path / "1.db"), SqliteJournal(tmp_path / "2.db")
    with feeds.open(source) as one, Gateway(one, HERE, journal=first):
        send(0)
        wait_until(partial(_has, first, 400), "not all records are stored")
        with feeds.open(source) as two, Gateway(two, HERE, journal=second):
            wait_until(lambda: assigned(2), "the partitions are not shared")
            send(100)
            wait_until(lambda: first.head + second.head >= 800, "not all records are stored")
        wait_until(lambda: assigned(1), "the partitions do not come back")
        send(200)
        wait_until(lambda: first.head + second.head >= 1200, "not all records are stored")
        assert second.head == 200, "each had two partitions"
    everything = records_of(tmp_path / "1.db") + records_of(tmp_path / "2.db")
    assert sorted(everything) == sorted(b"%d of %d" % (n, p) for n in range(300) for p in range(4))


def test_records_that_were_deleted_before_they_were_read_are_an_error_or_are_counted(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(100))
    marks: dict[str, str] = {}
    with feeds.open(url(kafka, topic)) as feed, followed(feed, marks=marks) as reader:
        reader.take(100)
    kafka.send(topic, numbers(100, 200))
    gone = TopicPartition(topic, 0, 150)
    kafka.admin.delete_records([gone])[gone].result(PATIENCE)
    with feeds.open(url(kafka, topic)) as feed:
        feed.resume(marks)
        with pytest.raises(BadFeed, match=r"offsets 100 to 149 of partition 0"):
            feed.flux().collect_list().block(PATIENCE)
    with feeds.open(url(kafka, topic, "?lost=skip")) as feed:
        assert isinstance(feed, feeds.KafkaFeed)
        feed.resume(marks)
        with followed(feed) as reader:
            assert reader.take(50) == numbers(150, 200)
        assert feed.lost_records == 50
    assert "it goes on with offset 150" in caplog.text


def test_records_that_are_deleted_while_the_feed_waits_for_demand_are_not_skipped_silently(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"x" * 500_000] * 40)
    reader = Reader()
    with feeds.open(url(kafka, topic)) as feed:
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        reader.take(1)
        gone = TopicPartition(topic, 0, 39)
        kafka.admin.delete_records([gone])[gone].result(PATIENCE)
        reader.subscription.request(1_000_000)
        assert reader.ended.wait(PATIENCE)
    assert isinstance(reader.error, BadFeed)
    assert "were deleted before they were read" in str(reader.error)


def test_a_topic_that_was_made_again_is_an_error_and_so_is_one_that_lost_its_end(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(10))
    marks: dict[str, str] = {}
    with feeds.open(url(kafka, topic)) as feed, followed(feed, marks=marks) as reader:
        reader.take(10)
    with feeds.open(url(kafka, topic)) as feed:
        feed.resume({name: f"{text.split()[0]} 500" for name, text in marks.items()})
        with pytest.raises(BadFeed, match="the topic was truncated"):
            feed.flux().collect_list().block(PATIENCE)
    kafka.delete(topic)
    kafka.create(topic)
    kafka.send(topic, numbers(100, 150))
    with feeds.open(url(kafka, topic)) as feed:
        feed.resume(marks)
        with pytest.raises(BadFeed, match="deleted and created again"):
            feed.flux().collect_list().block(PATIENCE)
    with feeds.open(url(kafka, topic, "?lost=skip")) as feed:
        feed.resume(marks)
        with followed(feed) as reader:
            assert reader.take(50) == numbers(100, 150)


def test_a_topic_that_comes_later_is_a_state(kafka: KafkaBroker) -> None:
    reader = Reader()
    with feeds.open(url(kafka, "later")) as feed:
        feed(0).subscribe(reader)
        reader.subscription.request(10)
        wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
        assert "there is no topic later; create it" in str(feed.state)
        kafka.create("later")
        kafka.send("later", [b"1"])
        assert reader.take(1) == [b"1"]
        assert feed.state.status == "up"
        reader.subscription.cancel()


def test_a_bad_record_ends_the_stream_after_those_before_it_or_is_skipped(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"1", b"{", b"3" * 2000, b"4"])
    options = FeedOptions(codec="json", on_bad_line="skip", max_line=1000)
    with feeds.open(url(kafka, topic), options) as feed, followed(feed) as reader:
        assert reader.take(2) == [1, 4]
        assert feed.skipped == 2
    taken: list[object] = []
    with (
        feeds.open(url(kafka, topic), FeedOptions(codec="json")) as feed,
        pytest.raises(ValueError, match=r"offset 1 of partition 0 of kafka topic"),
    ):
        feed.flux().do_on_next(taken.append).collect_list().block(PATIENCE)
    assert taken == [1]


def test_a_password_is_sent_over_tls_and_shown_nowhere(
    kafka: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    topic = kafka.topic()
    kafka.send(topic, [b"1"])
    where = f"{kafka.secure_address}/{topic}?ca={kafka.certificate}"
    with (
        feeds.open(f"kafkas://{kafka.user}:{quote(kafka.password)}@{where}") as feed,
        followed(feed) as reader,
    ):
        assert reader.take(1) == [b"1"]
    secret = tmp_path / "client.properties"
    secret.write_text(f"# who\nsasl.username = {kafka.user}\nsasl.password = {kafka.password}\n")
    with feeds.open(f"kafkas://{where}&config={secret}") as feed, followed(feed) as reader:
        assert reader.take(1) == [b"1"]
    (tmp_path / "password").write_text(f"{kafka.password}\n")
    given = f"kafkas://{kafka.user}@{where}&password-file={tmp_path / 'password'}"
    with feeds.open(given) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"1"]
    with (
        feeds.open(f"kafkas://{kafka.user}:wrong-one@{where}") as feed,
        pytest.raises(BadFeed, match="refuses the user") as refused,
    ):
        feed.flux().collect_list().block(PATIENCE)
    assert "wrong-one" not in f"{refused.value}{feed.name}{feed!r}"
    for hidden in ("hush", "wrong-one"):
        assert hidden not in caplog.text
    with pytest.raises(BadFeed) as bad:
        feeds.open("kafka://reader:hush@h/t?group=")
    assert "hush" not in str(bad.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_can_be_proved_without_being_sent(kafka: KafkaBroker, mechanism: str) -> None:
    user, password, topic = mechanism.lower(), "@/:& %41", kafka.topic()
    kafka.send(topic, [b"1"])
    known = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
    made = UserScramCredentialUpsertion(user, known, password.encode())
    kafka.admin.alter_user_scram_credentials([made])[user].result(PATIENCE)
    where = f"{kafka.secure_address}/{topic}?ca={kafka.certificate}&sasl={mechanism}"
    with (
        feeds.open(f"kafkas://{user}:{quote(password, safe='')}@{where}") as feed,
        followed(feed) as reader,
    ):
        assert reader.take(1) == [b"1"]
    with (
        feeds.open(f"kafkas://{user}:wrong-one@{where}") as feed,
        pytest.raises(BadFeed, match="refuses the user"),
    ):
        feed.flux().collect_list().block(PATIENCE)


def test_a_broker_that_wants_a_certificate_gets_ours(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic, own = kafka.topic(), kafka.clients.issue_cert("gateway@example.org")
    kafka.send(topic, [b"1"])
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    own.cert_chain_pems[0].write_to_path(str(certificate))
    own.private_key_pem.write_to_path(str(key))
    where = f"kafkas://{kafka.mutual_address}/{topic}?ca={kafka.certificate}"
    with (
        feeds.open(f"{where}&certificate={certificate}&key={key}") as feed,
        followed(feed) as reader,
    ):
        assert reader.take(1) == [b"1"]
    with feeds.open(where) as feed, followed(feed):
        wait_until(lambda: feed.state.status == "down", "it is let in without a certificate")


def test_one_of_several_brokers_is_enough(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"1"])
    source = f"kafka://127.0.0.1:{free_port()},{kafka.address},127.0.0.1:{free_port()}/{topic}"
    with feeds.open(source) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"1"]
        assert feed.state.status == "up"


_LEAVES_AT_ONCE = """
import sys
import threading
from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
with feeds.open(sys.argv[1]) as feed:
    if sys.argv[2] == "cancels":
        assert len(feed.flux().take(100).collect_list().block(60)) == 100
    elif sys.argv[2] == "stores":
        with Gateway(feed, "tcp://127.0.0.1:0") as gateway:
            assert len(list(AquiferPublisher(gateway.endpoint, stop=100).flux())) == 100
    else:
        taken = threading.Semaphore(0)
        feed.flux().subscribe(lambda _: taken.release(), on_error=print)
        for _ in range(100):
            assert taken.acquire(timeout=60)
"""


def test_a_program_that_ends_right_after_close_has_told_the_group_and_prints_nothing(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(100))
    for more, way in (("", "cancels"), ("", "goes on"), (f"?group={topic}", "stores")):
        program = [sys.executable, "-c", _LEAVES_AT_ONCE, url(kafka, topic, more), way]
        done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert committed(kafka, topic, topic) == 100
    # The group is empty at once, and not only when the session of a lost member ends.
    found: Any = kafka.admin.describe_consumer_groups([topic])[topic].result(PATIENCE)
    assert found.members == []


def test_closing_on_the_loop_that_reads_does_not_wait_for_itself(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(10))

    async def read() -> list[bytes]:
        with feeds.open(url(kafka, topic)) as feed:
            async for first in feed.flux():
                return [first]
        raise AssertionError

    with ThreadPoolExecutor(1) as other:
        assert other.submit(asyncio.run, read()).result(PATIENCE) == [b"0"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("kafka://h", "there is no topic"),
        ("kafka://h:port/t", "'h:port' is not a broker"),
        ("kafka://h,/t", "'' is not a broker"),
        ("kafka://h/t?from=there", "write start or now"),
        ("kafka://h/t?lost=never", "write fail or skip"),
        ("kafka://h/t?member=m", "write .group=NAME&member=NAME"),
        ("kafka://h/t?sasl=GUESS", "write PLAIN, SCRAM-SHA-256"),
        ("kafka://h/t?config=/nowhere/at/all", "cannot be read"),
        ("kafkas://h/t?ca=/nowhere/at/all", "there is no file"),
        ("kafka://h/t?colour=red", "is not known"),
    ],
)
def test_a_wrong_url_is_a_clear_error(wrong: str, message: str) -> None:
    with pytest.raises(BadFeed, match=message):
        feeds.open(wrong)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BadFeed, match=r"pip install 'penstock-streams\[kafka\]'"):
        feeds.open("kafka://h/t")
