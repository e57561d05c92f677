"""A log in Kafka of a user who may not create topics."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.aquifer import Gateway, JournalError, KafkaJournal
from penstock.kafka import KafkaAddress
from penstock.streams import Flux
from tests.aquifer.log.making import NO_WATERMARK, fill
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow

TOPICS = ("{}", "{}-state")
LETTERS = ("{}-dead-letters", "{}-dead-letters-state")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that lets a user do what it was told, and nothing else."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaBroker(tmp_path_factory.mktemp("strict"), settings=settings) as broker:
        yield broker


@pytest.fixture
def topic(strict: KafkaBroker) -> str:
    """A name for which the user has every right but Create."""
    name = f"log-{secrets.token_hex(4)}"
    wanted = [
        *((ResourceType.TOPIC, name, it) for it in ("DESCRIBE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
        *((ResourceType.TRANSACTIONAL_ID, f"penstock-journal-{name}", it) for it in ("DESCRIBE", "WRITE")),
        (ResourceType.TOPIC, name, "DELETE"),  # Of records, when they are forgotten.
        (ResourceType.GROUP, "penstock", "READ"),
    ]
    rights = [
        AclBinding(
            kind,
            about,
            ResourcePatternType.PREFIXED,
            f"User:{strict.user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, about, operation in wanted
    ]
    for made in strict.admin.create_acls(rights).values():
        made.result(PATIENCE)
    return name


def create(kafka: KafkaBroker, *topics: str) -> None:
    for name in topics:
        compacted = name.endswith("-state")
        kafka.create(name, **({"cleanup_policy": "compact"} if compacted else {"retention_ms": -1}))


def journal(kafka: KafkaBroker, topic: str, **bounds: int) -> KafkaJournal:
    where = f"{quote(kafka.user)}:{quote(kafka.password)}@{kafka.secure_address}/{topic}"
    address = KafkaAddress.of_url(f"kafkas://{where}?ca={kafka.certificate}")
    return KafkaJournal(kafka.secure_address, topic, settings=address.settings, **bounds)


def test_topics_that_are_there_need_no_right_to_create_them(strict: KafkaBroker, topic: str) -> None:
    create(strict, *(name.format(topic) for name in TOPICS))
    log = journal(strict, topic)
    fill(log, [3])
    log.close()


def test_a_topic_that_is_not_there_is_named_with_the_command_that_creates_it(
    strict: KafkaBroker, topic: str
) -> None:
    for name in (name.format(topic) for name in TOPICS):
        with pytest.raises(JournalError, match=f"do not let this user create the topic {name}") as refused:
            journal(strict, topic)
        command = re.search(r"kafka-topics .*", str(refused.value))
        assert command is not None
        words = shlex.split(command[0])
        assert words[words.index("--topic") + 1] == name
        settings = dict(words[at + 1].split("=") for at, word in enumerate(words) if word == "--config")
        strict.create(name, int(words[words.index("--partitions") + 1]), **settings)
    log = journal(strict, topic)
    fill(log, [3])
    log.close()


def test_a_gateway_that_may_not_create_the_topics_of_its_dead_letters_says_which_it_needs(
    strict: KafkaBroker, topic: str
) -> None:
    create(strict, *(name.format(topic) for name in TOPICS))
    with (
        pytest.raises(JournalError, match=f"do not let this user create the topic {topic}-dead-letters"),
        Gateway(
            Flux.range(3),
            "tcp://127.0.0.1:0",
            codec="json",
            journal=journal(strict, topic),
            on_bad_record="dead-letter",
        ),
    ):
        pass

    create(strict, *(name.format(topic) for name in LETTERS))
    with Gateway(
        Flux.range(3),
        "tcp://127.0.0.1:0",
        codec="json",
        journal=journal(strict, topic),
        on_bad_record="dead-letter",
    ) as gateway:
        assert gateway.join(PATIENCE)
        assert gateway.status().head == 3
        assert gateway.dead_letters == ("dead-letters",)


def test_a_user_who_may_not_delete_is_told_that_the_topic_grows_until_the_user_may(
    strict: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(strict, topic, f"{topic}-state")
    about = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{strict.user}", "*")
    denied = AclBinding(*about, AclOperation.DELETE, AclPermissionType.DENY)
    strict.admin.create_acls([denied])[denied].result(PATIENCE)
    log = journal(strict, topic, max_records=30)
    fill(log, [20, 5])
    assert log.make_space(20, 0, NO_WATERMARK)

    def warnings() -> list[str]:
        log.flush()
        return [each.message for each in caplog.records if "its topic grows" in each.message]

    wait_until(lambda: bool(warnings()), "nobody is told")
    assert warnings()[0].endswith(f"give the user the right Delete for the topic {topic}")
    assert strict.start_of(topic) == 0

    rule = AclBindingFilter(*about, AclOperation.DELETE, AclPermissionType.DENY)
    strict.admin.delete_acls([rule])[rule].result(PATIENCE)
    wait_until(lambda: len(warnings()) == 1 and strict.start_of(topic) > 0, "nothing is deleted")
    log.close()
