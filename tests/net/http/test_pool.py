"""The connections that requests share: bounds, reuse, and an end with their event loop."""

from __future__ import annotations

import asyncio
import gc
import gzip
import http.server
import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
import weakref
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import trustme
import uvloop

from penstock.net import ConnectionAborted, NetError
from penstock.net.http import Call, HttpPool, HttpPoolStatus, PoolExhausted, get, http_pool, post
from penstock.net.http.inflation import inflated
from penstock.streams import Flux
from tests.net.http.conversing import turns

PATIENCE = 60.0
BOMB = gzip.compress(bytes(10_000_000))


class Server(http.server.ThreadingHTTPServer):
    """A server that keeps connections, counts them, and can be told to wait."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accepted = 0
        self.open = 0
        self.cookies: list[str | None] = []
        self.tags: list[str] = []
        self.changed = threading.Condition()
        self.gate = threading.Event()
        self.scheme = "http"

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}{path}"

    def until_open(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.open == count, PATIENCE), self.open

    def count(self, opened: bool) -> None:
        with self.changed:
            self.accepted += opened
            self.open += 1 if opened else -1
            self.changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.count(True)

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.count(False)

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers["cookie"])
        self.server.tags += self.headers.get_all("x-tag", [])
        if self.path == "/gate":
            assert self.server.gate.wait(PATIENCE)
        body = b"x" * (4_000_000 if self.path == "/long" else 3)
        self.send_response(302 if self.path == "/login" else 200)
        if self.path == "/login":
            self.send_header("set-cookie", "session=1; Path=/")
            self.send_header("location", "/home")
        if self.path in ("/bomb", "/broken"):
            body = BOMB[: 500 if self.path == "/broken" else None]
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    with Server() as server:
        if tls is not None:
            server.scheme = "https"
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.gate.set()
            server.shutdown()
            thread.join(PATIENCE)


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as one:
        yield one


def body_of(call: Call) -> Any:
    return call.receive().reduce(bytes.__add__)


# ---------------------------------------------------------------- reuse


def test_requests_after_one_another_share_a_connection(server: Server) -> None:
    async def ask() -> HttpPoolStatus:
        for _ in range(5):
            assert await body_of(get(server.url("/"))) == b"xxx"
            answer = await post(server.url("/"), b"body").answer()
            assert (answer.status, answer.body) == (200, b"xxx")
        return http_pool().status()

    status = asyncio.run(ask())
    assert server.accepted == 1
    assert status == HttpPoolStatus(active=0, waiting=0, hosts={}, requests=10, opened=1, refused=0)


def test_requests_at_the_same_time_have_a_connection_each(server: Server) -> None:
    async def ask() -> HttpPoolStatus:
        waiting = [asyncio.ensure_future(whole(get(server.url("/gate")))) for _ in range(4)]
        await asyncio.to_thread(server.until_open, 4)
        status = http_pool().status()
        server.gate.set()
        await asyncio.gather(*waiting)
        return status

    status = asyncio.run(ask())
    assert (status.active, status.waiting, status.hosts) == (4, 0, {server.url(""): 4})


async def whole(call: Call) -> bytes:
    body: bytes = await body_of(call)
    return body


def test_a_body_that_is_left_half_way_does_not_poison_the_pool(server: Server) -> None:
    async def ask() -> HttpPoolStatus:
        for _ in range(5):
            assert len(await get(server.url("/long")).receive().take(1).collect_list()) == 1
            async for _ in get(server.url("/long")).receive():
                break
            assert await whole(get(server.url("/"))) == b"xxx"
        while http_pool().status().active:
            await asyncio.sleep(0.01)
        return http_pool().status()

    assert asyncio.run(ask()).hosts == {}
    server.until_open(0)


def test_an_error_status_keeps_its_connection_and_a_broken_one_is_not_used_again(server: Server) -> None:
    async def ask() -> None:
        with pytest.raises(NetError, match="501"):
            await whole(Call(method="PATCH", url=server.url("/")))
        assert await whole(get(server.url("/"))) == b"xxx"
        assert http_pool().status().active == 0

    asyncio.run(ask())


def test_cookies_stay_with_their_request(server: Server) -> None:
    async def ask() -> None:
        await whole(get(server.url("/login")))
        await whole(get(server.url("/")))

    asyncio.run(ask())
    assert server.cookies == [None, "session=1", None]


def test_a_header_may_have_several_values(server: Server) -> None:
    get(server.url("/"), headers=[("X-Tag", "a"), ("X-Tag", "b")]).answer().block(PATIENCE)
    assert server.tags == ["a", "b"]


def test_a_client_of_yours_is_used_instead(server: Server) -> None:
    async def ask() -> HttpPoolStatus:
        async with httpx2.AsyncClient(verify=False) as client:
            assert await whole(get(server.url("/"), client=client)) == b"xxx"
            with pytest.raises(ValueError, match="not both"):
                get(server.url("/"), client=client, pool=HttpPool())
        return http_pool().status()

    assert asyncio.run(ask()).requests == 0


def closing_server(answers: int) -> tuple[str, threading.Thread, list[int]]:
    """Answers on each connection once, takes a second request, and closes without an answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[int] = []

    def head(connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = connection.recv(1000)
            if not chunk:
                return False
            data += chunk
        return True

    def serve() -> None:
        with listener:
            for number in range(answers):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE)
                    assert head(connection)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    taken.append(number)
                    head(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/", thread, taken


def test_a_server_that_closes_while_a_connection_is_used_again_is_asked_once_more() -> None:
    url, thread, taken = closing_server(2)

    async def ask() -> None:
        assert await whole(get(url)) == b"ok"
        assert await whole(get(url)) == b"ok"

    asyncio.run(ask())
    thread.join(PATIENCE)
    assert taken == [0, 1]


def test_a_request_that_is_not_idempotent_is_not_sent_twice() -> None:
    url, thread, taken = closing_server(1)

    async def ask() -> None:
        assert await whole(get(url)) == b"ok"
        with pytest.raises(ConnectionAborted, match="POST"):
            await whole(post(url, b"pay"))

    asyncio.run(ask())
    thread.join(PATIENCE)
    assert taken == [0]


# ---------------------------------------------------------------- bounds


def test_a_bound_for_each_host_and_one_for_all(server: Server) -> None:
    pool = HttpPool(connections=3, per_host=2)

    async def ask(other: Server) -> None:
        here = [asyncio.ensure_future(whole(get(server.url("/gate"), pool=pool))) for _ in range(3)]
        there = [asyncio.ensure_future(whole(get(other.url("/gate"), pool=pool))) for _ in range(2)]
        await asyncio.to_thread(server.until_open, 2)
        await asyncio.to_thread(other.until_open, 1)
        await turns()
        status = pool.status()
        assert (status.active, status.waiting) == (3, 2)
        assert status.hosts == {server.url(""): 2, other.url(""): 1}
        server.gate.set()
        other.gate.set()
        assert await asyncio.gather(*here, *there) == [b"xxx"] * 5
        assert (pool.status().active, pool.status().waiting, pool.status().hosts) == (0, 0, {})

    with running() as other:
        asyncio.run(ask(other))
        assert server.accepted <= 2 + 1  # one may be closed to make room for another host
        assert other.accepted <= 2


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (
            HttpPool(per_host=1, wait=0.05),
            r"all 1 connections to http://127.* are in use.*HttpPool\(per_host=…",
        ),
        (HttpPool(connections=1, wait=0.05), r"all 1 connections are in use.*HttpPool\(connections=…"),
    ],
    ids=["of a host", "in all"],
)
def test_who_waits_too_long_is_told_the_bound_and_what_to_do(
    pool: HttpPool, text: str, server: Server
) -> None:
    async def ask() -> None:
        first = asyncio.ensure_future(whole(get(server.url("/gate"), pool=pool)))
        await asyncio.to_thread(server.until_open, 1)
        with pytest.raises(PoolExhausted, match=text) as raised:
            await whole(get(server.url("/"), pool=pool))
        assert isinstance(raised.value, TimeoutError)
        assert (pool.status().refused, pool.status().waiting) == (1, 0)
        server.gate.set()
        assert await first == b"xxx"
        assert await whole(get(server.url("/"), pool=pool)) == b"xxx"

    asyncio.run(ask())


def test_who_stops_waiting_takes_nothing_with_it(server: Server) -> None:
    pool = HttpPool(per_host=1)

    async def ask() -> None:
        first = asyncio.ensure_future(whole(get(server.url("/gate"), pool=pool)))
        await asyncio.to_thread(server.until_open, 1)
        waiting = [asyncio.ensure_future(whole(get(server.url("/"), pool=pool))) for _ in range(5)]
        while pool.status().waiting < 5:
            await asyncio.sleep(0)
        for one in waiting[:4]:
            one.cancel()
        await asyncio.gather(*waiting[:4], return_exceptions=True)
        server.gate.set()
        assert await first == b"xxx"
        assert await waiting[4] == b"xxx"
        assert pool.status().waiting == 0

    asyncio.run(ask())


def test_many_requests_through_few_connections(server: Server) -> None:
    pool = HttpPool(per_host=3)
    bodies = Flux.range(100).flat_map(lambda _: get(server.url("/"), pool=pool).receive(), concurrency=20)
    assert bodies.collect_list().block(PATIENCE) == [b"xxx"] * 100
    assert server.accepted == 3


def test_a_client_of_yours_that_is_exhausted_says_so(server: Server) -> None:
    async def ask() -> None:
        limits = httpx2.Limits(max_connections=1)
        async with httpx2.AsyncClient(verify=False, limits=limits) as client:
            first = asyncio.ensure_future(whole(get(server.url("/gate"), client=client)))
            await asyncio.to_thread(server.until_open, 1)
            with pytest.raises(PoolExhausted, match="higher limits"):
                await whole(get(server.url("/"), client=client, timeout=0.1))
            server.gate.set()
            await first

    asyncio.run(ask())


def test_a_body_that_grows_when_it_is_unpacked_has_a_limit(server: Server) -> None:
    with pytest.raises(NetError, match="more than 1000 bytes"):
        get(server.url("/bomb")).answer(max_length=1000).block(PATIENCE)


@pytest.mark.parametrize(
    "options", [{"connections": 0}, {"per_host": 0}, {"keep_alive": -1}, {"wait": -1}], ids=str
)
def test_bounds_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least"):
        HttpPool(**options)


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_each_run_has_its_own_connections_and_closes_them(factory: Any, server: Server) -> None:
    for number in (1, 2):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(whole(get(server.url("/")))) == b"xxx"
        server.until_open(0)
        assert server.accepted == number
    gc.collect()


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_loop_that_is_closed_without_notice(factory: Any, server: Server) -> None:
    loop = factory()
    assert loop.run_until_complete(whole(get(server.url("/")))) == b"xxx"
    server.until_open(1)
    loop.close()
    server.until_open(0)
    assert loop.is_closed()
    loop.close()
    del loop
    gc.collect()


def test_a_loop_that_is_closed_on_the_thread_of_another(server: Server) -> None:
    async def ask() -> None:
        other = asyncio.new_event_loop()
        await asyncio.to_thread(other.run_until_complete, whole(get(server.url("/"))))
        server.until_open(1)
        other.close()
        server.until_open(0)

    asyncio.run(ask())
    gc.collect()


def test_a_loop_that_runs_is_not_closed(server: Server) -> None:
    async def ask() -> None:
        await whole(get(server.url("/")))
        with pytest.raises(RuntimeError, match="running"):
            asyncio.get_running_loop().close()
        assert await whole(get(server.url("/"))) == b"xxx"

    asyncio.run(ask())
    assert server.accepted == 1


def test_a_loop_that_ends_in_the_middle_of_a_response(server: Server) -> None:
    async def ask() -> None:
        reading = get(server.url("/long")).receive().__aiter__()
        await anext(reading)

    asyncio.run(ask())
    server.until_open(0)
    gc.collect()


def test_two_threads_with_a_loop_each(server: Server) -> None:
    both = threading.Barrier(2)
    got: list[Any] = []

    def work() -> None:
        async def ask() -> None:
            await whole(get(server.url("/")))
            await asyncio.to_thread(both.wait, PATIENCE)
            for _ in range(20):
                await whole(get(server.url("/")))
            got.append(http_pool().status().requests)

        asyncio.run(ask())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert got == [21, 21]
    assert server.accepted == 2
    server.until_open(0)


def test_a_thread_without_a_loop_uses_the_one_in_the_background(server: Server) -> None:
    pool = HttpPool(keep_alive=0.05)
    for _ in range(3):
        assert body_of(get(server.url("/"), pool=pool)).block(PATIENCE) == b"xxx"
    assert pool.status().requests == 3
    server.until_open(0)  # by itself, because nobody uses it


def test_what_nobody_uses_is_closed_and_the_next_request_opens_another(server: Server) -> None:
    pool = HttpPool(keep_alive=0.05)

    async def ask() -> None:
        await whole(get(server.url("/"), pool=pool))
        await asyncio.to_thread(server.until_open, 0)
        assert await whole(get(server.url("/"), pool=pool)) == b"xxx"
        await pool.aclose()
        await asyncio.to_thread(server.until_open, 0)
        assert await whole(get(server.url("/"), pool=pool)) == b"xxx"
        assert pool.status().opened == 3

    asyncio.run(ask())


def test_a_pool_that_is_dropped_is_forgotten(server: Server) -> None:
    async def ask() -> None:
        pool = HttpPool(keep_alive=0.01)
        await whole(get(server.url("/"), pool=pool))
        forgotten = weakref.ref(pool)
        del pool
        await asyncio.to_thread(server.until_open, 0)
        await turns()
        gc.collect()
        assert forgotten() is None

    asyncio.run(ask())


def test_a_program_that_ends_leaves_nothing_to_complain_about(server: Server) -> None:
    program = f"""
import asyncio, gc
from penstock.net.http import get
call = get({server.url("/")!r})
assert call.answer().block(60).body == b"xxx"
async def ask():
    return (await call.answer()).body
for _ in range(2):
    assert asyncio.run(ask()) == b"xxx"
gc.collect()
"""
    result = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_connections_with_tls_are_closed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    monkeypatch.setattr("penstock.net.http.pool._trust", lambda: trust)

    async def ask(server: Server) -> None:
        for _ in range(3):
            assert await whole(get(server.url("/"))) == b"xxx"

    with running(context) as server:
        asyncio.run(ask(server))
        server.until_open(0)
        assert server.accepted == 1
    gc.collect()


# ---------------------------------------------------------------- compressed responses


def test_a_compressed_chunk_is_unpacked_in_pieces(server: Server) -> None:
    async def ask() -> list[int]:
        call = get(server.url("/bomb"), headers={"accept-encoding": "gzip"})
        return await call.receive().map(len).collect_list()

    sizes = asyncio.run(ask())
    assert sum(sizes) == 10_000_000
    assert max(sizes) <= 64 * 1024


def test_a_compressed_answer_beyond_the_bound_is_not_unpacked_whole(server: Server) -> None:
    async def ask() -> int:
        await get(server.url("/")).answer()  # what is imported and kept for ever does not count
        tracemalloc.start()
        try:
            with pytest.raises(NetError, match="more than 1000 bytes"):
                await get(server.url("/bomb"), headers={"accept-encoding": "gzip"}).answer(max_length=1000)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(ask()) < 5_000_000


def test_a_compressed_response_that_ends_too_early_is_an_error(server: Server) -> None:
    async def ask() -> None:
        with pytest.raises(NetError, match="ends too early"):
            await get(server.url("/broken"), headers={"accept-encoding": "gzip"}).answer()

    asyncio.run(ask())


@pytest.mark.parametrize("window", [15, -15, 31], ids=["zlib", "raw deflate", "gzip"])
def test_every_kind_of_deflate_is_unpacked(window: int) -> None:
    packer = zlib.compressobj(wbits=window)
    packed = packer.compress(bytes(300_000)) + packer.flush()

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), 7):
            yield packed[at : at + 7]

    async def unpacked() -> bytes:
        return b"".join([piece async for piece in inflated(chunks(), "body")])

    assert asyncio.run(unpacked()) == bytes(300_000)


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_forked_child_lets_go_of_idle_connections(server: Server, kind: str) -> None:
    script = """
import asyncio, os, sys, warnings
import uvloop
from penstock.net.http import get, http_pool
warnings.simplefilter("ignore")

async def main(url):
    await get(url).answer()
    go_on, told = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        os.read(go_on, 1)  # until the test has seen enough
        os._exit(0)
    await http_pool().aclose()
    print("closed", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    os.close(told)
    os.waitpid(child, 0)
    await get(url).answer()

with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[2] == "uvloop" else None) as runner:
    runner.run(main(sys.argv[1]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, server.url("/"), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        server.until_open(0)  # although the child lives
        process.communicate("go on\n", timeout=PATIENCE)
        assert process.returncode == 0
