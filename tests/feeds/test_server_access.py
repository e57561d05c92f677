"""Servers with TLS that ask for a token: uvicorn with a certificate of our own authority."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
import websockets

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
from penstock.feeds import BadFeed, WebSocketListenFeed
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader

TOKEN = "0123456789abcdef"
KINDS = ["https", "sse+https", "wss"]


class Server:
    """Sends one record to whoever has the token: as a line, as an event, or as a message."""

    def __init__(self) -> None:
        self.given: list[str | None] = []
        self.elsewhere: str | None = None
        """Where to send everybody."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        given = dict(scope["headers"]).get(b"authorization")
        self.given.append(None if given is None else given.decode())
        status = 200 if self.given[-1] == f"Bearer {TOKEN}" else 401
        if scope["path"] == "/secret":
            status = 403
        if self.elsewhere is not None:
            status = 307
        if scope["type"] == "websocket" and status == 200:
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": "record"})
            await receive()
            return
        kind = b"text/event-stream" if scope["path"] == "/events" else b"text/plain"
        body = b"data: record\n\n" if scope["path"] == "/events" else b"record\n"
        headers = [(b"content-type", kind)]
        if self.elsewhere is not None:
            headers.append((b"location", self.elsewhere.encode()))
        before = "websocket." if scope["type"] == "websocket" else ""
        await send({"type": f"{before}http.response.start", "status": status, "headers": headers})
        await send({"type": f"{before}http.response.body", "body": body if status == 200 else b"no\n"})


@contextmanager
def serving(server: Server, **settings: Any) -> Iterator[int]:
    """Serve at a free port, on a thread of its own."""
    application: Any = server
    config = uvicorn.Config(application, lifespan="off", log_config=None, **settings)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            # uvicorn fails if it is told to end while a connection is just being closed.
            wait_until(lambda: not running.server_state.connections, "the connections are not closed")
            running.should_exit = True
            thread.join(PATIENCE)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The paths of certificates and tokens, by name."""
    authority, other = trustme.CA(), trustme.CA()
    signed = authority.issue_cert("localhost")
    paths = {name: str(tmp_path / name) for name in ("ca", "other-ca", "certificate", "key", "token", "old")}
    authority.cert_pem.write_to_path(paths["ca"])
    other.cert_pem.write_to_path(paths["other-ca"])
    signed.cert_chain_pems[0].write_to_path(paths["certificate"])
    signed.private_key_pem.write_to_path(paths["key"])
    Path(paths["token"]).write_text(f"{TOKEN}\n")
    Path(paths["old"]).write_text("token-of-yesterday")
    return paths


@contextmanager
def over_tls(files: dict[str, str]) -> Iterator[tuple[Server, int]]:
    server = Server()
    with serving(server, ssl_certfile=files["certificate"], ssl_keyfile=files["key"]) as port:
        yield server, port


def first_of(url: str) -> Any:
    """The first record of a feed, or the error that ended it."""
    with feeds.open(url) as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        try:
            return reader.take(1)[0] if not _fails(reader) else reader.error
        finally:
            reader.subscription.cancel()


def _fails(reader: Reader) -> bool:
    while reader.lines.empty() and not reader.ended.wait(0.01):
        pass
    return reader.error is not None


def address(kind: str, port: int, host: str = "localhost") -> str:
    return f"{kind}://{host}:{port}/{'events' if kind.startswith('sse') else 'in'}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_a_certificate_of_ours_and_a_token_is_read(kind: str, files: dict[str, str]) -> None:
    with over_tls(files) as (server, port):
        url = f"{address(kind, port)}#token-file={files['token']}&ca={files['ca']}"
        assert first_of(url) == b"record"
        assert server.given == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_that_is_not_trusted_ends_the_feed_with_what_to_do(
    kind: str, files: dict[str, str]
) -> None:
    with over_tls(files) as (server, port):
        for parameters in ("", f"#ca={files['other-ca']}"):
            error = first_of(address(kind, port) + parameters)
            assert isinstance(error, BadFeed)
            assert str(error).startswith(f"{address(kind, port)}: the certificate of the server is not ")
            assert str(error).endswith("; name the certificates to trust with #ca=FILE")
        error = first_of(f"{address(kind, port, '127.0.0.1')}#ca={files['ca']}")
        assert isinstance(error, BadFeed)
        assert str(error).endswith("write the host as it is in the certificate")
        assert server.given == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_refuses_us_ends_the_feed_with_what_to_do(kind: str, files: dict[str, str]) -> None:
    with over_tls(files) as (_, port):
        url, trusting = address(kind, port), f"#ca={files['ca']}"
        error = first_of(url + trusting)
        assert isinstance(error, BadFeed)
        assert str(error) == (
            f"{url}: the server asks who we are (401); name a file with a token (#token-file=FILE), or "
            "check the user and the password in the URL"
        )
        error = first_of(f"{url}{trusting}&token-file={files['old']}")
        assert isinstance(error, BadFeed)
        assert "the server does not accept the token (401); put a valid one into the token-file" in str(error)
        assert "yesterday" not in str(error)
        error = first_of(f"{kind}://localhost:{port}/secret{trusting}&token-file={files['token']}")
        assert isinstance(error, BadFeed)
        assert "the server does not allow us to read this (403)" in str(error)


@pytest.mark.parametrize("kind", ["http", "sse+http"])
def test_a_token_is_not_sent_to_the_server_of_a_redirect(kind: str, files: dict[str, str]) -> None:
    named, other = Server(), Server()
    with serving(named) as port, serving(other) as elsewhere:
        named.elsewhere = f"http://127.0.0.1:{elsewhere}/in"
        error = first_of(f"{kind}://127.0.0.1:{port}/in#token-file={files['token']}")
    assert isinstance(error, BadFeed)
    assert named.given == [f"Bearer {TOKEN}"]
    assert other.given == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_used_is_told_when_the_feed_is_opened(kind: str, files: dict[str, str]) -> None:
    with pytest.raises(BadFeed, match=r"cannot read the certificates in /nothing: No such file.*#ca="):
        feeds.open(f"{kind}://localhost/in#ca=/nothing")
    with pytest.raises(BadFeed, match="has no certificates in PEM format"):
        feeds.open(f"{kind}://localhost/in#ca={files['token']}")
    with pytest.raises(BadFeed, match="cannot read the token-file /nothing: No such file"):
        feeds.open(f"{kind}://localhost/in#token-file=/nothing")
    with pytest.raises(BadFeed, match="leave the user or token-file out"):
        feeds.open(f"{kind}://me@localhost/in#token-file={files['token']}")
    Path(files["token"]).write_text("two\nlines")
    with pytest.raises(BadFeed, match="one token, in one line"):
        feeds.open(f"{kind}://localhost/in#token-file={files['token']}")
    plain = kind.replace("https", "http").replace("wss", "ws")
    with pytest.raises(BadFeed, match="'ca=…' is not known"):
        feeds.open(f"{plain}://localhost/in#ca={files['ca']}")


def test_a_listener_with_a_certificate_takes_messages_over_tls(files: dict[str, str]) -> None:
    given = f"certificate={files['certificate']}&key={files['key']}&token-file={files['token']}"
    with feeds.open(f"wss-listen://127.0.0.1:0/in?ack=ok&{given}") as feed:
        assert isinstance(feed, WebSocketListenFeed)

        async def send(trusted: str) -> str:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            context = ssl.create_default_context(cafile=files[trusted])
            url = f"wss://localhost:{feed.port}/in"
            async with websockets.connect(url, ssl=context, additional_headers=headers) as connection:
                await connection.send("record")
                return str(await connection.recv())

        with Gateway(feed, "tcp://127.0.0.1:0") as gateway:
            assert asyncio.run(send("ca")) == "ok"
            with pytest.raises(ssl.SSLCertVerificationError):
                asyncio.run(send("other-ca"))
            assert list(AquiferPublisher(gateway.endpoint, stop=1).flux()) == [b"record"]


def test_a_sender_whose_farewell_lasts_does_not_disturb_the_end_of_the_listener(
    files: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context(cafile=files["ca"])
    hello = (
        b"GET /in HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    given = f"certificate={files['certificate']}&key={files['key']}"
    with feeds.open(f"wss-listen://127.0.0.1:0/in?{given}") as feed:
        assert isinstance(feed, WebSocketListenFeed)
        with (
            socket.create_connection(("127.0.0.1", feed.port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sender,
        ):
            sender.sendall(hello)
            assert sender.recv(1000).startswith(b"HTTP/1.1 101 ")
            sender.sendall(b"\x88\x80mask")
            assert sender.recv(2)[:1] == b"\x88"
            # The server waits for the end of TLS now, and the sender does not say it.
            feed.close()
    assert not caplog.records
