"""Connections on which nothing moves, and peers that move just enough to stay."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    Connection,
    ConnectionAborted,
    ConnectionState,
    IdleTimeout,
    Inbound,
    Outbound,
    TcpClient,
    TcpServer,
)
from penstock.streams import Flux
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

BRIEF = 0.2
"""Seconds that something may rest in these tests."""


@on_each_loop
def test_a_connection_on_which_nothing_moves_is_closed(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.net")

    async def main() -> None:
        errors: list[BaseException] = []
        server = (
            TcpServer.create()
            .idle_timeout(BRIEF)
            .handle(lambda i, o: o.send(i.receive().do_on_error(errors.append)))
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"hello")
            assert await peer.receive(5) == b"hello"
            assert await peer.rest() == b""
            [error] = errors
            assert isinstance(error, IdleTimeout)
            assert "nothing was received or sent for 0.2 s" in str(error)
        assert "nothing was received or sent for 0.2 s: closing" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_a_connection_on_which_something_moves_stays(kind: str) -> None:
    """It outlives its limit many times over, because there is something to be sent now and then."""

    async def main() -> None:
        async def ticking() -> AsyncIterator[bytes]:
            # On the loop that watches the connection: a thread of its own might be late without it.
            for number in range(16):
                await asyncio.sleep(BRIEF / 4)
                yield b"%x" % number

        server = TcpServer.create().idle_timeout(BRIEF)
        ticks = Flux.from_async_iterable(ticking)
        async with (
            await server.handle(lambda i, o: o.send(ticks)).bind() as running,
            await Peer.of(running) as peer,
        ):
            assert await peer.rest() == b"0123456789abcdef"

    run_on(kind, main())


@on_each_loop
def test_a_loop_that_was_held_up_does_not_close_those_who_were_not_idle(kind: str) -> None:
    """Nobody looked meanwhile, and what they have sent has not been read either."""

    async def main() -> None:
        server = TcpServer.create().idle_timeout(BRIEF).handle(lambda i, o: o.send(i.receive()))
        async with await server.bind() as running, await Peer.of(running) as peer:
            for _ in range(3):
                await peer.send(b"hello")
                time.sleep(2 * BRIEF)
                assert await peer.receive(5) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_sends_too_rarely_is_closed_by_the_read_timeout(kind: str) -> None:
    """What goes out does not help it: this side keeps sending."""

    async def main() -> None:
        over = asyncio.Event()
        told: list[str] = []

        async def handler(inbound: Inbound, outbound: Outbound) -> None:
            sending = begun(
                outbound.send(Flux.interval(BRIEF / 8).on_backpressure_drop().map(lambda n: b"."))
            )
            try:
                async for _ in inbound.receive():
                    pass
            except IdleTimeout as error:
                told.append(str(error))
                over.set()
            with pytest.raises(ConnectionAborted):
                await sending

        server = TcpServer.create().read_timeout(BRIEF).handle(handler)
        async with await server.bind() as running, await Peer.of(running) as peer:
            for _ in range(3):
                await peer.send(b"G")  # some letters of a request, and then none
            await soon(over.wait())
            assert told == ["the peer sent nothing for 0.2 s"]
            await peer.gone()
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_the_read_timeout_counts_only_while_somebody_waits_for_bytes(kind: str) -> None:
    async def main() -> None:
        ticks = Flux.interval(BRIEF / 2).on_backpressure_buffer(6).take(6).map(lambda number: b".")
        server = TcpServer.create().read_timeout(BRIEF).handle(lambda i, o: o.send(ticks))
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"......"

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_never_reads_is_closed_by_the_write_timeout(kind: str) -> None:
    async def main() -> None:
        errors: list[Any] = []
        over = asyncio.Event()

        async def handler(inbound: Inbound, outbound: Outbound) -> None:
            try:
                await outbound.send(Flux.range(0, 2**30).map(lambda number: bytes(16_384)))
            except ConnectionAborted as error:
                errors.append(error)
                over.set()

        server = TcpServer.create().write_timeout(BRIEF).handle(handler)
        async with await server.bind() as running, await Peer.of(running, receive_buffer=65_536):
            await soon(over.wait())
        [error] = errors
        assert "the peer took nothing of what was sent for 0.2 s" in str(error)
        assert "elements with" in str(error)
        assert error.written == error.elements * 16_384
        assert 0 < error.unsent < 1_000_000
        assert isinstance(error.__cause__, IdleTimeout)

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_reads_slowly_is_not_closed_by_the_write_timeout(kind: str) -> None:
    async def main() -> None:
        size = 8_000_000
        server = TcpServer.create().write_timeout(BRIEF).handle(lambda i, o: o.send(bytes(size)))
        async with await server.bind() as running, await Peer.of(running, receive_buffer=65_536) as peer:
            got = 0
            while got < size:
                step = len(await peer.receive(min(2_000_000, size - got)))
                assert step
                got += step
                await asyncio.sleep(BRIEF / 4)
            assert await peer.rest() == b""

    run_on(kind, main())


@on_each_loop
def test_a_connection_without_traffic_has_no_limit_unless_one_is_set(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            states: list[ConnectionState] = []
            client = TcpClient.create().write_timeout(BRIEF).observe(lambda c, state: states.append(state))
            async with (
                await client.port(listener.port).connect() as connection,
                await listener.accept() as peer,
            ):
                # Longer than the limit with nothing to be written: the other side is what ends this.
                await asyncio.sleep(2 * BRIEF)
                assert not connection.closed
                await soon(connection.outbound.send(b"x"))
                assert await peer.receive(1) == b"x"

    run_on(kind, main())


@pytest.mark.parametrize("name", ["idle_timeout", "read_timeout", "write_timeout", "keep_alive"])
@pytest.mark.parametrize(
    ("seconds", "error", "text"),
    [
        (0, ValueError, "above 0"),
        (-1, ValueError, "above 0"),
        (float("nan"), ValueError, "finite"),
        (True, TypeError, "number"),
        ("1", TypeError, "number"),
    ],
)
def test_a_limit_has_to_be_a_time(name: str, seconds: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"{name}\(\) needs a .*{text}"):
        getattr(TcpServer.create(), name)(seconds)


def test_the_system_takes_every_time_that_keep_alive_takes() -> None:
    server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
    server.keep_alive(65_534).bind_now().close_now()
    server.keep_alive(0.1).bind_now().close_now()

    with pytest.raises(ValueError, match=r"keep_alive\(\) needs a number of at most 65534"):
        server.keep_alive(65_535)


@pytest.mark.parametrize("first", ["keep_alive", "unix"])
def test_a_unix_socket_ignores_keep_alive(
    first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "socket")
    server, client = TcpServer.create(), TcpClient.create()
    if first == "unix":
        server, client = server.unix(path).keep_alive(), client.unix(path).keep_alive()
    else:
        server, client = server.keep_alive().unix(path), client.keep_alive().unix(path)

    async def main() -> None:
        async with (
            await server.handle(lambda inbound, outbound: outbound.send(inbound.receive())).bind(),
            await client.connect() as connection,
        ):
            await connection.outbound.send(b"x")
            assert await connection.inbound.receive().first() == b"x"

    asyncio.run(main())

    assert caplog.messages == []


def test_keep_alive_is_set_on_both_ends_of_a_connection() -> None:
    async def main() -> None:
        accepted: list[Connection] = []
        server = TcpServer.create().keep_alive(30).on_connection(accepted.append)
        async with (
            await server.handle(lambda inbound, outbound: outbound.send(inbound.receive())).bind() as bound,
            await TcpClient.create().port(bound.port).keep_alive(60).connect() as connection,
        ):
            await connection.outbound.send(b"x")
            assert await connection.inbound.receive().first() == b"x"
            for end, silence in ((accepted[0], 15), (connection, 30)):
                opened = end.transport.socket
                assert opened is not None
                assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == silence

    asyncio.run(main())
