"""TLS that does not come about, or breaks: each a clear error with a remedy, counted, and harming nobody."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    BadCertificate,
    ConnectionAborted,
    HandshakeFailed,
    NetError,
    TcpClient,
    TcpServer,
)
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
CLIENT = TcpClient.create().host("localhost")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def served(authority: Authority) -> TcpServer:
    """An echo with a certificate for localhost."""
    return ECHO.secure(certificate=authority.certificate("localhost", file="localhost.pem"))


@on_each_loop
@pytest.mark.parametrize("shown", ["none", "a stranger's"])
def test_a_client_that_cannot_show_who_it_is_is_refused(
    kind: str, shown: str, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = ECHO.secure(certificate=authority.certificate("localhost"), client_authority=authority.trust)
        async with await server.bind() as running:
            strange = Authority.make(tmp_path).certificate("client") if shown != "none" else None
            client = CLIENT.secure(trust=authority.trust, certificate=strange).port(running.port)
            # With TLS 1.3 a client is through before the server has looked: it hears of it afterwards.
            with pytest.raises(ConnectionAborted, match="the connection was lost"):
                await echoed(client)
            await until(lambda: running.metrics.handshakes_failed == 1)
            assert not running.connections
        assert "a TLS handshake failed" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
def test_an_authority_that_the_client_does_not_know(kind: str, authority: Authority, tmp_path: Path) -> None:
    async def main() -> None:
        server = ECHO.secure(certificate=authority.certificate("localhost"), handshake_timeout=0.5)
        async with await server.bind() as running:
            stranger = Authority.make(tmp_path).trust
            with pytest.raises(
                HandshakeFailed, match=r"its certificate was not accepted.*secure\(trust="
            ) as failed:
                await echoed(CLIENT.secure(trust=stranger).port(running.port))
            assert f"localhost:{running.port}" in str(failed.value)
            # The client has gone without a word, which the server takes for a handshake that takes too long.
            await until(lambda: running.metrics.handshakes_failed == 1)
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_certificate_that_has_expired(kind: str, authority: Authority) -> None:
    async def main() -> None:
        old = authority.certificate("localhost", file="expired.pem", expired=True)
        async with await ECHO.secure(certificate=old, handshake_timeout=0.5).bind() as running:
            with pytest.raises(
                HandshakeFailed, match=r"certificate has expired.*check the name and the clock"
            ):
                await echoed(CLIENT.secure(trust=authority.trust).port(running.port))
            await until(lambda: running.metrics.handshakes_failed == 1)
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_certificate_for_another_name(kind: str, authority: Authority) -> None:
    async def main() -> None:
        other = authority.certificate("elsewhere.example.org", file="other.pem")
        async with await ECHO.secure(certificate=other).bind() as running:
            with pytest.raises(HandshakeFailed, match=r"(?i)hostname mismatch.*check the name"):
                await echoed(CLIENT.secure(trust=authority.trust).port(running.port))
            named = CLIENT.secure(trust=authority.trust, server_hostname="elsewhere.example.org")
            assert await echoed(named.port(running.port)) == b"hello"
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_does_not_speak_tls_is_counted_and_harms_nobody(
    kind: str, served: TcpServer, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with await served.bind() as running:
            async with await Peer.of(running) as peer:
                await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(range(256)))
                await peer.rest()
            await until(lambda: running.metrics.handshakes_failed == 1)
            assert running.metrics.connections_total == 0
            assert await echoed(CLIENT.secure(trust=authority.trust).port(running.port)) == b"hello"
        assert "a TLS handshake failed" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("way", ["plain text", "goes", "resets"])
def test_a_handshake_that_fails_is_told_at_once_with_the_address_of_the_peer(
    kind: str, way: str, served: TcpServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with await served.bind() as running, await Peer.of(running) as peer:
            ends = f"L:127.0.0.1:{running.port} ! R:127.0.0.1:{peer.port}]"
            if way == "plain text":
                await peer.send(b"GET / HTTP/1.0\r\n\r\n")
                await peer.gone()
            elif way == "goes":
                peer.socket.close()
            else:
                await until(lambda: len(asyncio.all_tasks()) > 1)
                peer.reset()
            await until(lambda: running.metrics.handshakes_failed == 1)
            [line] = [record.getMessage() for record in caplog.records if "handshake" in record.getMessage()]
            assert re.match(r"\[[0-9a-f]{8}, " + re.escape(ends), line)
            reason = "HTTP_REQUEST" if way == "plain text" else "the peer went away"
            assert line.endswith(f"a TLS handshake failed: {reason}")
        await settled()

    run_on(kind, main())


@on_each_loop
def test_garbage_after_the_handshake_ends_the_connection_with_an_error(
    kind: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        errors: list[BaseException] = []
        server = TcpServer.create().handle(lambda i, o: o.send(i.receive().do_on_error(errors.append)))
        async with await server.secure(certificate=authority.certificate("localhost")).bind() as running:
            reader, writer = await soon(asyncio.open_connection("127.0.0.1", running.port))
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = ssl.create_default_context(cafile=authority.trust)
            session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    session.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await soon(reader.read(65_536)))
            writer.write(outgoing.read())
            await until(lambda: running.connections)
            writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
            await until(lambda: errors)
            writer.close()
            assert isinstance(errors[0], ConnectionAborted)
            await until(lambda: not running.connections)
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("answer", ["talks", "closes", "resets"])
def test_a_server_that_does_not_speak_tls(kind: str, answer: str, authority: Authority) -> None:
    async def main() -> None:
        with Listener() as listener:
            connecting = begun(CLIENT.secure(trust=authority.trust).port(listener.port).connect())
            async with await listener.accept() as peer:
                await peer.receive(100)
                if answer == "talks":
                    await peer.send(b"220 mail.example.org ready\r\n")
                elif answer == "resets":
                    peer.reset()
                else:
                    peer.socket.close()
                with pytest.raises(HandshakeFailed, match="does the other side speak TLS on this port"):
                    await connecting
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_server_that_says_nothing_is_given_up(kind: str, authority: Authority) -> None:
    async def main() -> None:
        with Listener() as listener:
            client = CLIENT.secure(trust=authority.trust, handshake_timeout=0.2).port(listener.port)
            with pytest.raises(HandshakeFailed, match="does the other side speak TLS on this port"):
                await soon(client.connect())
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("way", ["silent", "goes away"])
def test_a_peer_that_does_not_finish_its_handshake_is_closed_and_counted(
    kind: str, way: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = ECHO.secure(certificate=authority.certificate("localhost"), handshake_timeout=0.2)
        async with await server.bind() as running:
            async with await Peer.of(running) as peer:
                if way == "silent":
                    assert await peer.rest() == b""
            await until(lambda: running.metrics.handshakes_failed == 1)
            assert running.metrics.connections_total == 0
        assert "a TLS handshake failed" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_handshake_that_ends_after_the_server_was_closed_is_refused(
    kind: str, served: TcpServer, authority: Authority
) -> None:
    async def main() -> None:
        handled: list[int] = []
        running = await served.on_connection(lambda connection: handled.append(1)).bind()
        reader, writer = await soon(asyncio.open_connection("127.0.0.1", running.port))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=authority.trust)
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            session.do_handshake()
        writer.write(outgoing.read())
        incoming.write(await soon(reader.read(65_536)))
        await soon(running.aclose())
        session.do_handshake()
        writer.write(outgoing.read())
        while await soon(reader.read(65_536)):
            pass
        assert not handled
        assert not running.connections
        writer.close()
        await settled()

    run_on(kind, main())


@on_each_loop
def test_two_servers_of_one_configuration_count_for_themselves(kind: str, served: TcpServer) -> None:
    async def main() -> None:
        async with await served.bind() as one, await served.bind() as two:
            async with await Peer.of(one) as peer:
                await peer.send(b"no TLS at all, for sure")
                await peer.rest()
            await until(lambda: one.metrics.handshakes_failed == 1)
            assert two.metrics.handshakes_failed == 0
        await settled()

    run_on(kind, main())


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"certificate": "/no/such.pem"}, "there is no file '/no/such.pem'"),
        ({"certificate": __file__}, "is not a certificate that fits its key"),
        ({}, "needs a certificate"),
    ],
    ids=["missing", "no certificate", "none"],
)
def test_a_bad_certificate_is_told_before_anybody_connects(files: dict[str, Any], text: str) -> None:
    with pytest.raises((BadCertificate, ValueError), match=text):
        TcpServer.create().secure(**files)


def test_a_bad_authority_is_told_before_anybody_connects() -> None:
    with pytest.raises(BadCertificate, match="there is no file"):
        TcpClient.create().secure(trust="/no/such/authority.pem")
    with pytest.raises(BadCertificate, match="has no certificates in PEM"):
        TcpClient.create().secure(trust=__file__)


def test_a_certificate_that_came_as_a_context_cannot_be_read_again(authority: Authority) -> None:
    server = ECHO.secure(authority.context("localhost")).bind_now()
    with server, pytest.raises(NetError, match="nothing to reload"):
        server.reload_certificate()
    with ECHO.bind_now() as plain, pytest.raises(ValueError, match="does not speak TLS"):
        plain.reload_certificate()
