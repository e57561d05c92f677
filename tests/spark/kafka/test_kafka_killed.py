"""Kafka and aquifer side by side, as sources and as sinks: each record once when the driver is killed.

The driver is killed (SIGKILL) twice, each time in the moment in which one of the sinks has grown: as a rule
the checkpoint does not have that batch yet, so Spark runs it again. The seed says which sink and when;
``tests/spark/chaos/seeds.py`` says how to run more of them. Spark's own sink for Kafka has each record at
least once. Runs with a Spark for which the connector can be resolved: see ``make test-spark40``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.aquifer.faults.rigs import eventually
from tests.kafka.broker import KafkaBroker
from tests.spark.chaos.checkpoints import sink_files
from tests.spark.chaos.outcome import records_in_log
from tests.spark.chaos.processes import driver
from tests.spark.chaos.seeds import seeds
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.kafka.connector import is_released, settings
from tests.spark.kafka.driver_process import SINKS, KafkaSettings

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_released(), reason="Spark's connector for Kafka has no release for this Spark"),
]

TOTAL, BATCH = 3000, 500
"""Records of each of the two sources, and of each in a batch."""
SOON = 400
DRIVER = "tests.spark.kafka.driver_process"


def committed(kafka: KafkaBroker, topic: str) -> list[bytes]:
    """What the transactions that were committed have put into a topic."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": "test", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            for message in consumer.consume(1000, timeout=1):
                error, value = message.error(), message.value()
                if error is not None:
                    assert error.code() == error._PARTITION_EOF, error
                    return values
                assert value is not None
                values.append(value)
    finally:
        consumer.close()


@pytest.mark.rare(60)
@pytest.mark.parametrize("seed", seeds())
def test_two_sources_are_in_each_sink_once(
    seed: int, serve: Serve, kafka: KafkaBroker, tmp_path: Path
) -> None:
    chance, log = random.Random(seed), tmp_path / "driver.log"
    records = [b"%012d" % number + chance.randbytes(10).hex().encode() for number in range(2 * TOTAL)]
    topic = kafka.topic(partitions=2)
    for partition in range(2):
        kafka.send(topic, records[partition:TOTAL:2], partition)
    out = serve(None, writable=True)
    told = KafkaSettings(
        folder=str(tmp_path),
        brokers=kafka.address,
        topic=topic,
        endpoint=serve(records[TOTAL:]).endpoint,
        batch=BATCH,
        gateway_out=out.endpoint,
        topics_out={"kafka": kafka.topic(), "transactions": kafka.topic()},
        config={**SPARK_SETTINGS, **settings()},
    )
    sizes: dict[str, Callable[[], int]] = {
        # The files have as many records as complete lists say.
        "parquet": lambda: 2 * BATCH * sum(1 for _ in told.files().glob("_spark_metadata/[0-9]*")),
        "aquifer": lambda: int(out.status()["head"]),
        **{name: lambda topic=place: kafka.end(topic) for name, place in told.topics_out.items()},
    }

    def words() -> str:
        return f"seed {seed}\n{log.read_text(errors='replace')[-3000:]}"

    for least in (BATCH, TOTAL):
        victim, enough = chance.choice(SINKS), least + chance.randrange(TOTAL // 2)
        with driver(DRIVER, told, log) as process:
            eventually(
                lambda size=sizes[victim], enough=enough, ends=process: (
                    size() >= enough or ends.poll() is not None
                ),
                f"{victim} does not grow",
                SOON,
            )
            assert process.poll() is None, words()
    with driver(DRIVER, told, log) as undisturbed:
        assert undisturbed.wait(SOON) == 0, words()

    files = [parquet.read_table(path).column("value").to_pylist() for path in sink_files(told.files())]
    found = {
        "parquet": [value for file in files for value in file],
        "aquifer": records_in_log(out.endpoint),
        "transactions": committed(kafka, told.topics_out["transactions"]),
    }
    for name, values in found.items():
        assert digest(values) == digest(records), f"{len(values)} in {name}: {words()}"
    # Spark's own sink does not know which batches it has.
    assert digest(set(committed(kafka, told.topics_out["kafka"]))) == digest(records), words()


def digest(records: list[bytes] | set[bytes]) -> str:
    """One text for all records, in any order."""
    return sha256(b"".join(sorted(records))).hexdigest()
