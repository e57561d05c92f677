"""Any frames, cut at any places, come back equal; and any junk is cut up the same way however it comes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.framing import (
    BadFrame,
    FrameTruncated,
    Framing,
    delimited,
    end_with,
    json_line,
    json_objects,
    length_prefix,
    length_prefixed,
    lines,
    text,
)
from tests.net.framing.feeding import byte_by_byte, cut_at, fed, places, unhurried

delimiters = st.binary(min_size=1, max_size=4)
# Few different bytes, so that delimiters overlap with what is around them.
few_bytes = st.lists(st.sampled_from([b"a", b"b", b"\r", b"\n"]), max_size=12).map(b"".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('{}[]"\\,: aé\n'), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('{}"\\x')), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=4), json_values, max_size=4), max_size=6)


@unhurried
@given(st.lists(few_bytes.filter(lambda line: b"\n" not in line)), st.sampled_from([b"\n", b"\r\n"]), places)
def test_lines(contents: list[bytes], end: bytes, cuts: list[int]) -> None:
    if end == b"\n":  # then a \r before it belongs to the end as well
        contents = [line.rstrip(b"\r") for line in contents]
    data = b"".join(line + end for line in contents)

    assert fed(lines().decoder(), cut_at(data, cuts)).frames == contents


@unhurried
@given(st.lists(few_bytes), places)
def test_lines_are_split_as_a_regular_expression_does(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    expected = re.split(rb"\r?\n", data)
    if not expected[-1]:
        expected.pop()

    assert fed(lines().decoder(), cut_at(data, cuts)).frames == expected
    assert b"".join(fed(lines(keep_ends=True).decoder(), cut_at(data, cuts)).frames) == data


@unhurried
@given(st.lists(st.text(max_size=20).map(lambda line: line.replace("\n", "").rstrip("\r"))), places)
def test_lines_of_text(contents: list[str], cuts: list[int]) -> None:
    data = b"".join(map(end_with(b"\n"), contents))

    assert fed(lines(encoding="utf-8").decoder(), cut_at(data, cuts)).frames == contents


@unhurried
@given(st.lists(few_bytes), few_bytes.filter(bool), places)
def test_delimited(pieces: list[bytes], delimiter: bytes, cuts: list[int]) -> None:
    data = b"".join(pieces)
    expected = data.split(delimiter)
    if not expected[-1]:
        expected.pop()

    assert fed(delimited(delimiter).decoder(), cut_at(data, cuts)).frames == expected


@unhurried
@given(st.lists(st.binary(max_size=20)), delimiters, places)
def test_what_end_with_lets_pass_comes_back(contents: list[bytes], delimiter: bytes, cuts: list[int]) -> None:
    end = end_with(delimiter)
    sent = []
    for content in contents:
        try:
            sent.append((content, end(content)))
        except BadFrame:
            assert delimiter in content + delimiter[:-1]
    data = b"".join(frame for _, frame in sent)

    received = fed(delimited(delimiter, must_end=True).decoder(), cut_at(data, cuts))

    assert received.frames == [content for content, _ in sent]
    assert received.error is None


@unhurried
@given(
    st.lists(st.binary(max_size=40)),
    st.integers(1, 8),
    st.sampled_from(["big", "little"]),
    st.sampled_from([0, -1, 1]),
    places,
)
def test_length_prefixed(
    contents: list[bytes], size: int, byteorder: Any, counted: int, cuts: list[int]
) -> None:
    adjustment = counted * size
    contents = [content for content in contents if len(content) >= adjustment]
    data = b"".join(length_prefix(each, size, byteorder, adjustment=adjustment) for each in contents)
    framing = length_prefixed(size, byteorder, adjustment=adjustment)

    assert fed(framing.decoder(), cut_at(data, cuts)).frames == contents


@unhurried
@given(objects, st.sampled_from(["", " ", "\n", "\r\n\t"]), places)
def test_json_objects_one_after_the_other(sent: list[Any], gap: str, cuts: list[int]) -> None:
    data = gap.join(json.dumps(each, ensure_ascii=False) for each in sent).encode()

    received = fed(json_objects().decoder(), cut_at(data, cuts))

    assert [json.loads(frame) for frame in received.frames] == sent
    assert received.error is None


@unhurried
@given(objects, st.sampled_from([None, 0, 3]), places)
def test_json_objects_in_arrays(sent: list[Any], indent: int | None, cuts: list[int]) -> None:
    data = json.dumps(sent, indent=indent).encode()

    received = fed(json_objects().decoder(), cut_at(data + b" " + data, cuts))

    assert [json.loads(frame) for frame in received.frames] == sent + sent
    assert received.error is None


@unhurried
@given(objects, places)
def test_json_lines(sent: list[Any], cuts: list[int]) -> None:
    data = b"".join(map(json_line, sent))
    pieces = cut_at(data, cuts)

    assert fed(json_objects().decoder(), pieces).frames == fed(lines().decoder(), pieces).frames
    assert [json.loads(frame) for frame in fed(json_objects().decoder(), pieces).frames] == sent


@unhurried
@given(st.text(), st.sampled_from(["utf-8", "utf-16", "utf-32-le", "gb18030"]), places)
def test_text(content: str, encoding: str, cuts: list[int]) -> None:
    pieces = fed(text(encoding).decoder(), cut_at(content.encode(encoding), cuts)).frames

    assert "".join(pieces) == content
    assert "" not in pieces


FRAMINGS = {
    "lines": lines(9),
    "lines, kept": lines(9, keep_ends=True),
    "lines of text": lines(9, encoding="utf-8"),
    "lines that must end": lines(9, must_end=True),
    "delimited": delimited(b"\r\n{", 9),
    "delimited by what overlaps": delimited(b"\n\n", 9, must_end=True),
    "length_prefixed": length_prefixed(1, max_length=40),
    "length_prefixed, offset": length_prefixed(1, max_length=40, offset=2, adjustment=-3, keep_header=True),
    "json_objects": json_objects(9),
}
junk = st.one_of(
    st.binary(max_size=80),
    st.lists(st.sampled_from(list(b'\r\n{}[],"\\ ax\xc3\xa9\x00\x04')), max_size=80).map(bytes),
)


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
@unhurried
@given(junk, places)
def test_junk_is_cut_up_the_same_way_however_it_comes(
    framing: Framing[Any], data: bytes, cuts: list[int]
) -> None:
    whole = fed(framing.decoder(), [data])

    for pieces in (cut_at(data, cuts), byte_by_byte(data)):
        result = fed(framing.decoder(), pieces)
        assert result.frames == whole.frames
        assert type(result.error) is type(whole.error)
        if isinstance(whole.error, BadFrame | FrameTruncated):
            assert str(result.error) == str(whole.error)


@unhurried
@given(st.binary(max_size=40), places)
def test_bytes_that_are_no_text_are_found_at_the_same_place(data: bytes, cuts: list[int]) -> None:
    whole = fed(text().decoder(), [data])

    for pieces in (cut_at(data, cuts), byte_by_byte(data)):
        result = fed(text().decoder(), pieces)
        assert "".join(result.frames) == "".join(whole.frames)
        assert str(result.error) == str(whole.error)
    valid = "".join(whole.frames).encode()
    assert data.startswith(valid)
    if isinstance(whole.error, BadFrame):
        assert whole.error.offset == len(valid)
    elif isinstance(whole.error, FrameTruncated):
        assert whole.error.left == len(data) - len(valid)
    else:
        assert valid == data
