"""Server-sent events: what is written is what is read, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.net.framing import BadFrame, FrameTooLong
from penstock.net.http import Event, EventDecoder, WrongEvent

one_line = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20)
events = st.builds(
    Event,
    data=st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=40),
    event=st.none() | one_line.filter(bool),
    id=st.none() | one_line,
    retry=st.none() | st.integers(0, 10**9),
)


def decoded(data: bytes, *cuts: int) -> list[Event]:
    decoder = EventDecoder()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found: list[Event] = []
    for start, end in pairwise(edges):
        found.extend(decoder.feed(data[start:end]))
    return found + decoder.finish()


@settings(deadline=None)
@given(
    st.lists(events, max_size=5),
    st.lists(st.integers(0, 300), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_what_is_written_is_read_again(sent: list[Event], cuts: list[int], end: str) -> None:
    data = b"".join(event.encode() for event in sent).replace(b"\n", end.encode())

    assert decoded(data, *cuts) == sent


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Event("YHOO\n+2\n10")]),
        (b": test stream\n\ndata: first\nid: 1\n\n", [Event("first", id="1")]),
        (b"data\n\ndata\ndata\n\ndata:", [Event(""), Event("\n")]),
        (b"data:test\n\ndata: test\n\ndata:  test\n\n", [Event("test"), Event("test"), Event(" test")]),
        (b"\xef\xbb\xbfdata: after the mark\n\n", [Event("after the mark")]),
        (b"event: nothing to say\n\ndata: x\n\n", [Event("x")]),
        (b"unknown: field\nretry: soon\nretry: 5\nid: a\0b\ndata: x\n\n", [Event("x", retry=5)]),
        (b"data: not ended\n", []),
        (b"", []),
    ],
)
def test_the_cases_of_the_standard(data: bytes, expected: list[Event]) -> None:
    assert decoded(data) == expected
    assert decoded(data, *range(len(data))) == expected


def test_line_ends_inside_data_are_lines() -> None:
    assert Event("a\r\nb\rc\nd").encode() == b"data: a\ndata: b\ndata: c\ndata: d\n\n"


@pytest.mark.parametrize("wrong", [{"event": "a\nb"}, {"id": "a\rb"}, {"id": "a\0"}, {"retry": -1}])
def test_what_would_be_read_as_something_else_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Event("x", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data", [b"data: " + b"x" * 20, b"data: xxxxx\n" * 4], ids=["one line", "many lines"]
)
def test_an_event_without_an_end_does_not_fill_the_memory(data: bytes) -> None:
    decoder = EventDecoder(max_length=20)

    fed = iter(decoder.feed(b"data: good\n\n" + data))
    assert next(fed) == Event("good")
    with pytest.raises(FrameTooLong, match="max_length"):
        next(fed)


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(BadFrame, match="UTF-8"):
        list(EventDecoder().feed(b"data: \xff\n\n"))


# Copying all that has come so far for each of a quarter of a million pieces would take hours.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("start", "end"), [(b"data: ", b"\n\n"), (b": a comment ", b"\ndata: x\n\n")])
def test_a_long_event_in_tiny_pieces_is_not_gone_through_again_and_again(start: bytes, end: bytes) -> None:
    size = 8 * 1024 * 1024
    decoder = EventDecoder(2 * size)
    found = list(decoder.feed(start))
    for _ in range(size // 32):
        found.extend(decoder.feed(b"x" * 32))
    found.extend(decoder.feed(end))

    assert [len(event.data) for event in found] == [size if start == b"data: " else 1]


@given(cuts=st.lists(st.integers(1, 40), max_size=20))
@example(cuts=[1] * 10 + [25] + [40] * 7 + [1])  # The last one is the newline after a carriage return.
def test_a_wrong_event_can_be_kept_and_the_next_one_is_read(cuts: list[int]) -> None:
    decoder = EventDecoder(max_length=20, keep_wrong=True)
    stream = (
        b"id: 1\ndata: \xff\n\ndata: "
        + b"x" * 100
        + b"\nid: 2\n\ndata: "
        + b"id: 9\r" * 30
        + b"\n\ndata: b\n\n"
    )
    read: list[Event] = []
    for cut in cuts:
        read += decoder.feed(stream[:cut])
        stream = stream[cut:]
    read += decoder.feed(stream)
    first, second, third, last = read
    assert isinstance(first, WrongEvent)
    assert isinstance(first.error, BadFrame)
    assert first.id == "1"
    assert isinstance(second, WrongEvent)
    assert isinstance(second.error, FrameTooLong)
    assert (second.id, second.data) == ("2", "")
    assert isinstance(third, WrongEvent)
    assert last == Event("b")


PIECES = (
    b"data: a",
    b"data: " + b"x" * 9,
    b"data: \xff",
    b"id: 7",
    b"id: 8",
    b"zzzzzzzzzzzzzzz",
    b"\n",
    b"\r",
)


@example([b"data: \xff", b"\n", b"id: 7", b"zzzzzz"], [18])  # The id is cut in two.
@given(st.lists(st.sampled_from(PIECES)), st.lists(st.integers(0, 60)))
@settings(max_examples=300, deadline=None)
def test_a_wrong_event_has_its_id_wherever_the_stream_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    """Without its id it is sent again after the next reconnect."""
    data = b"".join(pieces) + b"\n\n"

    def read(*ends: int) -> list[tuple[str, str | None, type]]:
        decoder = EventDecoder(16, keep_wrong=True)
        parts = [data[start:end] for start, end in pairwise((0, *ends, len(data)))]
        events = [event for part in parts for event in decoder.feed(part)]
        return [(event.data, event.id, type(getattr(event, "error", None))) for event in events]

    assert read(*sorted(cut for cut in cuts if cut < len(data))) == read()


def test_an_event_that_its_id_makes_too_long_has_it_all_the_same() -> None:
    decoder = EventDecoder(16, keep_wrong=True)

    [event] = decoder.feed(b"data: 12345678\nid: 7\n\n")

    assert isinstance(event, WrongEvent)
    assert event.id == "7"
