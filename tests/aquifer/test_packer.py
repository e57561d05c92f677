"""Records with keys and times become the metadata of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import Record
from penstock.aquifer.limits import Limits
from penstock.aquifer.records import codec_named, unpack_metadata, unpack_values
from penstock.aquifer.records.packer import Packer

ELEMENTS = st.one_of(
    st.binary(max_size=4),
    st.builds(
        Record, st.binary(max_size=4), st.none() | st.binary(max_size=3), st.none() | st.integers(0, 2**50)
    ),
)


@given(st.lists(ELEMENTS, min_size=1, max_size=20))
def test_every_record_has_its_key_and_its_time(elements: list[Any]) -> None:
    (batch,) = Packer(codec_named("bytes"), Limits()).pack(elements, 7).batches
    metadata = unpack_metadata(batch.metadata)
    records = [element if isinstance(element, Record) else Record(element) for element in elements]
    assert unpack_values(batch.payload) == [record.value for record in records]
    keys = [record.key for record in records]
    assert metadata.keys == (keys if any(key is not None for key in keys) else None)
    times = [record.timestamp for record in records]
    if any(time is not None for time in times):
        assert metadata.timestamps == [metadata.timestamp if time is None else time for time in times]
    else:
        assert metadata.timestamps is None


@pytest.mark.parametrize("value", [bytearray(b"v"), memoryview(b"v")])
def test_what_is_like_bytes_is_taken_as_bytes(value: Any) -> None:
    (batch,) = Packer(codec_named("bytes"), Limits()).pack([Record(b"a", key=b"k"), value], 0).batches
    assert unpack_values(batch.payload) == [b"a", b"v"]
    assert unpack_metadata(batch.metadata).keys == [b"k", None]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Record(b"", key="k"), "the key of a record is bytes, not str"),  # type: ignore[arg-type]
        (Record(b"", timestamp=1.5), "a whole number of microseconds"),  # type: ignore[arg-type]
        (Record("text"), "a record is made of bytes, not of str"),
    ],
)
def test_what_cannot_be_a_record_is_named_and_those_before_it_are_packed(wrong: Record, text: str) -> None:
    packed = Packer(codec_named("bytes"), Limits()).pack([Record(b"1", key=b"k"), b"2", wrong, b"3"], 0)
    assert packed.taken == 2
    assert text in str(packed.error)
    assert [value for batch in packed.batches for value in unpack_values(batch.payload)] == [b"1", b"2"]
