"""TLS: who is trusted, by which name, with certificates that change; and what is said when it fails."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    BadCertificate,
    ConnectionAborted,
    HandshakeFailed,
    Inbound,
    NetError,
    Outbound,
    TcpClient,
    TcpServer,
)
from penstock.streams import Flux
from tests.net.tcp.certificates import Authority
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


async def echoed(client: TcpClient, data: bytes = b"hello") -> bytes:
    async with await soon(client.connect()) as connection:
        sending = begun(connection.outbound.send(data))
        got = bytearray()
        async for chunk in connection.inbound.receive():
            got += chunk
            if len(got) >= len(data):
                break
        await sending
        return bytes(got)


@on_each_loop
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
def test_an_echo(kind: str, fused: bool, served: TcpServer, authority: Authority) -> None:
    async def main() -> None:
        async with await served.fuse(fused).bind() as running:
            client = CLIENT.secure(trust=authority.trust).port(running.port)
            data = bytes(range(256)) * 8_000
            assert await echoed(client, data) == data
            async with await soon(client.connect()) as connection:
                assert connection.tls.version() == "TLSv1.3"
                await until(lambda: running.connections)
            await until(lambda: not running.connections)
            assert running.metrics.handshakes_failed == 0
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_completes_flushes_and_says_goodbye(
    kind: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 20_000
        server = TcpServer.create().handle(lambda i, o: o.send(data))
        async with await server.secure(certificate=authority.certificate("localhost")).bind() as running:
            async with await CLIENT.secure(trust=authority.trust).port(running.port).connect() as client:
                assert b"".join(await soon(client.inbound.receive().collect_list())) == data
            await until(lambda: not running.connections)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_pauses_for_longer_than_a_close_lingers_gets_everything(
    kind: str, authority: Authority
) -> None:
    """Below TLS bytes wait where no transport tells of them; a send is not complete before they have left."""

    async def main() -> None:
        size = 16_000_000
        server = TcpServer.create().linger(0.05).handle(lambda i, o: o.send(bytes(size)))
        async with await server.secure(certificate=authority.certificate("localhost")).bind() as running:
            client = CLIENT.secure(trust=authority.trust).port(running.port).read_ahead(0)
            async with await soon(client.connect()) as connection:
                await until(lambda: running.connections and running.connections[0]._flushing)
                await asyncio.sleep(0.2)
                assert running.connections[0].busy
                got = 0
                async for chunk in connection.inbound.receive():
                    got += len(chunk)
                assert got == size
        await settled()

    run_on(kind, main())


@on_each_loop
def test_what_came_before_the_close_is_given_to_a_slow_handler(kind: str, authority: Authority) -> None:
    """The end of TLS is the end of both directions, but what has come has come."""

    async def main() -> None:
        seen = bytearray()
        done = asyncio.Event()

        async def slow(inbound: Inbound, outbound: Outbound) -> None:
            async for chunk in inbound.receive():
                await asyncio.sleep(0.01)
                seen.extend(chunk)
            done.set()

        server = TcpServer.create().handle(slow).secure(certificate=authority.certificate("localhost"))
        async with await server.bind() as running:
            client = await CLIENT.secure(trust=authority.trust).port(running.port).connect()
            await soon(client.outbound.send(Flux.from_iterable([b"x" * 1000] * 40)))
            await soon(client.aclose())
            await soon(done.wait())
        assert len(seen) == 40_000
        await settled()

    run_on(kind, main())


@on_each_loop
def test_the_name_that_a_client_asks_for_chooses_the_certificate(kind: str, authority: Authority) -> None:
    async def main() -> None:
        names = {
            "one.example.org": authority.context("one.example.org"),
            "*.example.org": authority.context("*.example.org"),
        }
        server = ECHO.secure(certificate=authority.certificate("localhost"), names=names)
        async with await server.bind() as running:

            async def presented(name: str) -> set[str]:
                client = CLIENT.secure(trust=authority.trust, server_hostname=name).port(running.port)
                async with await soon(client.connect()) as connection:
                    await soon(connection.outbound.send(b"x"))
                    alternatives = connection.tls.getpeercert()["subjectAltName"]
                    return {value for _, value in alternatives}

            assert await presented("one.example.org") == {"one.example.org"}
            assert await presented("ONE.example.org") == {"one.example.org"}
            assert await presented("two.example.org") == {"*.example.org"}
            assert await presented("localhost") == {"localhost"}
            with pytest.raises(HandshakeFailed, match="Hostname mismatch"):
                await presented("one.two.example.org")
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_client_with_a_certificate_is_known_to_the_server(kind: str, authority: Authority) -> None:
    async def main() -> None:
        peers: list[Any] = []
        server = ECHO.secure(
            certificate=authority.certificate("localhost"), client_authority=authority.trust
        ).on_connection(lambda connection: peers.append(connection.tls.getpeercert()))
        async with await server.bind() as running:
            mine = authority.certificate("client.example.org", file="client.pem")
            client = CLIENT.secure(trust=authority.trust, certificate=mine).port(running.port)
            assert await echoed(client) == b"hello"
            [certificate] = peers
            assert ("DNS", "client.example.org") in certificate["subjectAltName"]
        await settled()

    run_on(kind, main())


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
            # With TLS 1.3 a client is through before the server has looked, and hears of it as a lost connection.
            with pytest.raises(ConnectionAborted, match="the connection was lost"):
                await echoed(client)
            await until(lambda: running.metrics.handshakes_failed == 1)
            assert not running.connections
        assert "a TLS handshake failed" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_certificate_is_changed_while_the_server_runs(kind: str, authority: Authority) -> None:
    async def main() -> None:
        file = authority.certificate("localhost", "old.example.org", file="changing.pem")
        client = CLIENT.secure(trust=authority.trust)

        async def names(port: int) -> set[str]:
            async with await soon(client.port(port).connect()) as connection:
                return {value for _, value in connection.tls.getpeercert()["subjectAltName"]}

        async with await ECHO.secure(certificate=file).bind() as running:
            async with await soon(client.port(running.port).connect()) as old:
                assert await names(running.port) == {"localhost", "old.example.org"}
                authority.certificate("localhost", "new.example.org", file="changing.pem")
                running.reload_certificate()
                assert await names(running.port) == {"localhost", "new.example.org"}
                file.write_text("spoilt")
                with pytest.raises(BadCertificate, match="is not a certificate that fits its key"):
                    running.reload_certificate()
                assert await names(running.port) == {"localhost", "new.example.org"}
                await soon(old.outbound.send(b"still here"))
                assert await soon(old.inbound.receive().take(1).collect_list()) == [b"still here"]
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
                HandshakeFailed, match="certificate has expired.*check the name and the clock"
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
