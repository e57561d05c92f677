"""TLS: who is trusted, by which name, with certificates that change; and what is said when it fails."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any

import pytest

from penstock.net import (
    BadCertificate,
    Connection,
    HandshakeFailed,
    Inbound,
    Outbound,
    TcpClient,
    TcpServer,
)
from penstock.streams import Flux
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, settled, soon, until

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


def flushes(connection: Connection) -> bool:
    return connection.output.sender is not None and connection.output.sender.flushing


@on_each_loop
def test_a_peer_that_pauses_for_longer_than_a_close_lingers_gets_everything(
    kind: str, authority: Authority
) -> None:
    """Below TLS bytes wait where no transport tells of them; a send is not complete before they have left."""

    async def main() -> None:
        size = 24_000_000
        server = TcpServer.create().linger(0.05).handle(lambda i, o: o.send(bytes(size)))
        async with await server.secure(certificate=authority.certificate("localhost")).bind() as running:
            client = CLIENT.secure(trust=authority.trust).port(running.port)
            client = client.read_ahead(0).option("SO_RCVBUF", 65_536)
            async with await soon(client.connect()) as connection:
                await until(lambda: running.connections and flushes(running.connections[0]))
                await asyncio.sleep(0.2)
                assert running.connections[0].busy
                got = 0
                async for chunk in connection.inbound.receive():
                    got += len(chunk)
                assert got == size
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
def test_a_handshake_ends_although_neither_side_reads_anything(
    kind: str, version: ssl.TLSVersion, authority: Authority
) -> None:
    """Its last message, the client's or the server's, is kept by a transport that is not read."""

    async def main() -> None:
        context = ssl.create_default_context(cafile=str(authority.trust))
        context.maximum_version = version
        server = TcpServer.create().read_ahead(0).handle(lambda i, o: o.keep_open())
        async with (
            await server.secure(certificate=authority.certificate("localhost")).bind() as running,
            await soon(CLIENT.secure(context).read_ahead(0).port(running.port).connect()) as client,
        ):
            await until(lambda: running.connections)
            assert client.tls.version().replace(".", "_") == version.name

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
def test_an_answer_is_not_destroyed_by_an_upload_that_nobody_reads(
    kind: str, served: TcpServer, authority: Authority
) -> None:
    """The handler answers and ends at once; the client sends on, and reads when it is done."""
    answer, upload = b"E" * 300_000, b"u" * 800_000

    def client(port: int) -> bytes:
        context = ssl.create_default_context(cafile=authority.trust)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=LONG) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as session,
        ):
            session.sendall(upload)
            got = bytearray()
            while chunk := session.recv(4096):
                got += chunk
            return bytes(got)

    async def main() -> None:
        server = served.linger(LONG).handle(lambda inbound, outbound: outbound.send(answer))
        async with await server.bind() as running:
            for _ in range(3):
                assert await soon(asyncio.to_thread(client, running.port)) == answer
            await until(lambda: not running.connections)
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

        async with (
            await ECHO.secure(certificate=file).bind() as running,
            await soon(client.port(running.port).connect()) as old,
        ):
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
