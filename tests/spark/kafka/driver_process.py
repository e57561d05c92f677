"""A driver with Kafka and aquifer on both sides: ``python -m tests.spark.kafka.driver_process``.

The argument is a JSON object. Each query reads a topic with Spark's own connector, and a gateway; each writes
to another sink. The process ends when all have everything that there was.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["SINKS", "KafkaSettings"]

SINKS = ("parquet", "aquifer", "kafka", "transactions")
"""``kafka`` is Spark's own sink; ``transactions`` is the one of the example."""
_EXAMPLE = Path(__file__).parents[3] / "examples" / "28_spark_kafka_to_kafka.py"


class KafkaSettings(msgspec.Struct):
    """What the test tells the process."""

    folder: str
    brokers: str
    topic: str
    endpoint: str
    batch: int
    """How many records of each of the two a batch has."""
    gateway_out: str
    topics_out: dict[str, str]
    """The topics of ``kafka`` and of ``transactions``."""
    config: dict[str, str]

    def files(self) -> Path:
        """Where the parquet files are."""
        return Path(self.folder, "files")


def rows_of(spark: SparkSession, settings: KafkaSettings, name: str) -> DataFrame:
    """The values of both sources."""
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings.brokers)
    kafka = kafka.options(subscribe=settings.topic, startingOffsets="earliest")
    kafka = kafka.option("maxOffsetsPerTrigger", str(settings.batch))
    log = spark.readStream.format("aquifer").options(endpoint=settings.endpoint, subscription=name)
    log = log.option("maxRecordsPerTrigger", str(settings.batch))
    return kafka.load().select("value").union(log.load().select("value"))


def into(settings: KafkaSettings, name: str, rows: DataFrame) -> DataStreamWriter:
    """A query that is not started yet."""
    if name == "transactions":
        # The records are numbers: the example's column of strings has them as well.
        send: Any = runpy.run_path(str(_EXAMPLE))["TransactionalTopic"]
        texts = rows.selectExpr("NULL AS key", "CAST(value AS STRING) AS value")
        return texts.writeStream.foreachBatch(send(settings.brokers, settings.topics_out[name]))
    writer = rows.writeStream.format(name)
    if name == "kafka":
        writer = writer.option("kafka.bootstrap.servers", settings.brokers)
        return writer.option("topic", settings.topics_out[name])
    if name == "aquifer":
        return writer.options(endpoint=settings.gateway_out, value="binary")
    return writer.option("path", str(settings.files()))


def main() -> None:
    """Run all queries until nothing is left."""
    settings = msgspec.json.decode(sys.argv[1], type=KafkaSettings)
    spark = session(name="kafka", master="local[2]", config=settings.config)
    queries: list[StreamingQuery] = []
    for name in SINKS:
        writer = into(settings, name, rows_of(spark, settings, name))
        queries.append(writer.option("checkpointLocation", f"{settings.folder}/{name}-checkpoint").start())
    for query in queries:
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
