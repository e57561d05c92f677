"""Rows as CSV, Avro and Protocol Buffers: the source reads what the sink wrote, or the sink refuses it."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.aquifer import unpack_values
from penstock.spark import BadOption, BadSchema, UnwritableRow
from penstock.spark.options import SinkOptions
from penstock.spark.sink.rows import RowPacker
from penstock.spark.source.columns import Columns
from penstock.spark.source.decoders import Zone
from penstock.spark.spark_interface import arrow_schema
from tests.spark.conftest import Serve
from tests.spark.test_round_trip import (
    DATES,
    INSTANTS,
    LEAVES,
    LOCAL_TIMES,
    TEXTS,
    Typed,
    comparable,
    decimals,
    whole,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "tcp://127.0.0.1:5556"


def there_and_back(
    schema: StructType, rows: list[dict[str, Any]], value: str, separator: str = ",", text: str | None = None
) -> list[Any]:
    """What the source reads of what the sink writes."""
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    columns = Columns(schema, value, Zone("Asia/Kolkata"), "FAILFAST", separator=separator, value_schema=text)
    read: list[Any] = []
    for piece in RowPacker(schema, value, separator, text).batches(batch):
        read += columns.batch(HERE, piece).to_pylist()
    return read


def written(schema: StructType, rows: list[dict[str, Any]]) -> Any:
    return comparable(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)).to_pylist())


# ---------------------------------------------------------------- csv
IN_CSV = [
    *(
        leaf
        for leaf in LEAVES
        if leaf.kind.typeName() not in ("void", "time", "interval", "variant", "binary")
    ),
    Typed(BinaryType(), TEXTS.map(str.encode)),
    Typed(StringType(), st.text('",;\\\r\n a-1', max_size=6)),
]
IN_CSV = [leaf for leaf in IN_CSV if "interval" not in leaf.kind.simpleString()]


@st.composite
def tables(draw: st.DrawFn, kinds: list[Typed]) -> tuple[StructType, list[dict[str, Any]]]:
    columns = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    schema = StructType([StructField(f"c{index}", column.kind) for index, column in enumerate(columns)])
    record = st.fixed_dictionaries(
        {f"c{index}": st.none() | each.values for index, each in enumerate(columns)}
    )
    return schema, draw(st.lists(record, max_size=4))


@settings(max_examples=150, deadline=None)
@given(table=tables(IN_CSV), separator=st.sampled_from([",", ";", "\t", "-", "1", " "]))
def test_lines_of_csv_are_read_as_the_rows_that_they_were(
    table: tuple[StructType, list[dict[str, Any]]], separator: str
) -> None:
    schema, rows = table
    assert comparable(there_and_back(schema, rows, "csv", separator)) == written(schema, rows)


def test_a_line_of_csv_has_quotes_where_it_needs_them() -> None:
    schema = (
        StructType()
        .add("a", StringType())
        .add("b", DoubleType())
        .add("c", BooleanType())
        .add("d", StringType())
    )
    rows = [
        {"a": 'say "x", y', "b": 0.1, "c": True, "d": ""},
        {"a": None, "b": float("inf"), "c": None, "d": " "},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    (piece,) = RowPacker(schema, "csv").batches(batch)

    from penstock.aquifer import unpack_values

    assert list(unpack_values(piece.payload)) == [b'"say ""x"", y",0.1,true,""', b",Infinity,, "]


# ---------------------------------------------------------------- avro
IN_AVRO: list[tuple[Typed, Any]] = [
    (Typed(BooleanType(), st.booleans()), "boolean"),
    (Typed(IntegerType(), whole(32)), "int"),
    (Typed(LongType(), whole(64)), "long"),
    (Typed(FloatType(), st.floats(width=32)), "float"),
    (Typed(DoubleType(), st.floats()), "double"),
    (Typed(StringType(), TEXTS), "string"),
    (Typed(BinaryType(), st.binary(max_size=6)), "bytes"),
    (Typed(DateType(), DATES), {"type": "int", "logicalType": "date"}),
    (Typed(TimestampType(), INSTANTS), {"type": "long", "logicalType": "timestamp-micros"}),
    (Typed(TimestampNTZType(), LOCAL_TIMES), {"type": "long", "logicalType": "local-timestamp-micros"}),
    (decimals(38, 18), {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}),
    (
        Typed(ArrayType(LongType()), st.lists(st.none() | whole(64), max_size=3)),
        {"type": "array", "items": ["null", "long"]},
    ),
    (
        Typed(
            MapType(StringType(), LongType()),
            st.dictionaries(TEXTS, whole(64), max_size=3).map(dict.items).map(list),
        ),
        {"type": "map", "values": "long"},
    ),
    (
        Typed(StructType([StructField("x", LongType())]), st.fixed_dictionaries({"x": whole(64)})),
        {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]},
    ),
]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": f"c{n}", "type": ["null", kind]} for n, (_, kind) in enumerate(IN_AVRO)],
    }
)
ALL_OF_AVRO = StructType([StructField(f"c{n}", each.kind) for n, (each, _) in enumerate(IN_AVRO)])


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries({f"c{n}": st.none() | each.values for n, (each, _) in enumerate(IN_AVRO)}),
        max_size=3,
    )
)
def test_records_of_avro_are_read_as_the_rows_that_they_were(rows: list[dict[str, Any]]) -> None:
    assert comparable(there_and_back(ALL_OF_AVRO, rows, "avro", text=AVRO)) == written(ALL_OF_AVRO, rows)


# ---------------------------------------------------------------- protobuf
@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> str:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="test", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=kinds.TYPE_INT64, label=1)
    row = file.message_type.add(name="Row")
    entry = row.nested_type.add(name="TotalsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT64, label=1)
    plain = {
        "flag": kinds.TYPE_BOOL,
        "small": kinds.TYPE_INT32,
        "big": kinds.TYPE_SINT64,
        "huge": kinds.TYPE_UINT64,
        "half": kinds.TYPE_FLOAT,
        "fraction": kinds.TYPE_DOUBLE,
        "text": kinds.TYPE_STRING,
        "data": kinds.TYPE_BYTES,
    }
    for number, (name, kind) in enumerate(plain.items(), 1):
        row.field.add(name=name, number=number, type=kind, label=1)
    row.field.add(name="list", number=20, type=kinds.TYPE_UINT64, label=3)
    row.field.add(
        name="totals", number=21, type=kinds.TYPE_MESSAGE, label=3, type_name=".test.Row.TotalsEntry"
    )
    row.field.add(name="inner", number=22, type=kinds.TYPE_MESSAGE, label=1, type_name=".test.Inner")
    path = tmp_path_factory.mktemp("descriptors") / "row.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return f"{path}?message=test.Row"


UNSIGNED = st.integers(0, 2**64 - 1).map(Decimal)
IN_PROTOBUF: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "flag": (BooleanType(), st.booleans()),
    "small": (IntegerType(), whole(32)),
    "big": (LongType(), whole(64)),
    "huge": (DecimalType(20, 0), UNSIGNED),
    "half": (FloatType(), st.floats(width=32)),
    "fraction": (DoubleType(), st.floats()),
    "text": (StringType(), TEXTS),
    "data": (BinaryType(), st.binary(max_size=6)),
    "list": (ArrayType(DecimalType(20, 0)), st.lists(UNSIGNED, max_size=3)),
    "totals": (
        MapType(StringType(), LongType()),
        st.dictionaries(TEXTS, whole(64), max_size=3).map(lambda entries: sorted(entries.items())),
    ),
    "inner": (
        StructType([StructField("x", LongType())]),
        st.none() | st.fixed_dictionaries({"x": whole(64)}),
    ),
}
ALL_OF_PROTOBUF = StructType([StructField(name, kind) for name, (kind, _) in IN_PROTOBUF.items()])


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries({name: made for name, (_, made) in IN_PROTOBUF.items()}), max_size=3)
)
def test_messages_are_read_as_the_rows_that_they_were(descriptors: str, rows: list[dict[str, Any]]) -> None:
    read = there_and_back(ALL_OF_PROTOBUF, rows, "protobuf", text=descriptors)
    for row in read:
        row["totals"].sort()
    assert comparable(read) == written(ALL_OF_PROTOBUF, rows)


def test_a_null_is_the_default_of_a_field_that_cannot_be_absent(descriptors: str) -> None:
    schema = (
        StructType()
        .add("big", LongType())
        .add("text", StringType())
        .add("inner", ALL_OF_PROTOBUF["inner"].dataType)
    )
    nulls = {"big": None, "text": None, "inner": None}
    assert there_and_back(schema, [nulls], "protobuf", text=descriptors) == [
        {"big": 0, "text": "", "inner": None}
    ]


# ---------------------------------------------------------------- what cannot be written
NARROW = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "c1", "type": "int"}]})


def packed(kind: DataType, value: Any, form: str, text: str | None = None) -> None:
    schema = StructType().add("c1", kind)
    batch = pa.RecordBatch.from_pylist([{"c1": value}], schema=arrow_schema(schema))
    list(RowPacker(schema, form, value_schema=text).batches(batch))


def test_a_row_that_does_not_fit_is_told() -> None:
    with pytest.raises(UnwritableRow, match=r"the column c1 cannot be written as csv: .*utf-8.*base64"):
        packed(BinaryType(), b"\xff", "csv")
    with pytest.raises(
        UnwritableRow, match=r"written as avro: c1: 1099511627776 does not fit into int\. Change"
    ):
        packed(LongType(), 2**40, "avro", NARROW)
    with pytest.raises(UnwritableRow, match=r"Field c0 is specified in the schema but missing"):
        packed(IntegerType(), 1, "avro", AVRO)
    with pytest.raises(
        BadSchema, match=r"the column c1 is array<bigint>, and csv has no form for that: cast it"
    ):
        packed(ArrayType(LongType()), [1], "csv")


def test_texts_with_a_collation_are_texts() -> None:
    kind = StringType("UTF8_LCASE")
    rows = pa.RecordBatch.from_pylist([{"value": "A", "key": "b"}])
    (batch,) = RowPacker(StructType().add("value", kind).add("key", kind), "string").batches(rows)
    assert unpack_values(batch.payload) == [b"A"]
    with pytest.raises(BadSchema, match="rows need a column value"):
        RowPacker(StructType().add("value", kind).add("other", kind), "string")


def test_a_column_that_the_schema_lacks_is_told_before_anything_runs() -> None:
    with pytest.raises(
        BadSchema, match="has a column other, and the schema of the records has no such field; it has c0,"
    ):
        RowPacker(StructType().add("other", LongType()), "avro", value_schema=AVRO)
    with pytest.raises(BadSchema, match="there are 2 columns c1"):
        RowPacker(StructType([StructField("c1", IntegerType())] * 2), "avro", value_schema=AVRO)


def test_the_schema_is_needed_and_has_no_id(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="say which schema"):
        RowPacker(ALL_OF_AVRO, "avro")
    (tmp_path / "row.avsc").write_text(AVRO)
    with pytest.raises(BadOption, match="without the header of a schema registry: leave id out"):
        RowPacker(ALL_OF_AVRO, "avro", value_schema=f"{tmp_path}/row.avsc?id=7")
    with pytest.raises(BadOption, match="only records of csv have a separator"):
        SinkOptions.of({"endpoint": HERE, "sep": ";"})
    with pytest.raises(BadOption, match="only avro and protobuf have a schema of their own"):
        SinkOptions.of({"endpoint": HERE, "valueSchema": AVRO})


# ---------------------------------------------------------------- with Spark itself
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_reads_what_it_has_written_in_each_of_them(
    spark: SparkSession, serve: Serve, descriptors: str
) -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "Row",
            "fields": [
                {"name": "big", "type": ["null", "long"]},
                {"name": "text", "type": ["null", "string"]},
                {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            ],
        }
    )
    rows = spark.sql("SELECT id AS big, concat('a;', id) AS text, timestamp_seconds(id) AS at FROM range(5)")
    gateway = serve(None, writable=True)
    start = 0
    for value, frame, more in (
        ("csv", rows, {"sep": ";"}),
        ("avro", rows, {"valueSchema": schema}),
        ("protobuf", rows.drop("at"), {"valueSchema": descriptors}),
    ):
        options = {"endpoint": gateway.endpoint, "value": value, **more}
        frame.write.format("aquifer").mode("append").options(**options).save()
        reader = spark.read.format("aquifer").schema(frame.schema).options(**options)
        read = reader.options(mode="FAILFAST", startingOffsets=str(start)).load()

        assert sorted(read.collect()) == sorted(frame.collect())
        start += 5
    assert isinstance(rows.first()["at"], datetime.datetime)  # type: ignore[index]
