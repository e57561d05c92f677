"""A client of Spark Connect, as a program: the driver is another process, and this one has no Java.

Does what it is told on the command line, and prints what came of it as JSON in its last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


def count_in_batches(spark: SparkSession, source: str, sink: str, folder: str) -> Any:
    """State with a watermark, in mode update: by a function for each batch, which runs in the server."""
    from pyspark.sql.functions import window

    def write(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("aquifer").mode("append").option("endpoint", sink)
        writer.option("writerId", "totals").option("batchId", str(batch)).save()

    reader = spark.readStream.format("aquifer").schema("n bigint, timestamp timestamp")
    rows = reader.options(endpoint=source, value="json", includeMetadata="true").load()
    totals = (
        rows.withWatermark("timestamp", "1 hour")
        .groupBy(window("timestamp", "3650 days"), (rows.n % 2).alias("odd"))
        .count()
    )
    query = (
        totals.select("odd", "count")
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/totals")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400), "it does not end"
    written = spark.read.format("aquifer").schema("odd bigint, count bigint")
    found = written.options(endpoint=sink, value="json").load().collect()
    return sorted([row["odd"], row["count"]] for row in found)


def use_views(spark: SparkSession, source: str, folder: str) -> Any:
    """Views of gateways; that of a stream is a stream."""
    options = f"endpoint = '{source}', value = 'json'"
    spark.sql("CREATE TABLE viewed (n BIGINT) USING aquifer")
    spark.sql(f"CREATE VIEW few AS SELECT n FROM viewed WITH ({options}) WHERE n < 10")
    spark.sql(f"CREATE TEMPORARY VIEW now (n BIGINT) USING aquifer OPTIONS ({options.replace(' =', '')})")
    stream = spark.readStream.options(endpoint=source, value="json").table("viewed")
    stream.createOrReplaceTempView("live")
    streams = {"view": "SELECT n FROM live WHERE n >= 995"}
    if tuple(map(int, spark.version.split(".")[:2])) >= (4, 1):
        streams["STREAM"] = f"SELECT n FROM STREAM viewed WITH ({options}) WHERE n >= 995"
    found: dict[str, Any] = {
        "few": spark.read.table("few").count(),
        "now": spark.sql("SELECT count(*) AS rows FROM now").collect()[0]["rows"],
    }
    for name, statement in streams.items():
        writer = spark.sql(statement).writeStream.format("json").option("path", f"{folder}/rows-{name}")
        writer = writer.option("checkpointLocation", f"{folder}/state-{name}").trigger(availableNow=True)
        assert writer.start().awaitTermination(400), "it does not end"
        rows = spark.read.schema("n bigint").json(f"{folder}/rows-{name}").collect()
        found[name] = sorted(row["n"] for row in rows)
    return found


def refuse(make: Callable[[], object]) -> str:
    """What an error says that has to come."""
    try:
        made = make()
    except ValueError as error:
        return str(error)
    return f"no error, but {made!r}"


def main(server: str, source: str, sink: str, folder: str, sql_sink: str, totals: str) -> None:
    from penstock.spark import register, session, ship

    spark = session("client", server)
    register(spark)  # Once more is harmless.
    found = {
        "module": type(spark).__module__,
        "batch": spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"),
        "copied": read_and_write(spark, source, sink, folder),
        "pipeline": run_a_pipeline(spark, folder),
        "sql": use_sql(spark, source, sql_sink, folder),
        "totals": count_in_batches(spark, source, totals, folder),
        "views": use_views(spark, source, folder),
        "shipping": refuse(lambda: ship(spark)),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
