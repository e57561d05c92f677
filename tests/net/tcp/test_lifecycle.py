"""The life of a connection: what is told when, what its handler's end does, and how it is said in the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import Any

import pytest

from penstock.net import (
    Connection,
    ConnectionAborted,
    ConnectionState,
    Inbound,
    Outbound,
    ReceiveStopped,
    TcpClient,
    TcpServer,
)
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

LABEL = re.compile(r"\[[0-9a-f]{8,}, L:127\.0\.0\.1:\d+ [-!] R:127\.0\.0\.1:\d+\]")


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "penstock.net" and record.levelno > 20]


class Recording:
    """An observer with a memory."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ConnectionState]] = []

    def on_state_change(self, connection: Connection, state: ConnectionState) -> None:
        self.told.append((connection.id, state))

    @property
    def states(self) -> list[ConnectionState]:
        return [state for _, state in self.told]


ALL_STATES = [ConnectionState.CONNECTED, ConnectionState.CONFIGURED, ConnectionState.DISCONNECTING]


@on_each_loop
def test_each_state_is_told_once_and_the_handler_comes_after_the_configuration(kind: str) -> None:
    async def main() -> None:
        order: list[str] = []

        def handler(inbound: Inbound, outbound: Outbound) -> Outbound:
            order.append("handler")
            return outbound.send(inbound.receive())

        observer = Recording()
        server = (
            TcpServer.create()
            .observe(lambda connection, state: order.append(state.name))
            .observe(observer)
            .on_connection(lambda connection: order.append("on_connection"))
            .handle(handler)
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"hello")
            assert await peer.receive(5) == b"hello"
            assert order == ["CONNECTED", "CONFIGURED", "on_connection", "handler"]
            peer.half_close()
            assert await peer.rest() == b""
            await until(lambda: not running.connections)
        assert order == ["CONNECTED", "CONFIGURED", "on_connection", "handler", "DISCONNECTING"]
        assert observer.states == ALL_STATES
        assert len({identity for identity, _ in observer.told}) == 1

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("end", ["reset", "aborted", "handler fails", "client"])
def test_each_state_is_told_once_however_the_connection_ends(kind: str, end: str) -> None:
    async def main() -> None:
        observer = Recording()

        def handler(inbound: Inbound, outbound: Outbound) -> Any:
            received = inbound.receive()
            return received.map(lambda data: 1 / 0) if end == "handler fails" else outbound.send(received)

        server = TcpServer.create().linger(0.05).observe(observer).handle(handler)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"x")
            await until(lambda: ConnectionState.CONFIGURED in observer.states)
            if end == "reset":
                peer.reset()
            elif end == "aborted":
                running.connections[0].abort()
            elif end == "client":
                peer.socket.close()
            await until(lambda: ConnectionState.DISCONNECTING in observer.states)
        assert observer.states == ALL_STATES

    run_on(kind, main())


@on_each_loop
def test_an_observer_that_fails_is_told_in_the_log_and_harms_nobody(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        def broken(connection: Connection, state: ConnectionState) -> None:
            raise LookupError("no such meter")

        server = TcpServer.create().observe(broken).handle(lambda i, o: o.send(b"served"))
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"served"
        assert "an observer failed at CONNECTED" in caplog.text
        assert "no such meter" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_completes_flushes_and_closes(kind: str) -> None:
    async def main() -> None:
        data = b"abc" * 1_000_000
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(data))
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == data
            peer.socket.close()
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_the_end_of_any_publisher_closes_and_its_elements_are_not_sent(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: Flux.just(b"not", b"sent"))
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b""

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda inbound, outbound: Mono.error(LookupError("nothing there")), "nothing there"),
        (lambda inbound, outbound: inbound.receive().map(lambda data: 1 / 0), "division by zero"),
        (lambda inbound, outbound: 1 / 0, "division by zero"),
        (lambda inbound, outbound: None, "the handler returned None"),
        (lambda inbound, outbound: b"bytes", "handle() needs a publisher"),
    ],
    ids=["fails", "fails at an element", "raises", "returns None", "returns bytes"],
)
def test_a_handler_that_fails_is_logged_with_the_connection_and_closed(
    kind: str, handler: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with await TcpServer.create().handle(handler).bind() as running, await Peer.of(running) as peer:
            port = peer.port
            await peer.send(b"x")
            assert await peer.rest() == b""
            assert running.metrics.errors == 1
        [failure] = failures(caplog)
        message = failure.getMessage()
        assert LABEL.match(message), message
        assert f"R:127.0.0.1:{port}]" in message
        assert "the handler failed" in message
        assert text in message

    run_on(kind, main())


@on_each_loop
def test_a_coroutine_can_be_a_handler(kind: str) -> None:
    async def main() -> None:
        async def shout(inbound: Inbound, outbound: Outbound) -> None:
            async for chunk in inbound.receive():
                await outbound.send(chunk.upper())
            await outbound.send(b".")

        async with await TcpServer.create().handle(shout).bind() as running, await Peer.of(running) as peer:
            await peer.send(b"hello")
            assert await peer.receive(5) == b"HELLO"
            peer.half_close()
            assert await peer.rest() == b"."

    run_on(kind, main())


@on_each_loop
def test_a_coroutine_handler_that_raises_is_logged_with_the_connection(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def broken(inbound: Inbound, outbound: Outbound) -> None:
            await outbound.send(b"so far")
            raise LookupError("and no further")

        async with await TcpServer.create().handle(broken).bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"so far"
        [failure] = failures(caplog)
        assert LABEL.match(failure.getMessage())
        assert "and no further" in failure.getMessage()

    run_on(kind, main())


@on_each_loop
def test_keep_open_holds_the_connection_until_the_peer_closes_it(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(b"hello").keep_open())
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.receive(5) == b"hello"
            async with await Peer.of(running) as another:
                assert await another.receive(5) == b"hello"
            await until(lambda: len(running.connections) == 1)
            assert str(peer.port) in running.connections[0].remote
            peer.socket.close()
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_goes_is_noticed_after_receive_was_cancelled(kind: str) -> None:
    """``take(1)`` cancels; a connection that reads no more at all would not hear of the end."""

    async def main() -> None:
        def first_only(inbound: Inbound, outbound: Outbound) -> Outbound:
            return outbound.send(inbound.receive().take(1)).keep_open()

        async with await TcpServer.create().handle(first_only).bind() as running:
            async with await Peer.of(running) as peer:
                await peer.send(b"one")
                assert await peer.receive(3) == b"one"
                await peer.send(b"never looked at")
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_what_comes_after_receive_was_cancelled_is_not_read_without_end(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(
            lambda inbound, outbound: outbound.send(inbound.receive().take(1)).keep_open()
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"one")
            assert await peer.receive(3) == b"one"
            pushing = begun(peer.send(bytes(64 * 1024 * 1024)))
            receiver = running.connections[0]._receiver
            await until(lambda: receiver.paused)
            assert not pushing.done()
            await running.aclose(0)
            with pytest.raises(OSError, match=r"."):
                await pushing

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_does_not_read_is_cancelled_when_the_peer_goes(kind: str) -> None:
    async def main() -> None:
        running_work, cancelled = asyncio.Event(), asyncio.Event()
        work = Mono.never().do_on_cancel(cancelled.set).do_on_subscribe(lambda _: running_work.set())
        server = TcpServer.create().handle(lambda inbound, outbound: work)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await soon(running_work.wait())
            peer.reset()
            await soon(cancelled.wait())
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_a_coroutine_handler_is_cancelled_when_the_peer_goes(kind: str) -> None:
    async def main() -> None:
        waiting, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, outbound: Outbound) -> None:
            try:
                waiting.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with await TcpServer.create().handle(handler).bind() as running, await Peer.of(running) as peer:
            await soon(waiting.wait())
            peer.reset()
            await soon(cancelled.wait())

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("linger", [1.0, 0.05])
def test_what_came_before_the_close_is_still_given_to_a_slow_handler(kind: str, linger: float) -> None:
    """It begins to read when the peer has gone, and it is not done when the moment that it gets is over."""

    async def main() -> None:
        gone, done = asyncio.Event(), asyncio.Event()
        seen: list[bytes] = []
        sent = [b"%d\n" % number for number in range(9)]

        async def slow(inbound: Inbound, outbound: Outbound) -> None:
            await gone.wait()
            with contextlib.suppress(ReceiveStopped):
                async for chunk in inbound.receive():
                    seen.append(chunk)
                    if len(seen) == 1:
                        await asyncio.sleep(2 * linger if linger < 1 else 0)
            done.set()

        server = (
            TcpServer.create()
            .linger(linger)
            .observe(lambda connection, state: gone.set() if state is ConnectionState.DISCONNECTING else None)
            .handle(slow)
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            await until(lambda: running.connections)
            [connection] = running.connections
            for line in sent:
                queued = connection._receiver.waiting
                await peer.send(line)
                await until(lambda queued=queued: connection._receiver.waiting > queued)
            connection.transport.abort()
            await soon(done.wait())
        assert b"".join(seen) == b"".join(sent)

    run_on(kind, main())


@on_each_loop
def test_a_handler_that_fails_after_the_peer_has_gone_is_logged_too(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def late(inbound: Inbound, outbound: Outbound) -> None:
            await gone.wait()
            async for _chunk in inbound.receive():
                raise LookupError("not in the catalogue")

        server = (
            TcpServer.create()
            .observe(lambda connection, state: gone.set() if state is ConnectionState.DISCONNECTING else None)
            .handle(late)
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"x")
            await until(lambda: running.connections and running.connections[0]._receiver.waiting)
            running.connections[0].transport.abort()
            await until(lambda: failures(caplog))
        [failure] = failures(caplog)
        assert LABEL.match(failure.getMessage())
        assert "not in the catalogue" in failure.getMessage()

    run_on(kind, main())


@on_each_loop
def test_on_connection_that_raises_closes_the_connection_before_the_handler(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        called: list[int] = []

        def refuse(connection: Connection) -> None:
            raise PermissionError("not you")

        def handler(inbound: Inbound, outbound: Outbound) -> Outbound:
            called.append(1)
            return outbound.send(b"served")

        server = TcpServer.create().on_connection(refuse).handle(handler)
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b""
        assert not called
        assert "not you" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_a_client_without_a_handler_owns_its_connection(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            observer = Recording()
            client = TcpClient.create().port(listener.port).observe(observer)
            async with await client.connect() as connection:
                peer = await listener.accept()
                async with peer:
                    await connection.outbound.send(b"one")
                    await connection.outbound.send(b"two")
                    assert await peer.receive(6) == b"onetwo"
                    assert repr(connection) == f"<Connection {connection.label}>"
                    assert not connection.closed
                    closing = begun(connection.aclose())
                    assert await peer.rest() == b""
                    peer.socket.close()
                    await closing
            assert connection.closed
            assert " ! " in connection.label
            assert observer.states == ALL_STATES
            await soon(connection.wait_closed())
            await soon(connection.on_dispose())
            with pytest.raises(ConnectionAborted, match="closed before this send began"):
                await soon(connection.outbound.send(b"three"))

    run_on(kind, main())


@on_each_loop
def test_a_client_with_a_handler_closes_by_itself(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            client = TcpClient.create().port(listener.port).handle(lambda i, o: o.send(b"all I say"))
            connection = await soon(client.connect())
            async with await listener.accept() as peer:
                assert await peer.rest() == b"all I say"
            await soon(connection.wait_closed())

    run_on(kind, main())


@on_each_loop
def test_a_coroutine_that_does_not_wait_for_what_it_sends_is_told_so(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def forgetful(inbound: Inbound, outbound: Outbound) -> Outbound:
        return outbound.send(b"never")

    async def main() -> None:
        async with (
            await TcpServer.create().handle(forgetful).bind() as server,
            await TcpClient.create().port(server.port).connect() as connection,
        ):
            assert [chunk async for chunk in connection.inbound.receive()] == []

    run_on(kind, main())
    assert "a coroutine has to await what it sends" in caplog.text
