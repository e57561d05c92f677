"""Batches of JSON with some wrong records: the others are read by columns, and nothing is mixed up."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.errors import UnreadableRecord
from penstock.spark.source.decoders import Zone
from penstock.spark.source.records import JsonRecords, Reasons, TypedRecords
from penstock.spark.spark_interface import arrow_schema

SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("who", StringType())
    .add("at", TimestampType())
    .add("n", ByteType())
)
RIGHT = b'{"id": %d, "who": "me", "at": "2026-01-01T00:00:00Z", "n": 1}'
ODD = [
    b'{"id": "x", "who": "wrong"}',
    b'{"id": 1.5, "who": "wrong"}',
    b'{"id": 2.0, "who": 7}',
    b'{"id": 3, "at": "noon"}',
    b'{"id": 4, "n": 300}',
    b'{"id": 5',
    b"[]",
    b"null",
]


def both() -> tuple[JsonRecords, TypedRecords]:
    arrow, zone = arrow_schema(SCHEMA), Zone("UTC")
    return JsonRecords(SCHEMA, arrow, zone), TypedRecords(SCHEMA, arrow, "json", zone)


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([0.003, 0.1, 1.0]), st.integers(257, 700))
def test_rows_and_reasons_are_those_of_reading_one_by_one(
    chance: random.Random, share: float, count: int
) -> None:
    values = [chance.choice(ODD) if chance.random() < share else RIGHT % number for number in range(count)]
    by_columns, one_by_one = both()
    found: Reasons = {}
    expected: Reasons = {}
    rows = by_columns.batch(values, found)
    assert rows.to_pylist() == one_by_one.batch(values, expected).to_pylist()
    assert set(found) == set(expected)
    rows.validate(full=True)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from([0.0, 0.003, 1.0]), min_size=2, max_size=5),
    st.sampled_from([ODD, ODD[3:5], ODD[:1]]),
)
def test_batches_with_and_without_wrong_records_follow_each_other(
    seed: int, shares: list[float], odd: list[bytes]
) -> None:
    """What was in the last batch decides what is tried first, and nothing else."""
    chance = random.Random(seed)
    by_columns, one_by_one = both()
    for share in shares:
        values = [chance.choice(odd) if chance.random() < share else RIGHT % number for number in range(300)]
        found: Reasons = {}
        expected: Reasons = {}
        rows = by_columns.batch(values, found)
        assert rows.to_pylist() == one_by_one.batch(values, expected).to_pylist()
        assert set(found) == set(expected)


@pytest.mark.parametrize("at", [0, 300, 599])
def test_the_first_wrong_record_is_named_if_it_fails_the_query(at: int) -> None:
    values = [RIGHT % number for number in range(600)]
    values[at] = ODD[0]
    with pytest.raises(UnreadableRecord) as caught:
        both()[0].batch(values)
    assert caught.value.index == at


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_000_000
"""The first and the last second of the years 1 to 9999 in UTC, in microseconds since 1970."""
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("kind", "text", "zone", "expected"),
    [
        (TimestampType(), "9999-12-31T23:59:59", "America/New_York", LAST + 5 * HOUR),
        (TimestampType(), "9999-12-31T23:59:59", "-05:00", LAST + 5 * HOUR),
        (TimestampType(), "9999-12-31T23:59:59-05:00", "UTC", LAST + 5 * HOUR),
        (TimestampType(), "9999-12-31T23:59:59.999999999", "America/Bogota", LAST + 5 * HOUR + 999_999),
        (TimestampType(), "0001-01-01T00:00:00", "+05:00", FIRST - 5 * HOUR),
        (TimestampType(), "0001-01-01T00:00:00+05:00", "UTC", FIRST - 5 * HOUR),
        (TimestampType(), "0000-01-01T00:00:00Z", "UTC", None),
        (TimestampType(), "0000-12-31T23:59:59", "America/New_York", None),
        (TimestampNTZType(), "0000-12-31T23:59:59", "UTC", None),
        (TimestampNTZType(), "9999-12-31T23:59:59", "UTC", LAST),
        (DateType(), "0000-01-01", "UTC", None),
        (DateType(), "0001-01-01", "UTC", FIRST),
    ],
)
def test_the_first_and_the_last_days_do_not_depend_on_the_records_beside_them(
    kind: DataType, text: str, zone: str, expected: int | None
) -> None:
    """Python's times end in the year 9999 of UTC, and Arrow has a year 0."""
    schema = StructType().add("at", kind)
    parser = JsonRecords(schema, arrow_schema(schema), Zone(zone))
    record = b'{"at": "%s"}' % text.encode()
    for beside in ([], [b"{"], [b'{"at": "noon"}'] * 300):
        wrong: Reasons = {}
        at = parser.batch([record, *beside], wrong).column(0)[:1]
        if expected is None:
            assert (at.null_count, 0 in wrong) == (1, True)
        else:
            instant = at.cast(pa.timestamp("us", at.type.tz if pa.types.is_timestamp(at.type) else None))
            assert (instant.cast(pa.int64()).to_pylist(), 0 in wrong) == ([expected], False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"x": Infinity}', float("inf")),
        (b'{"x": -Infinity}', float("-inf")),
        (b'{"x": "-INF"}', float("-inf")),
        (b'{"x": 1, "note": ": Inf"}', 1.0),
        (b'{"x": Inf}', None),
        (b'{"x":-Inf}', None),
        (b'{"x": -NaN}', None),
        (b'{"x": 1, "other": [0, Inf]}', None),
    ],
)
def test_what_is_a_number_does_not_depend_on_the_records_beside_it(
    text: bytes, expected: float | None
) -> None:
    schema = StructType().add("x", DoubleType())
    parser = JsonRecords(schema, arrow_schema(schema), Zone("UTC"), partial=False)
    for beside in ([], [b'{"x": 1}'] * 300, [b"{"], [b'{"x": {}}'] * 300):
        wrong: Reasons = {}
        x = parser.batch([text, *beside], wrong).column(0)
        assert (x[0].as_py(), 0 in wrong) == (expected, expected is None)


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("America/New_York", "9999-12-31T23:59:59", LAST + 5 * HOUR),
        ("Asia/Tokyo", "9999-12-31T23:59:59", LAST - 9 * HOUR),
        ("UTC", "0001-01-01T00:00:00", FIRST),
        ("Etc/GMT-9", "0001-01-01T00:00:00", FIRST - 9 * HOUR),
        ("Etc/GMT+9", "0001-01-01T00:00:00", FIRST + 9 * HOUR),
    ],
)
def test_the_first_and_the_last_second_are_read_in_the_zone_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, zone: str, text: str, expected: int
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    wrong: Reasons = {}
    try:
        schema = StructType().add("at", TimestampType())
        parser = JsonRecords(schema, arrow_schema(schema), Zone(None))
        at = parser.batch([b'{"at": "%s"}' % text.encode()], wrong).column(0)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (at.cast(pa.int64()).to_pylist(), wrong) == ([expected], {})
