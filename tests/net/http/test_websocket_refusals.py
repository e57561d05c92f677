"""A WebSocket that does not come about: the error names the address, the status, and what the server said."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable

import pytest
import trustme
from websockets.asyncio.server import ServerConnection

from penstock.net import ConnectFailed, ConnectionAborted, HandshakeFailed, NetError
from penstock.net.http import BadStatus, ws
from tests.net.http.websocket_peers import PATIENCE, RawPeer, raw_server, websocket_server
from tests.net.tcp.peers import refusing_port


def says(data: bytes) -> Callable[[RawPeer], object]:
    def talk(peer: RawPeer) -> None:
        peer.socket.sendall(data)
        peer.socket.shutdown(1)
        peer.until_gone()

    return talk


@pytest.mark.parametrize(
    ("line", "status"), [("401 Unauthorized", 401), ("403 Forbidden", 403), ("404 Not Found", 404)]
)
def test_a_refusal_names_the_status_and_the_beginning_of_the_body(line: str, status: int) -> None:
    body = b"because: " + b"x" * 3000
    answer = f"HTTP/1.1 {line}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with raw_server(says(answer)) as url, pytest.raises(BadStatus) as raised:
        ws(url).connect().block(PATIENCE)
    assert str(raised.value).startswith(f"WebSocket {url} was answered with {line}: because: xxx")
    assert (raised.value.status, raised.value.body) == (status, body[:1024])


def test_a_redirect_is_not_followed() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with raw_server(says(answer)) as url, pytest.raises(BadStatus, match=r"302 .*redirect to ws://127") as e:
        list(ws(url, headers={"authorization": "secret"}).receive())
    assert e.value.status == 302


def test_a_wrong_accept_is_refused() -> None:
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: wrong\r\n\r\n"
    )
    with raw_server(says(answer)) as url, pytest.raises(BadStatus, match=r"Accept.*wrong") as raised:
        ws(url).connect().block(PATIENCE)
    assert raised.value.status == 101
    assert url in str(raised.value)


def test_an_answer_that_is_no_upgrade() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with raw_server(says(answer)) as url, pytest.raises(BadStatus, match="200 OK: hello"):
        ws(url).connect().block(PATIENCE)


def test_a_server_that_does_not_speak_http() -> None:
    with (
        raw_server(says(b"220 mail.example.org ESMTP\r\n")) as url,
        pytest.raises(ConnectFailed, match="not HTTP"),
    ):
        ws(url).connect().block(PATIENCE)


def test_a_connection_that_is_lost_in_the_handshake() -> None:
    with raw_server(says(b"")) as url, pytest.raises(ConnectionAborted, match="lost in the handshake"):
        ws(url).connect().block(PATIENCE)


@pytest.mark.parametrize("scheme", ["ws", "wss", "http"])
def test_a_password_stays_a_secret(scheme: str) -> None:
    with refusing_port() as port:
        client = ws(f"{scheme}://me:secret@127.0.0.1:{port}/", headers={"authorization": "secret"})
        with pytest.raises(NetError, match=r"//me:\*\*\*@127.0.0.1") as raised:
            client.connect().block(PATIENCE)
    assert "secret" not in f"{raised.value} {client!r} {client.receive().explain()}"


def test_a_server_that_says_nothing() -> None:
    over = threading.Event()
    with raw_server(lambda peer: over.wait(PATIENCE)) as url:
        with pytest.raises(ConnectFailed, match="no answer in time"):
            ws(url, connect_timeout=0.1).connect().block(PATIENCE)
        over.set()


def test_nobody_listens() -> None:
    refused = r"cannot connect to ws://127.0.0.1:\d+/: Connection refused"
    with refusing_port() as port, pytest.raises(ConnectFailed, match=refused):
        ws(f"ws://127.0.0.1:{port}/").connect().block(PATIENCE)


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "no address at all", "ws://127.0.0.1:port/"])
def test_what_is_not_an_address(url: str) -> None:
    with pytest.raises(NetError, match="not the address of a WebSocket"):
        ws(url).connect().block(PATIENCE)


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def hello(connection: ServerConnection) -> None:
    await connection.send("hello")


def test_a_server_with_a_certificate(authority: trustme.CA) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with websocket_server(hello, ssl=context) as url, authority.cert_pem.tempfile() as trust:
        assert list(ws(url).secure(trust=trust).receive()) == ["hello"]
        with pytest.raises(HandshakeFailed, match="its certificate was not accepted"):
            list(ws(url).receive())
        with pytest.raises(HandshakeFailed, match="its certificate was not accepted"):
            list(ws(url).secure(trust=trust, server_hostname="example.org").receive())


def test_a_server_that_does_not_speak_tls() -> None:
    with websocket_server(hello) as url, pytest.raises(HandshakeFailed):
        ws(url.replace("ws:", "wss:")).connect().block(PATIENCE)


def test_tls_needs_an_address_with_wss() -> None:
    with pytest.raises(ValueError, match="wss://"):
        ws("ws://127.0.0.1/").secure()
