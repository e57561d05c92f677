"""The topics of a log in Kafka that somebody else has created: Kafka must not delete parts of the log."""

from __future__ import annotations

import re
import secrets
import shlex
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from penstock.aquifer import JournalDamaged, JournalError, KafkaJournal
from penstock.aquifer.log import Cursor
from penstock.kafka import KafkaAddress
from tests.aquifer.log.making import everything, fill
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "aquifer.md"


@pytest.fixture
def topic() -> str:
    return f"log-{secrets.token_hex(4)}"


def has_settings(kafka: KafkaBroker, topic: str, wanted: dict[str, str]) -> bool:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = kafka.admin.describe_configs([resource])[resource].result(PATIENCE)
    return wanted.items() <= {name: str(entry.value) for name, entry in found.items()}.items()


def run_kafka_configs(kafka: KafkaBroker, message: str) -> None:
    """Do what the commands in a message say."""
    for command in re.findall(r"kafka-configs [^`]*?(?= && |$)", message):
        words = shlex.split(command)
        assert words[1:6] == ["--bootstrap-server", kafka.address, "--alter", "--topic", words[5]]
        assert words[6] == "--add-config"
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (each.split("=") for each in words[7].split(","))
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, words[5], incremental_configs=entries)
        kafka.admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
        # The controller answers. That the broker knows of it is another matter.
        given = {entry.name: str(entry.value) for entry in entries}
        wait_until(partial(has_settings, kafka, words[5], given), "the settings stay")


@pytest.mark.parametrize(
    ("log", "state", "wrong"),
    [
        ({}, {}, ["{0} has retention.ms=604800000", "{0}-state has cleanup.policy=delete"]),
        (
            {"retention_ms": -1, "retention_bytes": 1 << 30},
            {"cleanup_policy": "compact,delete"},
            ["{0} has retention.bytes=1073741824", "{0}-state has cleanup.policy=compact,delete"],
        ),
        (
            {"retention_ms": -1, "cleanup_policy": "compact"},
            {"cleanup_policy": "compact"},
            ["{0} has cleanup.policy=compact"],
        ),
    ],
)
def test_a_topic_from_which_kafka_would_delete_parts_of_the_log_is_refused_with_the_command_that_mends_it(
    kafka: KafkaBroker, topic: str, log: dict[str, object], state: dict[str, object], wrong: list[str]
) -> None:
    kafka.create(topic, **log)
    kafka.create(f"{topic}-state", **state)
    with pytest.raises(JournalError, match="Kafka would not keep all of the log") as refused:
        KafkaJournal(kafka.address, topic)
    for each in wrong:
        assert each.format(topic) in str(refused.value)

    run_kafka_configs(kafka, str(refused.value))

    journal = KafkaJournal(kafka.address, topic)
    fill(journal, [3])
    journal.close()


def test_the_settings_of_a_log_that_is_in_use_are_checked_as_well(kafka: KafkaBroker, topic: str) -> None:
    first = KafkaJournal(kafka.address, topic)
    stored = fill(first, [3])
    first.save_cursor("ann", Cursor(2, 1000, 3.5, "key"))
    first.close()
    mend = f"kafka-configs --bootstrap-server {kafka.address} --alter --topic {topic}-state --add-config "
    run_kafka_configs(kafka, f"{mend}cleanup.policy=delete")

    with pytest.raises(JournalError, match=f"run {mend}cleanup.policy=compact$") as refused:
        KafkaJournal(kafka.address, topic)

    run_kafka_configs(kafka, str(refused.value))
    second = KafkaJournal(kafka.address, topic)
    assert (second.epoch, second.cursors) == (first.epoch, first.cursors)
    assert everything(second) == stored
    second.close()


def test_a_log_whose_state_is_gone_is_refused(kafka: KafkaBroker, topic: str) -> None:
    first = KafkaJournal(kafka.address, topic)
    fill(first, [3])
    first.close()
    kafka.delete(f"{topic}-state")

    for _ in range(2):  # The first of them creates the topic.
        with pytest.raises(JournalDamaged, match=f"{topic}-state had was deleted.*delete {topic} as well"):
            KafkaJournal(kafka.address, topic)
    kafka.delete(topic)
    second = KafkaJournal(kafka.address, topic)
    assert (second.first, second.head) == (0, 0)
    second.close()


def test_a_new_log_needs_topics_of_one_partition(kafka: KafkaBroker, topic: str) -> None:
    kafka.create(topic, 3, retention_ms=-1)
    with pytest.raises(JournalError, match=f"{topic} has 3 partitions, and a log needs a topic with one"):
        KafkaJournal(kafka.address, topic)


def test_a_log_over_tls_is_named_so(kafka: KafkaBroker, topic: str) -> None:
    where = f"{quote(kafka.user)}:{quote(kafka.password)}@{kafka.secure_address}/{topic}"
    address = KafkaAddress.of_url(f"kafkas://{where}?ca={kafka.certificate}")
    journal = KafkaJournal(kafka.secure_address, topic, settings=address.settings)
    assert journal.path == f"kafkas://{kafka.secure_address}/{topic}"
    journal.close()


def test_topics_that_are_created_as_the_page_says_are_accepted(kafka: KafkaBroker, topic: str) -> None:
    commands = re.findall(r"^kafka-topics .*(?:\n {4}.*)*", PAGE.read_text().replace("\\\n", "\n"), re.M)
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("app-log", topic))
        settings = dict(words[at + 1].split("=") for at, word in enumerate(words) if word == "--config")
        assert settings.pop("min.insync.replicas") == "2"
        assert words[words.index("--replication-factor") + 1] == "3"
        assert words[words.index("--partitions") + 1] == "1"
        kafka.create(words[words.index("--topic") + 1], **settings)

    journal = KafkaJournal(kafka.address, topic)
    fill(journal, [3])
    journal.close()
