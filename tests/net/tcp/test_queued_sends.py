"""Sends beside each other on one connection, where they wait for their turn instead of failing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.net import Connection, ConnectionAborted, SendRefused, TcpClient
from penstock.streams import Flux, Sinks
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


async def connected(listener: Listener, most: int = 1024) -> tuple[Connection, Peer]:
    connection = await soon(TcpClient.create().port(listener.port).queue_sends(most).connect())
    return connection, await listener.accept()


async def occupied(connection: Connection) -> tuple[Any, asyncio.Future[Any]]:
    """A send that is under way until its sink completes."""
    source: Any = Sinks.unicast()
    sending = begun(connection.outbound.send(source.flux()))
    await until(lambda: connection.output.sender is not None)
    return source, sending


async def leave(connection: Connection, peer: Peer) -> None:
    connection.abort()
    await soon(connection.wait_closed())
    peer.socket.close()


@on_each_loop
def test_sends_wait_for_their_turn_and_a_chain_stays_together(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener)
            source, first = await occupied(connection)
            chain = begun(connection.outbound.send(b"2").send(Flux.just(b"3", b"4")).send(b"5"))
            await asyncio.sleep(0)
            last = begun(connection.outbound.send(b"6"))
            await asyncio.sleep(0)
            source.try_emit(b"1")
            assert not chain.done()
            source.try_complete()
            await asyncio.gather(first, chain, last)
            assert await peer.receive(6) == b"123456"
            await leave(connection, peer)

    run_on(kind, main())


@on_each_loop
def test_hundreds_of_sends_from_several_threads_all_arrive_whole(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener, most=10_000)
            block = b"x" * 999 + b"\n"

            def send() -> None:
                for _ in range(100):
                    connection.outbound.send(Flux.just(block[:500], block[500:])).mono().block(timeout=30)

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert await peer.receive(400 * len(block)) == block * 400
            await asyncio.to_thread(lambda: [thread.join() for thread in threads])
            await leave(connection, peer)

    run_on(kind, main())


@on_each_loop
def test_a_thousand_sends_that_end_at_once_need_no_deep_stack(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener)
            source, first = await occupied(connection)
            others = [begun(connection.outbound.send(Flux.just(b"x"))) for _ in range(1000)]
            await asyncio.sleep(0)
            source.try_complete()
            await asyncio.gather(first, *others)
            assert await peer.receive(1000) == b"x" * 1000
            await leave(connection, peer)

    run_on(kind, main())


@on_each_loop
def test_a_send_that_is_cancelled_while_it_waits_is_never_begun(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener)
            source, first = await occupied(connection)
            subscribed: list[str] = []
            data = Flux.just(b"no").do_on_subscribe(lambda _: subscribed.append("begun"))
            waiting = begun(connection.outbound.send(data))
            await asyncio.sleep(0)
            last = begun(connection.outbound.send(Flux.just(b"yes")))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
            source.try_complete()
            await asyncio.gather(first, last)
            assert await peer.receive(3) == b"yes"
            assert subscribed == []
            await leave(connection, peer)

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("how", ["close", "abort", "reset"])
def test_sends_that_wait_fail_when_the_connection_ends(kind: str, how: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener)
            _, first = await occupied(connection)
            waiting = [begun(connection.outbound.send(b"x")) for _ in range(3)]
            await asyncio.sleep(0)
            if how == "reset":
                peer.reset()
            else:
                getattr(connection, how)()
            for send in (first, *waiting):
                with pytest.raises(ConnectionAborted):
                    await send
            peer.socket.close()
            await soon(connection.wait_closed())

    run_on(kind, main())


@on_each_loop
def test_no_more_sends_wait_than_were_allowed(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection, peer = await connected(listener, most=2)
            source, first = await occupied(connection)
            waiting = [begun(connection.outbound.send(b"x")) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(SendRefused, match="2 sends are waiting on this connection already"):
                await soon(connection.outbound.send(b"one too many"))
            source.try_complete()
            await asyncio.gather(first, *waiting)
            assert await peer.receive(2) == b"xx"
            await leave(connection, peer)

    run_on(kind, main())
