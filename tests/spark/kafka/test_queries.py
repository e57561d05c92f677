"""Spark's own connector for Kafka beside aquifer: a topic joined with a log, and the topic of a journal.

Runs with a Spark for which the connector can be resolved: see ``make test-spark40``.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from confluent_kafka import Producer

from penstock.aquifer import KafkaJournal
from tests.kafka.broker import KafkaBroker
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.kafka.connector import is_released, settings
from tests.spark.kafka.queries_process import Found, QuerySettings

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_released(), reason="Spark's connector for Kafka has no release for this Spark"),
]

KEYS, NUMBERS = 5, 100


@pytest.mark.rare(30)
def test_the_connector_reads_the_topic_of_a_journal_and_joins_a_topic_with_a_log(
    kafka: KafkaBroker, serve: Serve, tmp_path: Path
) -> None:
    topic, names = f"log-{secrets.token_hex(4)}", kafka.topic()
    records = [b"%d" % number for number in range(3000)]
    serve(records, journal=KafkaJournal(kafka.address, topic))
    producer = Producer({"bootstrap.servers": kafka.address})
    for key in range(KEYS):
        producer.produce(names, f"name {key}", f"k{key}")
    assert producer.flush(60) == 0
    told = QuerySettings(
        brokers=kafka.address,
        journal=topic,
        names=names,
        endpoint=serve([f"k{n % KEYS}:{n}".encode() for n in range(NUMBERS)]).endpoint,
        result=str(tmp_path / "result"),
        config={**SPARK_SETTINGS, **settings()},
    )

    command = [sys.executable, "-m", "tests.spark.kafka.queries_process", msgspec.json.encode(told).decode()]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    found = msgspec.msgpack.decode(Path(told.result).read_bytes(), type=Found)
    assert sorted(found.journal) == list(enumerate(records))
    assert sorted(found.joined) == sorted((f"name {n % KEYS}", str(n)) for n in range(NUMBERS))
