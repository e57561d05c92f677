"""How a server ends: who may finish, who is cut off, and who is named."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from penstock.net import (
    ConnectionAborted,
    ConnectionState,
    Inbound,
    Outbound,
    ReceiveStopped,
    TcpClient,
    TcpServer,
)
from penstock.streams import Mono, on_dropped
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, Peer, begun, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


NUMBERS = b"".join(number.to_bytes(4, "big") for number in range(4_000_000))


@on_each_loop
@pytest.mark.parametrize("way", ["fused", "not fused", "counted"])
def test_an_echo_gives_back_everything_that_had_come(kind: str, way: str) -> None:
    """Its peer begins to read when the server is being closed already."""

    async def main() -> None:
        server = TcpServer.create().fuse(way == "fused").metrics(way == "counted")
        running = await server.handle(lambda i, o: o.send(i.receive())).bind()
        async with await Peer.of(running) as peer:
            await until(lambda: running.connections)
            [connection] = running.connections
            pushing = begun(peer.send(NUMBERS))
            await until(lambda: connection.transport.get_write_buffer_size() > 65_536)
            closing = begun(running.aclose(grace=20))
            await until(lambda: connection._receiver.ended)
            assert not closing.done()
            received = connection.traffic.received if connection.traffic else 0
            got = await peer.rest()
            assert got == NUMBERS[: len(got)]
            assert len(got) >= max(received, 65_536)
            pushing.cancel()
            peer.socket.close()
            closed = await closing
        assert closed.finished == 1
        assert closed.aborted == ()
        await settled()

    run_on(kind, main())


@on_each_loop
def test_what_was_received_is_handled_before_the_server_is_closed(kind: str) -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        seen: list[bytes] = []

        async def slow(inbound: Inbound, outbound: Outbound) -> None:
            with contextlib.suppress(ReceiveStopped):
                async for chunk in inbound.receive():
                    await go_on.wait()
                    seen.append(chunk)
            await outbound.send(b"handled %d" % len(b"".join(seen)))

        running = await TcpServer.create().handle(slow).bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"x" * 1000)
            await until(lambda: running.connections and running.connections[0]._receiver.taken)
            closing = begun(running.aclose(grace=20))
            await until(lambda: running.connections[0]._receiver.ended)
            go_on.set()
            answer = await peer.rest()
            peer.socket.close()
            closed = await closing
        assert answer == b"handled %d" % len(b"".join(seen))
        assert closed.aborted == ()

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_never_ends_is_cut_off_and_named(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        never = Mono.never().do_on_cancel(cancelled.set)
        running = await TcpServer.create().handle(lambda inbound, outbound: never).bind()
        async with await Peer.of(running) as peer:
            await until(lambda: running.connections)
            label = running.connections[0].label
            closed = await soon(running.aclose(grace=0.05))
            assert closed.aborted == (label,)
            assert closed.finished == 0
            await soon(cancelled.wait())
            with pytest.raises(ConnectionResetError):
                await peer.rest()
        assert f"{label} was cut off" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_some_finish_and_some_are_cut_off(kind: str) -> None:
    async def main() -> None:
        async def echo_or_stay(inbound: Inbound, outbound: Outbound) -> None:
            async for chunk in inbound.receive():
                await outbound.send(chunk)
                if chunk == b"stay":
                    await asyncio.Event().wait()

        running = await TcpServer.create().handle(echo_or_stay).bind()
        async with (
            await Peer.of(running) as one,
            await Peer.of(running) as two,
            await Peer.of(running) as three,
        ):
            for peer, text in (one, b"go"), (two, b"stay"), (three, b"go"):
                await peer.send(text)
                assert await peer.receive(len(text)) == text
            [stays] = [c.label for c in running.connections if c.remote.endswith(f":{two.port}")]
            closing = begun(running.aclose(grace=0.3))
            for peer in one, three:
                assert await peer.rest() == b""
                peer.socket.close()
            closed = await closing
            assert closed.finished == 2
            assert closed.aborted == (stays,)
            with pytest.raises(ConnectionResetError):
                await two.rest()
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_does_not_close_its_side_is_no_handler_that_did_not_end(kind: str) -> None:
    async def main() -> None:
        running = await TcpServer.create().handle(lambda i, o: o.send(i.receive())).bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"x")
            assert await peer.receive(1) == b"x"
            closed = await soon(running.aclose(grace=0.05))
            assert closed.aborted == ()
            assert closed.finished == 1
            assert await peer.rest() == b""

    run_on(kind, main())


@on_each_loop
def test_without_grace_everybody_is_cut_off_at_once(kind: str) -> None:
    async def main() -> None:
        running = await TcpServer.create().handle(lambda i, o: o.send(b"x").then(Mono.never())).bind()
        async with await Peer.of(running) as peer:
            assert await peer.receive(1) == b"x"
            closed = await soon(running.aclose(grace=0))
            assert len(closed.aborted) == 1
            with pytest.raises(ConnectionResetError):
                await peer.rest()

    run_on(kind, main())


@on_each_loop
def test_connections_that_are_only_kept_open_are_closed_at_once(kind: str) -> None:
    async def main() -> None:
        running = await TcpServer.create().handle(lambda i, o: o.send(b"x").keep_open()).bind()
        async with await Peer.of(running) as peer:
            assert await peer.receive(1) == b"x"
            closing = begun(running.aclose(grace=LONG))
            assert await peer.rest() == b""
            peer.socket.close()
            closed = await closing
            assert closed.aborted == ()

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_works_on_after_its_peer_has_gone_is_waited_for(kind: str) -> None:
    async def main() -> None:
        go_on, done = asyncio.Event(), asyncio.Event()

        async def thorough(inbound: Inbound, outbound: Outbound) -> None:
            with contextlib.suppress(ReceiveStopped):
                async for _chunk in inbound.receive():
                    await go_on.wait()
            done.set()

        running = await TcpServer.create().handle(thorough).bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"x")
            await until(lambda: running.connections and running.connections[0]._receiver.taken)
            running.connections[0].transport.abort()
            await until(lambda: not running.connections)
            closing = begun(running.aclose(grace=20))
            await asyncio.sleep(0)
            assert not closing.done()
            go_on.set()
            await closing
            assert done.is_set()

    run_on(kind, main())


@on_each_loop
def test_closing_twice_is_closing_once(kind: str) -> None:
    async def main() -> None:
        running = await TcpServer.create().handle(lambda i, o: o.send(b"x")).bind()
        waiting, disposed = begun(running.wait_closed()), begun(running.on_dispose())
        one, two = await asyncio.gather(running.aclose(), running.aclose())
        assert one is two
        assert await running.aclose() is one
        await waiting
        await disposed
        with pytest.raises(OSError, match=r"."):
            await Peer.of(running)

    run_on(kind, main())


@on_each_loop
def test_the_handlers_of_a_client_end_with_its_connection(kind: str) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        async with await TcpServer.create().handle(lambda i, o: o.send(i.receive())).bind() as running:
            client = TcpClient.create().handle(lambda i, o: Mono.never().do_on_cancel(cancelled.set))
            connection = await client.port(running.port).connect()
            await soon(connection.aclose())
            await soon(cancelled.wait())

    run_on(kind, main())


@on_each_loop
def test_an_abort_tells_whoever_reads_or_writes(kind: str) -> None:
    async def main() -> None:
        async with (
            await TcpServer.create().handle(lambda i, o: o.keep_open()).bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            reading = begun(client.inbound.receive().collect_list())
            writing = begun(client.outbound.send(bytes(64 * 1024 * 1024)))
            await until(lambda: client.output.sender is not None and client._receiver.taken)
            thread = threading.Thread(target=client.abort)
            thread.start()
            with pytest.raises(ConnectionAborted, match="was aborted by its owner"):
                await reading
            with pytest.raises(ConnectionAborted, match="while sending") as cut:
                await writing
            thread.join()
            assert cut.value.written == 64 * 1024 * 1024
            assert 0 < cut.value.unsent <= cut.value.written

    run_on(kind, main())


@on_each_loop
def test_one_connection_too_many_is_refused_and_another_may_come_later(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        states: list[ConnectionState] = []
        handled: list[Any] = []

        def handler(inbound: Inbound, outbound: Outbound) -> Outbound:
            handled.append(1)
            return outbound.send(b"served").keep_open()

        server = (
            TcpServer.create()
            .max_connections(2)
            .observe(lambda c, state: states.append(state))
            .handle(handler)
        )
        async with await server.bind() as running:
            async with await Peer.of(running) as one, await Peer.of(running) as two:
                assert await one.receive(6) == await two.receive(6) == b"served"
                async with await Peer.of(running) as three:
                    assert await three.rest() == b""
                assert running.metrics.connections_refused == 1
                assert running.metrics.connections_active == 2
                assert states == [ConnectionState.CONNECTED, ConnectionState.CONFIGURED] * 2
            await until(lambda: not running.connections)
            async with await Peer.of(running) as four:
                assert await four.receive(6) == b"served"
            assert len(handled) == 3
        assert "refused: there are 2 connections already, the limit of max_connections()" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_a_reader_that_left_its_loop_is_not_told_of_its_own_close(kind: str) -> None:
    """A loop is over at once when it is left, its iterator a moment later: the close comes in between."""
    dropped: list[BaseException] = []

    async def main() -> None:
        server = TcpServer.create().handle(lambda i, o: o.send(b"hello").then(Mono.never()))
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as connection,
        ):
            async for chunk in connection.inbound.receive():
                assert chunk == b"hello"
                break
        await settled()

    with on_dropped(error=lambda error, where: dropped.append(error)):
        run_on(kind, main())

    assert dropped == []
