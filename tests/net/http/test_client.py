"""The client: demand that reaches the server, and errors that say what happened."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from penstock.net import ConnectFailed, ConnectionAborted, HandshakeFailed, IdleTimeout, NetError
from penstock.net.framing import BadFrame
from penstock.net.http import BadStatus, Event, get, post, request
from penstock.streams import Flux, schedulers
from tests.net.http.serving import MOST, PATIENCE, Served
from tests.net.tcp.peers import refusing_port

pytestmark = pytest.mark.slow


@contextmanager
def answering(talk: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that reads the head of one request and then does as it is told; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1)  # and nothing of the body
            talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()


def says(data: bytes) -> Callable[[socket.socket], object]:
    return lambda connection: connection.sendall(data)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


# ---------------------------------------------------------------- streams


def test_the_body_in_each_of_its_shapes(one_server: Served) -> None:
    numbers = get(one_server.url("/numbers/1000"))

    assert b"".join(numbers.receive()) == b"".join(b"%d\n" % number for number in range(1000))
    assert list(numbers.lines()) == [str(number) for number in range(1000)]
    assert list(numbers.ndjson()) == list(range(1000))
    assert list(get(one_server.url("/events")).events()) == [
        Event("one", id="1"),
        Event("two\nlines", event="note", id="2"),
        Event('{"three":3}'),
        Event("last", retry=250),
    ]


def test_on_an_event_loop(one_server: Served) -> None:
    async def read() -> list[Any]:
        return [number async for number in get(one_server.url("/numbers/5")).ndjson()]

    assert asyncio.run(read()) == [0, 1, 2, 3, 4]


def test_a_client_of_yours_keeps_its_connections(one_server: Served) -> None:
    async def read() -> tuple[list[Any], bool]:
        async with httpx2.AsyncClient(base_url=one_server.url(""), verify=False) as client:
            numbers = get("/numbers/3", client=client).ndjson()
            both = [number async for number in Flux.concat(numbers, numbers)]
            return both, client.is_closed

    assert asyncio.run(read()) == ([0, 1, 2, 0, 1, 2], False)


def test_what_is_not_asked_for_stays_with_the_server(one_server: Served) -> None:
    class Two:
        """Asks for two chunks, and for no more."""

        def __init__(self) -> None:
            self.chunks: list[bytes] = []
            self.enough = threading.Event()
            self.subscription: Any = None

        def on_subscribe(self, subscription: Any) -> None:
            self.subscription = subscription
            subscription.request(2)

        def on_next(self, chunk: bytes) -> None:
            self.chunks.append(chunk)
            if len(self.chunks) == 2:
                self.enough.set()

        def on_error(self, error: BaseException) -> None:
            raise AssertionError from error

        def on_complete(self) -> None:
            raise AssertionError("this never ends")

    two = Two()
    get(one_server.url("/endless/asked")).receive().subscribe(two)
    assert two.enough.wait(PATIENCE)
    assert one_server.at_rest("asked", "produced", MOST) > 0
    assert len(two.chunks) == 2
    two.subscription.cancel()
    one_server.until("asked", "closed")


def test_a_loop_reads_a_few_bytes_ahead_and_the_rest_stays_with_the_server(one_server: Served) -> None:
    read: list[int] = []

    async def main() -> None:
        chunks = (
            get(one_server.url("/endless/looped")).receive().do_on_next(lambda chunk: read.append(len(chunk)))
        )
        async with chunks.stream() as body:
            async for _ in body:
                # Meanwhile the loop runs, and what it may read ahead comes.
                await asyncio.to_thread(one_server.at_rest, "looped", "produced", MOST)
                break

    asyncio.run(main())

    assert sum(read) < 1024 * 1024, "256 chunks would be up to 16 MB"
    one_server.until("looped", "closed")


def test_a_reader_that_leaves_closes_the_connection(one_server: Served) -> None:
    taken = get(one_server.url("/endless/some")).receive().take(3).collect_list().block(PATIENCE)

    assert taken is not None
    assert len(taken) == 3
    one_server.until("some", "closed")


def test_an_upload_from_a_stream(one_server: Served) -> None:
    source = Flux.range(10_000).map(lambda number: f"line {number}\n").subscribe_on(schedulers.shared_pool())
    answer = list(post(one_server.url("/upper"), source).lines())

    assert answer == [f"LINE {number}" for number in range(10_000)]


def test_a_server_that_does_not_read_holds_the_upload(one_server: Served) -> None:
    made = 0

    def blocks() -> Iterator[bytes]:
        nonlocal made
        for _ in range(MOST // 65536):
            made += 65536
            yield bytes(65536)

    answer = post(one_server.url("/upload/slow"), Flux.from_iterable(blocks())).answer().to_future()
    one_server.until("slow", "taken")
    before = -1
    while made != before:
        before = made
        threading.Event().wait(1.0)
    assert made < MOST
    one_server.open_gate("slow")
    result = answer.result(PATIENCE)
    assert result is not None
    assert (result.status, int(result.body)) == (200, MOST)


def test_a_whole_answer(one_server: Served) -> None:
    answer = post(one_server.url("/upper"), "text", headers={"X-Other": "1"}).answer().block(PATIENCE)

    assert answer is not None
    assert (answer.status, answer.body) == (200, b"TEXT\n")
    assert answer.headers["content-type"] == "application/octet-stream"


def test_a_whole_answer_has_a_limit(one_server: Served) -> None:
    with pytest.raises(NetError, match="more than 10000 bytes"):
        get(one_server.url("/endless/limited")).answer(max_length=10_000).block(PATIENCE)
    one_server.until("limited", "closed")


def test_parameters_and_headers_are_sent() -> None:
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heads.append(connection.recv(10))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with answering(talk) as url:
        call = request("patch", url, params={"a": "1"}, content=b"0123456789", headers=[("X-A", "b")])
        assert call.receive().collect_list().block(PATIENCE) == [b"ok"]
    assert heads == [b"0123456789"]
    assert call.method == "PATCH"


# ---------------------------------------------------------------- errors


def test_a_status_that_is_no_success_is_an_error(one_server: Served) -> None:
    with pytest.raises(BadStatus, match=r"GET .*/nowhere was answered with 404 Not Found: not found") as e:
        list(get(one_server.url("/nowhere")).receive())

    assert (e.value.status, e.value.body) == (404, b"not found\n")


def test_of_a_long_error_the_beginning_is_kept() -> None:
    with (
        answering(says(b"HTTP/1.1 503 Busy\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000)) as url,
        pytest.raises(BadStatus, match="503") as raised,
    ):
        list(get(url).receive())
    assert raised.value.body == b"x" * 1024


def test_nobody_listens() -> None:
    refused = r"cannot connect to http://127.0.0.1:\d+/: Connection refused"
    with refusing_port() as port, pytest.raises(ConnectFailed, match=refused):
        list(get(f"http://127.0.0.1:{port}/").receive())


def test_a_password_stays_a_secret() -> None:
    with refusing_port() as port:
        call = get(f"http://me:secret@127.0.0.1:{port}/", headers={"authorization": "secret"})
        with pytest.raises(ConnectFailed, match=r"//me:\*\*\*@127.0.0.1") as raised:
            call.answer().block()
    assert "secret" not in f"{raised.value} {call!r} {call.receive().explain()}"


def test_a_name_that_is_not_known() -> None:
    with pytest.raises(ConnectFailed, match=r"the host name is unknown|check"):
        list(get("http://no-such-host.invalid/").receive())


def test_a_server_that_does_not_speak_tls() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(HandshakeFailed, match="TLS failed"):
            list(get(f"https://127.0.0.1:{listener.getsockname()[1]}/").receive())
        thread.join(PATIENCE)


def test_a_server_that_says_nothing() -> None:
    over = threading.Event()
    with answering(lambda connection: over.wait(PATIENCE)) as url:
        with pytest.raises(IdleTimeout, match=r"nothing arrived for 0\.2 s"):
            list(get(url, timeout=0.2).receive())
        over.set()


def test_a_reader_that_takes_its_time_does_not_run_into_the_time_out(one_server: Served) -> None:
    chunks = get(one_server.url("/endless/patient"), timeout=5.0).receive().to_iterable(prefetch=1)
    next(chunks)
    threading.Event().wait(5.5)  # more than the time-out: what is shown is that it does not count
    assert next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    one_server.until("patient", "closed")


@pytest.mark.parametrize(
    "head",
    [HEAD + chunked(b"half"), b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"],
    ids=["chunked", "with a length"],
)
def test_an_answer_that_breaks_off_is_an_error(head: bytes) -> None:
    got: list[bytes] = []
    with answering(says(head)) as url, pytest.raises(ConnectionAborted, match="the connection was lost"):
        get(url).receive().do_on_next(got.append).block_last(PATIENCE)
    assert got == [b"half"]


def test_a_redirect_is_followed(one_server: Served) -> None:
    target = one_server.url("/numbers/2").encode()
    with answering(says(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target)) as url:
        assert list(get(url).ndjson()) == [0, 1]


def test_a_source_that_fails_fails_the_upload(one_server: Served) -> None:
    class OwnError(Exception):
        pass

    source = Flux.concat(Flux.just(b"x"), Flux.error(OwnError))
    with pytest.raises(OwnError):
        post(one_server.url("/upload/failing"), source).answer().block(PATIENCE)
    one_server.open_gate("failing")


def test_an_upload_that_nobody_wants_is_cancelled() -> None:
    cancelled = threading.Event()
    endless = Flux.from_iterable(iter(lambda: os.urandom(10), None)).do_on_cancel(cancelled.set)
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    with answering(says(refusal)) as url, pytest.raises((BadStatus, ConnectionAborted)):
        post(url, endless).answer().block(PATIENCE)
    assert cancelled.wait(PATIENCE)


def test_lines_that_are_no_json() -> None:
    with answering(says(HEAD + chunked(b"1\n\nnope\n") + chunked(b""))) as url:
        got: list[Any] = []
        with pytest.raises(BadFrame, match="not JSON"):
            get(url).ndjson().do_on_next(got.append).block_last(PATIENCE)
        assert got == [1]


def test_a_line_that_is_nested_too_deeply_is_a_bad_frame() -> None:
    deep = HEAD + chunked(b"[" * 50_000 + b"\n") + chunked(b"")
    with answering(says(deep)) as url, pytest.raises(BadFrame, match="not JSON"):
        get(url).ndjson().block_last(PATIENCE)


@pytest.mark.parametrize("run", [asyncio.run, pytest.importorskip("uvloop").run], ids=["asyncio", "uvloop"])
def test_a_port_that_does_not_exist_is_refused_and_not_cut_off_to_another(run: Callable[..., None]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    wrong = f"http://127.0.0.1:{listener.getsockname()[1] + 65_536}/"
    redirect = f"HTTP/1.1 302 Found\r\nLocation: {wrong}\r\nContent-Length: 0\r\n\r\n".encode()

    async def ask(url: str) -> None:
        with pytest.raises(NetError, match="there is no port"):
            await get(url).answer()

    with listener:
        run(ask(wrong))
        with answering(says(redirect)) as url:
            run(ask(url))
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "no address at all", "http://127.0.0.1:port/"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(NetError):
        list(get(url).receive())


def test_without_its_library_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from penstock.net.http import get, ndjson\n"
        "get('http://127.0.0.1/').receive()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == "ImportError: the HTTP client needs httpx2: pip install 'penstock-streams[http]'"
