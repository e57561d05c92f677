"""Peers that break off, in the middle of whatever: each a clear error, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from penstock.net import Connection, ConnectionAborted, Inbound, Outbound, TcpClient, TcpServer
from penstock.net.framing import lines
from penstock.streams import Flux, on_dropped
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

CHUNK = 16_384


@on_each_loop
def test_a_peer_that_resets_in_the_middle_of_a_send(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                peer = await listener.accept()
                cancelled: list[int] = []
                endless = (
                    Flux.range(0, 2**40).map(lambda _: bytes(CHUNK)).do_on_cancel(lambda: cancelled.append(1))
                )
                sending = begun(client.outbound.send(endless))
                assert len(await peer.receive(100_000)) == 100_000
                peer.reset()
                with pytest.raises(
                    ConnectionAborted, match=r"the connection was lost.*while sending"
                ) as lost:
                    await sending
                error = lost.value
                assert error.written == error.elements * CHUNK >= 100_000
                assert 0 <= error.unsent <= error.written
                assert f"{error.elements:,} elements with {error.written:,} bytes were written" in str(error)
                assert isinstance(error.__cause__, OSError)
                assert cancelled == [1]
                assert client.closed

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_closes_in_the_middle_of_a_send_is_no_completion(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                peer = await listener.accept()
                sending = begun(client.outbound.send(bytes(64 * 1024 * 1024)))
                assert len(await peer.receive(100_000)) == 100_000
                peer.socket.close()
                with pytest.raises(ConnectionAborted, match="1 elements with 67,108,864 bytes") as lost:
                    await sending
                assert (lost.value.elements, lost.value.written) == (1, 64 * 1024 * 1024)
                assert lost.value.unsent > 0

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_resets_in_the_middle_of_an_echo(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.net")

    async def main() -> None:
        for fused in True, False:
            server = TcpServer.create().fuse(fused).handle(lambda i, o: o.send(i.receive()))
            async with await server.bind() as running, await Peer.of(running) as peer:
                pushing = begun(peer.send(bytes(64 * 1024 * 1024)))
                await until(
                    lambda running=running: (
                        running.connections and running.connections[0].transport.get_write_buffer_size()
                    )
                )
                pushing.cancel()
                await until(pushing.done)
                peer.reset()
                await until(lambda running=running: not running.connections)
                assert running.metrics.errors == 1
        assert caplog.text.count("the handler failed: the connection was lost") == 2

    run_on(kind, main())


@on_each_loop
def test_a_handler_hears_of_a_reset_although_it_reads_nothing(kind: str) -> None:
    """It only sends, now and then: the next time it does, it knows."""

    async def main() -> None:
        failed = asyncio.Event()

        async def ticking(inbound: Inbound, outbound: Outbound) -> None:
            try:
                await outbound.send(Flux.interval(0.01).on_backpressure_drop().map(lambda number: b"tick"))
            except ConnectionAborted:
                failed.set()
                raise

        async with await TcpServer.create().handle(ticking).bind() as running, await Peer.of(running) as peer:
            assert await peer.receive(8) == b"ticktick"
            peer.reset()
            await soon(failed.wait())
            await until(lambda: not running.connections)
            assert running.metrics.errors == 1

    run_on(kind, main())


@on_each_loop
def test_a_half_open_peer_is_written_to_until_it_says_that_it_has_gone(kind: str) -> None:
    """It has closed only what it sends, so it may want to read for as long as it likes."""

    async def main() -> None:
        go_on = asyncio.Event()

        async def patient(inbound: Inbound, outbound: Outbound) -> None:
            request = b"".join([chunk async for chunk in inbound.receive()])
            await go_on.wait()
            await outbound.send(request[::-1])

        async with await TcpServer.create().handle(patient).bind() as running, await Peer.of(running) as peer:
            await peer.send(b"abc")
            peer.half_close()
            await until(lambda: running.connections and running.connections[0].peer_has_ended)
            assert running.metrics.connections_active == 1
            go_on.set()
            assert await peer.rest() == b"cba"
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_a_burst_of_resets_before_anything_was_said(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda i, o: o.send(i.receive()))
        async with await server.bind() as running:
            for _ in range(20):
                (await Peer.of(running)).reset()
            async with await Peer.of(running) as peer:
                await peer.send(b"still served")
                assert await peer.receive(12) == b"still served"
            await until(lambda: not running.connections)

    run_on(kind, main())


# -------------------------------------------------------------------- nothing is left behind
def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Mixture:
    """Connections of every kind to one server, and what they do to it."""

    def __init__(self, secure: bool) -> None:
        self.seen: list[weakref.ref[Connection]] = []
        self.secure = secure

    def handler(self, inbound: Inbound, outbound: Outbound) -> Any:
        connection = inbound.connection
        self.seen.append(weakref.ref(connection))
        number = len(self.seen) % 7
        if number == 0:
            return outbound.send(inbound.receive())
        if number == 1:
            return outbound.send_object(inbound.receive_objects().map(lambda line: line + b"\n"))
        if number == 2:
            return self.coroutine(inbound, outbound)
        if number == 3:
            raise LookupError("a handler that raises")
        if number == 4:
            return inbound.receive().map(lambda data: 1 / 0)
        if number == 5:
            return outbound.send(inbound.receive().take(1)).keep_open()
        return outbound.send(Flux.range(0, 2**40).map(lambda _: bytes(CHUNK)))

    @staticmethod
    async def coroutine(inbound: Inbound, outbound: Outbound) -> None:
        async for chunk in inbound.receive():
            await outbound.send(chunk)


async def plain_end(peer: Peer, number: int) -> None:
    await peer.send(b"hello\n" if number % 5 else b"x" * 5000)
    if number % 3 == 0:
        peer.reset()
    elif number % 3 == 1:
        await peer.loop.sock_recv(peer.socket, 3)
        peer.socket.close()
    else:
        peer.half_close()
        peer.socket.close()


@pytest.mark.slow
@on_each_loop
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_two_hundred_connections_of_every_kind_leave_nothing(
    kind: str, secure: bool, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "penstock")
    authority = Authority.make(tmp_path)

    async def round_of(mixture: Mixture, running: Any, count: int) -> None:
        client = TcpClient.create().linger(0.05).host("localhost").port(running.port)
        if secure:
            client = client.secure(trust=authority.trust)
        for number in range(count):
            if number % 2 or not secure:
                async with await Peer.of(running) as peer:
                    try:
                        await plain_end(peer, number)
                    except OSError:
                        continue  # the server was faster: a handler that raised has closed it
            if number % 4 == 0:
                await one_client(client, mixture, number)

    async def one_client(client: TcpClient, mixture: Mixture, number: int) -> None:
        connection = await soon(client.connect())
        mixture.seen.append(weakref.ref(connection))
        try:
            if number % 8:
                await soon(connection.outbound.send(b"hello\n"))
                await soon(connection.inbound.receive().take(1).collect_list())
        except ConnectionAborted:
            pass  # what its handler on the other side was there for
        finally:
            if number % 16 == 4:
                connection.abort()
            else:
                await soon(connection.aclose())

    async def main() -> None:
        mixture = Mixture(secure)
        server = TcpServer.create().linger(0.1).framing(lines(max_length=1000)).handle(mixture.handler)
        if secure:
            server = server.secure(certificate=authority.certificate("localhost"), handshake_timeout=0.5)
        async with await server.bind() as running:
            await round_of(mixture, running, 20)  # whatever a loop opens for itself is open now
            await until(lambda: not running.connections)
            await settled()
            gc.collect()
            before = descriptors()
            await round_of(mixture, running, 200)
            await until(lambda: not running.connections)
            await settled()
            assert running.metrics.connections_active == 0
            await until(lambda: gc.collect() is not None and descriptors() <= before)
            assert len(mixture.seen) >= 70
        await asyncio.sleep(0)
        gc.collect()
        alive = [reference() for reference in mixture.seen if reference() is not None]
        assert not alive, [(connection, gc.get_referrers(connection)) for connection in alive[:1]]

    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    "end",
    [
        lambda peer: peer.socket.close(),
        lambda peer: peer.reset(),
        lambda peer: peer.half_close(),
    ],
    ids=["close", "reset", "half-close"],
)
def test_the_source_of_a_send_is_let_go_when_the_peer_has_gone(
    kind: str, end: Callable[[Peer], None]
) -> None:
    async def main() -> None:
        class Resource:
            """Something that must not stay in memory."""

        held = Resource()
        watched = weakref.ref(held)

        def handler(inbound: Inbound, outbound: Outbound, held: Resource = held) -> Outbound:
            return outbound.send(inbound.receive().map(lambda data, held=held: data))

        handlers: list[Any] = [handler]
        del handler, held
        server = TcpServer.create().linger(0.1).handle(lambda i, o: handlers.pop()(i, o))
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"x")
            assert await peer.receive(1) == b"x"
            assert watched() is not None
            end(peer)
            await until(lambda: not running.connections)
            await until(lambda: gc.collect() is not None and watched() is None)

    run_on(kind, main())


@on_each_loop
def test_a_connect_that_is_cancelled_leaves_nothing(kind: str, tmp_path: Any) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        with Listener() as listener:
            client = TcpClient.create().host("localhost").secure(trust=authority.trust).port(listener.port)
            counts = []
            for _ in range(3):
                connecting = begun(client.connect())
                async with await listener.accept() as peer:
                    await peer.receive(10)
                    connecting.cancel()
                    await until(connecting.done)
                    await peer.gone()
                await settled()
                gc.collect()
                counts.append(descriptors())
            await until(lambda: descriptors() <= counts[0])

    run_on(kind, main())


def test_an_unread_connection_of_a_loop_that_was_closed_is_no_error() -> None:
    """A thread that still has it may call it; there is nobody left to do it."""
    loop = asyncio.new_event_loop()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = TcpClient.create().linger(0).port(listening.getsockname()[1])
            connection = loop.run_until_complete(client.connect())
            loop.run_until_complete(connection.aclose())
    finally:
        loop.close()
    connection.close()
    connection.abort()
    assert connection.closed
