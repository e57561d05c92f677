"""Writing rows to a gateway: what they become, which queries can do so, and what the others are told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.spark.conftest import Serve
from tests.spark.sinking import Files, log_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A stream of readings: three rows, then two."""
    files = Files(tmp_path / "in", "sensor string, reading double")
    files.add({"sensor": f"s{number}", "reading": number / 2} for number in range(3))
    files.add({"sensor": f"s{number}", "reading": number / 2} for number in range(3, 5))
    return files


# ---------------------------------------------------------------- what a row becomes
def test_a_row_becomes_a_json_object(spark: SparkSession, serve: Serve, files: Files, tmp_path: Path) -> None:
    gateway = serve(None, writable=True, codec="json")

    run(files.stream(spark), gateway, tmp_path / "checkpoint")

    assert log_of(gateway) == [{"sensor": f"s{number}", "reading": number / 2} for number in range(5)]


def test_the_types_of_columns_become_those_of_json(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True, codec="json")
    frame = spark.sql(
        "select 1 as n, cast(1.50 as decimal(5,2)) as d, true as b, cast(null as string) as missing, "
        "timestamp '2026-01-02 03:04:05.6' as t, date '2026-01-02' as day, array(1, 2) as list, "
        "named_struct('a', 1, 'b', 'x') as inner, cast('nan' as double) as nan, 'ü' as text"
    )

    frame.write.format("aquifer").mode("append").option("endpoint", gateway.endpoint).save()

    (row,) = log_of(gateway)
    assert row.pop("t").startswith("2026-01-02T03:04:05.6")
    assert row == {
        "n": 1,
        "d": 1.5,
        "b": True,
        "missing": None,
        "day": "2026-01-02",
        "list": [1, 2],
        "inner": {"a": 1, "b": "x"},
        "nan": "NaN",
        "text": "ü",
    }


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_column_value_becomes_a_record_and_a_column_key_its_key(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path, kind: str
) -> None:
    gateway = serve(None, writable=True)
    frame = files.stream(spark).selectExpr(
        f"cast(sensor as {kind}) as key", f"cast(concat('at ', reading) as {kind}) as value"
    )

    run(frame, gateway, tmp_path / "checkpoint", value=kind)

    records = log_of(gateway, "bytes", records=True)
    assert [(record.key, record.value) for record in records] == [
        (b"s%d" % number, b"at %.1f" % (number / 2)) for number in range(5)
    ]


def test_rows_stay_arrow_batches(spark: SparkSession, serve: Serve, files: Files, tmp_path: Path) -> None:
    gateway = serve(None, writable=True, codec="arrow")

    run(files.stream(spark), gateway, tmp_path / "checkpoint", value="arrow")

    table = pa.Table.from_batches(log_of(gateway, "arrow"))
    assert table.column_names == ["sensor", "reading"]
    assert table["reading"].to_pylist() == [number / 2 for number in range(5)]


def test_rows_that_are_long_as_json_are_split_into_pieces(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True, codec="json")
    name = "a_long_name_that_stands_in_each_object_" * 10

    frame = spark.range(5_000, numPartitions=1).withColumnRenamed("id", name)
    frame.write.format("aquifer").mode("append").option("endpoint", gateway.endpoint).save()

    assert [row[name] for row in log_of(gateway)] == list(range(5_000))


def test_a_row_of_megabytes_is_written(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True, codec="text")

    frame = spark.sql("select repeat('x', 3000000) as value")
    writer = frame.write.format("aquifer").mode("append").option("value", "string")
    writer.option("endpoint", gateway.endpoint).save()

    assert log_of(gateway, "text") == ["x" * 3_000_000]


# ---------------------------------------------------------------- which queries
def test_complete_mode_is_refused_with_a_remedy(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    gateway = serve(None, writable=True)
    totals = files.stream(spark).groupBy("sensor").count()

    with pytest.raises(Exception, match=r"cannot overwrite records: use mode append\. .*foreachBatch"):
        run(totals, gateway, tmp_path / "checkpoint", "complete")


def test_a_batch_is_written_in_the_order_of_its_partitions(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True, codec="json")
    frame = spark.range(1_000, numPartitions=4)

    for _ in range(2):
        frame.write.format("aquifer").mode("append").option("endpoint", gateway.endpoint).save()

    assert [row["id"] for row in log_of(gateway)] == [*range(1_000), *range(1_000)]


def test_overwriting_a_log_is_refused(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True)
    writer = spark.range(1).write.format("aquifer").mode("overwrite").option("endpoint", gateway.endpoint)

    with pytest.raises(Exception, match="cannot overwrite records: use mode append"):
        writer.save()


def test_a_query_without_rows_writes_nothing(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True)
    writer = spark.range(0).write.format("aquifer").mode("append")

    writer.option("endpoint", gateway.endpoint).save()

    assert gateway.status()["head"] == 0


# ---------------------------------------------------------------- what does not fit
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("reading as value", "value double"),
        ("sensor", "sensor string"),
        ("sensor as value, 1 as key", "key int"),
        ("sensor as value, reading", "reading double"),
    ],
)
def test_columns_that_do_not_fit_are_told_before_anything_runs(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path, columns: str, told: str
) -> None:
    gateway = serve(None, writable=True)
    frame = files.stream(spark).selectExpr(*columns.split(", "))

    with pytest.raises(Exception, match=f"both string or binary; this query has .*{told}"):
        run(frame, gateway, tmp_path / "checkpoint", value="string")


def test_a_value_that_is_null_is_told(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    files.add([{"sensor": None, "reading": 1.0}])
    gateway = serve(None, writable=True)

    with pytest.raises(Exception, match="the column value has 1 nulls"):
        run(files.stream(spark).selectExpr("sensor as value"), gateway, tmp_path / "out", value="string")

    assert gateway.status()["head"] == 5, "what came before is there"


def test_a_gateway_that_cannot_be_written_to_is_told(spark: SparkSession, serve: Serve) -> None:
    gateway = serve([b"a source"])
    writer = spark.range(1).write.format("aquifer").mode("append").option("endpoint", gateway.endpoint)

    with pytest.raises(Exception, match="writable=True"):
        writer.save()


def test_a_misspelt_option_is_told(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(None, writable=True)
    writer = spark.range(1).write.format("aquifer").mode("append").option("endpoint", gateway.endpoint)

    with pytest.raises(Exception, match="did you mean timeoutSeconds"):
        writer.option("timeoutSecond", "1").save()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"writerId": "me"}, "set both writerId"),
        ({"batchId": "1"}, "set both writerId"),
        ({"writerId": "me", "batchId": "-1"}, "from 0 on"),
        ({"writerId": "me", "batchId": "one"}, "from 0 on"),
    ],
)
def test_a_batch_that_is_not_fully_named_is_told(
    spark: SparkSession, serve: Serve, options: dict[str, str], told: str
) -> None:
    gateway = serve(None, writable=True)
    writer = spark.range(1).write.format("aquifer").mode("append").option("endpoint", gateway.endpoint)

    with pytest.raises(Exception, match=told):
        writer.options(**options).save()


# ---------------------------------------------------------------- what we need of Spark
def test_a_task_knows_its_query_and_its_batch_by_two_properties(
    spark: SparkSession, serve: Serve, files: Files, tmp_path: Path
) -> None:
    """Spark tells them nowhere else and does not promise to, so this is to be looked at for each version."""
    from pyspark.sql.functions import udf

    gateway = serve(None, writable=True, codec="text")

    @udf("string", useArrow=False)
    def told(_: object) -> str:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        names = ("sql.streaming.queryId", "streaming.sql.batchId")
        return " ".join(str(task.getLocalProperty(name)) for name in names)

    frame = files.stream(spark).select(told("sensor").alias("value"))
    writer = frame.writeStream.format("aquifer").option("value", "string")
    writer = writer.option("endpoint", gateway.endpoint)
    query = writer.option("checkpointLocation", str(tmp_path / "out")).trigger(availableNow=True).start()
    assert query.awaitTermination(400)

    assert log_of(gateway, "text") == [f"{query.id} 0"] * 3 + [f"{query.id} 1"] * 2
