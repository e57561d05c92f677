"""What the sink writes, the source reads back: every type that is accepted, with every value that it has."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import string
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    GeometryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
    VariantVal,
    YearMonthIntervalType,
)

from penstock.spark import BadSchema, UnwritableRow
from penstock.spark.sink.rows import RowPacker
from penstock.spark.source.columns import Columns
from penstock.spark.source.decoders import Zone
from tests.spark.conftest import Serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
UTC = datetime.UTC


class Typed(NamedTuple):
    """A type, and values that it has, as pyarrow takes them."""

    kind: DataType
    values: st.SearchStrategy[Any]


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
DATES = st.dates()
LOCAL_TIMES = st.datetimes()
INSTANTS = st.datetimes(
    datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)
)
JSON = st.recursive(
    st.booleans() | whole(64) | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def decimals(precision: int, scale: int) -> Typed:
    most = 10**precision - 1
    values = st.integers(-most, most).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=40))
    )
    return Typed(DecimalType(precision, scale), values)


def variant(content: Any) -> dict[str, bytes]:
    made = VariantVal.parseJson(json.dumps(content))
    return {"value": made.value, "metadata": made.metadata}


KEYS = [
    Typed(StringType(), TEXTS),
    Typed(LongType(), whole(64)),
    Typed(BooleanType(), st.booleans()),
    Typed(DoubleType(), st.floats().map(lambda x: x + 0.0)),  # Spark's maps have no key -0.0.
    decimals(38, 18),
    Typed(DateType(), DATES),
    Typed(TimestampType(), INSTANTS),
    Typed(TimestampNTZType(), LOCAL_TIMES),
    Typed(BinaryType(), st.binary(max_size=6)),
]
LEAVES = [
    *KEYS,
    Typed(NullType(), st.none()),
    Typed(ByteType(), whole(8)),
    Typed(ShortType(), whole(16)),
    Typed(IntegerType(), whole(32)),
    Typed(FloatType(), st.floats(width=32)),
    Typed(DoubleType(), st.floats()),
    decimals(10, 0),
    Typed(TimeType(6), st.times()),
    Typed(DayTimeIntervalType(), st.timedeltas(datetime.timedelta(-(10**8)), datetime.timedelta(10**8))),
    Typed(VariantType(), JSON.map(variant)),
]
NAMES = st.text(string.ascii_letters + " .$ü\"'", min_size=1, max_size=5)


def lists(inner: Typed) -> Typed:
    return Typed(ArrayType(inner.kind), st.lists(st.none() | inner.values, max_size=3))


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    key, value = draw(st.sampled_from(KEYS)), draw(inner)
    pair = st.tuples(key.values, st.none() | value.values)
    pairs = st.lists(pair, max_size=3, unique_by=lambda pair: repr(pair[0]))
    return Typed(MapType(key.kind, value.kind), pairs)


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    fields = draw(st.dictionaries(NAMES, inner, min_size=1, max_size=3))
    kind = StructType([StructField(name, field.kind) for name, field in fields.items()])
    return Typed(kind, st.fixed_dictionaries({n: st.none() | f.values for n, f in fields.items()}))


TYPES = st.recursive(
    st.sampled_from(LEAVES), lambda inner: inner.map(lists) | maps(inner) | structs(inner), max_leaves=4
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[StructType, pa.RecordBatch, str]:
    """A schema, rows as a sink gets them, and the zone of the session."""
    columns = draw(st.dictionaries(NAMES, TYPES, min_size=1, max_size=4))
    schema = StructType([StructField(name, column.kind) for name, column in columns.items()])
    record = st.fixed_dictionaries({name: st.none() | column.values for name, column in columns.items()})
    zone = draw(st.sampled_from(ZONES))
    rows = draw(st.lists(record, max_size=4))
    return schema, pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(schema, timezone=zone)), zone


def sent(schema: StructType, batch: pa.RecordBatch, form: str, zone: str) -> list[dict[str, Any]]:
    """What the source reads of what the sink writes."""
    rows: list[dict[str, Any]] = []
    for piece in RowPacker(schema, form).batches(batch):
        read = Columns(schema, form, Zone(zone)).batch("tcp://127.0.0.1:1", replace(piece, first=len(rows)))
        read.validate(full=True)
        rows += read.to_pylist()
    return rows


def comparable(value: Any) -> Any:
    """A value that is the same as another if both are of one type and have one text."""
    if isinstance(value, dict) and set(value) == {"value", "metadata"}:
        return comparable(VariantVal(**value).toPython())  # The order of its names is nobody's business.
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else comparable(name): comparable(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [comparable(inner) for inner in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return (type(value), str(value)) if not isinstance(value, bytes) else value


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["json", "msgpack", "arrow"])
@settings(max_examples=300, deadline=None)
@given(table=tables())
def test_the_source_reads_what_the_sink_wrote(
    form: str, table: tuple[StructType, pa.RecordBatch, str]
) -> None:
    schema, batch, zone = table
    assert comparable(sent(schema, batch, form, zone)) == comparable(batch.to_pylist())


BEFORE_ZONES_HAD_MINUTES = datetime.datetime(1800, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_an_instant_before_zones_had_whole_minutes_stays_the_same(form: str) -> None:
    schema = StructType([StructField("at", ArrayType(TimestampType()))])
    kind = to_arrow_schema(schema, timezone="America/New_York")
    batch = pa.RecordBatch.from_pylist([{"at": [BEFORE_ZONES_HAD_MINUTES]}], schema=kind)
    assert sent(schema, batch, form, "America/New_York") == [{"at": [BEFORE_ZONES_HAD_MINUTES]}]


NAMED_UNLIKE_ANYTHING_BEFORE = """
import msgspec
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType
from tests.spark.test_columns import frame, rows

name = bytes.fromhex("67726fc39f65").decode()
schema = StructType([StructField(name, LongType()), StructField("m", MapType(StringType(), LongType()))])
for form, encode in (("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)):
    value = encode({str(name.encode(), "utf-8"): 1})
    print(rows(schema, form, frame([value]))[0][name])
"""


def test_a_column_whose_name_is_not_ascii_is_found_in_a_process_that_has_never_written_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", NAMED_UNLIKE_ANYTHING_BEFORE], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "1\n1\n", ran.stderr


# ---------------------------------------------------------------- what cannot be written
@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (YearMonthIntervalType(), r"a is interval year to month, and .* has no form for that: cast it"),
        (CalendarIntervalType(), r"a is interval, and .* has no form for that"),
        (TimeType(9), r"a is time\(9\), and .* has no form for that"),
        (GeometryType(4326), r"a is geometry\(4326\), and .* has no form for that"),
        (ArrayType(GeometryType(4326)), r"column a is geometry"),
        (StructType([StructField("b", CalendarIntervalType())]), r"column a\.b is interval"),
        (MapType(ArrayType(StringType()), LongType()), r"a map with keys of type array<string>, .* strings"),
        (StructType([StructField("b", LongType())] * 2), r"there are 2 columns a\.b"),
    ],
)
def test_a_type_without_a_form_is_refused_before_anything_runs(form: str, kind: DataType, told: str) -> None:
    with pytest.raises(BadSchema, match=told):
        RowPacker(StructType([StructField("a", kind)]), form)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadSchema, match="there are 2 columns a, and an object can have only one"):
        RowPacker(StructType([StructField("a", LongType())] * 2), "json")


FAR = 366 * 20_000
"""Days: a year that Python's dates do not reach."""


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DateType(), pa.array([FAR], pa.int32()).cast(pa.date32())),
        (TimestampType(), pa.array([FAR * 86_400_000_000], pa.timestamp("us", tz="UTC"))),
        (StringType(), pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False)),
        (VariantType(), None),
    ],
)
def test_a_value_without_a_form_is_refused_by_the_name_of_its_column(
    form: str, kind: DataType, values: pa.Array | None
) -> None:
    schema = StructType([StructField("n", LongType()), StructField("far", kind)])
    if values is None:
        values = pa.array([variant(None)], to_arrow_schema(schema).field("far").type)
    batch = pa.RecordBatch.from_arrays([pa.array([1]), values], names=["n", "far"])
    with pytest.raises(UnwritableRow, match=rf"the column far cannot be written as {form}: .*Cast it"):
        list(RowPacker(schema, form).batches(batch))


# ---------------------------------------------------------------- with Spark itself
EVERYTHING = """
    SELECT true AS flag, tinyint(-128) AS tiny, bigint(9223372036854775807) AS big, float(0.1) AS small,
        array(double('NaN'), double('Infinity'), -1.5D, NULL) AS fractions,
        12345678901234567890.123456789012345678BD AS exact, '' AS empty,
        'ünïcødé\\u0000 \U0001f600' AS `tëxt`,
        X'00FF10' AS bytes, date'0001-01-01' AS day, timestamp'1800-01-01 00:00:00.000001' AS instant,
        timestamp_ntz'2026-03-08 02:30:00.123456' AS local, time'12:34:56.789012' AS clock,
        interval '-1 02:03:04.000005' day to second AS lasted, map('a', 1, 'b', NULL) AS texts,
        map(date'2026-01-01', X'FF') AS days, map(X'00', named_struct('x', 1)) AS keys,
        named_struct('inner', array(map(1, array(timestamp'2026-07-01 00:00:00')))) AS nested,
        parse_json('{"a": [1, 2.5, null, "x"]}') AS free, cast(NULL AS string) AS nothing
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["json", "msgpack", "arrow"])
def test_spark_reads_the_rows_that_it_wrote(spark: SparkSession, serve: Serve, form: str) -> None:
    gateway = serve(None, writable=True)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        written = spark.sql(EVERYTHING)
        options = {"endpoint": gateway.endpoint, "value": form}
        written.write.format("aquifer").mode("append").options(**options).save()
        read = spark.read.format("aquifer").schema(written.schema).options(**options).load()
        one, other = written.first(), read.first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert one is not None
    assert other is not None
    for name in written.columns:
        assert str(one[name]) == str(other[name]), f"{name} has changed"
