"""A peer cannot make a decoder work for long or keep much: not with tiny chunks, and not with junk."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Any

import pytest

from penstock.net.framing import (
    FrameTooLong,
    Framing,
    delimited,
    json_objects,
    length_prefixed,
    lines,
    text,
)

SIZE = 8 * 1024 * 1024
PIECE = 32
LONG_FRAMES: dict[str, tuple[Framing[Any], bytes, bytes, bytes]] = {
    # framing, how a frame of SIZE bytes starts, what it consists of, how it ends
    "lines": (lines(SIZE), b"", b"x", b"\n"),
    "delimited": (delimited(b"x" * 15 + b"y", 2 * SIZE), b"", b"x", b"y"),
    "length_prefixed": (length_prefixed(max_length=SIZE), SIZE.to_bytes(4, "big"), b"x", b""),
    "a string in json_objects": (json_objects(2 * SIZE), b'{"', b"x", b'"}'),
    "a string of escapes in json_objects": (json_objects(2 * SIZE), b'{"', b"\\", b'"}'),
    "many values in json_objects": (json_objects(2 * SIZE), b"{", b"1", b"}"),
}

LENGTHS = {b"y": SIZE - 15, b'"}': SIZE + 4, b"}": SIZE + 2}
"""How long those frames are that are not of SIZE bytes, by their end."""


# Copying, or looking at, everything that has come so far for each of a quarter of a million pieces would move
# a terabyte: minutes, where one pass takes a second. The time-out is the generous end of what is between.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("framing", "start", "content", "end"), LONG_FRAMES.values(), ids=LONG_FRAMES)
def test_a_long_frame_in_tiny_pieces_is_not_gone_through_again_and_again(
    framing: Framing[Any], start: bytes, content: bytes, end: bytes
) -> None:
    decoder = framing.decoder()
    frames = list(decoder.feed(start))
    piece = content * PIECE
    for _ in range(SIZE // PIECE):
        frames.extend(decoder.feed(piece))
    frames.extend(decoder.feed(end))

    assert len(frames) == 1
    assert len(frames[0]) >= SIZE - PIECE
    assert decoder.finish() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("framing", "start", "content", "end"), LONG_FRAMES.values(), ids=LONG_FRAMES)
def test_a_long_frame_may_come_at_once(
    framing: Framing[Any], start: bytes, content: bytes, end: bytes
) -> None:
    data = start + content * SIZE + end

    assert [len(frame) for frame in framing.decoder().feed(data + data)] == [LENGTHS.get(end, SIZE)] * 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize("depth", [2, 3, 4, 5, 100_000])
def test_objects_may_be_as_deep_as_they_are_long(depth: int) -> None:
    one = b'{"{":' * depth + b'"}"' + b"}" * depth
    times = 1_000_000 // len(one) + 1
    decoder = json_objects().decoder()

    assert list(decoder.feed(one * times + one[:-1])) == [one] * times
    assert list(decoder.feed(one[-1:])) == [one]


@pytest.mark.timeout(60)
def test_a_character_in_each_piece_is_not_gone_through_again_and_again() -> None:
    decoder = text().decoder()

    assert sum(len(piece) for _ in range(200_000) for piece in decoder.feed(b"\xc3\xa9")) == 200_000


def least_peak(work: Callable[[], object], enough: int) -> int:
    """The most memory that this needs at a time: the least that was measured, until it is below ``enough``.

    All threads are measured, and one that an earlier test has left may need some of its own just now.
    """
    least = sys.maxsize
    for _ in range(20):
        tracemalloc.start()
        try:
            work()
            least = min(least, tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        if least < enough:
            break
    return least


LIMIT = 16 * 1024
ENDLESS = {
    "lines": (lines(LIMIT), b"x"),
    "delimited": (delimited(b"<>", LIMIT), b"x"),
    "length_prefixed, a long frame": (length_prefixed(max_length=LIMIT), b"\0\1"),
    "json_objects, a string": (json_objects(LIMIT), b'{"'),
    "json_objects, braces": (json_objects(LIMIT), b"{"),
}


def endless(start: bytes, size: int) -> Iterator[bytes]:
    yield start
    yield from repeat(start[-1:] * size)


@pytest.mark.parametrize("size", [1, 4096])
@pytest.mark.parametrize(("framing", "start"), ENDLESS.values(), ids=ENDLESS)
def test_what_is_kept_of_a_frame_without_end_is_bounded(
    framing: Framing[bytes], start: bytes, size: int
) -> None:
    taken = 0

    def take_all() -> None:
        nonlocal taken
        decoder = framing.decoder()
        taken = 0
        for chunk in islice(endless(start, size), 2 * LIMIT):
            taken += len(chunk)
            assert list(decoder.feed(chunk)) == []

    def refused() -> None:
        with pytest.raises(FrameTooLong):
            take_all()

    most = 3 * (LIMIT + size)
    assert least_peak(refused, most) < most
    assert taken <= LIMIT + size + 4


def test_a_length_takes_no_memory_before_its_bytes_come() -> None:
    def begin() -> None:
        decoder = length_prefixed(max_length=2**31).decoder()
        assert list(decoder.feed(b"\x7f\xff\xff\xff and a little")) == []

    assert least_peak(begin, 10_000) < 10_000


@pytest.mark.parametrize(
    ("framing", "nothing"),
    [(json_objects(8), b" \n\r\t" * 16), (json_objects(8), b"[] " * 16), (lines(8), b""), (text(), b"")],
)
def test_what_is_no_frame_leaves_nothing_behind(framing: Framing[Any], nothing: bytes) -> None:
    def feed() -> None:
        decoder = framing.decoder()
        for _ in range(1000):
            assert list(decoder.feed(nothing)) == []
        assert decoder.finish() == []

    assert least_peak(feed, 20_000) < 20_000
