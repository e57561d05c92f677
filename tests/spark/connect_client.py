"""A client of Spark Connect, as a program: the driver is another process, and this one has no Java.

Does what it is told on the command line, and prints what came of it as JSON in its last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_and_write(spark: SparkSession, source: str, sink: str, folder: str) -> Any:
    """A batch and a stream, from one gateway to another."""
    reader = spark.read.format("aquifer").schema("n bigint")
    total = reader.options(endpoint=source, value="json").load().selectExpr("sum(n) AS total").collect()
    query = (
        spark.readStream.format("aquifer")
        .schema("n bigint")
        .options(endpoint=source, value="json", maxRecordsPerTrigger="400")
        .load()
        .selectExpr("n * 2 AS doubled")
        .writeStream.format("aquifer")
        .options(endpoint=sink, checkpointLocation=f"{folder}/stream")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400), "it does not end"
    failure = query.exception()
    return {"total": total[0]["total"], "failure": None if failure is None else str(failure)}


def run_a_pipeline(spark: SparkSession, folder: str) -> Any:
    """From a Publisher in this process to a Subscriber in this process."""
    from penstock.spark import Pipeline
    from penstock.streams import Flux
    from tests.spark.collector import Collector

    collector = Collector()
    pipeline = (
        Pipeline(Flux.range(1000).map(lambda n: {"n": n}), schema="n bigint")
        .through(lambda df: df.where("n % 100 = 0"))
        .into(collector)
    )
    with pipeline.start(spark=spark, checkpoint=f"{folder}/pipeline") as running:
        running.wait(120)
    progress = running.progress()
    return {
        "rows": sorted(row["n"] for row in collector.elements),
        "records": None if progress is None else progress.records,
    }


def use_sql(spark: SparkSession, source: str, sink: str, folder: str) -> Any:
    """Tables of the server's catalog that are gateways."""
    spark.sql("CREATE TABLE readings (n BIGINT) USING aquifer")
    spark.sql("CREATE TABLE hot (n BIGINT) USING aquifer")
    options = {"endpoint": source, "value": "json"}
    statement = f"SELECT sum(n) AS total FROM readings WITH (endpoint = '{source}', value = 'json')"
    spark.sql(f"INSERT INTO hot WITH (endpoint = '{sink}') VALUES (-1)")
    stream = spark.readStream.options(**options).table("readings").where("n >= 990")
    query = (
        stream.writeStream.options(endpoint=sink, checkpointLocation=f"{folder}/sql")
        .trigger(availableNow=True)
        .toTable("hot")
    )
    assert query.awaitTermination(400), "it does not end"
    written = spark.read.options(endpoint=sink, value="json").table("hot")
    return {
        "statement": spark.sql(statement).collect()[0]["total"],
        "table": spark.read.options(**options).table("readings").count(),
        "written": sorted(row["n"] for row in written.collect()),
    }


def refuse(make: Callable[[], object]) -> str:
    """What an error says that has to come."""
    try:
        made = make()
    except ValueError as error:
        return str(error)
    return f"no error, but {made!r}"


def main(server: str, source: str, sink: str, folder: str, sql_sink: str) -> None:
    from penstock.spark import register, session, ship

    spark = session("client", server)
    register(spark)  # Once more is harmless.
    found = {
        "module": type(spark).__module__,
        "batch": spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"),
        "copied": read_and_write(spark, source, sink, folder),
        "pipeline": run_a_pipeline(spark, folder),
        "sql": use_sql(spark, source, sql_sink, folder),
        "shipping": refuse(lambda: ship(spark)),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
