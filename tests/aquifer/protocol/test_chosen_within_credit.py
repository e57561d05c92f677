"""What a filter, or a partition of a group, sends is within the credit in bytes, unless it is one record."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.aquifer.log import Log, MemoryJournal
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.records import Partition, partition_of
from penstock.aquifer.records.arrow import to_arrow_stream
from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    RecordMetadata,
    offsets_of,
    pack_metadata,
    pack_values,
)
from penstock.aquifer.records.compression import Compressor

SIZES = st.sampled_from([0, 1, 20, 300, 5000])
RECORDS = st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=60)
"""The sizes of the value and of the key of each record."""


def batch_of(first: int, records: list[tuple[int, int]], format: str) -> Batch:
    keys: list[bytes | None] = [b"k" * size if size else None for _, size in records]
    values = [bytes([65 + number % 20]) * size for number, (size, _) in enumerate(records)]
    metadata = pack_metadata(RecordMetadata(7, keys, list(range(len(records)))))
    payload = (
        pack_values(values)
        if format == MSGPACK
        else to_arrow_stream(pa.record_batch({"value": pa.array(values, pa.binary())}))
    )
    return Batch(first, len(records), payload, metadata, format)


@pytest.mark.parametrize("stored", [MSGPACK, ARROW])
@pytest.mark.parametrize("format", [MSGPACK, ARROW])
@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(RECORDS, min_size=1, max_size=4),
    credits=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30_000)), min_size=1, max_size=8),
    number=st.integers(0, 2),
    compress=st.booleans(),
)
@example(batches=[[(1, 5000)] * 50], credits=[(50, 20_000)], number=0, compress=False)
@example(batches=[[(0, 20)] * 50 + [(5000, 20)]], credits=[(50, 2000)], number=0, compress=True)
def test_a_frame_of_chosen_records_is_within_the_credit(
    stored: str,
    format: str,
    batches: list[list[tuple[int, int]]],
    credits: list[tuple[int, int]],
    number: int,
    compress: bool,
) -> None:
    log = Log(MemoryJournal())
    log.compressor = Compressor() if compress else None
    for records in batches:
        log.append([log.compressed(batch_of(log.head, records, stored))])
    chooser = KeyFilter(log, Partition("g", number, 3), format, 0)
    everything = [record for records in batches for record in records]
    expected = [
        offset
        for offset, (_, size) in enumerate(everything)
        if partition_of(b"k" * size or None, offset, 3) == number
    ]
    cursor, got, turn = 0, [], 0
    while cursor < log.head:
        most, nbytes = credits[turn % len(credits)]
        turn += 1
        batch = chooser.next_batch(cursor, log.head, most, nbytes)
        if batch is None:
            break
        assert batch.count <= most
        assert batch.count == 1 or batch.nbytes <= nbytes
        got += offsets_of(batch)
        cursor = batch.end
    assert got == expected


@settings(max_examples=50, deadline=None)
@given(RECORDS, st.integers(0, 40), st.integers(1, 60), st.integers(1, 20_000))
def test_what_is_declared_to_a_plain_reader_fits(
    records: list[tuple[int, int]], start: int, most: int, nbytes: int
) -> None:
    start = min(start, len(records) - 1)
    log = Log(MemoryJournal())
    log.append([batch_of(0, records, MSGPACK)])
    count = log.fitting(start, min(most, len(records) - start), nbytes)
    sizes = [size for size, _ in records[start : start + count]]
    assert 1 <= count <= most
    assert count == 1 or sum(sizes) <= nbytes
