"""Data frames: what is packed comes back, and whatever is no frame is a violation."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.frames import HEADER, TOPIC_BYTES, Flag, Frame, header, parse

TOPIC = b"12345678"


def test_the_header_is_the_one_of_the_extension() -> None:
    assert HEADER.format == ">BBHQI"
    assert HEADER.size == 16
    assert TOPIC_BYTES == 8
    assert header(Flag.END | Flag.ACK, 0x0102030405060708, 9) == bytes.fromhex(
        "01 09 0000 0102030405060708 00000009"
    )
    assert [flag.value for flag in Flag] == [1, 2, 4, 8, 16, 32, 64, 128]


@settings(deadline=None)
@given(st.integers(0, 255), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.binary(), st.binary())
def test_a_frame_comes_back_as_it_was(
    flags: int, first: int, count: int, payload: bytes, metadata: bytes
) -> None:
    assert parse([TOPIC, header(flags, first, count), payload, metadata]) == Frame(
        flags, first, count, payload, metadata
    )
    assert parse([TOPIC, header(flags, first, count), payload]).metadata == b""


HEAD = header(0, 0, 1)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [TOPIC],
        [TOPIC, HEAD],
        [TOPIC, HEAD, b"", b"", b""],
        [TOPIC, b"", b""],
        [TOPIC, HEAD[:-1], b""],
        [TOPIC, HEAD + b"\0", b""],
        [HEAD, TOPIC, b""],
        [TOPIC, b"\0" + HEAD[1:], b""],
        [TOPIC, b"\2" + HEAD[1:], b""],
    ],
)
def test_another_shape_is_a_violation(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation, match="data frame"):
        parse(parts)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=6))
def test_random_parts_are_a_violation_at_worst(parts: list[bytes]) -> None:
    with contextlib.suppress(ProtocolViolation):
        parse(parts)
