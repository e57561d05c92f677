"""What a gateway reads from the network: whoever connects, datagrams, a page."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import feeds
from penstock.feeds import (
    BadFeed,
    Feed,
    FeedError,
    FeedOptions,
    LineTooLong,
    OnBadLine,
    TcpListenFeed,
    UdpFeed,
)
from penstock.streams import Flux
from tests.cli.running import penstock
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader
from tests.free_ports import free_port

SOON = 45


@contextmanager
def opened(
    text: str, max_line: int = 1 << 20, codec: str = "bytes", on_bad_line: OnBadLine | None = None
) -> Iterator[Any]:
    source: Feed = feeds.open(text, FeedOptions(max_line=max_line, codec=codec, on_bad_line=on_bad_line))
    with closing(source):
        yield source


def connect(source: TcpListenFeed) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", source.port), SOON)
    connection.settimeout(SOON)
    return connection


def first(source: Feed, count: int, journalled: int = 0) -> list[Any]:
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
    assert "ended in the middle of a line; its 3 bytes are left out" in caplog.text


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
            with pytest.raises(ConnectionResetError):
                said.read()
        said.close()
    assert taken == [b"one", b"two"]


def test_numbers_do_not_pile_up_for_a_sender_that_does_not_read_them() -> None:
    """There is one for each commit, and a logger that only sends never takes them."""
    with opened("tcp-listen://127.0.0.1:0?acknowledge") as source, socket.socket() as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender.settimeout(SOON)
        sender.connect(("127.0.0.1", source.port))
        lines = iter(source.flux().to_iterable())
        sender.sendall(b"one\n")
        assert next(lines) == b"one"
        [connection] = source._server.connections
        told, most = 10**15, 0
        while most < 4096:  # What the system keeps for the sender comes first.
            for _ in range(10_000):
                told += 1
                source.journalled(told)
            passed = threading.Event()
            connection.on_loop(passed.set)
            assert passed.wait(SOON)
            most = max(most, connection.transport.get_write_buffer_size())
        assert most < 1 << 15
        said = sender.makefile("rb")
        assert said.readline() == b"0\n"
        while int(said.readline()) < told:
            source.journalled(told)
        said.close()


def test_a_number_is_told_to_the_sender_that_comes_while_the_gateway_says_it() -> None:
    """The gateway says it on a thread of its own. Who waits for the last number would wait for ever."""
    with opened("tcp-listen://127.0.0.1:0?acknowledge") as source, closing(connect(source)) as older:
        source(7)
        assert older.makefile("rb").readline() == b"7\n"
        newer: list[Any] = []

        class Number(int):
            def __gt__(self, told: int) -> bool:
                if not newer:
                    newer.append(connect(source))
                    newer.append(newer[0].makefile("rb"))
                    assert newer[1].readline() == b"7\n"
                return int(self) > told

        source.journalled(Number(8))
        source.journalled(8)
        assert newer[1].readline() == b"8\n"
        for opened_here in newer:
            opened_here.close()


def asks_whether_the_other_side_is_there(local: int | None = None, remote: int | None = None) -> bool:
    """Whether the timer for that runs for a connection between these ports."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, _, timer, *_ = line.split()
        ports = [int(each.rpartition(":")[2], 16) for each in (here, there)]
        wanted = [ports[at] if port is None else port for at, port in enumerate((local, remote))]
        if state == "01" and ports == wanted and timer.startswith("02:"):
            return True
    return False


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the timers are in a file of Linux")
@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_a_server_that_is_gone_without_a_word_is_noticed(scheme: str) -> None:
    """A machine without power says nothing. The feed was "up" for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if scheme == "http":
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                connection.sendall(b"one\n")
                over.wait(SOON)

        over = threading.Event()
        serving = threading.Thread(target=serve)
        serving.start()
        url = f"http://127.0.0.1:{port}/" if scheme == "http" else f"tcp://127.0.0.1:{port}?once"
        with opened(url) as source:
            lines = iter(source.flux().to_iterable())
            assert next(lines) == b"one"
            # The file shows another timer for as long as an answer is on its way.
            wait_until(lambda: asks_whether_the_other_side_is_there(remote=port), "it does not ask")
            over.set()
            assert list(lines) == []
        serving.join(SOON)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the timers are in a file of Linux")
def test_a_sender_that_is_gone_without_a_word_is_noticed() -> None:
    with opened("tcp-listen://127.0.0.1:0") as source, connect(source) as sender:
        sender.sendall(b"one\n")
        assert first(source, 1) == [b"one"]
        ports = source.port, sender.getsockname()[1]
        wait_until(lambda: asks_whether_the_other_side_is_there(*ports), "it does not ask")


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
    with opened("tcp-listen://127.0.0.1:0", max_line=10) as source, connect(source) as sender:
        lines = iter(source.flux().to_iterable())
        sender.sendall(b"short\n" + b"x" * 11)
        assert next(lines) == b"short"
        assert sender.recv(1) == b""
        with connect(source) as other:
            other.sendall(b"next\n")
            assert next(lines) == b"next"


def test_lines_of_a_server_may_be_too_long() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        opened(f"tcp://127.0.0.1:{server.getsockname()[1]}", max_line=10) as source,
    ):
        sender, _ = server.accept()
        with sender:
            sender.sendall(b"short\n" + b"x" * 11)
            lines = iter(source.flux().to_iterable())
            assert next(lines) == b"short"
            with pytest.raises(LineTooLong, match="--max-line"):
                next(lines)


def test_a_datagram_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with opened("udp://127.0.0.1:0", codec="json") as source:
        assert isinstance(source, UdpFeed)
        port = int(source.name.rpartition(":")[2])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(3):
                sender.sendto(b'{"n": %d}\n' % number, ("127.0.0.1", port))
            assert first(source, 3) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_dropped_datagrams_are_reported_although_no_others_come_after_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def reported() -> int:
        said = [record.getMessage() for record in caplog.records]
        return sum(int(each.split()[0]) for each in said if "datagrams arrived" in each)

    sent, reader = 6000, Reader()
    with opened("udp://127.0.0.1:0") as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        source(0).subscribe(reader)
        port = int(source.name.rpartition(":")[2])
        for _ in range(sent):
            sender.sendto(b"line", ("127.0.0.1", port))
        wait_until(lambda: reported() > 0, "nothing is reported")
        reader.subscription.request(sent)
        wait_until(lambda: reader.lines.qsize() + reported() == sent, "not every datagram is accounted for")
        reader.subscription.cancel()


def test_datagrams_that_were_dropped_shortly_before_the_end_are_reported_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.feeds.schemes.udp._REPORT_EVERY", 3600.0)
    with opened("udp://127.0.0.1:0") as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        source(0).subscribe(Reader())
        port = int(source.name.rpartition(":")[2])
        for _ in range(6000):
            sender.sendto(b"line", ("127.0.0.1", port))
        channel = source._channel
        wait_until(
            lambda: channel.metrics.dropped + (channel.metrics.kernel_dropped or 0) > 0, "none is dropped"
        )
        assert "datagrams arrived" not in caplog.text
    assert "datagrams arrived while there was no space, and were dropped" in caplog.text


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
                assert list(source.flux().to_iterable()) == [b"one", b"two", b"three"]
        finally:
            server.shutdown()
            serving.join(SOON)


# ---------------------------------------------------------------- connections that are lost
def test_a_lost_connection_is_made_again_and_half_a_line_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        opened(f"tcp://127.0.0.1:{server.getsockname()[1]}") as source,
    ):
        lines = iter(source.flux().to_iterable())
        for round in (b"one", b"two", b"three"):
            sender, _ = server.accept()
            with sender:
                sender.sendall(round + b"\nhalf a li")
                assert next(lines) == round
    assert "ended in the middle of a line; its 9 bytes are left out" in caplog.text
    assert "reconnecting in" in caplog.text


def test_a_server_that_is_away_for_a_while_is_found_again(caplog: pytest.LogCaptureFixture) -> None:
    server = socket.create_server(("127.0.0.1", free_port()))
    address = server.getsockname()
    with opened(f"tcp://127.0.0.1:{address[1]}") as source:
        lines = iter(source.flux().to_iterable())
        sender, _ = server.accept()
        server.close()
        sender.sendall(b"before\n")
        assert next(lines) == b"before"
        # A reset, not an orderly end.
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sender.close()
        while "Connection refused" not in caplog.text:
            time.sleep(0.01)
        with socket.create_server(address[:2]) as again:
            sender, _ = again.accept()
            with sender:
                sender.sendall(b"after\n")
                assert next(lines) == b"after"


def test_a_source_that_looks_for_its_server_can_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        source = feeds.open(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        sender, _ = server.accept()
    ended = threading.Event()
    lines = source.flux()
    running = lines.subscribe(on_error=lambda error: ended.set(), on_complete=ended.set)
    sender.close()
    while "Connection refused" not in caplog.text:
        time.sleep(0.01)
    running.cancel()
    source.close()

    assert not ended.is_set()


# ---------------------------------------------------------------- lines that cannot be records
BAD = [b"not json", b"null", b"[" * 100_000, b"x" * 200_000, b'"\\ud800"', b"\xff"]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:8].decode("latin-1"))
def test_a_bad_line_cuts_off_its_sender_and_nobody_else(bad: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with (
        opened("tcp-listen://127.0.0.1:0", max_line=150_000, codec="json") as source,
        connect(source) as one,
        connect(source) as other,
    ):
        lines = iter(source.flux().to_iterable())
        one.sendall(b'{"n": 1}\n' + bad + b'\n{"n": 2}\n')
        assert next(lines) == {"n": 1}
        with contextlib.suppress(ConnectionResetError):  # What it sent later was not read.
            assert one.recv(1) == b""
        other.sendall(b'{"n": 3}\n')
        assert next(lines) == {"n": 3}
    assert "line 2" in caplog.text
    assert "this sender is disconnected" in caplog.text


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:8].decode("latin-1"))
def test_a_bad_line_is_skipped_and_counted_if_told_so(bad: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with (
        opened("tcp-listen://127.0.0.1:0", max_line=150_000, codec="json", on_bad_line="skip") as source,
        connect(source) as sender,
    ):
        lines = iter(source.flux().to_iterable())
        sender.sendall(b'{"n": 1}\n' + bad + b'\n{"n": 2}\n')
        assert [next(lines), next(lines)] == [{"n": 1}, {"n": 2}]
        assert source.bad.skipped == 1
    assert "; it is skipped (1 so far)" in caplog.text


@pytest.mark.parametrize(
    ("codec", "bad"), [("json", b"not json"), ("text", b"\xff"), ("msgpack", b"123456789012345678901")]
)
def test_a_bad_datagram_is_skipped_and_counted(codec: str, bad: bytes) -> None:
    with (
        opened("udp://127.0.0.1:0", codec=codec, max_line=1000) as source,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        port = int(source.name.rpartition(":")[2])
        for datagram in (b"1", bad, b"x" * 2000, b"2"):
            sender.sendto(datagram, ("127.0.0.1", port))
        assert [str(element) for element in first(source, 2)] == ["1", "2"]
        assert source.bad.skipped == 2


def test_a_bad_line_of_a_server_ends_the_stream_or_is_skipped() -> None:
    for policy in ("fail", "skip"):
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            opened(f"tcp://127.0.0.1:{server.getsockname()[1]}", codec="json", on_bad_line=policy) as source,
        ):
            sender, _ = server.accept()
            with sender:
                sender.sendall(b"1\nbad\n2\n")
                lines = iter(source.flux().to_iterable())
                assert next(lines) == 1
                if policy == "skip":
                    assert next(lines) == 2
                else:
                    with pytest.raises(ValueError, match="line 2: JSON is malformed"):
                        next(lines)


def test_a_sender_that_counts_is_told_which_line_is_bad(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"1\n2\nbad\n4\n")
    with opened("tcp-listen://127.0.0.1:0?acknowledge", codec="json") as source:
        taken: list[Any] = []
        source.flux().subscribe(taken.append)
        done = penstock("send", "--acknowledged", str(lines), f"tcp://127.0.0.1:{source.port}")

    assert done.returncode == 1
    assert "line 3: JSON is malformed" in done.stderr
    assert taken == [1, 2]


@pytest.mark.parametrize("place", ["0.0.0.0:0", "*:0", "*:9", "[::]:0", "0.0.0.0:9", "somewhere.example:9"])
@pytest.mark.parametrize("scheme", ["tcp-listen", "udp"])
def test_a_source_that_listens_for_other_machines_needs_a_word(scheme: str, place: str) -> None:
    with pytest.raises(BadFeed, match=f"{scheme}://.* can be reached from other machines.*--insecure"):
        feeds.open(f"{scheme}://{place}")


@pytest.mark.parametrize("place", ["0.0.0.0:0", "*:0", "[::]:0", "[::1]:0", "localhost:0"])
@pytest.mark.parametrize("scheme", ["tcp-listen", "udp"])
def test_with_that_word_it_listens_anywhere(scheme: str, place: str) -> None:
    with closing(feeds.open(f"{scheme}://{place}", FeedOptions(allow_remote=True))) as source:
        assert ":" in source.name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tcp-listen://127.0.0.1:{port}", "another program is using it"),
        ("udp://127.0.0.1", "the port is missing"),
        ("tcp-listen://127.0.0.1:0?later", "after the [?] there can be acknowledge"),
        ("tcp://127.0.0.1:9?for-ever", "after the [?] there can be once"),
        ("tcp://*:9", "name the host and the port of one server"),
        ("tcp://127.0.0.1:0", "name the host and the port of one server"),
        ("gopher://127.0.0.1:70", "is not a feed; write .*tcp://HOST:PORT"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(text: str, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(FeedError, match=says):
        feeds.open(text.format(port=taken.getsockname()[1]))


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:9", "tcp-listen://127.0.0.1:0", "udp://127.0.0.1:0"])
def test_on_an_event_loop_the_way_to_open_a_feed_is_told(url: str) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"await asyncio.to_thread\(feeds.open, url\)"):
            feeds.open(url)

    asyncio.run(main())


@pytest.mark.parametrize("url", ["tcp-listen://127.0.0.1:0", "udp://127.0.0.1:0"])
def test_that_way_works(url: str) -> None:
    async def main() -> None:
        feed = await asyncio.to_thread(feeds.open, url)
        await asyncio.to_thread(feed.close)

    asyncio.run(main())
