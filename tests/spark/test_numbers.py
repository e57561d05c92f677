"""Decimal numbers in every format, and the sentences about values that do not fit into their columns."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.aquifer import Batch, RecordMetadata, open_schema, pack_metadata, pack_values, to_arrow_stream
from penstock.spark import UnreadableRecord
from penstock.spark.source import records
from penstock.spark.source.columns import Columns, WrongRecord

ONE = StructField("ok", LongType())


def column(kind: DataType) -> StructType:
    return StructType([StructField("d", kind)])


def batch_of(values: list[bytes]) -> Batch:
    return Batch(7, len(values), pack_values(values), pack_metadata(RecordMetadata(0)))


def arrow_of(column: pa.Array) -> Batch:
    batch = pa.record_batch({"d": column})
    return Batch(7, batch.num_rows, to_arrow_stream(batch), pack_metadata(RecordMetadata(0)))


def expected(text: str, kind: DecimalType) -> Decimal | None:
    """The number rounded to the scale of the column; None if it has too many digits."""
    with decimal.localcontext(prec=200, rounding=decimal.ROUND_HALF_UP):
        rounded = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale))
    return (
        rounded if abs(rounded.scaleb(kind.scale, decimal.Context(prec=200))) < 10**kind.precision else None
    )


TEXTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**45),
    st.sampled_from(["", ".5", ".005", ".123456789012345678", ".0000000000000000000000000000001"]),
    st.sampled_from(["", "e3", "e-3", "e-30", "E+20"]),
)
KINDS = st.sampled_from(
    [DecimalType(10, 2), DecimalType(38, 18), DecimalType(38, 0), DecimalType(38, 38), DecimalType(20, 19)]
)


@pytest.mark.parametrize("form", ["json", "msgpack", "csv"])
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=5), kind=KINDS)
def test_a_decimal_is_rounded_to_its_column_or_does_not_fit(
    form: str, texts: list[str], kind: DecimalType
) -> None:
    if form == "json":
        values = [f'{{"d": {text}}}'.encode() for text in texts]
    else:
        values = [msgspec.msgpack.encode({"d": t}) if form == "msgpack" else t.encode() for t in texts]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "_PIECE", 2)
        wrong: list[WrongRecord] = []
        read = Columns(column(kind), form, mode="PERMISSIVE").batch("e", batch_of(values), wrong)
    read.validate(full=True)
    numbers = [expected(text, kind) for text in texts]
    assert [row["d"] for row in read.to_pylist()] == numbers
    assert [each.number for each in wrong] == [index for index, n in enumerate(numbers) if n is None]
    assert all("does not fit into decimal" in each.reason for each in wrong)


LONG = Decimal("123456789012345678901234567890")
"""pyarrow makes 46509284486016680345.836250841945210880 of it in decimal(38,18), without an error."""


@pytest.mark.parametrize(
    "given",
    [
        pa.array([Decimal(1), LONG], pa.decimal128(38, 0)),
        pa.array(["1", str(LONG)]),
        pa.array(["1", str(LONG)], pa.large_string()),
    ],
    ids=["decimal", "string", "large string"],
)
def test_a_long_number_of_arrow_does_not_become_another(given: pa.Array) -> None:
    wrong: list[WrongRecord] = []
    read = Columns(column(DecimalType(38, 18)), "arrow", mode="PERMISSIVE").batch("e", arrow_of(given), wrong)

    assert read.column(0).to_pylist() == [Decimal(1), None]
    assert [each.number for each in wrong] == [1]
    assert "does not fit into decimal(38,18)" in wrong[0].reason


@pytest.mark.parametrize(
    ("outer", "given"),
    [
        (ArrayType(DecimalType(38, 18)), [LONG]),
        (StructType([StructField("x", DecimalType(38, 18))]), {"x": LONG}),
        (MapType(StringType(), DecimalType(38, 18)), [("x", LONG)]),
    ],
    ids=["array", "struct", "map"],
)
def test_nor_does_one_inside_an_array_a_struct_or_a_map(outer: DataType, given: Any) -> None:
    whole = pa.decimal128(38, 0)
    kinds = {
        ArrayType: pa.list_(whole),
        StructType: pa.struct([("x", whole)]),
        MapType: pa.map_(pa.string(), whole),
    }
    data = arrow_of(pa.array([None, given], kinds[type(outer)]))
    wrong: list[WrongRecord] = []
    read = Columns(column(outer), "arrow", mode="PERMISSIVE").batch("e", data, wrong)

    assert read.column(0).to_pylist() == [None, None]
    assert [each.number for each in wrong] == [1]


def test_whole_numbers_of_arrow_become_decimals_if_they_fit() -> None:
    wrong: list[WrongRecord] = []
    data = arrow_of(pa.array([1, 1000, None]))
    read = Columns(column(DecimalType(5, 2)), "arrow", mode="PERMISSIVE").batch("e", data, wrong)

    assert read.column(0).to_pylist() == [Decimal("1.00"), None, None]
    assert [each.reason for each in wrong] == ["d: 1000 does not fit into decimal(5,2)"]


# ---------------------------------------------------------------- sentences
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "d", "type": ["null", "long", "string", {"type": "array", "items": "long"}]}],
    }
)
INNER = StructType([StructField("n", ByteType())])


@pytest.mark.parametrize(
    ("form", "kind", "given", "told"),
    [
        ("json", ByteType(), 300, "d: 300 does not fit into tinyint"),
        ("msgpack", ShortType(), -40000, "d: -40000 does not fit into smallint"),
        ("json", DecimalType(5, 2), 123456, "d: 123456 does not fit into decimal(5,2)"),
        ("msgpack", DecimalType(5, 2), "123456", "d: 123456 does not fit into decimal(5,2)"),
        ("json", DecimalType(5, 2), "x", "d: 'x' is not a number"),
        ("json", DoubleType(), "x", "d: 'x' is not a number"),
        ("json", INNER, {"n": 300}, "d.n: 300 does not fit into tinyint"),
        ("json", ArrayType(ByteType()), [1, 300], "d[1]: 300 does not fit into tinyint"),
        (
            "msgpack",
            MapType(StringType(), INNER),
            {"k": {"n": 300}},
            "d['k'].n: 300 does not fit into tinyint",
        ),
        (
            "json",
            TimestampType(),
            10**14,
            "d: 100000000000000 seconds since 1970 are not within the years 1 to",
        ),
        ("csv", ByteType(), "300", "d: '300' does not fit into tinyint"),
        ("csv", LongType(), "x" * 50, f"d: '{'x' * 39}… does not fit into bigint"),
        ("csv", DateType(), "2026-02-30", "d: day is out of range for month"),
        ("csv", DecimalType(5, 2), "123456", "d: 123456 does not fit into decimal(5,2)"),
        ("avro", IntegerType(), 2**40, "d: 1099511627776 does not fit into int"),
        ("avro", LongType(), "x", "d: 'x' does not fit into bigint"),
        ("avro", ArrayType(ByteType()), [300], "d[0]: 300 does not fit into tinyint"),
        ("arrow", ByteType(), 300, "d: 300 does not fit into tinyint"),
        ("arrow", DecimalType(5, 2), Decimal("1.005"), "d: 1.005 does not fit into decimal(5,2)"),
        ("arrow", DateType(), True, "d: boolean cannot be converted to date"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_column_and_type(
    form: str, kind: DataType, given: Any, told: str
) -> None:
    if form == "avro":
        pytest.importorskip("fastavro")
    encode: dict[str, Callable[[Any], bytes]] = {
        "json": msgspec.json.encode,
        "msgpack": msgspec.msgpack.encode,
        "csv": lambda row: row["d"].encode(),
        "avro": lambda row: open_schema(f"avro:{AVRO}").encode(row),
    }
    data = arrow_of(pa.array([given])) if form == "arrow" else batch_of([encode[form]({"d": given})])
    schema = AVRO if form == "avro" else None
    wrong: list[WrongRecord] = []
    Columns(column(kind), form, mode="PERMISSIVE", value_schema=schema).batch("e", data, wrong)

    assert wrong[0].reason.startswith(told)
    with pytest.raises(UnreadableRecord) as failed:
        Columns(column(kind), form, mode="FAILFAST", value_schema=schema).batch("e", data)
    assert f"record 7 of e cannot be read as {form} with the schema d: {told}" in str(failed.value)


def test_a_void_column_is_null_whatever_a_record_has_there() -> None:
    from pyspark.sql.types import NullType

    for form, encode in (("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)):
        values = [encode({"d": given}) for given in (None, 1, "x", {"a": [1]})]
        assert Columns(column(NullType()), form).batch("e", batch_of(values)).column(0).null_count == 4


@pytest.mark.parametrize(
    ("text", "read"), [("1e400", "inf"), ("-1e400", "-inf"), ('"+INF"', "inf"), ("1", "1.0")]
)
def test_a_number_beyond_all_doubles_is_infinite(text: str, read: str) -> None:
    values = [f'{{"d": {text}}}'.encode(), b'{"d": null}', b"{}"]
    assert Columns(column(DoubleType()), "json").batch("e", batch_of(values)).column(0).to_pylist() == [
        float(read),
        None,
        None,
    ]
