"""``penstock gateway --journal kafka://…``: the log is a topic, and another gateway continues it."""

import secrets
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from penstock.aquifer import AquiferPublisher
from penstock.aquifer.log import Cursor
from tests.cli.running import PATIENCE, Gateway, penstock
from tests.feeds.brokers import wait_until
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.slow


def stored_cursor(kafka: KafkaBroker, topic: str, name: str) -> int | None:
    """Where a reader is, as the compacted topic of a log has it."""
    settings = {"bootstrap.servers": kafka.address, "group.id": "onlooker", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(f"{topic}-state", 0, OFFSET_BEGINNING)])
    found = None
    while (message := consumer.poll(PATIENCE)) is not None and message.error() is None:
        if message.key() == f"cursor {name}".encode() and message.value():
            found = Cursor(*msgspec.msgpack.decode(message.value() or b"")).acknowledged
    consumer.close()
    return found


def test_a_gateway_that_is_killed_is_continued_by_another_one(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = f"log-{secrets.token_hex(4)}"
    journal = f"kafka://{kafka.address}/{topic}"
    lines = tmp_path / "lines.txt"
    lines.write_text("1\n2\n")
    arguments = ("--source", f"file:{lines}", "--journal", journal, "--stay")
    with Gateway(*arguments) as first:
        reader = AquiferPublisher(first.endpoint, id="reader", stop=2)
        assert list(reader.flux()) == [b"1", b"2"]
        # A reader acknowledges before the log has its cursor: whoever is killed in between reads again.
        wait_until(lambda: stored_cursor(kafka, topic, "reader") == 2, "the cursor is not stored")
        first.process.kill()
    lines.write_text("1\n2\n3\n")
    with Gateway(*arguments) as second:
        assert list(AquiferPublisher(second.endpoint, id="reader", stop=3).flux()) == [b"3"]
        assert list(AquiferPublisher(second.endpoint, stop=3).flux()) == [b"1", b"2", b"3"]


def test_a_password_is_not_shown(kafka: KafkaBroker, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("1\n")
    where = f"{kafka.secure_address}/log-{secrets.token_hex(4)}?ca={kafka.certificate}"
    journal = f"kafkas://{kafka.user}:{quote(kafka.password)}@{where}"
    with Gateway("--source", f"file:{tmp_path / 'lines.txt'}", "--journal", journal, "--stay") as gateway:
        assert list(AquiferPublisher(gateway.endpoint, stop=1).flux()) == [b"1"]
        gateway.process.terminate()
        gateway.end()
    assert not any("hush" in line for line in gateway.said)


@pytest.mark.parametrize(
    ("journal", "message"),
    [
        ("kafka://h:9092", "there is no topic; write kafka://HOST:PORT/TOPIC"),
        ("kafka://user:hush@h/t?colour=red", "'colour' is not known"),
        ("kafka://user:hush@h:port/t", "'h:port' is not a broker"),
    ],
)
def test_a_wrong_url_is_a_clear_error_without_a_password(journal: str, message: str) -> None:
    refused = penstock("gateway", "--source", "writers", "--journal", journal)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "hush" not in refused.stderr
