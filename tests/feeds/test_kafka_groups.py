"""Consumer groups of Kafka: another group continues where the log is, and a commit may be beyond the end."""

import logging
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from penstock import feeds
from penstock.aquifer import Gateway, SqliteJournal
from penstock.feeds import BadFeed
from tests.cli.running import PATIENCE
from tests.feeds.brokers import records_of, wait_until
from tests.feeds.reading import Reader
from tests.feeds.test_kafka import HERE, committed, numbers, url
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow


def commit(kafka: KafkaBroker, group: str, topic: str, offset: int) -> None:
    """Say to a group that nobody is in that it has read so much."""
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    kafka.admin.alter_consumer_group_offsets([wanted])[group].result(PATIENCE)


def stores(feed: feeds.Feed, path: Path, count: int) -> None:
    """Have a gateway read a feed until its log has so many records."""
    journal = SqliteJournal(path)
    with feed, Gateway(feed, HERE, journal=journal):
        wait_until(lambda: journal.head >= count, f"not all records are stored: {feed.state}")


def test_a_commit_beyond_the_end_is_an_error_or_is_corrected_and_the_feed_goes_on(
    kafka: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    source = url(kafka, topic, f"?group={topic}")
    kafka.send(topic, numbers(10))
    stores(feeds.open(source), tmp_path / "log.db", 10)
    # As after an unclean election: the partition has lost its end, and the group knows of it.
    commit(kafka, topic, topic, 500)

    with (
        feeds.open(source) as feed,
        pytest.raises(BadFeed, match="ends at offset 10, and the group has read what came before 500"),
    ):
        feed.flux().collect_list().block(PATIENCE)
    with caplog.at_level(logging.WARNING, "penstock.feeds"), feeds.open(f"{source}&lost=skip") as feed:
        journal = SqliteJournal(tmp_path / "log.db")
        with Gateway(feed, HERE, journal=journal):
            wait_until(lambda: feed.state.status == "up", "it does not connect")
            wait_until(lambda: committed(kafka, topic, topic) == 10, "the group is not corrected")
            kafka.send(topic, numbers(10, 15))
            wait_until(lambda: journal.head >= 15, f"not all records are stored: {feed.state}")
    assert caplog.text.count("it goes on with offset 10") == 1
    assert records_of(tmp_path / "log.db") == numbers(15)


@pytest.mark.parametrize("more", ["", "?group=first-{0}", "?group=a/b-{0}"])
def test_another_group_continues_where_the_log_is(
    kafka: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, numbers(10))
    kafka.send(topic, numbers(100, 110), partition=1)
    before, after = url(kafka, topic, more.format(topic)), url(kafka, topic, f"?group=second-{topic}")
    stores(feeds.open(before), tmp_path / "log.db", 20)
    kafka.send(topic, numbers(10, 13))
    with caplog.at_level(logging.WARNING, "penstock.feeds"):
        stores(feeds.open(after), tmp_path / "log.db", 23)
    as_group = more.format(topic).replace("?group=", "as the group ") or "without a group"
    assert f"the log has what was read {as_group}; it is continued as the group second-{topic}" in caplog.text
    assert committed(kafka, f"second-{topic}", topic) == 13

    # And back: what the last group has read counts, and not only what this one had.
    kafka.send(topic, numbers(13, 15))
    stores(feeds.open(before), tmp_path / "log.db", 25)

    assert sorted(records_of(tmp_path / "log.db")) == sorted(numbers(15) + numbers(100, 110))


def test_a_topic_that_was_made_again_is_read_once_also_by_a_group_and_after_a_restart(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.topic(partitions=2)
    source = url(kafka, topic, f"?group={topic}&lost=skip")
    kafka.send(topic, numbers(10))
    kafka.send(topic, numbers(100, 110), partition=1)
    stores(feeds.open(source), tmp_path / "log.db", 20)
    kafka.delete(topic)
    kafka.create(topic, 2)
    kafka.send(topic, numbers(50))
    stores(feeds.open(source), tmp_path / "log.db", 70)
    # Of the second partition the journal still has the position in the topic that is gone.
    kafka.send(topic, numbers(50, 55))
    kafka.send(topic, numbers(200, 205), partition=1)
    stores(feeds.open(source), tmp_path / "log.db", 80)

    expected = [*numbers(10), *numbers(100, 110), *numbers(55), *numbers(200, 205)]
    assert sorted(records_of(tmp_path / "log.db")) == sorted(expected)


def test_two_members_of_one_name_are_told_apart_from_other_errors(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(1))
    source = url(kafka, topic, f"?group={topic}&member=one")
    older, newer = Reader(), Reader()
    with feeds.open(source) as first, feeds.open(source) as second:
        first(0).subscribe(older)
        older.subscription.request(1_000_000)
        older.take(1)
        second(0).subscribe(newer)
        newer.subscription.request(1_000_000)
        assert older.ended.wait(PATIENCE)
        newer.subscription.cancel()
    assert isinstance(older.error, BadFeed)
    assert f"another member of the group {topic} has the name one" in str(older.error)
