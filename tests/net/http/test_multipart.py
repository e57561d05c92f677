"""The decoder of forms with parts: any split of the bytes, any content, and what is refused."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.http import BadForm, FormTooLarge, NotAForm
from penstock.net.http.multipart import PART_END, MultipartDecoder, PartHead, boundary_of

BOUNDARY = "b-o"
Parts = list[tuple[str, str | None, bytes]]


def decoder(
    max_parts: int = 10, max_header_bytes: int = 200, max_part_bytes: int | None = None
) -> MultipartDecoder:
    return MultipartDecoder(
        BOUNDARY, max_parts=max_parts, max_header_bytes=max_header_bytes, max_part_bytes=max_part_bytes
    )


def decoded(*chunks: bytes, by: MultipartDecoder | None = None) -> Parts:
    """The parts of a good body; the error of a bad one is raised."""
    reader = by or decoder()
    events = [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()
    parts: Parts = []
    for event in events:
        if isinstance(event, Exception):
            raise event
        if isinstance(event, PartHead):
            parts.append((event.name, event.filename, b""))
        elif isinstance(event, bytes):
            name, filename, content = parts[-1]
            parts[-1] = (name, filename, content + event)
    assert events.count(PART_END) == len(parts)
    assert events[-1] is None
    return parts


def encoded(parts: list[tuple[str, bytes]]) -> bytes:
    body = b"".join(
        b'--b-o\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)
        for name, content in parts
    )
    return body + b"--b-o--\r\n"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


NEARLY = [
    b"\r",
    b"\n",
    b"\r\n",
    b"--",
    b"-",
    b"b-o",
    b"\r\n--b-",
    b"\r\n--b-oX",
    b"--b-o--",
    b"--b-o\r\n",
    b" ",
    b"x",
]
contents = st.lists(st.sampled_from(NEARLY) | st.binary(max_size=5), max_size=12).map(b"".join)


def _is_content(content: bytes) -> bool:
    """Whether it can be sent with this boundary: a sender chooses one that is not a line of it."""
    return re.search(rb"\r\n--b-o(--)?[ \t]*\r\n", b"\r\n" + content + b"\r\n") is None


names = st.text(st.characters(codec="utf-8", exclude_characters='"\\\r\n\0'), max_size=8)


@given(st.lists(st.tuples(names, contents.filter(_is_content)), max_size=4), st.lists(st.integers(0, 10_000)))
def test_any_split_of_any_content_gives_the_same_parts(
    parts: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    body = encoded(parts)
    expected = [(name, None, content) for name, content in parts]

    assert decoded(*pieces(body, cuts)) == expected
    assert decoded(*(body[i : i + 1] for i in range(len(body)))) == expected


@given(
    st.lists(st.sampled_from(NEARLY) | st.just(encoded([("a", b"1")])), max_size=20),
    st.lists(st.integers(0, 500)),
)
def test_what_is_refused_does_not_depend_on_the_split(tokens: list[bytes], cuts: list[int]) -> None:
    body = b"".join(tokens)

    def outcome(*chunks: bytes) -> Parts | str:
        try:
            return decoded(*chunks)
        except (BadForm, FormTooLarge) as error:
            return str(error)

    assert outcome(*pieces(body, cuts)) == outcome(body)


def test_no_more_is_kept_than_what_may_be_a_boundary() -> None:
    reader = decoder()
    reader.feed(encoded([("a", b"x")]).partition(b"x")[0])
    for _ in range(100):
        reader.feed(b"\r\n--b-" * 1000)
        assert len(reader._kept) < 200


def test_a_preamble_an_epilogue_and_blanks_behind_a_boundary_have_no_meaning() -> None:
    body = b"hello\r\n" + encoded([("a", b"1")]).replace(b"--b-o\r\n", b"--b-o \t\r\n") + b"goodbye --b-o"

    assert decoded(body) == [("a", None, b"1")]


def test_the_last_line_end_may_be_missing() -> None:
    assert decoded(encoded([("a", b"1")])[:-2]) == [("a", None, b"1")]


def test_a_form_without_parts_and_a_part_without_content() -> None:
    assert decoded(b"--b-o--\r\n") == []
    assert decoded(b"--b-o\r\nContent-Disposition: form-data; name=a\r\n\r\n--b-o--") == [("a", None, b"")]


@pytest.mark.parametrize(
    ("disposition", "expected"),
    [
        ('name="a"; filename="x.txt"', "x.txt"),
        ('name="a"; filename=""', ""),
        ('name="a"; filename="semi;colon \\"quoted\\".txt"', 'semi;colon "quoted".txt'),
        ('name="a"; filename="C:\\dir\\file"', "C:\\dir\\file"),
        ('name="a"; filename="ünï.txt"', "ünï.txt"),
        ("name=a; filename=plain.txt", "plain.txt"),
        ("name=a; filename*=UTF-8''%e2%82%ac%20rates", "€ rates"),
        ("name=a; filename=fallback; filename*=iso-8859-1'en'%A3", "£"),
        ('name="a";\r\n  filename="folded"', "folded"),
        ('name="a"', None),
    ],
)
def test_file_names(disposition: str, expected: str | None) -> None:
    body = b"--b-o\r\ncontent-disposition: form-data; %s\r\n\r\n\r\n--b-o--" % disposition.encode()

    assert decoded(body) == [("a", expected, b"")]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends before its last boundary"),
        (encoded([("a", b"1")])[:-4], "ends before its last boundary"),
        (encoded([("a", b"1")]).replace(b"\r\n", b"\n"), "CRLF"),
        (b"--b-o\r\n\r\n1\r\n--b-o--", "does not say its name"),
        (b"--b-o\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b-o--", "does not say its name"),
        (b"--b-o\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b-o--", "does not say its name"),
        (b"--b-o\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n1\r\n--b-o--", "twice"),
        (b"--b-o\r\nContent-Disposition: form-data; name=a b\r\n\r\n1\r\n--b-o--", "cannot be read"),
        (b"--b-o\r\nA: 1\r\na: 2\r\n\r\n1\r\n--b-o--", "two headers a"),
        (b"--b-o\r\nnonsense\r\n\r\n1\r\n--b-o--", "cannot be read"),
        (b"--b-o\r\nA: 1\nB: 2\r\n\r\n1\r\n--b-o--", "cannot be read"),
        (b"--b-o\r\nA: \xff\r\n\r\n1\r\n--b-o--", "not UTF-8"),
        (
            b"--b-o\r\nContent-Disposition: form-data; name=a; filename*=koi8-r''x\r\n\r\n--b-o--",
            "character set",
        ),
        (b"--b-o\r\nContent-Disposition: form-data; name=a; filename*=utf-8''%ff\r\n\r\n--b-o--", "not text"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BadForm, match=why):
        decoded(body)


def test_bounds() -> None:
    with pytest.raises(FormTooLarge, match="more than 2 parts"):
        decoded(encoded([("a", b"")] * 3), by=decoder(max_parts=2))
    with pytest.raises(FormTooLarge, match="headers of a part have more than 50 bytes"):
        decoded(encoded([("a" * 50, b"")]), by=decoder(max_header_bytes=50))
    with pytest.raises(FormTooLarge, match="a part of the form has more than 3 bytes"):
        decoded(encoded([("a", b"1234")]), by=decoder(max_part_bytes=3))
    assert decoded(encoded([("a", b"123")] * 2), by=decoder(max_parts=2, max_part_bytes=3))


def test_headers_without_an_end_are_refused_before_they_fill_the_memory() -> None:
    reader = decoder(max_header_bytes=100)
    reader.feed(b"--b-o\r\n")
    events = reader.feed(b"x" * 104)

    assert [type(event) for event in events] == [FormTooLarge]
    assert reader.feed(b"x" * 1000) == []


def test_the_boundary_of_a_request() -> None:
    assert boundary_of('Multipart/Form-Data; charset=utf-8; boundary="with a blank"') == "with a blank"
    with pytest.raises(NotAForm, match="not application/json"):
        boundary_of("application/json")
    with pytest.raises(NotAForm, match="without a type"):
        boundary_of("")
    for bad in ("", "; boundary=", "; boundary=ü", '; boundary="ends "', "; boundary=" + "x" * 71):
        with pytest.raises(BadForm, match="boundary"):
            boundary_of("multipart/form-data" + bad)
