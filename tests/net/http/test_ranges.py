"""Ranges and conditional requests, against what the standard says (RFC 9110)."""

from __future__ import annotations

import locale

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.http.ranges import MOST_RANGES, Span, Validators, spans_of

NOW = Validators('"now"', 784111777)
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
EARLIER = "Sun, 06 Nov 1994 08:49:36 GMT"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-", [(0, 10)]),
        ("bytes=9-", [(9, 10)]),
        ("bytes=-1", [(9, 10)]),
        ("bytes=-100", [(0, 10)]),
        ("bytes=5-100", [(5, 10)]),
        ("BYTES = 1-2 , 4-5", [(1, 3), (4, 6)]),
        ("bytes=5-6,0-1", [(5, 7), (0, 2)]),
        ("bytes=0-1,20-30", [(0, 2)]),
        ("bytes=10-", []),
        ("bytes=-0", []),
        ("bytes=" + "9" * 5000 + "-", []),
        ("bytes=0-" + "9" * 5000, [(0, 10)]),
        ("bytes=3-2", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=1-2,", None),
        ("bytes=+1-2", None),
        ("bytes=١-٢", None),
        ("lines=1-2", None),
        ("bytes", None),
        ("", None),
        ("bytes=0-9,0-9", None),
        ("bytes=" + ",".join(["0-0"] * (MOST_RANGES + 1)), None),
    ],
)
def test_ranges(header: str, expected: list[tuple[int, int]] | None) -> None:
    assert spans_of(header, 10) == (None if expected is None else [Span(*span) for span in expected])


@given(st.text("0123456789-, =bytes", max_size=30), st.integers(0, 100))
def test_every_span_has_bytes_and_lies_inside(header: str, size: int) -> None:
    for text in (header, "bytes=" + header):
        for span in spans_of(text, size) or ():
            assert 0 <= span.start < span.end <= size


def test_nothing_of_an_empty_file() -> None:
    assert spans_of("bytes=0-", 0) == spans_of("bytes=-5", 0) == []


def test_the_date_is_written_in_english() -> None:
    before = locale.setlocale(locale.LC_TIME)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
            try:
                locale.setlocale(locale.LC_TIME, name)
            except locale.Error:
                continue
            assert NOW.last_modified == DATE
    finally:
        locale.setlocale(locale.LC_TIME, before)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"if-none-match": '"now"'}, 304),
        ({"if-none-match": 'W/"now"'}, 304),
        ({"if-none-match": '"a,b", "now"'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"old"'}, None),
        ({"if-none-match": "now"}, None),
        ({"if-none-match": '"old"', "if-modified-since": DATE}, None),
        ({"if-modified-since": DATE}, 304),
        ({"if-modified-since": EARLIER}, None),
        ({"if-modified-since": "yesterday"}, None),
        ({"if-modified-since": "Sun, 31 Feb 1994 08:49:37 GMT"}, None),
        ({"if-modified-since": "Sun, 06 Foo 1994 08:49:37 GMT"}, None),
        ({"if-match": '"now"'}, None),
        ({"if-match": 'W/"now"'}, 412),
        ({"if-match": '"old"'}, 412),
        ({"if-match": "*", "if-unmodified-since": EARLIER}, None),
        ({"if-unmodified-since": DATE}, None),
        ({"if-unmodified-since": EARLIER}, 412),
        ({"if-unmodified-since": "yesterday"}, None),
        ({"if-match": '"now"', "if-none-match": '"now"'}, 304),
    ],
)
def test_conditions(headers: dict[str, str], status: int | None) -> None:
    assert NOW.status(headers) == status


def test_a_range_of_what_the_client_has() -> None:
    assert NOW.allow_range(None)
    assert NOW.allow_range('"now"')
    assert NOW.allow_range(DATE)
    assert not NOW.allow_range('W/"now"')
    assert not NOW.allow_range('"old"')
    assert not NOW.allow_range(EARLIER)
