"""A client that gives up at any moment of its way through a proxy leaves nothing open, on no side."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from pathlib import Path

import pytest

from penstock.net import NetError, ProxyHeader, RunningServer, TcpClient, TcpServer
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import settled, soon, until
from tests.net.tcp.proxies.small_proxies import PROXIES, SmallProxy

pytestmark = pytest.mark.usefixtures("quiet_loop")

HEADER = ProxyHeader(("192.0.2.7", 1), ("198.51.100.1", 2))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def given_up(client: TcpClient, turns: int) -> bool:
    """Cancel after so many turns of the loop. Returns whether it was connected before."""
    connecting = asyncio.ensure_future(client.connect())
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        connection = await soon(connecting)
        connection.abort()
        await soon(connection.wait_closed())
        return True
    return False


async def all_gone(proxy: SmallProxy, server: RunningServer) -> None:
    """Until neither has a connection any more."""
    try:
        await until(lambda: proxy.open == 0 and not server.connections)
    except TimeoutError:
        pytest.fail(f"{proxy.open} connections of the proxy are left, and of the server {server.connections}")


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("scheme", PROXIES)
@pytest.mark.parametrize("secure", [False, True])
def test_a_cancel_at_any_turn_leaves_nothing_open(
    kind: str, scheme: str, secure: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive().then())
        server = server.proxy_protocol("127.0.0.1")
        client = TcpClient.create().host("shop.example").port(443).proxy_protocol(HEADER)
        if secure:
            server = server.secure(certificate=authority.certificate("shop.example"), handshake_timeout=1)
            client = client.secure(trust=authority.trust)
        async with (
            await server.bind() as running,
            PROXIES[scheme](names={"shop.example": running.port}, credentials=("me", "secret")) as proxy,
        ):
            client = client.proxy(proxy.url)
            await given_up(client, 100_000 if secure else 20_000)  # the loop opens what it needs for itself
            await all_gone(proxy, running)
            before = descriptors()
            connected = [await given_up(client, turns) for turns in range(120)]
            assert not connected[0]
            await all_gone(proxy, running)
            gc.collect()
            await until(lambda: descriptors() <= before)
        await settled()

    run_on(kind, main())


@pytest.mark.parametrize("kind", LOOPS)
def test_a_cancel_at_any_turn_of_a_direct_handshake_leaves_nothing_open(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive().then())
        server = server.secure(certificate=authority.certificate("localhost"), handshake_timeout=1)
        async with await server.bind() as running:
            client = TcpClient.create().host("localhost").port(running.port).secure(trust=authority.trust)
            await given_up(client, 100_000)
            await until(lambda: not running.connections)
            before = descriptors()
            connected = [await given_up(client, turns) for turns in range(60)]
            assert not connected[0]
            await until(lambda: not running.connections)
            await until(lambda: descriptors() <= before)
        await settled()

    run_on(kind, main())


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("scheme", PROXIES)
def test_a_timeout_at_any_moment_leaves_nothing_open(kind: str, scheme: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive().then())
        async with (
            await server.bind() as running,
            PROXIES[scheme](names={"shop.example": running.port}, slowly=True) as proxy,
        ):
            client = TcpClient.create().host("shop.example").port(443).proxy(proxy.url)
            before = descriptors()
            for tenths in range(1, 60):
                with contextlib.suppress(NetError):
                    connection = await soon(client.connect_timeout(tenths / 10_000).connect())
                    connection.abort()
                    await soon(connection.wait_closed())
            await all_gone(proxy, running)
            await until(lambda: descriptors() <= before)
        await settled()

    run_on(kind, main())
