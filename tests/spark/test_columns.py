"""Frames of a gateway as Arrow batches: what Spark will take, and what is told when a record does not fit."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from penstock.aquifer.log.excerpts import in_format
from penstock.aquifer.records.arrow import to_arrow_stream
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values
from penstock.spark import BadSchema, UnreadableRecord
from penstock.spark.source.columns import Columns, WrongRecord, default_schema
from penstock.spark.source.decoders import Zone

ENDPOINT = "tcp://127.0.0.1:5556"
UTC = datetime.UTC
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=UTC)

META = [
    StructField("endpoint", StringType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("key", BinaryType()),
]


def frame(values: list[bytes], first: int = 0, metadata: RecordMetadata | None = None) -> Batch:
    return Batch(
        first, len(values), pack_values(values), pack_metadata(metadata or RecordMetadata(1_000_000))
    )


def rows(schema: StructType, value: str, data: Batch) -> list[dict[str, Any]]:
    """What is read, after it was checked as Spark checks it."""
    batch = Columns(schema, value).batch(ENDPOINT, data)
    batch.validate(full=True)
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)
    read: list[dict[str, Any]] = batch.to_pylist()
    return read


def one(kind: DataType, nullable: bool = True) -> StructType:
    return StructType([StructField("a", kind, nullable)])


def read_one(kind: DataType, form: str, *objects: Any) -> list[Any]:
    encode = msgspec.msgpack.encode if form == "msgpack" else json.dumps
    values = [v if isinstance(v := encode(o), bytes) else v.encode() for o in objects]
    return [row["a"] for row in rows(one(kind), form, frame(values))]


# ---------------------------------------------------------------- records as they are
def test_a_record_is_a_row_of_where_it_is_when_it_came_its_key_and_its_value() -> None:
    schema = StructType([*META, StructField("value", BinaryType())])
    data = frame([b"one", b"\xff"], 7, RecordMetadata(0, [b"k", None], [1_000_000, 2_000_001]))
    assert rows(schema, "binary", data) == [
        {
            "endpoint": ENDPOINT,
            "offset": 7,
            "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "key": b"k",
            "value": b"one",
        },
        {
            "endpoint": ENDPOINT,
            "offset": 8,
            "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 2, 1, tzinfo=UTC),
            "key": None,
            "value": b"\xff",
        },
    ]


def test_records_without_keys_or_times_of_their_own_have_those_of_their_batch() -> None:
    schema = StructType(META[2:])
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)
    data = frame([b"x", b"y"], 0, RecordMetadata(round(noon.timestamp() * 1e6)))
    assert rows(schema, "binary", data) == [{"timestamp": noon, "key": None}] * 2


def test_some_of_the_columns_in_any_order() -> None:
    schema = StructType([StructField("value", StringType()), StructField("offset", LongType(), False)])
    assert rows(schema, "string", frame([b"x", "é".encode()], 3)) == [
        {"value": "x", "offset": 3},
        {"value": "é", "offset": 4},
    ]


@pytest.mark.parametrize(("value", "kind"), [("binary", "binary"), ("string", "string")])
def test_the_default_columns(value: str, kind: str) -> None:
    assert default_schema(value) == (
        f"endpoint string, offset bigint, timestamp timestamp, key binary, value {kind}"
    )


@pytest.mark.parametrize("value", ["json", "msgpack", "arrow"])
def test_typed_records_have_no_default_columns(value: str) -> None:
    with pytest.raises(BadSchema, match=r"so give a schema: \.schema"):
        default_schema(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (StructField("sensor", StringType()), "binary"),
        (StructField("value", StringType()), "binary"),
        (StructField("value", BinaryType()), "string"),
        (StructField("offset", StringType()), "binary"),
    ],
)
def test_columns_that_there_are_not_are_told_at_once(field: StructField, value: str) -> None:
    with pytest.raises(BadSchema, match=f"{field.name} {field.dataType.simpleString()} is not one of them"):
        Columns(StructType([field]), value)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(UnreadableRecord, match=r"record 6 of tcp://.* as string"):
        rows(StructType([StructField("value", StringType())]), "string", frame([b"ok", b"\xff"], 5))


def test_a_key_that_must_be_there_and_is_not() -> None:
    with pytest.raises(UnreadableRecord, match="key is null, and the schema says NOT NULL"):
        rows(StructType([StructField("key", BinaryType(), False)]), "binary", frame([b"x"]))


# ---------------------------------------------------------------- json and msgpack
INNER = StructType([StructField("b", LongType()), StructField("c", StringType())])
BOTH = pytest.mark.parametrize("form", ["json", "msgpack"])


@BOTH
@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (LongType(), 2**63 - 1, 2**63 - 1),
        (ByteType(), -128, -128),
        (DoubleType(), 1, 1.0),
        (DoubleType(), 2.5, 2.5),
        (BooleanType(), True, True),
        (StringType(), "ü\u0000", "ü\u0000"),
        (DecimalType(10, 2), "1.25", decimal.Decimal("1.25")),
        (DecimalType(10, 2), 3, decimal.Decimal("3.00")),
        (TimestampType(), "2026-01-01T00:00:00Z", NEW_YEAR),
        (TimestampType(), "2026-01-01T02:00:00+02:00", NEW_YEAR),
        (TimestampType(), "2026-01-01T00:00:00.000001Z", NEW_YEAR + datetime.timedelta(microseconds=1)),
        (TimestampNTZType(), "2026-01-01T00:00:00", NEW_YEAR.replace(tzinfo=None)),
        (DateType(), "2026-01-01", datetime.date(2026, 1, 1)),
        (ArrayType(LongType()), [1, None, 3], [1, None, 3]),
        (ArrayType(DateType()), ["2026-01-01"], [datetime.date(2026, 1, 1)]),
        (INNER, {"b": 1, "z": 0}, {"b": 1, "c": None}),
        (ArrayType(INNER), [{"c": "x"}], [{"b": None, "c": "x"}]),
        (MapType(StringType(), LongType()), {"x": 1, "y": None}, [("x", 1), ("y", None)]),
    ],
)
def test_the_types_of_the_schema(form: str, kind: DataType, given: Any, read: Any) -> None:
    assert read_one(kind, form, {"a": given}, {"other": 1}, {"a": None}) == [read, None, None]


def test_times_and_bytes_of_msgpack() -> None:
    assert read_one(TimestampType(), "msgpack", {"a": NEW_YEAR}) == [NEW_YEAR]
    assert read_one(BinaryType(), "msgpack", {"a": b"\xff"}) == [b"\xff"]
    assert read_one(BinaryType(), "msgpack", {"a": "text"}) == [b"text"]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("kind", "text", "read"),
    [
        (BinaryType(), '"AP8Q"', b"\x00\xff\x10"),
        (StringType(), "1.50", "1.50"),
        (StringType(), "true", "true"),
        (StringType(), '{"b": [1, "x"]}', '{"b":[1,"x"]}'),
        (LongType(), "2.0", 2),
        (LongType(), "-1e3", -1000),
        (DoubleType(), '"NaN"', None),
        (DoubleType(), "NaN", None),
        (DoubleType(), '"Infinity"', float("inf")),
        (DoubleType(), "-Infinity", float("-inf")),
        (DoubleType(), '"-INF"', float("-inf")),
        (TimestampType(), "1767225600", NEW_YEAR),
        (TimestampType(), '"2026-01-01T00:00:00.000001999Z"', NEW_YEAR + datetime.timedelta(microseconds=1)),
        (
            TimestampType(),
            '"1969-12-31T23:59:59.9999999Z"',
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ),
        (TimestampNTZType(), '"2026-01-01T00:00:00.0000009"', NEW_YEAR.replace(tzinfo=None)),
    ],
)
def test_json_is_read_as_sparks_own_reader_reads_it(
    kind: DataType, text: str, read: Any, nested: bool
) -> None:
    if nested:
        kind, text, read = ArrayType(kind), f"[{text}, null]", [read, None]
    values = [b'{"a": null}', f'{{"a": {text}}}'.encode()]
    found = [row["a"] for row in rows(one(kind), "json", frame(values))]
    if "NaN" in text:
        number = found[1][0] if nested else found[1]
        assert number != number, "it is not the number that is unlike itself"
    else:
        assert found == [None, read]


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC", 0), ("America/New_York", 5), ("+05:30", -5.5), ("GMT-8", 8), ("Asia/Tokyo", -9)],
)
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_time_without_a_zone_is_in_that_of_the_session(zone: str, hours: float, form: str) -> None:
    encode = msgspec.msgpack.encode if form == "msgpack" else msgspec.json.encode
    there = NEW_YEAR + datetime.timedelta(hours=hours)
    for texts, read in (
        (["2026-01-01T00:00:00"], [there]),
        (["2026-01-01T00:00:00", "2026-01-01T00:00:00Z"], [there, NEW_YEAR]),
        (["2026-01-01 00:00:00.0000001"], [there]),
        (["2026-01-01"], [there]),
    ):
        data = frame([encode({"a": text}) for text in texts])
        batch = Columns(one(TimestampType()), form, Zone(zone)).batch(ENDPOINT, data)
        assert batch.column(0).to_pylist() == read


def test_times_that_there_were_twice_or_never_are_those_that_java_takes() -> None:
    texts = ["2026-03-08T02:30:00", "2026-11-01T01:30:00"]
    data = frame([msgspec.json.encode({"a": text}) for text in texts])
    batch = Columns(one(TimestampType()), "json", Zone("America/New_York")).batch(ENDPOINT, data)
    assert batch.column(0).to_pylist() == [
        datetime.datetime(2026, 3, 8, 7, 30, tzinfo=UTC),
        datetime.datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    ]


def test_a_zone_that_this_machine_does_not_know_is_told_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"timeZone is 'Atlantis/City'.*give a name of the tz database"):
        Zone("Atlantis/City")


@BOTH
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (LongType(), "1"),
        (LongType(), 1.5),
        (LongType(), 2**63),
        (ByteType(), 300),
        (BooleanType(), 1),
        (DoubleType(), "1.5"),
        (DoubleType(), "Nan"),
        (BinaryType(), [1]),
        (TimestampType(), "yesterday"),
        (TimestampType(), 1.5),
        (TimestampType(), True),
        (TimestampNTZType(), "2026-01-01T00:00:00Z"),
        (TimestampNTZType(), "2026-01-01T00:00:00.0000001Z"),
        (DateType(), "2026-02-30"),
        (DecimalType(5, 2), "123456"),
        (ArrayType(LongType()), [1, "x"]),
        (INNER, [1]),
        (MapType(StringType(), LongType()), {"x": "y"}),
    ],
)
def test_a_record_of_another_type_is_named_by_its_offset(form: str, kind: DataType, given: Any) -> None:
    encode = msgspec.msgpack.encode if form == "msgpack" else msgspec.json.encode
    values = [encode({"a": None}), encode({"a": given}), encode({"a": None})]
    with pytest.raises(UnreadableRecord, match=rf"record 101 of {ENDPOINT} cannot be read as {form}") as told:
        rows(one(kind), form, frame(values, 100))
    assert "\n" not in str(told.value)
    assert 'option("value", "binary")' in str(told.value)


@pytest.mark.parametrize("given", ["AP8", "A P8Q", "über", 10**14, 2.0**60])
def test_a_value_that_only_json_could_have_meant_otherwise_is_told(given: Any) -> None:
    kind = (
        BinaryType()
        if isinstance(given, str)
        else LongType()
        if isinstance(given, float)
        else TimestampType()
    )
    with pytest.raises(UnreadableRecord, match=r"record 1 of .* cannot be read as json .* a: "):
        rows(one(kind), "json", frame([b"{}", msgspec.json.encode({"a": given})]))


@pytest.mark.parametrize(("kind", "given"), [(StringType(), 1), (TimestampType(), 1_700_000_000)])
def test_msgpack_has_types_of_its_own_and_a_number_is_no_text_nor_time(kind: DataType, given: int) -> None:
    with pytest.raises(UnreadableRecord, match=r"record 1 of .* cannot be read as msgpack"):
        rows(one(kind), "msgpack", frame([b"\x80", msgspec.msgpack.encode({"a": given})]))


@pytest.mark.parametrize("kind", [LongType(), DateType()])
@pytest.mark.parametrize(
    "value", [b"null", b" null", b"", b"  ", b"[1]", b"1", b'"x"', b"{", b'{"a"', b"\xff", b"{} {}"]
)
def test_what_is_no_json_object_is_told(kind: DataType, value: bytes) -> None:
    # A null alone made pyarrow's parser take the whole process along.
    with pytest.raises(UnreadableRecord, match="cannot be read as json"):
        rows(one(kind), "json", frame([b"{}", value, b"{}"]))
    with pytest.raises(UnreadableRecord, match=r"record 0 of .* cannot be read as json|1 records"):
        rows(one(kind), "json", frame([value]))


def test_json_strings_that_are_no_text_are_told() -> None:
    with pytest.raises(UnreadableRecord, match="record 0 of"):
        rows(one(StringType()), "json", frame([b'{"a": "\xff"}']))


def test_json_with_line_breaks_and_spaces_in_it() -> None:
    values = [b'\n{\n "a":\n 1 }\n', b' {"a": 2}', b'{"a":3}\r\n']
    assert [row["a"] for row in rows(one(LongType()), "json", frame(values))] == [1, 2, 3]


@pytest.mark.parametrize("value", [b"\xc1", b"", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({1: 2})])
def test_what_is_no_msgpack_map_is_told(value: bytes) -> None:
    with pytest.raises(UnreadableRecord, match=r"record 1 of .* cannot be read as msgpack"):
        rows(one(LongType()), "msgpack", frame([b"\x80", value]))


@BOTH
@pytest.mark.parametrize(
    ("kind", "nullable", "good", "bad"),
    [
        (LongType(), False, 1, None),
        (ArrayType(LongType(), False), True, [1], [None]),
        (StructType([StructField("b", LongType(), False)]), True, {"b": 1}, {"b": None}),
        (MapType(StringType(), LongType(), False), True, {"x": 1}, {"x": None}),
    ],
)
def test_a_null_where_the_schema_allows_none(
    form: str, kind: DataType, nullable: bool, good: Any, bad: Any
) -> None:
    encode = msgspec.msgpack.encode if form == "msgpack" else msgspec.json.encode
    schema = one(kind, nullable)
    assert len(rows(schema, form, frame([encode({"a": good})]))) == 1
    with pytest.raises(UnreadableRecord, match=r"NOT NULL|required"):
        rows(schema, form, frame([encode({"a": good}), encode({"a": bad})]))


def test_a_struct_that_may_be_missing_with_a_field_that_may_not() -> None:
    kind = StructType([StructField("b", LongType(), False)])
    values = [b"\x80", msgspec.msgpack.encode({"a": {"b": 1}})]
    assert [row["a"] for row in rows(one(kind), "msgpack", frame(values))] == [None, {"b": 1}]


# ---------------------------------------------------------------- arrow
ARROW = pa.record_batch({"x": pa.array([1, 2, None], pa.int32()), "y": ["a", "b", "c"]})


def arrow_frame(batch: pa.RecordBatch) -> Batch:
    return Batch(40, batch.num_rows, to_arrow_stream(batch), pack_metadata(RecordMetadata(0)))


def test_rows_of_a_log_of_arrow_with_the_types_that_the_schema_names() -> None:
    schema = StructType([StructField("y", StringType()), StructField("x", LongType())])
    assert rows(schema, "arrow", arrow_frame(ARROW)) == [
        {"y": "a", "x": 1},
        {"y": "b", "x": 2},
        {"y": "c", "x": None},
    ]
    assert Columns(schema, "arrow").wire_format == "arrow"


def test_arrow_rows_of_other_units_and_zones_are_converted() -> None:
    times = pa.array([0, 1_000], pa.timestamp("ms", tz="Europe/Berlin"))
    schema = one(TimestampType())
    read = rows(schema, "arrow", arrow_frame(pa.record_batch({"a": times})))
    assert [row["a"].timestamp() for row in read] == [0.0, 1.0]


def test_a_null_inside_a_column_of_another_zone_is_no_reason_to_refuse_it() -> None:
    schema = one(StructType([StructField("v", VariantType()), StructField("t", TimestampType())]))
    kind = to_arrow_schema(schema, timezone="America/New_York").field("a").type
    nothing = pa.nulls(2, pa.binary())  # As Java sends it: a null struct of nulls.
    fields = [kind.field("v").type.field(index) for index in range(2)]
    variants = pa.StructArray.from_arrays([nothing, nothing], fields=fields, mask=pa.array([True, True]))
    times = pa.array([NEW_YEAR, None], kind.field("t").type)
    structs = pa.StructArray.from_arrays([variants, times], fields=[kind.field("v"), kind.field("t")])
    batch = pa.record_batch({"a": structs})

    read = rows(schema, "arrow", arrow_frame(batch))
    assert [row["a"] for row in read] == [{"v": None, "t": NEW_YEAR}, {"v": None, "t": None}]
    assert rows(schema, "arrow", arrow_frame(batch.slice(1))) == read[1:]


def test_arrow_rows_without_a_column() -> None:
    with pytest.raises(BadSchema, match=r"have no column z; they have x, y"):
        rows(StructType([StructField("z", StringType())]), "arrow", arrow_frame(ARROW))


def test_arrow_rows_of_another_type() -> None:
    with pytest.raises(UnreadableRecord, match=r"record 40 of .* y: 'a' does not fit into bigint; "):
        rows(StructType([StructField("y", LongType())]), "arrow", arrow_frame(ARROW))


NOON = datetime.datetime(2026, 1, 31, 12)
MIDNIGHT = datetime.datetime(2026, 1, 31)
IN_BERLIN = pa.timestamp("us", "Europe/Berlin")


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([MIDNIGHT, NOON, None]), DateType(), [MIDNIGHT.date(), None, None]),
        (
            pa.array([datetime.datetime(2026, 1, 30, 23, tzinfo=UTC), MIDNIGHT], IN_BERLIN),
            DateType(),
            [MIDNIGHT.date(), None],
        ),
        (pa.array([[MIDNIGHT], [MIDNIGHT, NOON]]), ArrayType(DateType()), [[MIDNIGHT.date()], None]),
        (pa.array([0, 1, 2, None]), BooleanType(), [False, True, None, None]),
        (pa.array([1.0, 0.5, float("nan")]), BooleanType(), [True, None, None]),
        (pa.array([1_700_000_000, None]), TimestampType(), [None, None]),
        (pa.array([1_700_000_000.5]), TimestampNTZType(), [None]),
        (pa.array([20_000, None], pa.int32()), DateType(), [None, None]),
        (pa.array([1.5, 1e300, -math.inf, None]), FloatType(), [1.5, None, -math.inf, None]),
        (pa.array([[1e39], [2.5]]), ArrayType(FloatType()), [None, [2.5]]),
        (pa.array([{"a": 7}, None]), StructType().add("a", TimestampType()), [None, None]),
        (
            pa.array([[("k", 1)], [("k", 7)]], pa.map_(pa.string(), pa.int64())),
            MapType(StringType(), BooleanType()),
            [[("k", True)], None],
        ),
        (pa.array([MIDNIGHT, NOON, None]).dictionary_encode(), DateType(), [MIDNIGHT.date(), None, None]),
        (pa.array([1, 7, 1, None]).dictionary_encode(), BooleanType(), [True, None, True, None]),
        (pa.array([7, None]).dictionary_encode(), TimestampType(), [None, None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), StringType(), ["a", None, "a"]),
        (
            pa.StructArray.from_arrays([pa.array([1, 7]).dictionary_encode()], ["a"]),
            StructType().add("a", BooleanType()),
            [{"a": True}, None],
        ),
        (
            pa.array([[1, 0], [1, 7]], pa.list_(pa.int64(), 2)),
            ArrayType(BooleanType()),
            [[True, False], None],
        ),
        (pa.array([[7]], pa.list_(pa.int64(), 1)), ArrayType(TimestampType()), [None]),
        (pa.array([[1, 2], [3], None], pa.list_view(pa.int64())), ArrayType(LongType()), [None, None, None]),
        (pa.array([[1], [2, 3]], pa.large_list_view(pa.int64())), ArrayType(LongType()), [None, None]),
    ],
)
def test_arrow_values_that_a_cast_would_change_are_wrong_and_nulls_are_not(
    column: pa.Array, kind: DataType, expected: list[Any]
) -> None:
    schema = StructType().add("n", LongType()).add("c", kind)
    batch = pa.record_batch({"n": range(len(column)), "c": column})
    wrong: list[WrongRecord] = []
    read = Columns(schema, "arrow", mode="PERMISSIVE").batch(ENDPOINT, arrow_frame(batch), wrong)

    assert read.column("c").to_pylist() == expected
    changed = [n for n, value in enumerate(expected) if value is None and column[n].is_valid]
    assert [each.number for each in wrong] == changed


def test_a_log_of_single_records_looks_like_a_table_to_who_asks_for_arrow() -> None:
    data = Batch(7, 2, pack_values([b"a", b"b"]), pack_metadata(RecordMetadata(5, [b"k", None])))
    sent = in_format(data, "arrow")
    schema = StructType([StructField("value", BinaryType()), StructField("key", BinaryType())])
    read = rows(schema, "arrow", Batch(7, 2, sent.payload, sent.metadata))
    assert read == [{"value": b"a", "key": b"k"}, {"value": b"b", "key": None}]


def test_a_log_of_arrow_rows_can_be_read_as_json() -> None:
    sent = in_format(
        Batch(0, 3, to_arrow_stream(ARROW), pack_metadata(RecordMetadata(5)), "arrow"), "msgpack"
    )
    schema = StructType([StructField("x", LongType()), StructField("y", StringType())])
    read = rows(schema, "json", Batch(0, 3, sent.payload, sent.metadata))
    assert read == ARROW.to_pylist()
