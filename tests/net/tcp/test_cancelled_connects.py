"""A client that gives up in the moment in which its connection begins leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net import Connection, ConnectionPool, ConnectionState, Inbound, Outbound, TcpClient, TcpServer
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import settled, soon, until

pytestmark = [pytest.mark.parametrize("kind", LOOPS), pytest.mark.usefixtures("quiet_loop")]

reader = TcpServer.create().handle(lambda inbound, outbound: inbound.receive().then())


class GivesUp:
    """An observer that cancels the connect when it hears of the connection."""

    def __init__(self) -> None:
        self.states: list[ConnectionState] = []
        self.connecting: asyncio.Future[Connection] | None = None

    def on_state_change(self, connection: Connection, state: ConnectionState) -> None:
        self.states.append(state)
        if state is ConnectionState.CONNECTED and self.connecting is not None:
            self.connecting.cancel()

    async def connect(self, client: TcpClient) -> None:
        self.connecting = asyncio.ensure_future(client.connect())
        with pytest.raises(asyncio.CancelledError):
            await soon(self.connecting)


def test_the_handler_of_a_connection_whose_connect_is_cancelled_is_cancelled_too(kind: str) -> None:
    begun, ended = list[str](), list[str]()

    async def handler(inbound: Inbound, outbound: Outbound) -> None:
        begun.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def main() -> None:
        async with await reader.bind() as server:
            observer = GivesUp()
            await observer.connect(TcpClient.create().port(server.port).handle(handler).observe(observer))
            await until(lambda: ConnectionState.DISCONNECTING in observer.states)
            await until(lambda: not server.connections and len(ended) == len(begun))
            await settled()

    run_on(kind, main())


def test_a_pool_can_be_closed_after_a_connect_was_cancelled(kind: str) -> None:
    async def main() -> None:
        async with await reader.bind() as server:
            pool = ConnectionPool(max_connections=1)
            observer = GivesUp()
            client = TcpClient.create().port(server.port).pool(pool)
            await observer.connect(client.observe(observer))
            await soon((await soon(client.connect())).aclose())  # the only place of the pool is free
            await soon(pool.aclose())
            await settled()

    run_on(kind, main())
