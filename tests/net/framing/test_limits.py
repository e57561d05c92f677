"""A frame that is too long, cut off or out of place is told at once, with numbers and a remedy."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net import NetError
from penstock.net.framing import (
    BadFrame,
    FrameTooLong,
    FrameTruncated,
    Framing,
    LineDecoder,
    delimited,
    end_with,
    json_line,
    json_objects,
    length_prefix,
    length_prefixed,
    lines,
    text,
)
from tests.net.framing.feeding import byte_by_byte, fed

AT_THE_LIMIT: dict[str, tuple[Framing[Any], bytes, bytes]] = {
    # framing, a frame of 5 bytes, one of 6
    "lines": (lines(5), b"12345\n", b"123456\n"),
    "lines with two bytes at their end": (lines(5), b"12345\r\n", b"123456\r\n"),
    "lines, kept": (lines(5, keep_ends=True), b"12345\r\n", b"123456\r\n"),
    "lines of text": (lines(5, encoding="utf-8"), "1234é"[1:].encode() + b"\n", "1234é".encode() + b"\n"),
    "delimited": (delimited(b"<>", 5), b"12345<>", b"123456<>"),
    "length_prefixed": (length_prefixed(2, max_length=5), b"\0\x0512345", b"\0\x06123456"),
    "json_objects": (json_objects(5), b'{"1"}', b'{"12"}'),
}


@pytest.mark.parametrize(("framing", "fits", "exceeds"), AT_THE_LIMIT.values(), ids=AT_THE_LIMIT)
@pytest.mark.parametrize("pieces", [lambda data: [data], byte_by_byte], ids=["at once", "byte by byte"])
def test_the_limit_is_exact(framing: Framing[Any], fits: bytes, exceeds: bytes, pieces: Any) -> None:
    result = fed(framing.decoder(), pieces(fits * 2 + exceeds + fits))

    assert len(result.frames) == 2
    assert isinstance(result.error, FrameTooLong)
    assert result.error.limit == 5
    assert result.error.length == 6
    assert "6 bytes" in str(result.error)
    assert "at most 5" in str(result.error)
    assert "max_length" in str(result.error)


@pytest.mark.parametrize(
    ("framing", "enough"),
    [
        (lines(5), b"123456"),
        (lines(5), b"12345\rx"),
        (delimited(b"<>", 5), b"123456"),
        (delimited(b"<>", 5), b"12345<x"),
        (length_prefixed(2, max_length=5), b"\0\6"),
        (length_prefixed(max_length=5), b"\xff\xff\xff\xff"),
        (json_objects(5), b'{"1234'),
        (json_objects(5), b"{{{{{{"),
    ],
)
def test_a_frame_is_too_long_before_it_has_ended(framing: Framing[bytes], enough: bytes) -> None:
    decoder = framing.decoder()
    for byte in byte_by_byte(enough)[:-1]:
        assert list(decoder.feed(byte)) == []

    with pytest.raises(FrameTooLong):
        list(decoder.feed(enough[-1:]))


def test_what_may_be_the_start_of_an_end_is_not_too_long() -> None:
    decoder = lines(5).decoder()
    assert list(decoder.feed(b"12345\r")) == []
    assert list(decoder.feed(b"\n")) == [b"12345"]

    decoder = delimited(b"<<>", 5).decoder()
    assert list(decoder.feed(b"1234<<<")) == []
    assert list(decoder.feed(b">")) == [b"1234<"]


def test_frames_before_the_fault_come_first_and_after_it_nothing_comes() -> None:
    decoder = lines(3).decoder()
    frames = iter(decoder.feed(b"one\ntwo\nthree\nsix\n"))

    assert [next(frames), next(frames)] == [b"one", b"two"]
    with pytest.raises(FrameTooLong, match="line 3 is too long: 5 bytes"):
        next(frames)
    with pytest.raises(FrameTooLong, match="line 3"):
        decoder.feed(b"six\n")
    with pytest.raises(FrameTooLong, match="line 3"):
        decoder.finish()


@pytest.mark.parametrize(
    ("framing", "data", "left", "missing", "text"),
    [
        (lines(must_end=True), b"one\ntw", 2, None, "inside a line: 2 bytes had arrived"),
        (delimited(b";", must_end=True), b"one;tw", 2, None, "inside a frame: 2 bytes had arrived"),
        (length_prefixed(), b"\0\0", 2, 2, "the header of a frame, 0 bytes after its start: 2 bytes"),
        (
            length_prefixed(1),
            b"\1x\3tw",
            3,
            1,
            "inside a frame, 2 bytes after its start: 3 bytes had arrived, 1",
        ),
        (length_prefixed(1), b"\3", 1, 3, "1 bytes had arrived, 3 more"),
        (json_objects(), b'{}{"a": {"}}', 11 - 1, None, "10 bytes of it had arrived, and at least 2 closing"),
        (json_objects(), b"[{}", 0, None, "ended after an object in an array, after 3 bytes"),
        (json_objects(), b"[{},", 0, None, "ended after a comma in an array"),
        (json_objects(), b" [", 0, None, "ended at the start of an array"),
        (text(), b"caf\xc3", 1, None, "inside a character of utf-8, after 4 bytes: 1 bytes"),
    ],
)
@pytest.mark.parametrize("pieces", [lambda data: [data], byte_by_byte], ids=["at once", "byte by byte"])
def test_an_end_inside_a_frame_is_an_error_with_numbers(
    framing: Framing[Any], data: bytes, left: int, missing: int | None, text: str, pieces: Any
) -> None:
    error = fed(framing.decoder(), pieces(data)).error

    assert isinstance(error, FrameTruncated)
    assert (error.left, error.missing) == (left, missing)
    assert text in str(error)


@pytest.mark.parametrize(
    ("framing", "data", "offset", "text"),
    [
        (json_objects(), b'{} "text"', 3, "byte 3 of the stream is b'\"' between objects"),
        (json_objects(), b"[{} {}]", 4, "after an object in an array"),
        (json_objects(), b"[{},]", 4, "after a comma in an array"),
        (json_objects(), b"[[{}]]", 1, "at the start of an array"),
        (json_objects(), b"{}}", 2, "use lines()"),
        (json_objects(), b"{}]", 2, "b']'"),
        (length_prefixed(2, adjustment=-2), b"\0\2\0\1", 2, "the frame at byte 2 announces a length of 1"),
        (
            lines(encoding="utf-8"),
            b"one\ntw\xff\n",
            2,
            "line 2 is not utf-8 text: invalid start byte at byte 2",
        ),
        (text(), b"one\xfftwo", 3, "byte 3 of the stream is not utf-8 text: invalid start byte"),
        (text("ascii"), b"caf\xc3", 3, "not ascii text: ordinal not in range"),
    ],
)
@pytest.mark.parametrize("pieces", [lambda data: [data], byte_by_byte], ids=["at once", "byte by byte"])
def test_what_is_out_of_place_is_named_with_its_place(
    framing: Framing[Any], data: bytes, offset: int, text: str, pieces: Any
) -> None:
    error = fed(framing.decoder(), pieces(data)).error

    assert isinstance(error, BadFrame)
    assert error.offset == offset
    assert text in str(error)


def test_a_last_line_of_text_may_be_wrong_too() -> None:
    result = fed(lines(encoding="utf-8").decoder(), [b"one\ntw\xff"])

    assert result.frames == ["one"]
    assert isinstance(result.error, BadFrame)
    assert "line 2" in str(result.error)


def test_text_may_be_repaired() -> None:
    assert fed(text(errors="replace").decoder(), [b"a\xff", b"b\xc3"]).frames == ["a\ufffd", "b", "\ufffd"]


def test_a_header_may_be_kept_and_have_more_in_it_than_a_length() -> None:
    data = b"A\x02xyB\x00C\x01z"

    assert fed(length_prefixed(1, offset=1).decoder(), [data]).frames == [b"xy", b"", b"z"]
    kept = fed(length_prefixed(1, offset=1, keep_header=True).decoder(), [data])
    assert kept.frames == [b"A\x02xy", b"B\x00", b"C\x01z"]


def test_a_decoder_is_for_one_stream() -> None:
    decoder = lines().decoder()
    assert decoder.finish() == []

    with pytest.raises(RuntimeError, match="make a new one for each stream"):
        decoder.feed(b"more\n")
    with pytest.raises(RuntimeError, match="make a new one for each stream"):
        decoder.finish()


def test_other_kinds_of_bytes_are_taken_and_text_is_not() -> None:
    decoder = lines().decoder()
    assert list(decoder.feed(memoryview(b"one\n"))) == [b"one"]
    assert list(decoder.feed(bytearray(b"two\n"))) == [b"two"]

    with pytest.raises(TypeError, match="encoded first"):
        decoder.feed("three\n")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: lines(0), ValueError, "at least 1"),
        (lambda: lines(1.5), TypeError, "whole number"),
        (lambda: lines(encoding="utf-16"), ValueError, "decode first"),
        (lambda: lines(encoding="nonsense"), ValueError, "does not know the encoding 'nonsense'"),
        (lambda: delimited(b""), ValueError, "at least one byte"),
        (lambda: delimited(";"), ValueError, "at least one byte"),
        (lambda: length_prefixed(0), ValueError, "from 1 to 8"),
        (lambda: length_prefixed(9), ValueError, "from 1 to 8"),
        (lambda: length_prefixed(4, "middle"), ValueError, "'big' or 'little'"),
        (lambda: length_prefixed(offset=-1), ValueError, "offset"),
        (lambda: length_prefixed(adjustment=0.5), TypeError, "adjustment"),
        (lambda: json_objects(-3), ValueError, "at least 1"),
        (lambda: text("nonsense"), ValueError, "unknown encoding: nonsense"),
        (lambda: text(errors="nonsense"), ValueError, "unknown error handler"),
        (lambda: end_with(b""), ValueError, "at least one byte"),
        (lambda: length_prefix(b"x" * 256, 1), BadFrame, "a length of 256 does not fit into 1 bytes"),
        (lambda: length_prefix(b"", 2, adjustment=1), BadFrame, "a length of -1"),
        (lambda: end_with(b"\n")("two\nlines"), BadFrame, "would arrive as two"),
        (lambda: end_with(b"aa")(b"xa"), BadFrame, "would arrive as two"),
        (lambda: json_line({"x": float("nan")}), BadFrame, "dict cannot be sent as JSON"),
        (lambda: json_line({"x": object()}), BadFrame, "not JSON serializable"),
    ],
)
def test_a_wrong_argument_is_told_where_it_is_written(wrong: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        wrong()

    assert text in str(caught.value)


def test_errors_are_errors_of_the_net_and_travel_between_processes() -> None:
    error = fed(length_prefixed(1).decoder(), [b"\3tw"]).error
    assert isinstance(error, NetError)

    copy = pickle.loads(pickle.dumps(error))

    assert str(copy) == str(error)
    assert isinstance(copy, FrameTruncated)
    assert (copy.left, copy.missing) == (3, 1)


def outcome(chunks: list[bytes], limit: int) -> tuple[list[bytes], str]:
    """The lines in these chunks, and the error that ended them, if one did."""
    decoder = LineDecoder(limit)
    found: list[bytes] = []
    try:
        for chunk in chunks:
            found.extend(decoder.feed(chunk))
        found.extend(decoder.finish())
    except FrameTooLong as error:
        return found, str(error).split(":")[0]
    return found, ""


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n"]), max_size=40), st.integers(1, 6))
def test_a_long_line_is_found_in_whatever_chunks_it_comes(pieces: list[bytes], limit: int) -> None:
    data = b"".join(pieces)
    assert outcome([data], limit) == outcome([data[i : i + 1] for i in range(len(data))], limit)
