"""Codecs: elements become bytes and come back, and what cannot is refused in plain words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.records.codecs import codec_named

json_values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.binary())
def test_bytes_stay_as_they_are(element: bytes) -> None:
    codec = codec_named("bytes")
    assert codec.decode(codec.encode(element)) == element
    assert codec.encode(bytearray(element)) == element
    assert codec.encode(memoryview(element)) == element


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_utf_8(element: str) -> None:
    codec = codec_named("text")
    assert codec.encode(element) == element.encode()
    assert codec.decode(codec.encode(element)) == element


@pytest.mark.parametrize("name", ["json", "msgpack"])
@settings(deadline=None)
@given(element=json_values)
def test_json_and_msgpack_bring_back_what_json_can_say(name: str, element: Any) -> None:
    codec = codec_named(name)
    assert codec.decode(codec.encode(element)) == element


def test_msgpack_has_bytes_and_times_too() -> None:
    codec = codec_named("msgpack")
    element = {"bytes": b"\xff", "time": datetime(2015, 3, 13, tzinfo=UTC)}
    assert codec.decode(codec.encode(element)) == element


def test_arrow_batches_come_back() -> None:
    pa = pytest.importorskip("pyarrow")
    codec = codec_named("arrow")
    batch = pa.record_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
    assert codec.decode(codec.encode(batch)).equals(batch)


@pytest.mark.parametrize(
    ("name", "element", "words"),
    [
        ("bytes", "text", "a record is made of bytes, not of str; choose a codec"),
        ("bytes", None, "not of NoneType"),
        ("text", b"bytes", "takes strings, not bytes"),
        ("arrow", [1], "takes pyarrow.RecordBatch, not list"),
        ("json", object(), "object"),
        ("msgpack", object(), "object"),
    ],
)
def test_elements_that_cannot_become_records_are_refused(name: str, element: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        codec_named(name).encode(element)


@pytest.mark.parametrize(
    ("name", "record"), [("text", b"\xff"), ("json", b"{"), ("json", b""), ("msgpack", b"\xc1")]
)
def test_records_of_another_codec_are_a_value_error(name: str, record: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each library words it in its own way.
        codec_named(name).decode(record)


def test_an_object_of_your_own_is_a_codec() -> None:
    mine = codec_named("text")
    assert codec_named(mine) is mine


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="no codec named 'yaml'; there are bytes, text, json, msgpack, arrow"
    ):
        codec_named("yaml")
