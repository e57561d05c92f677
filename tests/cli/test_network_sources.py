"""What a gateway reads from the network: whoever connects, datagrams, a page."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from penstock.cli.complaints import Complaint
from penstock.cli.gateway_sources import LineTooLong, Origin, open_source
from penstock.cli.network_sources import ListeningLines, UdpLines
from penstock.streams import Flux

LONGEST = 1 << 20
SOON = 20


@contextmanager
def opened(text: str, longest: int = LONGEST, codec: str = "bytes") -> Iterator[Any]:
    source: Origin = open_source(text, longest, codec)
    with closing(source):
        yield source


def connect(source: ListeningLines) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", source.port), SOON)
    connection.settimeout(SOON)
    return connection


def first(source: Origin, count: int, journalled: int = 0) -> list[Any]:
    return list(Flux.from_publisher(source(journalled)).take(count).to_iterable())


def test_the_lines_of_several_senders_come_whole_and_each_in_order() -> None:
    with opened("tcp-listen://127.0.0.1:0") as source, connect(source) as one, connect(source) as other:
        one.sendall(b"a0\na")
        other.sendall(b"b0\nb1\n")
        one.sendall(b"1\na2\n")

        lines = first(source, 5)

    assert sorted(lines) == [b"a0", b"a1", b"a2", b"b0", b"b1"]
    assert [line for line in lines if line.startswith(b"a")] == [b"a0", b"a1", b"a2"]


def test_half_a_line_of_a_sender_that_is_gone_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with opened("tcp-listen://127.0.0.1:0") as source:
        with connect(source) as sender:
            sender.sendall(b"whole\nhal")
        with connect(source) as sender:
            sender.sendall(b"next\n")
            assert sorted(first(source, 2)) == [b"next", b"whole"]


def test_a_sender_is_told_what_came_before_and_then_what_is_safe() -> None:
    with opened("tcp-listen://127.0.0.1:0?acknowledge") as source, connect(source) as sender:
        taken: list[bytes] = []
        enough = threading.Event()

        def take(line: bytes) -> None:
            taken.append(line)
            if len(taken) == 2:
                enough.set()

        Flux.from_publisher(source(1000)).subscribe(take)
        said = sender.makefile("rb")
        assert said.readline() == b"1000\n"
        sender.sendall(b"one\ntwo\n")
        assert enough.wait(SOON)
        source.journalled(1001)
        source.journalled(1002)
        assert said.readline() == b"1001\n"
        assert said.readline() == b"1002\n"
        with connect(source) as newer:
            # The older one is cut off; the newer one begins behind what has come.
            assert newer.makefile("rb").readline() == b"1002\n"
            assert said.read() == b""
        said.close()
    assert taken == [b"one", b"two"]


def test_a_sender_waits_while_nobody_asks() -> None:
    with opened("tcp-listen://127.0.0.1:0") as source, connect(source) as sender:
        source(0)
        sender.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 1 << 28:
                sent += sender.send(b"0123456789\n" * 6000)
    assert sent < 1 << 24


def test_a_line_that_is_too_long_ends_its_sender_and_nobody_else() -> None:
    with opened("tcp-listen://127.0.0.1:0", longest=10) as source, connect(source) as sender:
        lines = iter(Flux.from_publisher(source(0)).to_iterable())
        sender.sendall(b"short\n" + b"x" * 11)
        assert next(lines) == b"short"
        assert sender.recv(1) == b""
        with connect(source) as other:
            other.sendall(b"next\n")
            assert next(lines) == b"next"


def test_lines_of_a_server_may_be_too_long() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        opened(f"tcp://127.0.0.1:{server.getsockname()[1]}", longest=10) as source,
    ):
        sender, _ = server.accept()
        with sender:
            sender.sendall(b"short\n" + b"x" * 11)
            lines = iter(Flux.from_publisher(source(0)).to_iterable())
            assert next(lines) == b"short"
            with pytest.raises(LineTooLong, match="--max-line"):
                next(lines)


def test_a_datagram_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with opened("udp://127.0.0.1:0", codec="json") as source:
        assert isinstance(source, UdpLines)
        port = int(source.name.rpartition(":")[2])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(3):
                sender.sendto(b'{"n": %d}\n' % number, ("127.0.0.1", port))
            assert first(source, 3) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_the_lines_of_a_page() -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"one\ntwo\nthree")

        def log_message(self, *said: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            with opened(f"http://127.0.0.1:{server.server_port}/lines") as source:
                assert list(Flux.from_publisher(source(0)).to_iterable()) == [b"one", b"two", b"three"]
        finally:
            server.shutdown()
            serving.join(SOON)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tcp-listen://127.0.0.1:{port}", "another program has it"),
        ("udp://127.0.0.1", "the port is missing"),
        ("tcp-listen://127.0.0.1:0?later", "after the [?] there can be acknowledge"),
        ("gopher://127.0.0.1:70", "is none; write tcp://HOST:PORT"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(text: str, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Complaint, match=says):
        open_source(text.format(port=taken.getsockname()[1]), LONGEST, "bytes")
