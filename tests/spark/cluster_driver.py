"""A driver of a standalone cluster, as a program: ships the package, reads from a gateway, writes to another.

Its last line is a JSON object: from where each executor has the package, and how many records it has read;
and what becomes of a pipeline whose ends are in this process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.spark import Pipeline, session
from penstock.streams import Flux
from tests.spark.cluster import CLUSTER_SETTINGS
from tests.spark.collector import Collector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_STARTS = 5
_TOO_LATE = "connect back"
"""What Spark's message and ours have in common."""


def main(master: str, source: str, sink: str, folder: str) -> None:
    def where_from(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        import penstock

        for batch in batches:
            file = os.path.abspath(penstock.__file__)  # Executors see it from where they are.
            yield pa.RecordBatch.from_pydict({"file": [file], "records": [batch.num_rows]})

    config = CLUSTER_SETTINGS | {"spark.log.level": "ERROR"}
    spark = session("cluster", master, config, ship=True)
    options = {"endpoint": source, "partitions": "4", "value": "json"}
    now = spark.read.format("aquifer").schema("n bigint").options(**options).load()
    placed = now.mapInArrow(where_from, "file string, records bigint").collect()

    rows = spark.readStream.format("aquifer").schema("n bigint").options(**options)
    writer = (
        rows.option("maxRecordsPerTrigger", "2000")
        .load()
        .selectExpr("n", "n * 2 AS doubled")
        .writeStream.format("aquifer")
        .option("endpoint", sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
    )
    again_if_too_busy(lambda: writer.start().awaitTermination())
    found = {
        "placed": [[row["file"], row["records"]] for row in placed],
        "refused": refused(spark, folder),
        "through": through_a_pipeline(spark, folder),
    }
    spark.stop()
    print(json.dumps(found))


def pipeline(subscriber: Any, host: str | None) -> Pipeline:
    return Pipeline(Flux.range(200).map(lambda n: {"n": n}), schema="n bigint", host=host).into(subscriber)


def refused(spark: SparkSession, folder: str) -> str:
    """What is said when nobody has thought of how executors reach this process."""
    try:
        pipeline(Collector(), None).start(spark=spark, checkpoint=f"{folder}/refused").stop()
    except ValueError as error:
        return str(error)
    return "it was started"


def through_a_pipeline(spark: SparkSession, folder: str) -> list[int]:
    """What arrives when somebody has."""
    return again_if_too_busy(lambda: _arrived(spark, tempfile.mkdtemp(dir=folder)))


def again_if_too_busy(query: Callable[[], T]) -> T:
    """Start a query again if a planner of its was too late, as the error says.

    Spark's limit of 10 seconds is a constant, and in a cluster nobody can make planners connect earlier.
    """
    for _ in range(_STARTS - 1):
        try:
            return query()
        except Exception as error:
            if _TOO_LATE not in str(error):
                raise
    return query()


def _arrived(spark: SparkSession, folder: str) -> list[int]:
    collector = Collector()
    with pipeline(collector, "127.0.0.1").start(spark=spark, checkpoint=f"{folder}/pipeline") as running:
        running.wait(600)
    return sorted(row["n"] for row in collector.elements)


if __name__ == "__main__":
    main(*sys.argv[1:])
