"""The server under the dashboard and the metrics: visitors that say nothing, or nonsense, keep nobody out."""

import contextlib
import http.client
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from penstock import idle_connections
from penstock.observe import Dashboard, DashboardOptions, MetricsServer, Snapshot
from penstock.observe.dashboard import application

MANY = 200
Serving = Callable[[], contextlib.AbstractContextManager[int]]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections are cut off soon: on a busy machine also such as are not idle."""
    monkeypatch.setattr(idle_connections, "_LOOK", 0.2)
    monkeypatch.setattr(idle_connections, "PATIENCE", 1)


def look() -> Snapshot:
    return Snapshot(at=0.0, clock=0.0)


@contextlib.contextmanager
def metrics() -> Iterator[int]:
    with MetricsServer(look, "127.0.0.1:0") as server:
        yield int(server.url.rpartition(":")[2].partition("/")[0])


@contextlib.contextmanager
def dashboard() -> Iterator[int]:
    with Dashboard(look, DashboardOptions(listen="127.0.0.1:0")) as server:
        yield int(server.url.rpartition(":")[2].strip("/"))


BOTH = pytest.mark.parametrize("serving", [metrics, dashboard])


def status_of(port: int, path: str = "/", method: str = "GET") -> int:
    visitor = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        visitor.request(method, path)
        return visitor.getresponse().status
    finally:
        visitor.close()


def is_kept_out(port: int) -> bool:
    try:
        return status_of(port) == 503
    except ConnectionError:
        return True  # The machine was so busy that it counted as idle.


@pytest.mark.usefixtures("soon")
@BOTH
@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET"])
def test_idle_connections_do_not_keep_visitors_out(serving: Serving, said: bytes) -> None:
    with serving() as port, contextlib.ExitStack() as stack:
        for _ in range(MANY):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(OSError):  # Some are cut off already.
                idle.sendall(said)
        while is_kept_out(port):
            pass


@pytest.mark.usefixtures("soon")
@BOTH
def test_a_connection_that_says_nothing_is_cut_off(serving: Serving) -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as idle:
        idle.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert idle.recv(1) == b""


@BOTH
def test_nonsense_is_not_logged(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as port:
        for said in (
            b"\x16\x03\x01\x02\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port)) as visitor:
                visitor.settimeout(60)
                visitor.sendall(said)
                assert visitor.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 200")
    assert [each.message for each in caplog.records if each.levelno >= logging.INFO] == []


def test_asking_for_the_head_of_the_events_ends() -> None:
    with dashboard() as port:
        assert status_of(port, "/events", "HEAD") == 200


def test_a_form_that_never_arrives_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_FORM_TIME", 0.1)
    with dashboard() as port, socket.create_connection(("127.0.0.1", port)) as visitor:
        visitor.settimeout(60)
        visitor.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ntoken=")
        assert visitor.recv(12) == b"HTTP/1.1 408"


def test_a_name_that_is_not_text_does_not_stop_the_figures() -> None:
    odd = Snapshot.from_json(b'{"at":0,"clock":0,"hops":[{"id":"a","kind":"stage","name":"\\udcff"}]}')
    with Dashboard(lambda: odd, DashboardOptions(listen="127.0.0.1:0")) as server:
        port = int(server.url.rpartition(":")[2].strip("/"))
        while status_of(port, "/snapshot.json") == 503:
            pass
    assert Snapshot.from_json(odd.to_json().encode()) == odd
