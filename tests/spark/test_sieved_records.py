"""Batches of JSON with some wrong records: the others are read by columns, and nothing is mixed up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ByteType, LongType, StringType, StructType, TimestampType

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
