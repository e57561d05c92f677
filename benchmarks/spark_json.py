"""What do columns of JSON cost: made by our source, or by Spark from the bytes that our source reads?

The gateway is the same for both, and takes the records in meanwhile. Spark's ``from_json`` runs in the tasks,
compiled by Java, without Python. Our source makes the columns in Spark's Python processes, and hands over
Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import beside
from benchmarks.spark_queries import Spark, running, spark_when_needed, timed
from benchmarks.spark_rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["question"]

ROWS = 2_000_000
TRIGGERS, WARM_UP = 4, 2
"""In how many triggers the rows are read, and how many triggers of as many rows each come before."""


@contextmanager
def question() -> Iterator[Question]:
    """All rows arrive as columns, or as bytes."""
    with spark_when_needed() as spark:
        yield Question(
            name="spark_json",
            title="JSON objects of 130 bytes become four columns in Spark, which throws them away",
            elements=ROWS,
            base="from_json of Spark",
            expected=lambda n: n,
            unit="row",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=2,
            most_processes=2,
            alternatives=(
                Alternative("from_json of Spark", partial(_read, spark, _parsed_by_spark)),
                Alternative("value=json", partial(_read, spark, _parsed_by_us)),
                Alternative("value=binary, not parsed", partial(_read, spark, _not_parsed)),
            ),
        )


def _parsed_by_us(source: Any) -> DataFrame:
    frame: DataFrame = source.schema(SCHEMA).option("value", "json").load()
    return frame


def _parsed_by_spark(source: Any) -> DataFrame:
    from pyspark.sql.functions import col, from_json

    rows = source.load().select(from_json(col("value").cast("string"), SCHEMA).alias("row"))
    frame: DataFrame = rows.select("row.*")
    return frame


def _not_parsed(source: Any) -> DataFrame:
    frame: DataFrame = source.load().select("value")
    return frame


def _read(spark: Spark, parsed: Callable[[Any], DataFrame], rows: int) -> Timed:
    size = rows // TRIGGERS
    made = rows + (WARM_UP + gateways.TRIGGERS_KEPT) * size
    with beside(gateways.serve_json, made, size) as line:
        source = spark.session.readStream.format("aquifer").options(
            endpoint=line.hear(), maxRecordsPerTrigger=size, partitions=2
        )
        with running(parsed(source)) as query:
            return timed(query, WARM_UP * size, rows, size)
