"""Options of a server's socket are set before it is bound; and each connection has an id of its own."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from penstock.net import BindFailed, TcpClient, TcpServer
from penstock.net.labels import new_id
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@on_each_loop
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_two_servers_can_share_a_port(kind: str, secure: bool, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    server, client = ECHO.option("SO_REUSEPORT", 1), TcpClient.create().host("localhost")
    if secure:
        server = server.secure(certificate=authority.certificate("localhost"))
        client = client.secure(trust=authority.trust)

    async def main() -> None:
        async with await server.bind() as one, await server.port(one.port).bind() as two:
            assert two.port == one.port
            client_ = client.port(one.port)
            for _ in range(40):
                assert await echoed(client_) == b"hello"
            assert one.metrics.connections_total + two.metrics.connections_total == 40
            assert one.metrics.connections_total
            assert two.metrics.connections_total
            with pytest.raises(BindFailed):
                await ECHO.port(one.port).bind()
        await settled()

    run_on(kind, main())


async def bound_twice() -> bool:
    """Whether IPv6 and IPv4 can have one port, which could not be if "::" had taken IPv4 as well."""
    for _ in range(20):  # Another program may have the port of IPv4.
        async with await ECHO.host("::").bind() as six:
            try:
                async with await ECHO.port(six.port).bind() as four:
                    return four.port == six.port
            except BindFailed:
                continue
    return False


@on_each_loop
@needs_ipv6
def test_a_server_of_ipv6_takes_ipv4_if_it_is_told_to_and_only_then(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.host("::").option("IPV6_V6ONLY", 0).bind() as both:
            for host in "127.0.0.1", "::1":
                assert await echoed(TcpClient.create().host(host).port(both.port)) == b"hello"
        assert await bound_twice()
        await settled()

    run_on(kind, main())


@on_each_loop
def test_an_option_is_set_on_the_listening_socket_and_on_its_connections(kind: str) -> None:
    async def main() -> None:
        sizes: list[int] = []

        def look(connection: object) -> None:
            raw = connection.transport.socket  # type: ignore[attr-defined]
            sizes.append(raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))

        server = ECHO.option("SO_RCVBUF", 8192).on_connection(look)
        async with await server.bind() as running:
            assert await echoed(TcpClient.create().port(running.port)) == b"hello"
        assert sizes == [2 * 8192]

    run_on(kind, main())


@on_each_loop
def test_no_two_connections_have_the_same_id(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as running:
            client = TcpClient.create().port(running.port)
            ids = []
            for _ in range(200):
                connection = await soon(client.connect())
                ids.append(connection.id)
                connection.abort()
                await soon(connection.wait_closed())
            assert len(set(ids)) == 200
            assert all(len(name) == 8 for name in ids)

    run_on(kind, main())


def test_ids_are_distinct_among_a_hundred_thousand_and_in_a_forked_process() -> None:
    ids = {new_id() for _ in range(100_000)}
    assert len(ids) == 100_000
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, new_id().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        of_child = told.read().decode()
    os.waitpid(child, 0)
    assert len(of_child) == 8
    assert of_child != new_id()


@on_each_loop
@pytest.mark.parametrize("where", ["a port", "a path"])
def test_a_bind_that_is_cancelled_at_any_turn_leaves_nobody_listening(
    kind: str, where: str, tmp_path: Path
) -> None:
    server = ECHO if where == "a port" else ECHO.unix(str(tmp_path / "socket"))

    async def main() -> None:
        async with await server.bind():
            pass
        await settled()
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(12):
            binding = asyncio.ensure_future(server.bind())
            for _ in range(turns):
                await asyncio.sleep(0)
            if binding.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await binding
            else:
                await (await binding).aclose()
            await settled()
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
        async with await server.bind():
            pass

    run_on(kind, main())
