"""When the peer has closed its side: who may go on, and what nobody uses is closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock.net import Inbound, Outbound, TcpClient, TcpServer
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@on_each_loop
@pytest.mark.parametrize("way", ["never", "read one chunk", "sent something", "coroutine"])
def test_a_handler_that_neither_reads_nor_sends_is_cancelled_and_its_connection_closed(
    kind: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.net")

    async def main() -> None:
        cancelled = asyncio.Event()
        never: Mono[Any] = Mono.never().do_on_cancel(cancelled.set)

        async def waiting(inbound: Inbound, outbound: Outbound) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        handlers: dict[str, Any] = {
            "never": lambda inbound, outbound: never,
            "read one chunk": lambda inbound, outbound: inbound.receive().take(1).then(never),
            "sent something": lambda inbound, outbound: outbound.send(b"hello").then(never),
            "coroutine": waiting,
        }
        server = TcpServer.create().linger(0.1).handle(handlers[way])
        async with await server.bind() as running, await Peer.of(running) as peer:
            if way == "read one chunk":
                await peer.send(b"x")
                await until(lambda: running.connections and running.connections[0]._receiver.taken)
            if way == "sent something":
                assert await peer.receive(5) == b"hello"
            await until(lambda: running.connections)
            peer.socket.close()
            await soon(cancelled.wait())
            await until(lambda: not running.connections)
            assert running.metrics.errors == 0
        assert "neither reads nor sends" in caplog.text
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_has_read_to_the_end_may_take_its_time_to_answer(kind: str) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def thoughtful(inbound: Inbound, outbound: Outbound) -> None:
            question = await inbound.receive().collect_list()
            await go_on.wait()
            await outbound.send(b"answer to " + b"".join(question))

        server = TcpServer.create().linger(0.01).handle(thoughtful)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"question")
            peer.half_close()
            await until(lambda: running.connections and running.connections[0]._receiver._told)
            running.connections[0]._close_unless_used()  # the moment that it gets is over
            go_on.set()
            assert await peer.rest() == b"answer to question"
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_has_not_begun_to_read_what_has_come_may_still_do_so(kind: str) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def late(inbound: Inbound, outbound: Outbound) -> None:
            await go_on.wait()
            await outbound.send(inbound.receive())

        server = TcpServer.create().linger(0.01).fuse(False).handle(late)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"question")
            await until(lambda: running.connections and running.connections[0]._receiver.waiting)
            peer.half_close()
            await until(lambda: running.connections[0]._timer)
            assert running.connections[0]._timer.when() > asyncio.get_running_loop().time() + 5
            go_on.set()
            assert await peer.rest() == b"question"
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_send_that_waits_for_its_source_goes_on(kind: str) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def events() -> Any:
            yield b"one "
            await go_on.wait()
            yield b"two"

        server = TcpServer.create().linger(0.01)
        server = server.handle(lambda i, o: o.send(Flux.from_async_iterable(events())))
        async with await server.bind() as running, await Peer.of(running) as peer:
            peer.half_close()
            assert await peer.receive(4) == b"one "
            await until(lambda: running.connections[0].peer_has_ended)
            running.connections[0]._close_unless_used()
            go_on.set()
            assert await peer.rest() == b"two"
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("waits", ["before", "after"])
@pytest.mark.parametrize("last", [b"", b"bye"])
def test_a_client_hears_that_its_server_has_closed(kind: str, waits: str, last: bytes) -> None:
    """And what the server had sent can still be read."""

    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().linger(0.1).port(listener.port).connect())
            peer = await listener.accept()
            waiting = begun(connection.wait_closed()) if waits == "before" else None
            if last:
                await peer.send(last)
            peer.socket.close()
            if waiting is None:
                await until(lambda: connection._receiver.ended)
                waiting = begun(connection.on_dispose())
            await waiting
            assert connection.closed
            assert b"".join(await soon(connection.inbound.receive().collect_list())) == last

    run_on(kind, main())


@on_each_loop
def test_a_client_that_has_read_to_the_end_and_waits_for_nothing_may_still_send(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().linger(0.01).port(listener.port).connect())
            async with await listener.accept() as peer:
                await peer.send(b"do this")
                peer.half_close()
                assert await soon(connection.inbound.receive().collect_list()) == [b"do this"]
                connection._close_unless_used()
                await soon(connection.outbound.send(b"done"))
                assert await peer.receive(4) == b"done"
                closing = begun(connection.aclose())
                await peer.gone()
                peer.socket.close()
                await closing

    run_on(kind, main())
