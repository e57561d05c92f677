"""Values of a payload as a column of Arrow."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import pack_values
from penstock.spark.source import value_columns
from penstock.spark.source.value_columns import value_column

LENGTHS = [0, 1, 2, 100, 0xC4, 0xC5, 255, 256, 0xC4C4, 65_535, 65_536]
"""Some of them need a longer head than those before, or look like one."""
COUNTS = [1, 2, 15, 16, 300]


def values_of(length: int, count: int) -> list[bytes]:
    return [bytes([number % 256]) * length for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_values_of_one_length_are_found_without_unpacking_them(
    monkeypatch: pytest.MonkeyPatch, length: int, count: int
) -> None:
    values = values_of(length, count)
    payload = pack_values(values)
    monkeypatch.setattr(value_columns, "unpack_values", None)

    column = value_column(memoryview(payload))

    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.to_pylist() == values


def test_more_values_than_a_short_array_has_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_of(3, 70_000)
    payload = pack_values(values)
    monkeypatch.setattr(value_columns, "unpack_values", None)

    assert value_column(payload).to_pylist() == values


@given(st.lists(st.binary(max_size=6), max_size=20))
def test_values_of_different_lengths_are_the_same_in_the_column(values: list[bytes]) -> None:
    column = value_column(pack_values(values))

    assert (column.type, column.to_pylist()) == (pa.binary(), values)


def test_a_head_that_is_elsewhere_than_it_seems_is_not_taken_for_one() -> None:
    # As many bytes as three values of two bytes have, and a head where that of the second would be.
    values = [b"ab", b"\xc4\x02\xc4\x02", b""]
    even = pack_values([b"ab"] * 3)
    assert len(pack_values(values)) == len(even)

    assert value_column(pack_values(values)).to_pylist() == values


def test_each_change_of_a_byte_gives_what_unpacking_gives() -> None:
    payload = pack_values([b"ab", b"cd", b"ef", b"gh"])
    for place in range(len(payload)):
        for byte in range(256):
            changed = payload[:place] + bytes([byte]) + payload[place + 1 :]
            try:
                expected = msgspec.msgpack.decode(changed, type=list[bytes])
            except msgspec.DecodeError:
                with pytest.raises(msgspec.DecodeError):
                    value_column(changed)
            else:
                assert value_column(changed).to_pylist() == expected


@pytest.mark.parametrize(
    "payload", [b"", b"\x91", b"\xdc\x00", b"\xc4\x01a", b"\xdd\xff\xff\xff\xff\xc4\x00"]
)
def test_what_is_not_a_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        value_column(payload)


def test_no_values_are_an_empty_column() -> None:
    assert value_column(pack_values([])).to_pylist() == []
