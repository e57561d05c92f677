"""Rows that Spark writes to a gateway and reads back are the same rows, over the types that Spark has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, NullType, StructField, StructType

from penstock.aquifer import Gateway, LogReader
from tests.spark.conftest import ANYWHERE
from tests.spark.test_round_trip import NAMES, TYPES, ZONES, Typed, comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = 5
"""Each is a table with many columns, and takes a second or two."""


def can_be_made(column: Typed) -> bool:
    """Whether Spark can make a column of an Arrow table: pyarrow's cast breaks lists of nothing but nulls."""
    return isinstance(column.kind, NullType) or "void" not in column.kind.simpleString()


COLUMNS = TYPES.filter(can_be_made)


@st.composite
def tables(draw: st.DrawFn) -> tuple[StructType, list[dict[str, Any]]]:
    """A schema with a number for each row, and rows."""
    columns = draw(st.dictionaries(NAMES.map("c_{}".format), COLUMNS, min_size=6, max_size=12))
    fields = [StructField(name, column.kind) for name, column in columns.items()]
    record = st.fixed_dictionaries({name: st.none() | column.values for name, column in columns.items()})
    rows = draw(st.lists(record, min_size=3, max_size=8))
    return (
        StructType([StructField("row", LongType()), *fields]),
        [{"row": number, **row} for number, row in enumerate(rows)],
    )


@pytest.mark.rare(5, kind="rows there and back")
@pytest.mark.parametrize("form", ["json", "msgpack", "arrow"])
def test_spark_reads_the_same_rows_that_it_wrote(spark: SparkSession, form: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    with Gateway(None, ANYWHERE, writable=True) as gateway, LogReader(gateway.endpoint) as log:

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(table=tables(), zone=st.sampled_from(ZONES))
        def there_and_back(table: tuple[StructType, list[dict[str, Any]]], zone: str) -> None:
            schema, rows = table
            spark.conf.set("spark.sql.session.timeZone", zone)
            arrow = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema, timezone="UTC"))
            options = {"endpoint": gateway.endpoint, "value": form}
            start = log.state().head
            written = spark.createDataFrame(arrow, schema=schema)
            written.write.format("aquifer").mode("append").options(**options).save()
            reader = spark.read.format("aquifer").schema(schema).options(**options)
            read = reader.option("startingOffsets", str(start)).option("mode", "FAILFAST").load()

            for one, other in zip(
                written.orderBy("row").collect(), read.orderBy("row").collect(), strict=True
            ):
                assert comparable(tuple(one)) == comparable(tuple(other))

        try:
            there_and_back()
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
