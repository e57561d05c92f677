"""Records that once took others along, or stopped a query that had been told to go on."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import fastavro
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.aquifer import (
    ARROW,
    Batch,
    RecordMetadata,
    open_schema,
    pack_metadata,
    pack_values,
    to_arrow_stream,
)
from penstock.spark import BadOption, BadSchema
from penstock.spark.options import SourceOptions
from penstock.spark.sink.rows import RowPacker
from penstock.spark.source.columns import Columns, WrongRecord, columns_of

HERE = "tcp://127.0.0.1:5556"


def read(
    schema: StructType, value: str, values: Sequence[bytes], **options: Any
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The rows, with PERMISSIVE, and which records are wrong and why."""
    data = Batch(0, len(values), pack_values(list(values)), pack_metadata(RecordMetadata(0)))
    wrong: list[WrongRecord] = []
    batch = Columns(schema, value, mode="PERMISSIVE", **options).batch(HERE, data, wrong)
    batch.validate(full=True)
    return batch.to_pylist(), {each.number: each.reason for each in wrong}


def one(kind: DataType) -> StructType:
    return StructType([StructField("a", kind)])


# ---------------------------------------------------------------- JSON
@pytest.mark.parametrize("beside", [0, 400])
def test_records_whose_pieces_fit_together_are_wrong_and_leave_the_others_where_they_are(beside: int) -> None:
    schema = StructType().add("n", LongType()).add("s", StructType().add("x", LongType()))
    # As many objects as records, if one reads across their ends.
    pieces = [b'{"n": 1} {"n": 2}', b'{"n": 3}', b'{"s": ', b'{"x": 1}}']
    rows, wrong = read(schema, "json", [*([b'{"n": 0}'] * beside), *pieces])

    assert rows[beside:] == [{"n": number, "s": None} for number in (None, 3, None, None)]
    assert set(wrong) == {beside, beside + 2, beside + 3}


@pytest.mark.parametrize("text", ["20260131", "2026-W05-6", "2026-1-31"])
def test_a_date_in_another_form_is_wrong_whatever_is_around_it(text: str) -> None:
    schema = StructType().add("d", DateType()).add("n", LongType())
    odd, good, bad = (f'{{"d": "{text}"}}'.encode(), b'{"d": "2026-01-31"}', b'{"n": "x"}')
    for neighbours in ([], [good], [bad], [good] * 300, [good] * 300 + [bad]):
        rows, wrong = read(schema, "json", [*neighbours, odd])
        assert rows[-1]["d"] is None
        assert len(neighbours) in wrong


# ---------------------------------------------------------------- the keys of maps
@pytest.mark.parametrize(
    ("key", "entries"),
    [
        (ByteType(), {"300": 1}),
        (IntegerType(), {"99999999999": 1}),
        (LongType(), {"1_000": 1}),
        (LongType(), {"x": 1}),
        (DecimalType(3, 1), {"1000": 1}),
        (BooleanType(), {"yes": 1}),
        (DateType(), {"20260131": 1}),
    ],
)
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_key_that_does_not_fit_makes_its_map_null_and_no_other(
    form: str, key: DataType, entries: dict[str, int]
) -> None:
    encode = json.dumps if form == "json" else msgspec.msgpack.encode
    values = [
        text.encode() if isinstance(text := encode({"a": each}), str) else text for each in (entries, {})
    ]
    rows, wrong = read(one(MapType(key, LongType())), form, values)

    assert rows == [{"a": None}, {"a": []}]
    assert set(wrong) == {0}


@pytest.mark.parametrize(
    ("key", "given"),
    [
        (StringType(), 1),
        (StringType(), None),
        (StringType(), b"\xff"),
        (LongType(), 2.7),
        (LongType(), True),
        (ByteType(), 300),
        (DoubleType(), True),
        (BooleanType(), 1),
        (DateType(), datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)),
        (TimestampType(), 1),
    ],
)
def test_a_key_of_another_type_in_messagepack_is_wrong(key: DataType, given: Any) -> None:
    values = [msgspec.msgpack.encode({"a": {given: 1}}), msgspec.msgpack.encode({"a": {}})]
    rows, wrong = read(one(MapType(key, LongType())), "msgpack", values)

    assert rows == [{"a": None}, {"a": []}]
    assert set(wrong) == {0}


@pytest.mark.parametrize(
    ("key", "given", "found"),
    [
        (StringType(), b"ab", "ab"),
        (LongType(), 7, 7),
        (LongType(), "-7", -7),
        (DoubleType(), 1.5, 1.5),
        (BooleanType(), True, True),
        (DecimalType(3, 1), 1.5, decimal.Decimal("1.5")),
    ],
)
def test_keys_that_messagepack_has_itself_are_read(key: DataType, given: Any, found: Any) -> None:
    rows, wrong = read(one(MapType(key, LongType())), "msgpack", [msgspec.msgpack.encode({"a": {given: 1}})])

    assert rows == [{"a": [(found, 1)]}]
    assert not wrong


# ---------------------------------------------------------------- Avro
def avro(*kinds: Any) -> str:
    fields = [{"name": name, "type": kind} for name, kind in zip("abcdef", kinds, strict=False)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def test_a_uuid_in_avro_is_a_text() -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    schema = avro(uuid, {"type": "array", "items": ["null", uuid]})
    ids = [UUID(int=number) for number in range(3)]
    record = open_schema(f"avro:{schema}").encode({"a": ids[0], "b": [ids[1], None]})
    columns = StructType().add("a", StringType()).add("b", ArrayType(StringType()))

    rows, wrong = read(columns, "avro", [record], value_schema=schema)
    assert rows == [{"a": str(ids[0]), "b": [str(ids[1]), None]}]
    assert not wrong


@pytest.mark.parametrize(
    ("kind", "element", "column"),
    [
        ("double", 1.5, IntegerType()),
        ({"type": "array", "items": "double"}, [1.5], ArrayType(IntegerType())),
        ({"type": "map", "values": "double"}, {"x": 1.5}, MapType(StringType(), IntegerType())),
        ("string", "abc", ArrayType(StringType())),
        ({"type": "array", "items": "int"}, [1], MapType(StringType(), IntegerType())),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime.datetime(2026, 1, 31, 23, tzinfo=datetime.UTC),
            DateType(),
        ),
        (["null", "double", "string"], 1.5, LongType()),
    ],
)
def test_a_value_of_another_type_in_avro_is_wrong_and_not_cut_to_fit(
    kind: Any, element: Any, column: DataType
) -> None:
    schema = avro(kind)
    record = open_schema(f"avro:{schema}").encode({"a": element})

    rows, wrong = read(one(column), "avro", [record], value_schema=schema)
    assert rows == [{"a": None}]
    assert "does not fit into" in wrong[0]


def test_a_whole_number_with_a_point_in_avro_is_a_whole_number() -> None:
    schema = avro("double")
    record = open_schema(f"avro:{schema}").encode({"a": 2.0})

    assert read(one(IntegerType()), "avro", [record], value_schema=schema) == ([{"a": 2}], {})


def test_a_wrong_record_of_avro_that_is_nested_without_end_is_one_wrong_record() -> None:
    kind: Any = {
        "type": "record",
        "name": "shop.Node",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    parsed: Any = fastavro.parse_schema(kind)
    assert parsed["fields"][1]["type"] == ["null", "shop.Node"]
    values = [b"\x02\x02" * 100_000 + b"\x02\x00", b"\x02\x02\x04\x00"]
    rows, wrong = read(StructType().add("n", IntegerType()), "avro", values, value_schema=json.dumps(kind))

    assert rows == [{"n": None}, {"n": 1}]
    assert wrong == {0: "it is nested too deeply"}


# ---------------------------------------------------------------- columns of one name
@pytest.mark.parametrize("value", ["json", "msgpack", "arrow", "csv"])
@pytest.mark.parametrize(
    "schema",
    [
        StructType().add("a", LongType()).add("a", StringType()),
        one(ArrayType(StructType().add("a", LongType()).add("a", LongType()))),
    ],
)
def test_two_columns_of_one_name_are_refused_before_anything_is_read(value: str, schema: StructType) -> None:
    options = SourceOptions.of({"endpoint": HERE, "value": value})
    with pytest.raises(BadSchema, match=r"there are 2 columns .*a, .*: rename them"):
        columns_of(schema, options)


def test_arrow_rows_with_two_columns_of_one_name_are_not_written_and_wrong_if_others_wrote_them() -> None:
    twice = StructType().add("a", LongType()).add("a", LongType())
    with pytest.raises(BadSchema, match="there are 2 columns a"):
        RowPacker(twice, "arrow")

    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    data = Batch(0, 1, to_arrow_stream(rows), pack_metadata(RecordMetadata(0)), ARROW)
    schema = StructType().add("a", LongType()).add("b", LongType())
    wrong: list[WrongRecord] = []
    read = Columns(schema, "arrow", mode="PERMISSIVE").batch(HERE, data, wrong)

    assert read.to_pylist() == [{"a": None, "b": 3}]
    assert [each.reason for each in wrong] == ["the records have 2 columns a"]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_time_of_arrow_that_python_does_not_have_is_wrong_and_takes_no_other_along(mode: str) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0, 2**62, 0], pa.timestamp("s"))], names=["a"])
    data = Batch(0, 3, to_arrow_stream(rows), pack_metadata(RecordMetadata(0)), ARROW)
    wrong: list[WrongRecord] = []
    read = Columns(one(DateType()), "arrow", mode=mode).batch(HERE, data, wrong)

    day = {"a": datetime.date(1970, 1, 1)}
    assert read.to_pylist() == ([day, {"a": None}, day] if mode == "PERMISSIVE" else [day, day])
    assert [each.number for each in wrong] == [1]
    assert wrong[0].reason.startswith("a: ")


# ---------------------------------------------------------------- what is told
def test_a_schema_that_is_wrong_is_not_repeated_as_a_whole() -> None:
    schema = avro("no such type", *["string"] * 5).replace('"R"', f'"{"R" * 1000}"')
    with pytest.raises(BadOption, match="not an Avro schema") as refused:
        read(one(LongType()), "avro", [], value_schema=schema)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("value", ["binary", "string", "json", "msgpack", "arrow", "csv"])
def test_a_schema_without_columns_is_refused_where_it_is_read_and_written(value: str) -> None:
    options = SourceOptions.of({"endpoint": HERE, "value": value})
    with pytest.raises(BadSchema, match=r"the schema has no columns, .*: name those that you need"):
        columns_of(StructType(), options)
    with pytest.raises(BadSchema, match=r"this query has no columns, .*: select some"):
        RowPacker(StructType(), value)
