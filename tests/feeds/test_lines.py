"""The lines that a gateway reads: where they end, how long they may be, and that nobody reads ahead."""

import contextlib
import io
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import feeds
from penstock.feeds import BadFeed, FeedOptions, FileFeed, OnBadLine, StdinFeed
from penstock.feeds.lines import CHUNK, portions
from penstock.tck import PublisherVerification
from tests.feeds.reading import Reader

OPTIONS = FeedOptions()


def lines_of(
    path: Path,
    journalled: int = 0,
    max_line: int = OPTIONS.max_line,
    codec: str = "bytes",
    on_bad_line: OnBadLine | None = None,
) -> list[Any]:
    options = FeedOptions(max_line=max_line, codec=codec, on_bad_line=on_bad_line, take_last_line=True)
    return list(feeds.open(f"file:{path}", options).flux(journalled))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"one", [b"one"]),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\r\n\ntwo", [b"one\r", b"", b"two"]),
        (b"a\x00b\xff\n", [b"a\x00b\xff"]),
    ],
)
def test_a_line_ends_at_a_newline_and_if_told_so_at_the_end(
    tmp_path: Path, content: bytes, lines: list[bytes]
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)

    assert lines_of(path) == lines


def test_lines_are_found_wherever_the_pieces_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [b"%d" % number * (number % 7) for number in range(200_000)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert path.stat().st_size > 4 * CHUNK

    assert lines_of(path) == lines
    assert lines_of(path, journalled=123_456) == lines[123_456:]


@pytest.mark.parametrize("length", [10, CHUNK - 1, CHUNK, 3 * CHUNK])
@pytest.mark.parametrize("end", [b"", b"\nnext\n"])
def test_a_line_of_just_the_allowed_length_is_one_and_a_longer_one_is_an_error(
    tmp_path: Path, length: int, end: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"first\n" + b"x" * length + end)

    assert lines_of(path, max_line=length)[1] == b"x" * length
    with pytest.raises(ValueError, match=rf"line 2 has more than {length - 1} bytes.*--max-line"):
        lines_of(path, max_line=length - 1)


def test_a_file_with_fewer_lines_than_the_journal_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")

    assert lines_of(path, journalled=2) == []
    with pytest.raises(ValueError, match="it has 2 lines, but the journal has 3 already"):
        lines_of(path, journalled=3)


@pytest.mark.parametrize(
    ("codec", "content", "elements"),
    [
        ("text", "grün\n한국\n", ["grün", "한국"]),
        ("json", '{"a": 1}\n[2]\n', [{"a": 1}, [2]]),
        ("msgpack", '{"a": 1}\n', [{"a": 1}]),
    ],
)
def test_a_codec_makes_elements_of_lines(
    tmp_path: Path, codec: str, content: str, elements: list[Any]
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content.encode())

    assert lines_of(path, codec=codec) == elements


@pytest.mark.parametrize(
    ("codec", "content"), [("text", b"\xff"), ("json", b"{"), ("json", b"null"), ("msgpack", b"x")]
)
def test_a_line_that_the_codec_cannot_take_is_named_by_its_number(
    tmp_path: Path, codec: str, content: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'"fine"\n' + content)

    with pytest.raises(ValueError, match="line 2: "):
        lines_of(path, codec=codec)


def test_a_file_that_is_gone_when_it_is_read_is_an_error_of_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    source = FileFeed(str(path), OPTIONS)
    path.unlink()

    with pytest.raises(FileNotFoundError):
        list(source.flux())


def test_a_cancel_ends_a_read_that_waits_and_half_a_line_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = os.pipe()
    with os.fdopen(outside, "rb") as reading, os.fdopen(inside, "wb", buffering=0) as writing:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(reading))
        reader = Reader()
        StdinFeed(OPTIONS)(7).subscribe(reader)
        writing.write(b"one\nhalf")
        with reader.requesting(10):
            assert reader.take(1) == [b"one"]

        assert reader.lines.empty()
        assert not reader.ended.is_set()


def test_a_server_that_is_asked_for_nothing_can_send_only_what_the_buffers_hold() -> None:
    sent = 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        source = feeds.open(f"tcp://127.0.0.1:{server.getsockname()[1]}", OPTIONS)
        sender, _ = server.accept()
        with sender:
            reader = Reader()
            source(0).subscribe(reader)
            sender.sendall(b"0123456789\n" * 1000)
            reader.subscription.request(2)
            sender.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                while sent < 50_000_000:
                    sent += sender.send(b"0123456789\n" * 1000)
            reader.subscription.cancel()

    assert reader.take(2) == [b"0123456789"] * 2
    assert reader.lines.empty()
    assert sent < 6_000_000


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(BadFeed, match=r"is not a feed; write .*file:PATH.* stdin, tcp://HOST:PORT"):
        feeds.open("stdout", OPTIONS)


class TestLinesKeepTheRules(PublisherVerification):
    """The lines of a file are a Publisher like any other."""

    profile = "sync"
    max_elements_from_publisher = 10_000
    folder: Path

    @pytest.fixture(autouse=True)
    def _somewhere(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def create_publisher(self, elements: int) -> Any:
        path = self.folder / str(elements)
        path.write_bytes(b"a line\n" * elements)
        return FileFeed(str(path), OPTIONS).flux()

    def create_failed_publisher(self) -> None:
        """None: what is wrong with a file is seen when it is read, and not before."""


@given(
    st.binary(max_size=2_000) | st.lists(st.just(b"\n") | st.binary(max_size=4), max_size=500).map(b"".join)
)
def test_portions_end_with_a_line_and_have_few_lines(chunk: bytes) -> None:
    pieces = list(portions(chunk, 3))

    assert b"".join(pieces) == chunk
    assert all(piece.count(b"\n") <= 3 for piece in pieces)
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
