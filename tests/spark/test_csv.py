"""Records in CSV: how a line is split, which texts are values, and the same rows as Spark's ``from_csv``."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.aquifer import Batch, RecordMetadata, pack_metadata, pack_values
from penstock.spark import BadOption, BadSchema, UnreadableRecord
from penstock.spark.options import SinkOptions, SourceOptions
from penstock.spark.source.columns import Columns, WrongRecord
from penstock.spark.source.decoders import Zone
from tests.spark.conftest import Serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "tcp://127.0.0.1:5556"


def columns(*kinds: DataType) -> StructType:
    schema = StructType()
    for number, kind in enumerate(kinds):
        schema.add(f"c{number}", kind)
    return schema


def read(
    schema: StructType,
    lines: list[bytes],
    mode: str = "FAILFAST",
    separator: str = ",",
    wrong: list[WrongRecord] | None = None,
) -> list[tuple[Any, ...]]:
    records = Batch(40, len(lines), pack_values(lines), pack_metadata(RecordMetadata(0)))
    reader = Columns(schema, "csv", Zone("America/New_York"), mode, separator=separator)
    batch = reader.batch(HERE, records, wrong)
    batch.validate(full=True)
    return [tuple(row.values()) for row in batch.to_pylist()]


TEXTS = StructType().add("a", StringType()).add("b", StringType())
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=5)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(WORDS, WORDS), max_size=4), separator=st.sampled_from(",;\t|."))
def test_what_a_writer_of_csv_writes_is_split_as_it_was(rows: list[tuple[str, str]], separator: str) -> None:
    lines = []
    for row in rows:
        text = io.StringIO()
        csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL).writerow(row)
        lines.append(text.getvalue().encode())

    assert read(TEXTS, lines, separator=separator) == rows


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"a,b", ("a", "b")),
        (b"a,", ("a", None)),
        (b",", (None, None)),
        (b',""', (None, "")),
        (b'"",x\r\n', ("", "x")),
        (b'"a,""b""\nc",d', ('a,"b"\nc', "d")),
        (b'x,y"z', ("x", 'y"z')),
        (b" a , b ", (" a ", " b ")),
        ("ü,\U0001f600".encode(), ("ü", "\U0001f600")),
    ],
)
def test_fields_are_split(line: bytes, row: tuple[str | None, ...]) -> None:
    assert read(TEXTS, [b"1,2", line]) == [("1", "2"), row]


@pytest.mark.parametrize(
    ("line", "reason", "partial"),
    [
        (b"a", "there are 1 fields, and the schema has 2", ("a", None)),
        (b"", "there are 1 fields", (None, None)),
        (b"a,b,c", "there are 3 fields", ("a", "b")),
        (b'"a,b', "field 1 has a quote in the wrong place", (None, None)),
        (b'"a"b,c', "field 1 has a quote in the wrong place", (None, None)),
        (b"a,\xff", "can't decode byte", (None, None)),
        (b'a\nb,"c"', "in the wrong place", (None, None)),
    ],
)
def test_a_line_that_cannot_be_split_is_wrong(
    line: bytes, reason: str, partial: tuple[str | None, ...]
) -> None:
    wrong: list[WrongRecord] = []
    assert read(TEXTS, [b"1,2", line], "PERMISSIVE", wrong=wrong) == [("1", "2"), partial]
    assert [(each.number, each.value) for each in wrong] == [(1, line)]
    assert reason in wrong[0].reason
    assert read(TEXTS, [line, b"1,2", line], "DROPMALFORMED") == [("1", "2")]
    with pytest.raises(UnreadableRecord, match=rf"record 41 of {HERE} cannot be read as csv .*"):
        read(TEXTS, [b"1,2", line, line])


NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "right", "values", "wrong"),
    [
        (LongType(), [b"1", b"-7", b"+8", b"007"], [1, -7, 8, 7], [b"1.0", b" 1", b"0x1f", b"x", b"1" * 20]),
        (ByteType(), [b"127"], [127], [b"128"]),
        (DoubleType(), [b"1", b"-1.5e3", b".5", b"-Inf"], [1.0, -1500.0, 0.5, float("-inf")], [b"1,5", b"e"]),
        (BooleanType(), [b"true", b"FALSE"], [True, False], [b"1", b"yes"]),
        (DecimalType(5, 2), [b"1.5", b"-123.45"], [decimal.Decimal("1.50"), decimal.Decimal("-123.45")],
         [b"1234.5", b"x"]),
        (DateType(), [b"2026-01-31"], [datetime.date(2026, 1, 31)], [b"2026-02-30", b"31.1.2026"]),
        (TimestampType(), [b"2026-01-31T12:00:00Z", b"2026-01-31 07:00:00"], [NOON, NOON], [b"noon"]),
        (TimestampNTZType(), [b"2026-01-31 12:00:00"], [NOON.replace(tzinfo=None)], [b"2026-01-31T12:00Z"]),
        (BinaryType(), [b"abc"], [b"abc"], []),
    ],
    ids=lambda each: each.simpleString() if isinstance(each, DataType) else "",
)  # fmt: skip
def test_texts_that_are_values_and_texts_that_are_not(
    kind: DataType, right: list[bytes], values: list[Any], wrong: list[bytes]
) -> None:
    schema = columns(StringType(), kind)
    separator = "|"
    lines = [b"t|" + text for text in [*right, b"", *wrong]]
    found: list[WrongRecord] = []
    rows = read(schema, lines, "PERMISSIVE", separator, found)
    assert rows == [("t", value) for value in [*values, None, *[None] * len(wrong)]]
    assert [each.value for each in found] == lines[len(right) + 1 :]
    assert all(each.reason.startswith("c1: ") for each in found)


def test_a_type_that_has_no_form_and_a_separator_that_separates_nothing_are_told() -> None:
    with pytest.raises(BadSchema, match="c0 is array<bigint>, and csv has no form for that"):
        Columns(columns(ArrayType(LongType())), "csv")
    for text in ("ab", '"', "\n"):
        with pytest.raises(BadOption, match=r'"sep" is .* give one character'):
            SourceOptions.of({"endpoint": HERE, "value": "csv", "sep": text})
    for options in (SourceOptions, SinkOptions):
        assert options.of({"endpoint": HERE, "value": "csv", "sep": r"\t"}).separator == "\t"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_reads_the_rows_that_its_own_reader_of_csv_reads(spark: SparkSession, serve: Serve) -> None:
    lines = [
        b'1,a,1.5,true,2026-01-31,2026-01-31T12:00:00Z,"x,y"',
        b'2,"q",,,,,',
        b"x,b,y,1,2026-02-30,noon,z",
        b"3,c",
        b"4,d,1,false,2026-01-31,2026-01-31 12:00:00,e,f",
    ]
    ddl = "n int, t string, d double, b boolean, day date, at timestamp, u string, _corrupt_record string"
    gateway = serve(lines)
    reader = spark.read.format("aquifer").option("endpoint", gateway.endpoint).option("partitions", "1")
    texts = reader.option("value", "string").load()
    theirs = texts.orderBy("offset").selectExpr(f"from_csv(value, '{ddl}', map('mode', 'PERMISSIVE')) AS row")
    ours = reader.schema(ddl).option("value", "csv").load()

    for mine, their, line in zip(ours.collect(), theirs.collect(), lines, strict=True):
        assert mine == their.row, line
