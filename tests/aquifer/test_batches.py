"""Batches, against plain lists of records: cut, joined, and in another format."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.log.excerpts import in_format, joined, part
from penstock.aquifer.records import arrow
from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    RecordMetadata,
    pack_metadata,
    pack_values,
    unpack_metadata,
    unpack_values,
    values_of,
)

pa = pytest.importorskip("pyarrow")


class Row(NamedTuple):
    """A record as the model knows it."""

    offset: int
    value: bytes
    key: bytes | None
    timestamp: int


def rows_of(batch: Batch) -> list[Row]:
    metadata = unpack_metadata(batch.metadata)
    keys = metadata.keys if metadata.keys is not None else [None] * batch.count
    times = metadata.timestamps if metadata.timestamps is not None else [metadata.timestamp] * batch.count
    offsets = range(batch.first, batch.end)
    return [Row(*fields) for fields in zip(offsets, values_of(batch), keys, times, strict=True)]


@st.composite
def batches(draw: st.DrawFn, first: int = 0, most: int = 40) -> Batch:
    """A batch with or without keys, with one time or many."""
    values = draw(st.lists(st.binary(max_size=6), min_size=1, max_size=most))
    count = len(values)
    keys = draw(st.none() | st.lists(st.none() | st.binary(max_size=3), min_size=count, max_size=count))
    times = draw(st.none() | st.lists(st.integers(0, 2**40), min_size=count, max_size=count))
    metadata = RecordMetadata(draw(st.integers(0, 2**40)), keys, times)
    return Batch(first, count, pack_values(values), pack_metadata(metadata))


@st.composite
def series(draw: st.DrawFn) -> list[Batch]:
    """Consecutive batches."""
    made: list[Batch] = []
    first = draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(1, 5))):
        made.append(draw(batches(first, 20)))
        first = made[-1].end
    return made


@settings(deadline=None)
@given(st.data(), st.integers(0, 2**50))
def test_a_part_is_a_slice(data: st.DataObject, first: int) -> None:
    batch = data.draw(batches(first))
    start = data.draw(st.integers(max(first - 3, 0), batch.end - 1))
    stop = data.draw(st.integers(max(start, first) + 1, batch.end + 3))
    assert rows_of(part(batch, start, stop)) == [row for row in rows_of(batch) if start <= row.offset < stop]


@settings(deadline=None)
@given(batches())
def test_the_whole_is_not_taken_apart(batch: Batch) -> None:
    assert part(batch, 0, batch.end) is batch
    assert in_format(batch, MSGPACK) is batch
    assert joined([batch]) is batch


@settings(deadline=None)
@given(series())
def test_joined_is_one_after_the_other(parts: list[Batch]) -> None:
    whole = joined(parts)
    assert whole.first == parts[0].first
    assert whole.count == sum(batch.count for batch in parts)
    assert rows_of(whole) == [row for batch in parts for row in rows_of(batch)]
    assert whole.payload == pack_values(values_of(whole)), "as if it had been packed at once"


@settings(deadline=None)
@given(series())
def test_what_is_joined_and_cut_again_is_as_before(parts: list[Batch]) -> None:
    whole = joined(parts)
    for batch in parts:
        assert rows_of(part(whole, batch.first, batch.end)) == rows_of(batch)


SIZES = [1, 14, 15, 16, 17, 65_534, 65_535, 65_536, 65_537]


@pytest.mark.parametrize("count", SIZES)
def test_arrays_of_every_size_of_header_are_joined(count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    large = Batch(0, count, pack_values(values), pack_metadata(RecordMetadata(1)))
    small = Batch(count, 1, pack_values([b"last"]), pack_metadata(RecordMetadata(2)))
    whole = joined([large, small])
    assert unpack_values(whole.payload) == [*values, b"last"]
    assert whole.payload == pack_values([*values, b"last"])
    assert rows_of(part(whole, count - 1, count + 1)) == [
        Row(count - 1, values[-1], None, 1),
        Row(count, b"last", None, 2),
    ]


@settings(max_examples=30, deadline=None)
@given(batches(5))
def test_single_records_are_rows_of_a_table_in_arrow(batch: Batch) -> None:
    table = in_format(batch, ARROW)
    assert (table.first, table.count, table.format) == (batch.first, batch.count, ARROW)
    got = arrow.from_arrow_stream(table.payload).to_pydict()
    times = [time.timestamp() for time in got["timestamp"]]
    rows = rows_of(batch)
    assert got["offset"] == [row.offset for row in rows]
    assert got["key"] == [row.key for row in rows]
    assert got["value"] == [row.value for row in rows]
    assert times == pytest.approx([row.timestamp / 1e6 for row in rows])


def arrow_batch(first: int, columns: dict[str, list[Any]]) -> Batch:
    made = pa.record_batch(columns)
    return Batch(first, made.num_rows, arrow.to_arrow_stream(made), pack_metadata(RecordMetadata(7)), ARROW)


columns = st.integers(1, 20).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            "number": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count),
            "text": st.lists(st.text("äbc", max_size=4), min_size=count, max_size=count),
            "flag": st.lists(st.booleans(), min_size=count, max_size=count),
        }
    )
)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([["x"], None, ["y", "x"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([{"a": 1, "b": [1.5]}, None, {"a": None, "b": []}]),
        pa.array([], pa.string()),
        pa.array(range(1000)).slice(7, 5),
    ],
    ids=["dictionary", "dictionaries in lists", "structs", "no rows", "a slice"],
)
def test_a_stream_has_all_of_a_batch_and_nothing_else(column: pa.Array) -> None:
    batch = pa.record_batch({"column": column})

    payload = arrow.to_arrow_stream(batch)

    assert arrow.from_arrow_stream(payload).equals(batch)
    assert arrow.from_arrow_stream(bytes(payload)).equals(batch)
    with pa.ipc.open_stream(payload) as reader:
        assert len(list(reader)) == 1
    expected = pa.BufferOutputStream()
    with pa.ipc.new_stream(expected, batch.schema) as writer:
        writer.write_batch(batch)
    assert payload == expected.getvalue().to_pybytes()


def messages_of(column: pa.Array) -> list[pa.ipc.Message]:
    """The messages of a stream: the schema, dictionaries if there are some, and the rows."""
    stream = arrow.to_arrow_stream(pa.record_batch({"column": column}))
    return list(pa.ipc.MessageReader.open_stream(stream))


NUMBERS = messages_of(pa.array([1, 2]))
FRACTIONS = messages_of(pa.array([1.5, 2.5]))
WORDS = messages_of(pa.array(["x", "y", "x"]).dictionary_encode())


@pytest.mark.parametrize(
    "messages",
    [
        [NUMBERS[0], FRACTIONS[0], NUMBERS[1]],
        [NUMBERS[1], NUMBERS[0]],
        [NUMBERS[0], WORDS[1], NUMBERS[1]],
        [NUMBERS[0], WORDS[1], NUMBERS[0], NUMBERS[1]],
        [WORDS[0], WORDS[2]],
        [WORDS[1], WORDS[0], WORDS[2]],
        [WORDS[0], WORDS[1], WORDS[0], WORDS[2]],
    ],
    ids=[
        "two schemas",
        "rows before their schema",
        "a dictionary that no column has",
        "the schema again after one",
        "no dictionary",
        "a dictionary before its schema",
        "the schema again after its dictionary",
    ],
)
def test_what_arrow_refuses_is_refused_in_the_same_words(messages: list[pa.ipc.Message]) -> None:
    payload = b"".join(message.serialize().to_pybytes() for message in messages)
    with pytest.raises((pa.ArrowException, OSError)) as expected, pa.ipc.open_stream(payload) as reader:
        reader.read_next_batch()

    with pytest.raises(expected.type) as told:
        arrow.from_arrow_stream(payload)

    assert str(told.value) == str(expected.value)


def test_a_stream_in_the_other_order_of_bytes_is_read_as_it_says() -> None:
    schema, rows = NUMBERS
    metadata = bytearray(schema.metadata)
    assert bytes(metadata[28:36]) == bytes([8, 0, 8, 0, 0, 0, 4, 0]), "where a schema says what it has"
    assert bytes(metadata[44:46]) == b"\1\0", "the number of its columns, which is that of big-endian too"
    metadata[32] = 44 - 36  # Now it has an order of bytes, which is this number.
    head = b"\xff\xff\xff\xff" + len(metadata).to_bytes(4, "little")
    payload = head + bytes(metadata) + rows.serialize().to_pybytes()

    read = arrow.from_arrow_stream(payload)

    assert read.column(0).to_pylist() == [1 << 56, 2 << 56]
    with pa.ipc.open_stream(payload) as reader:
        assert read.equals(reader.read_next_batch())


@settings(max_examples=30, deadline=None)
@given(columns)
def test_arrow_rows_are_json_objects_for_who_takes_single_records(table: dict[str, list[Any]]) -> None:
    batch = arrow_batch(3, table)
    expected = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    assert [json.loads(value) for value in values_of(batch)] == expected
    plain = in_format(batch, MSGPACK)
    assert (plain.first, plain.count, plain.format) == (3, batch.count, MSGPACK)
    assert [json.loads(value) for value in unpack_values(plain.payload)] == expected


@settings(max_examples=30, deadline=None)
@given(columns, st.data())
def test_a_part_of_an_arrow_batch_is_a_slice_of_its_rows(
    table: dict[str, list[Any]], data: st.DataObject
) -> None:
    batch = arrow_batch(10, table)
    start = data.draw(st.integers(10, batch.end - 1))
    stop = data.draw(st.integers(start + 1, batch.end))
    cut = part(batch, start, stop)
    assert (cut.first, cut.count, cut.format) == (start, stop - start, ARROW)
    assert values_of(cut) == values_of(batch)[start - 10 : stop - 10]


def test_bytes_decimals_dates_and_nested_rows_have_a_form_in_json() -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    batch = arrow_batch(
        0,
        {
            "bytes": [b"\xff"],
            "decimal": [Decimal("1.50")],
            "time": [datetime(2015, 3, 13, tzinfo=UTC)],
            "nested": [{"list": [1, None]}],
        },
    )
    assert [json.loads(value) for value in values_of(batch)] == [
        {"bytes": "/w==", "decimal": "1.50", "time": "2015-03-13T00:00:00Z", "nested": {"list": [1, None]}}
    ]


def test_what_is_no_payload_and_no_notes_says_so() -> None:
    for bad in (b"", b"\x81\x01\x02", b"\x91\x01", pack_values([b"a"])[:-1]):
        with pytest.raises(msgspec.DecodeError):
            unpack_values(bad)
    for bad in (b"", b"\x90", b"\x91\xa1x"):
        with pytest.raises(msgspec.DecodeError):
            unpack_metadata(bad)


def test_a_batch_counts_for_its_values_and_its_notes() -> None:
    batch = Batch(3, 2, pack_values([b"a", b"b"]), pack_metadata(RecordMetadata(0)))
    assert batch.nbytes == len(batch.payload) + len(batch.metadata)
    assert batch.end == 5


def test_a_row_of_arrow_is_json_with_maps_as_objects_and_what_is_not_finite_as_text() -> None:
    number = pa.float64()
    schema = pa.schema(
        [
            ("n", number),
            ("by_name", pa.map_(pa.string(), number)),
            ("inner", pa.struct([("x", number), ("y", pa.string())])),
            ("list", pa.list_(number)),
        ]
    )
    nan, infinite = float("nan"), float("inf")
    records = [
        {"n": nan, "by_name": [("a", 1.5), ("b", -infinite)], "inner": {"x": infinite}, "list": [nan, None]},
        {"n": 2.5, "by_name": None, "inner": None, "list": None},
    ]

    payload = arrow.to_arrow_stream(pa.RecordBatch.from_pylist(records, schema))
    assert [json.loads(row) for row in arrow.rows(payload)] == [
        {
            "n": "NaN",
            "by_name": {"a": 1.5, "b": "-Infinity"},
            "inner": {"x": "Infinity", "y": None},
            "list": ["NaN", None],
        },
        {"n": 2.5, "by_name": None, "inner": None, "list": None},
    ]
