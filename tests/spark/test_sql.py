"""The format in SQL: what works by the table in ``docs/spark.md``, "SQL", with the installed Spark.

Spark hands the OPTIONS of a table to no data source in Python, so they are named where the table is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from penstock.spark.versions import installed
from tests.spark.conftest import failure_of
from tests.spark.sinking import PATIENCE, log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.aquifer import Gateway
    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 100
OF_NO_USE = "FROM readings WITH (endpoint"
"""What the error says about a table that is used without options."""
needs_stream = pytest.mark.skipif(installed() < (4, 1), reason="SQL has STREAM from Spark 4.1 on")


@dataclass(frozen=True)
class Shop:
    """A database whose tables ``readings`` and ``doubled`` are gateways."""

    spark: SparkSession
    source: Gateway
    sink: Gateway
    folder: Path

    @property
    def options(self) -> str:
        """How to read, in SQL."""
        return f"(endpoint '{self.source.endpoint}', value 'json')"

    @property
    def options_with(self) -> str:
        """The same where a table is used."""
        return f"WITH (endpoint = '{self.source.endpoint}', value = 'json')"

    def run(self, frame: DataFrame, name: str) -> list[int]:
        """Read a stream to its end; what it had."""
        writer = frame.writeStream.format("memory").queryName(name)
        query = (
            writer.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(PATIENCE)
        return numbers(self.spark.table(name))

    def written(self) -> list[int]:
        """What the second gateway has."""
        return sorted(row["n"] for row in log_of(self.sink))


@pytest.fixture
def shop(spark: SparkSession, serve: Serve, tmp_path: Path) -> Iterator[Shop]:
    source = serve([{"n": number} for number in range(RECORDS)], codec="json")
    opened = Shop(spark, source, serve(None, writable=True), tmp_path)
    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path / 'shop'}'")
    spark.sql("USE shop")
    spark.sql(f"CREATE TABLE readings (n BIGINT) USING aquifer OPTIONS {opened.options}")
    spark.sql("CREATE TABLE doubled (n BIGINT) USING aquifer")
    yield opened
    spark.sql("USE default")
    spark.sql("DROP DATABASE shop CASCADE")


def numbers(frame: DataFrame) -> list[int]:
    """The column ``n``."""
    return sorted(row.n for row in frame.collect())


def test_a_table_is_read_with_the_options_of_the_statement(shop: Shop) -> None:
    everything = list(range(RECORDS))
    reader = shop.spark.read.options(endpoint=shop.source.endpoint, value="json")

    assert numbers(reader.table("readings")) == everything
    assert numbers(shop.spark.sql(f"SELECT * FROM readings {shop.options_with}")) == everything


def test_a_view_keeps_the_options(shop: Shop) -> None:
    shop.spark.sql(f"CREATE VIEW hot AS SELECT n FROM readings {shop.options_with} WHERE n >= 90")
    shop.spark.sql(f"CREATE TEMPORARY VIEW now (n BIGINT) USING aquifer OPTIONS {shop.options}")
    try:
        assert numbers(shop.spark.read.table("hot")) == list(range(90, RECORDS))
        assert numbers(shop.spark.sql("SELECT n FROM now")) == list(range(RECORDS))
    finally:
        shop.spark.sql("DROP VIEW now")


def test_a_table_is_read_as_a_stream_with_the_options_of_the_reader(shop: Shop) -> None:
    reader = shop.spark.readStream.options(endpoint=shop.source.endpoint, value="json")

    assert shop.run(reader.table("readings"), "by_reader") == list(range(RECORDS))


@needs_stream
def test_a_table_and_a_view_are_read_as_streams_in_sql(shop: Shop) -> None:
    statement = f"SELECT n FROM STREAM readings {shop.options_with}"
    shop.spark.sql(f"CREATE VIEW live AS {statement} WHERE n < 10")

    assert shop.run(shop.spark.sql(statement), "by_statement") == list(range(RECORDS))
    assert shop.run(shop.spark.sql("SELECT n FROM live"), "by_view") == list(range(10))


def test_a_stream_is_a_view_under_a_name(shop: Shop) -> None:
    options = {"endpoint": shop.source.endpoint, "value": "json"}
    stream = shop.spark.readStream.format("aquifer").schema("n bigint").options(**options).load()
    stream.createOrReplaceTempView("stream_of_readings")

    assert shop.run(shop.spark.sql("SELECT n FROM stream_of_readings"), "by_name") == list(range(RECORDS))


def test_rows_are_inserted_into_a_table_with_options_and_into_a_view(shop: Shop) -> None:
    spark, endpoint = shop.spark, shop.sink.endpoint
    spark.sql(f"INSERT INTO doubled WITH (endpoint = '{endpoint}') VALUES (1), (2)")
    spark.sql(f"CREATE TEMPORARY VIEW target (n BIGINT) USING aquifer OPTIONS (endpoint '{endpoint}')")
    try:
        spark.sql("INSERT INTO target VALUES (3)")
    finally:
        spark.sql("DROP VIEW target")
    spark.range(4, 6).selectExpr("id AS n").writeTo("doubled").option("endpoint", endpoint).append()

    assert shop.written() == [1, 2, 3, 4, 5]


def test_a_stream_is_written_to_a_table(shop: Shop) -> None:
    reader = shop.spark.readStream.options(endpoint=shop.source.endpoint, value="json")
    for _ in range(2):
        writer = reader.table("readings").selectExpr("n * 2 AS n").writeStream
        writer = writer.options(endpoint=shop.sink.endpoint, checkpointLocation=str(shop.folder / "doubled"))
        assert writer.trigger(availableNow=True).toTable("doubled").awaitTermination(PATIENCE)

    assert shop.written() == [2 * number for number in range(RECORDS)]


def test_a_table_without_columns_has_those_of_its_options(shop: Shop) -> None:
    shop.spark.sql(f"CREATE TABLE log USING aquifer OPTIONS (endpoint '{shop.source.endpoint}')")
    inferred = f"(endpoint '{shop.source.endpoint}', value 'json', inferSchema 'true')"
    shop.spark.sql(f"CREATE TABLE found USING aquifer OPTIONS {inferred} TBLPROPERTIES ('team' = 'heating')")

    assert shop.spark.table("log").columns == ["endpoint", "offset", "timestamp", "key", "value"]
    assert shop.spark.table("found").schema.simpleString() == "struct<n:bigint>"


def test_a_table_without_columns_refuses_options_that_do_not_exist(shop: Shop) -> None:
    with pytest.raises(AnalysisException, match=r'option "endpiont".*did you mean endpoint'):
        shop.spark.sql("CREATE TABLE log USING aquifer OPTIONS (endpiont 'tcp://127.0.0.1:5556')")


def test_a_table_that_is_used_without_options_says_where_to_name_them(shop: Shop) -> None:
    for statement in ("SELECT * FROM readings", "INSERT INTO doubled VALUES (1)"):
        with pytest.raises(AnalysisException, match=re.escape(OF_NO_USE)):
            shop.spark.sql(statement).collect()
    writer = shop.spark.readStream.table("readings").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(shop.folder / "none")).trigger(availableNow=True).start()
    assert OF_NO_USE in failure_of(query)
    assert shop.written() == []
