"""Which types each format has: every type of PySpark has a form, or is refused by the name of its column."""

from __future__ import annotations

import datetime
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    UserDefinedType,
)

from penstock.spark import BadSchema
from penstock.spark.sink.rows import RowPacker
from penstock.spark.source.columns import Columns
from penstock.spark.type_forms import spark_schema
from penstock.spark.versions import installed
from penstock.streams import Flux

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Serve

AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "CharType": [(5,)],
    "VarcharType": [(5,)],
    "DecimalType": [(38, 18)],
    "TimeType": [(0,), (6,), (9,)],
    "GeometryType": [(4326,), ("ANY",)],
    "GeographyType": [(4326,), ("ANY",)],
    "ArrayType": [(LongType(),)],
    "MapType": [(StringType(), LongType())],
    "StructType": [([types.StructField("b", LongType())],)],
}
"""What the constructors of types need; others need nothing."""


class Point(UserDefinedType):
    """A type of a user's own."""

    @classmethod
    def sqlType(cls) -> DataType:
        """Some numbers."""
        return ArrayType(DoubleType())

    @classmethod
    def module(cls) -> str:
        """Where it is defined."""
        return __name__


BASES = {
    "DataType",
    "AtomicType",
    "NumericType",
    "IntegralType",
    "FractionalType",
    "DatetimeType",
    "AnyTimeType",
    "SpatialType",
    "AnsiIntervalType",
    "StructField",
    "UserDefinedType",
}
"""Classes that no column is of."""
KINDS = [
    kind(*arguments)
    for name, kind in sorted(vars(types).items())
    if inspect.isclass(kind) and issubclass(kind, DataType) and name not in BASES
    for arguments in ARGUMENTS.get(name, [()])
] + [Point(), MapType(StructType().add("b", LongType()), LongType()), ArrayType(MapType(LongType(), Point()))]

PASSED_BY_NO_ARROW = {"char", "varchar", "interval", "interval year to month"}
NESTED = {"array", "map", "struct", "udt"}
LACKING = {
    "json": {"geometry", "geography", "time(9)"},
    "msgpack": {"geometry", "geography", "time(9)"},
    "csv": {"geometry", "geography", "time", "void", "variant", "interval day to second", *NESTED},
    "avro": {"geometry", "geography", "variant", "interval day to second"},
    "arrow": set[str](),
}
"""What the page says about each format: types by their names, without what is in parentheses, or with."""


def names_of(kind: DataType) -> set[str]:
    whole = kind.simpleString()
    return {whole, whole.partition("(")[0].partition("<")[0]}


def lacks(kind: DataType, form: str) -> bool:
    structs_as_keys = form in ("json", "msgpack") and "map<struct" in kind.simpleString()
    return bool(names_of(kind) & (LACKING[form] | PASSED_BY_NO_ARROW)) or structs_as_keys


@pytest.mark.parametrize("form", list(LACKING))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.simpleString())
def test_every_type_has_a_form_or_is_refused_by_the_name_of_its_column(kind: DataType, form: str) -> None:
    schema = StructType().add("a", kind)
    value_schema = AVRO if form == "avro" else None
    if form == "avro":
        pytest.importorskip("fastavro")
    if not lacks(kind, form):
        assert Columns(schema, form, value_schema=value_schema).digest
        return
    with pytest.raises(BadSchema, match=r"the column a is .*(no form for that|strings): read it as a string"):
        Columns(schema, form, value_schema=value_schema)


@pytest.mark.parametrize("form", ["json", "msgpack", "arrow"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.simpleString())
def test_the_sink_writes_the_types_that_the_source_reads(kind: DataType, form: str) -> None:
    schema = StructType().add("a", kind)
    if not lacks(kind, form):
        RowPacker(schema, form)
        return
    with pytest.raises(BadSchema, match=r"the column a is .*(no form for that|strings): cast it") as told:
        RowPacker(schema, form)
    helps = not names_of(kind) & PASSED_BY_NO_ARROW
    assert ('"arrow"' in str(told.value)) == helps


def test_a_type_inside_others_is_named_by_its_path() -> None:
    inner = StructType().add("b", MapType(StringType(), types.YearMonthIntervalType()))
    with pytest.raises(
        BadSchema, match=r"the column a\.b is interval year to month, and PySpark has no form"
    ):
        Columns(StructType().add("a", ArrayType(inner)), "arrow")


def test_a_type_of_the_records_that_spark_lacks_is_named() -> None:
    columns = pa.schema([("n", pa.int64()), ("u", pa.uint32())])
    with pytest.raises(
        BadSchema, match="the column u of the records is uint32, which is not a type of Spark"
    ):
        spark_schema(columns)
    assert spark_schema(columns.remove(1)) == StructType().add("n", LongType())
    assert spark_schema(pa.schema([("d", pa.decimal128(5, 2))])) == StructType().add("d", DecimalType(5, 2))


@pytest.mark.skipif(installed() < (4, 1), reason="Spark 4.0 has no such types")
def test_the_newest_types_are_among_them() -> None:
    assert {"time(9)", "geometry(4326)", "geography(4326)"} <= {kind.simpleString() for kind in KINDS}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_arrow_times_without_a_zone_are_those_of_sparks_reader_of_parquet(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    table = pa.table({"at": pa.array([datetime.datetime(2026, 7, 1, 12)], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "times.parquet")
    gateway = serve(Flux.just(table.to_batches()[0]), codec="arrow")
    assert gateway.join(60)
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    shown: list[list[Any]] = []
    try:
        for kind in ("timestamp", "timestamp_ntz"):
            ours = spark.read.format("aquifer").options(endpoint=gateway.endpoint, value="arrow")
            for reader in (spark.read.format("parquet"), ours):
                frame = reader.schema(f"at {kind}").load(str(tmp_path) if reader is not ours else None)
                shown.append(list(frame.selectExpr("string(at)", "string(CAST(at AS TIMESTAMP))").first()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    in_utc, local = "2026-07-01 08:00:00", "2026-07-01 12:00:00"
    assert shown == [[in_utc, in_utc]] * 2 + [[local, local]] * 2
