"""What observers hear of servers and clients besides their connections: binding, looking up, connecting."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    BindFailed,
    ConnectFailed,
    Connection,
    ConnectionPool,
    ConnectionState,
    EndpointState,
    ResolveFailed,
    SocketEndpoint,
    TcpClient,
    TcpServer,
)
from tests.net.tcp.certificates import echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import refusing_port, soon

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


class Everything:
    """Hears of connections and endpoints, in the order in which it happens."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.endpoints: list[SocketEndpoint] = []

    def on_state_change(self, connection: Connection, state: ConnectionState, /) -> None:
        self.told.append(state.name)

    def on_endpoint_change(self, endpoint: SocketEndpoint, state: EndpointState, /) -> None:
        self.told.append(state.name)
        self.endpoints.append(endpoint)


class OnlyEndpoints:
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_endpoint_change(self, endpoint: SocketEndpoint, state: EndpointState, /) -> None:
        self.told.append(state.name)


@on_each_loop
def test_a_server_is_bound_and_unbound(kind: str) -> None:
    everything, endpoints = Everything(), OnlyEndpoints()

    async def main() -> str:
        async with await ECHO.observe(everything).observe(endpoints).bind() as server:
            assert await echoed(TcpClient.create().port(server.port)) == b"hello"
            return f"127.0.0.1:{server.port}"

    address = run_on(kind, main())
    assert everything.told == ["BOUND", "CONNECTED", "CONFIGURED", "DISCONNECTING", "UNBOUND"]
    assert everything.endpoints == [SocketEndpoint("127.0.0.1:0", (address,))] * 2
    assert endpoints.told == ["BOUND", "UNBOUND"]


@on_each_loop
def test_a_server_is_unbound_before_its_connections_end(kind: str) -> None:
    everything = Everything()

    async def main() -> None:
        server = await ECHO.observe(everything).bind()
        async with await soon(TcpClient.create().port(server.port).connect()):
            await asyncio.sleep(0)
            while "CONFIGURED" not in everything.told:
                await asyncio.sleep(0)
            await soon(server.aclose())

    run_on(kind, main())
    assert everything.told[-2:] == ["UNBOUND", "DISCONNECTING"]


@on_each_loop
def test_a_client_looks_up_and_connects(kind: str) -> None:
    everything = Everything()

    async def resolve(host: str, port: int) -> list[Any]:
        return [("127.0.0.1", refused), "127.0.0.1"]

    async def main() -> int:
        async with await ECHO.bind() as server:
            client = TcpClient.create().host("service.invalid").port(server.port).resolver(resolve)
            assert await echoed(client.observe(everything)) == b"hello"
            return server.port

    with refusing_port() as refused:
        port = run_on(kind, main())
    assert everything.told == [
        "RESOLVING",
        "RESOLVED",
        "CONNECTING",
        "CONNECTING",
        "CONNECTED",
        "CONFIGURED",
        "DISCONNECTING",
    ]
    first, second, third, fourth = everything.endpoints
    assert first == SocketEndpoint(f"service.invalid:{port}")
    assert second.addresses == (f"127.0.0.1:{refused}", f"127.0.0.1:{port}")
    assert third.addresses == (f"127.0.0.1:{refused}",)
    assert fourth.addresses == (f"127.0.0.1:{port}",)


@on_each_loop
def test_a_socket_of_a_pool_is_looked_up_once(kind: str) -> None:
    everything = Everything()

    async def main() -> None:
        async with await ECHO.bind() as server, ConnectionPool() as pool:
            client = TcpClient.create().port(server.port).pool(pool).observe(everything)
            for _ in range(2):
                assert await echoed(client) == b"hello"

    run_on(kind, main())
    assert everything.told == [
        "RESOLVING",
        "RESOLVED",
        "CONNECTING",
        "CONNECTED",
        *["ACQUIRED", "CONFIGURED", "RELEASED"] * 2,
        "DISCONNECTING",
    ]


@on_each_loop
def test_a_unix_socket_is_not_looked_up(kind: str, tmp_path: Path) -> None:
    everything, path = Everything(), str(tmp_path / "echo")

    async def main() -> None:
        async with await ECHO.unix(path).bind():
            assert await echoed(TcpClient.create().unix(path).observe(everything)) == b"hello"

    run_on(kind, main())
    assert everything.told == ["CONNECTING", "CONNECTED", "CONFIGURED", "DISCONNECTING"]
    assert everything.endpoints == [SocketEndpoint(path, (path,))]


@on_each_loop
def test_failures_are_told_with_their_error(kind: str) -> None:
    everything = Everything()

    async def fails(host: str, port: int) -> list[str]:
        raise LookupError("the directory is down")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(BindFailed):
                await soon(ECHO.port(port).observe(everything).bind())
        with refusing_port() as refused:
            client = TcpClient.create().port(refused).observe(everything)
            with pytest.raises(ConnectFailed):
                await soon(client.connect())
        with pytest.raises(ResolveFailed):
            await soon(client.resolver(fails).connect())

    run_on(kind, main())
    assert everything.told == [
        "FAILED",
        *["RESOLVING", "RESOLVED", "CONNECTING", "FAILED"],
        *["RESOLVING", "FAILED"],
    ]
    errors = [type(endpoint.error) for endpoint in everything.endpoints if endpoint.error is not None]
    assert errors == [BindFailed, ConnectFailed, ResolveFailed]


@on_each_loop
@pytest.mark.parametrize(
    "error",
    [ValueError("its own fault"), asyncio.CancelledError(), GeneratorExit()],
    ids=lambda e: type(e).__name__,
)
def test_an_observer_that_raises_harms_nobody(
    kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    everything = Everything()

    class Raises:
        def on_endpoint_change(self, endpoint: SocketEndpoint, state: EndpointState, /) -> None:
            raise error

    async def main() -> None:
        server = ECHO.observe(Raises()).observe(everything)
        async with await server.bind() as running:
            client = TcpClient.create().port(running.port).observe(Raises()).observe(everything)
            assert await echoed(client) == b"hello"

    with caplog.at_level(logging.ERROR, "penstock.net"):
        run_on(kind, main())
    states = ["BOUND", "RESOLVING", "RESOLVED", "CONNECTING", "UNBOUND"]
    assert [name for name in everything.told if name in states] == states
    logged = [record.getMessage() for record in caplog.records if record.name == "penstock.net"]
    assert [line.split("failed at ")[1].split(":")[0] for line in logged] == states
    assert logged[0].startswith("[127.0.0.1:0] an observer failed at BOUND")
