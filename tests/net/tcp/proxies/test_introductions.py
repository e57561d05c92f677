"""Servers that expect the PROXY protocol: who the client is, and what becomes of a bad header."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.net import Connection, ProxyHeader, TcpClient, TcpServer, Tlv, TlvType
from penstock.net.framing import lines
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
HERE = "127.0.0.0/8"
ELSEWHERE = "192.0.2.0/24"
CLIENT = ("203.0.113.9", 40_000)
TARGET = ("198.51.100.1", 443)
V1 = ProxyHeader(CLIENT, TARGET, version=1)
V2 = ProxyHeader(CLIENT, TARGET, tlvs=(Tlv(TlvType.AUTHORITY, b"shop.example"),))


def unread(port: int, peer: int) -> int:
    """How many bytes of a peer the server on this port has not read, as the system says."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (int(local.split(":")[1], 16), int(remote.split(":")[1], 16)) == (port, peer):
            return int(queues.split(":")[1], 16)
    return -1


@on_each_loop
@pytest.mark.parametrize(
    ("header", "remote"),
    [
        (V1, "203.0.113.9:40000"),
        (V2, "203.0.113.9:40000"),
        (ProxyHeader(("2001:db8::9", 1), ("::1", 2), version=1), "[2001:db8::9]:1"),
        (ProxyHeader("/run/client", "/run/server"), "/run/client"),
    ],
)
@pytest.mark.parametrize("pieces", ["at once", "byte by byte"])
def test_the_client_is_the_one_that_the_header_names(
    kind: str, header: ProxyHeader, remote: str, pieces: str
) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.proxy_protocol(HERE).on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            if pieces == "at once":
                await peer.send(header.encode() + b"hello")
            else:
                for byte in header.encode() + b"hello":
                    await peer.send(bytes([byte]))
            assert await peer.receive(5) == b"hello"
            (connection,) = seen
            assert connection.proxy_header == header
            assert connection.remote == remote
            assert connection.via == f"127.0.0.1:{peer.port}"
            assert f"R:{connection.remote}" in connection.label
            assert running.metrics.proxy_headers_refused == 0

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("header", [ProxyHeader(local=True), ProxyHeader(), ProxyHeader(version=1)])
def test_without_a_client_in_the_header_the_peer_is_the_proxy(kind: str, header: ProxyHeader) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.proxy_protocol([HERE]).on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(header.encode() + b"hello")
            assert await peer.receive(5) == b"hello"
            (connection,) = seen
            assert (connection.remote, connection.via) == (f"127.0.0.1:{peer.port}", None)
            assert connection.proxy_header == header

    run_on(kind, main())


@on_each_loop
def test_tls_comes_after_the_header(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        seen: list[tuple[Connection, object]] = []
        server = (
            ECHO.secure(certificate=authority.certificate("localhost"))
            .proxy_protocol(HERE)
            .on_connection(lambda connection: seen.append((connection, connection.tls)))
        )
        async with await server.bind() as running:
            client = TcpClient.create().host("localhost").port(running.port).secure(trust=authority.trust)
            data = b"x" * 300_000
            assert await echoed(client.proxy_protocol(V2), data) == data
            ((connection, session),) = seen
            assert session is not None
            assert (connection.remote, connection.proxy_header) == ("203.0.113.9:40000", V2)
        await settled()

    run_on(kind, main())


BAD = {
    "malformed": (b"PROXY TCP4 nonsense\r\nhello", "malformed"),
    "of an unknown version": (V2.encode()[:12] + b"\x31" + V2.encode()[13:], "version is 3"),
    "too large": (V2.encode()[:14] + b"\xff\xff" + b"x" * 100, "max_size is 4,096"),
    "missing": (b"GET / HTTP/1.1\r\n\r\n", "missing"),
    "incomplete": (V2.encode()[:20], "not complete after 0.3 s"),
    "never sent": (b"", "not complete after 0.3 s"),
}


@on_each_loop
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_header_closes_the_connection_and_its_bytes_reach_nobody(
    kind: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent, why = BAD[bad]

    async def main() -> None:
        seen: list[Any] = []
        server = ECHO.proxy_protocol(HERE, timeout=0.3).on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(sent)
            await peer.gone()
            await until(lambda: running.metrics.proxy_headers_refused == 1)
            assert not seen
            assert f"R:127.0.0.1:{peer.port}] refused" in caplog.text
            assert why in caplog.text
            # The next one is welcome.
            async with await Peer.of(running) as good:
                await good.send(V1.encode() + b"hello")
                assert await good.receive(5) == b"hello"
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_header_that_ends_too_early_is_counted_and_a_health_check_is_not(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.proxy_protocol(HERE).bind() as running:
            async with await Peer.of(running) as checking:
                checking.half_close()
                await checking.gone()
            async with await Peer.of(running) as leaving:
                await leaving.send(V2.encode()[:-1])
                leaving.half_close()
                await leaving.gone()
            async with await Peer.of(running) as broken:
                await broken.send(b"PRO")
                broken.reset()
            await until(lambda: running.metrics.proxy_headers_refused == 2)
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("required", [True, False])
def test_a_stranger_may_not_say_who_it_is(
    kind: str, required: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        seen: list[Any] = []
        server = ECHO.proxy_protocol([ELSEWHERE, "::1"], required=required).on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(V1.encode() + b"hello")
            await peer.gone()
            await until(lambda: running.metrics.proxy_headers_refused == 1)
            assert not seen
            assert (
                f"127.0.0.1:{peer.port} may not send a PROXY header: proxy_protocol() trusts 192.0.2.0/24, "
                "::1/128" in caplog.text
            )

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("trusted", [HERE, ELSEWHERE])
@pytest.mark.parametrize("pieces", [[b"hello"], [b"P", b"ROXIES"], [b"PROXY", b"!"], [b"\r\n", b"\r\nhello"]])
def test_where_a_header_is_detected_anything_else_is_a_direct_connection(
    kind: str, trusted: str, pieces: list[bytes]
) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.proxy_protocol(trusted, required=False).wiretap().metrics().on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            for piece in pieces:
                await peer.send(piece)
            data = b"".join(pieces)
            assert await peer.receive(len(data)) == data
            (connection,) = seen
            assert (connection.remote, connection.via) == (f"127.0.0.1:{peer.port}", None)
            assert connection.proxy_header is None
            assert running.metrics.data_received == len(data)

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("read_ahead", [0, 1, 65_536])
def test_bytes_that_looked_like_a_header_come_first(kind: str, fused: bool, read_ahead: int) -> None:
    async def main() -> None:
        server = ECHO.proxy_protocol(HERE, required=False).fuse(fused).read_ahead(read_ahead)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"PRO")
            await until(lambda: unread(running.port, peer.port) == 0)
            await peer.send(b"SE")
            peer.half_close()
            assert await peer.rest() == b"PROSE"

    run_on(kind, main())


@on_each_loop
def test_where_a_header_is_detected_it_counts(kind: str) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.proxy_protocol(HERE, required=False).on_connection(seen.append)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(V2.encode() + b"hello")
            assert await peer.receive(5) == b"hello"
            assert seen[0].remote == "203.0.113.9:40000"

    run_on(kind, main())


@on_each_loop
def test_a_client_that_waits_for_the_server_waits_for_the_timeout(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(b"220 ready"))
        async with (
            await server.proxy_protocol(HERE, required=False, timeout=0.1).bind() as running,
            await Peer.of(running) as peer,
        ):
            assert await peer.rest() == b"220 ready"

    run_on(kind, main())


@on_each_loop
def test_where_a_header_is_detected_tls_may_come_without_one(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        server = ECHO.secure(certificate=authority.certificate("localhost")).proxy_protocol(
            HERE, required=False
        )
        async with await server.bind() as running:
            client = TcpClient.create().host("localhost").port(running.port).secure(trust=authority.trust)
            assert await echoed(client) == b"hello"
            assert await echoed(client.proxy_protocol(V1)) == b"hello"
            async with await Peer.of(running) as neither:
                await neither.send(b"P")
                await until(lambda: unread(running.port, neither.port) == 0)
                await neither.send(b"OST / HTTP/1.1\r\n\r\n")
                await neither.gone()
            await until(lambda: running.metrics.proxy_headers_refused == 1)
            assert "neither with a PROXY header nor with TLS" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
def test_closing_the_server_leaves_no_connection_that_waits_for_its_header(kind: str) -> None:
    async def main() -> None:
        running = await ECHO.proxy_protocol(HERE, timeout=60).bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"PROXY ")
            await until(lambda: len(asyncio.all_tasks()) == 2)
            await running.aclose()
            await peer.gone()
        assert running.metrics.proxy_headers_refused == 0
        await settled()

    run_on(kind, main())


@on_each_loop
def test_the_clients_of_a_unix_socket_are_trusted(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.unix(path).proxy_protocol(ELSEWHERE).on_connection(seen.append)
        async with await server.bind():
            assert await echoed(TcpClient.create().unix(path).proxy_protocol(V2)) == b"hello"
            assert seen[0].remote == "203.0.113.9:40000"

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("version", [1, 2])
def test_a_proxy_of_ours_passes_the_client_on_through_a_second_one(kind: str, version: int) -> None:
    """client → proxy → proxy → server: the server sees the client, and both directions end."""

    async def main() -> None:
        def proxy_to(port: int) -> TcpServer:
            async def forward(inbound: Any, outbound: Any) -> None:
                header = ProxyHeader.of(inbound.connection, version=version)
                async with await TcpClient.create().port(port).proxy_protocol(header).connect() as there:
                    await asyncio.gather(
                        there.outbound.send(inbound.receive()).end(),
                        outbound.send(there.inbound.receive()).end(),
                    )

            return TcpServer.create().handle(forward)

        async def tell(inbound: Any, outbound: Any) -> None:
            count = await inbound.receive().transform(lines()).count()
            header = inbound.connection.proxy_header
            await outbound.send(f"{inbound.connection.remote} {header.destination[1]} {count}".encode())

        async with (
            await TcpServer.create().handle(tell).proxy_protocol(HERE).bind() as server,
            await proxy_to(server.port).proxy_protocol(HERE).bind() as inner,
            await proxy_to(inner.port).bind() as outer,
            await Peer.of(outer) as client,
        ):
            await client.send(b"one\ntwo\nthree\n")
            client.half_close()
            assert await client.rest() == f"127.0.0.1:{client.port} {outer.port} 3".encode()

    run_on(kind, main())


def test_a_connection_without_addresses_is_passed_on_as_unknown(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        seen: list[Connection] = []
        async with await ECHO.unix(path).on_connection(seen.append).bind():
            await echoed(TcpClient.create().unix(path))
            assert ProxyHeader.of(seen[0]) == ProxyHeader()
            assert ProxyHeader.of(seen[0], version=1).encode() == b"PROXY UNKNOWN\r\n"

    run_on("asyncio", main())


@on_each_loop
def test_a_client_that_is_cancelled_while_it_connects_leaves_nothing_open(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        trust = Authority.make(tmp_path).trust
        with Listener() as listener:
            client = TcpClient.create().port(listener.port).proxy_protocol(V1).secure(trust=trust)
            connecting = asyncio.ensure_future(client.connect())
            async with await listener.accept() as peer:
                assert await peer.receive(len(V1.encode())) == V1.encode()
                assert await peer.receive(1) == b"\x16"  # TLS begins
                connecting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await connecting
                await peer.gone()
        await settled()

    run_on(kind, main())


@on_each_loop
def test_small_answers_leave_at_once(kind: str) -> None:
    """Without TCP_NODELAY, a second small answer waits until the peer has acknowledged the first."""

    async def main() -> None:
        for server in (ECHO, ECHO.proxy_protocol(HERE)):
            async with await server.bind() as running:
                client = TcpClient.create().port(running.port).option("SO_KEEPALIVE", 1)
                async with await soon(
                    client.proxy_protocol(V1 if server is not ECHO else None).connect()
                ) as ours:
                    await ours.outbound.send(b"x")
                    await until(lambda: running.connections)
                    for connection in (ours, running.connections[0]):
                        opened = connection.transport.socket
                        assert opened is not None
                        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run_on(kind, main())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (([],), "nobody is trusted"),
        (("proxy.example",), "pass the networks"),
        (("10.0.0.1/8",), "has host bits set"),
    ],
)
def test_the_networks_are_checked_when_they_are_named(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TcpServer.create().proxy_protocol(*arguments)


def test_a_refusal_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with await ECHO.proxy_protocol(HERE).bind() as running, await Peer.of(running) as peer:
            await peer.send(b"hello")
            await peer.gone()

    run_on("asyncio", main())
    (refusal,) = [record for record in caplog.records if "refused" in record.getMessage()]
    assert (refusal.name, refusal.levelno) == ("penstock.net", logging.WARNING)
