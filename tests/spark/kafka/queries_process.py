"""Queries with Spark's own connector for Kafka: ``python -m tests.spark.kafka.queries_process``.

The argument is a JSON object. One query reads the topic of a journal, with the lines of the page about
journals. Another joins a topic and a log. What they have is put into a file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Found", "QuerySettings"]

_PAGE = Path(__file__).parents[3] / "docs" / "aquifer.md"


class QuerySettings(msgspec.Struct):
    """What the test tells the process."""

    brokers: str
    journal: str
    """The topic of a journal."""
    names: str
    """A topic with keys and names."""
    endpoint: str
    """A gateway with numbers of the form KEY:NUMBER."""
    result: str
    config: dict[str, str]


class Found(msgspec.Struct):
    """What the queries have found."""

    journal: list[tuple[int, bytes]]
    joined: list[tuple[str, str]]


def collected(rows: DataFrame, name: str) -> list[Any]:
    """All rows of a stream that has no more than there are now."""
    query = rows.writeStream.format("memory").queryName(name).start()
    query.processAllAvailable()
    query.stop()
    return rows.sparkSession.table(name).collect()


def page_records(spark: SparkSession, settings: QuerySettings) -> DataFrame:
    """What the program of the page calls ``records``."""
    (program,) = re.findall(r"^```py\n(import msgspec\n.*?)^```", _PAGE.read_text("utf-8"), re.DOTALL | re.M)
    program = program.replace('"127.0.0.1:9092"', repr(settings.brokers))
    program = program.replace('"app-log"', repr(settings.journal))
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)
    records: DataFrame = names["records"]
    return records


def joined(spark: SparkSession, settings: QuerySettings) -> DataFrame:
    """Names of the topic with the numbers of the log."""
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings.brokers)
    topic = topic.options(subscribe=settings.names, startingOffsets="earliest")
    names = topic.load().selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS name")
    log = spark.readStream.format("aquifer").options(endpoint=settings.endpoint, value="string").load()
    numbers = log.selectExpr("split(value, ':')[0] AS key", "split(value, ':')[1] AS number")
    return names.join(numbers, "key").select("name", "number")


def main() -> None:
    """Run both."""
    settings = msgspec.json.decode(sys.argv[1], type=QuerySettings)
    spark = session(name="kafka", master="local[2]", config=settings.config)
    records = collected(page_records(spark, settings), "records")
    pairs = collected(joined(spark, settings), "pairs")
    found = Found(
        [(row.offset, bytes(row.value)) for row in records], [(row.name, row.number) for row in pairs]
    )
    Path(settings.result).write_bytes(msgspec.msgpack.encode(found))
    spark.stop()


if __name__ == "__main__":
    main()
