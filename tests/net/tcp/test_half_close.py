"""One direction of a connection ends, and the other goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.net import ConnectionAborted, SendRefused, TcpClient, TcpServer
from penstock.streams import Flux, Sinks
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@on_each_loop
def test_the_peer_sees_the_end_after_everything_and_may_still_send(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                receiving = begun(connection.inbound.receive().collect_list())
                large = b"x" * 3_000_000
                sending = begun(connection.outbound.send(b"begin ").send(Flux.just(large)).end())
                assert await peer.rest() == b"begin " + large
                await sending
                assert not connection.closed
                await peer.send(b"an answer")
                peer.half_close()
                assert b"".join(await receiving) == b"an answer"
            await soon(connection.aclose())

    run_on(kind, main())


@on_each_loop
def test_bytes_that_were_awaited_leave_before_the_end(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                for letter in b"abcdef":
                    await connection.outbound.send(bytes([letter]))
                await connection.outbound.end()
                assert await peer.rest() == b"abcdef"
                peer.half_close()
                await soon(connection.aclose())

    run_on(kind, main())


@on_each_loop
def test_nothing_can_be_sent_after_the_end(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                await soon(connection.outbound.end())
                for late in (b"bytes", Flux.just(b"a stream")):
                    with pytest.raises(SendRefused, match=r"has ended its direction with end\(\)"):
                        await soon(connection.outbound.send(late))
                assert await peer.rest() == b""
                connection.abort()
                await soon(connection.wait_closed())
                with pytest.raises(ConnectionAborted, match="closed before"):
                    await soon(connection.outbound.end())

    run_on(kind, main())


@on_each_loop
def test_the_end_beside_a_send_is_refused_or_waits_for_its_turn(kind: str) -> None:
    async def main(queued: bool) -> None:
        with Listener() as listener:
            client = TcpClient.create().port(listener.port)
            connection = await soon((client.queue_sends() if queued else client).connect())
            async with await listener.accept() as peer:
                source: Any = Sinks.unicast()
                sending = begun(connection.outbound.send(source.flux()))
                await until(lambda: connection.output.sender is not None)
                ending = begun(connection.outbound.end())
                if not queued:
                    with pytest.raises(SendRefused, match="another send is under way"):
                        await ending
                source.try_emit(b"first")
                source.try_complete()
                await sending
                if queued:
                    await ending
                    assert await peer.rest() == b"first"
                connection.abort()
                await soon(connection.wait_closed())

    run_on(kind, main(queued=False))
    run_on(kind, main(queued=True))


@on_each_loop
def test_tls_cannot_end_one_direction_and_says_so(kind: str, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)

    async def main() -> None:
        server = TcpServer.create().secure(certificate=authority.certificate("localhost"))
        server = server.handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with await server.bind() as running:
            client = TcpClient.create().port(running.port)
            client = client.secure(trust=authority.trust, server_hostname="localhost")
            async with await soon(client.connect()) as connection:
                with pytest.raises(SendRefused, match="TLS cannot close one direction"):
                    await soon(connection.outbound.send(b"x").end())
                await soon(connection.outbound.send(b"y"))
                got = b""
                async with asyncio.timeout(20):
                    async for chunk in connection.inbound.receive():
                        got += chunk
                        if got == b"xy":
                            break

    run_on(kind, main())
