"""A pool of connections: what is used again, who waits, and what the bounds are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    AcquireTimeout,
    Connection,
    ConnectionPool,
    ConnectionState,
    PoolFull,
    ReceiveStopped,
    TcpClient,
    TcpServer,
)
from penstock.net.framing import lines
from penstock.streams import Mono
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


async def shout(inbound: Any, outbound: Any) -> None:
    async for line in inbound.receive().transform(lines()):
        await outbound.send(line.upper() + b"\n")


async def asked(client: TcpClient, question: bytes) -> bytes:
    """The answer to a question, on a connection that is then given back."""
    async with await soon(client.connect()) as connection:
        await connection.outbound.send(question + b"\n")
        answer = await soon(connection.inbound.receive().transform(lines()).first())
        assert isinstance(answer, bytes)
        return answer


@on_each_loop
def test_one_socket_serves_one_conversation_after_the_other(kind: str) -> None:
    async def main() -> None:
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool() as pool:
            client = TcpClient.create().port(server.port).pool(pool)
            assert [await asked(client, b"q%d" % n) for n in range(5)] == [b"Q%d" % n for n in range(5)]
            assert server.metrics.connections_total == 1
            counted = pool.metrics
            assert (counted.connections_active, counted.connections_idle) == (0, 1)
            assert counted.acquires_total == 5
        await until(lambda: not server.connections)

    run_on(kind, main())


@on_each_loop
def test_a_loop_that_is_left_with_break_gives_the_connection_back(kind: str) -> None:
    async def main() -> None:
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool() as pool:
            client = TcpClient.create().port(server.port).pool(pool)
            for _ in range(3):
                async with await soon(client.connect()) as connection:
                    await connection.outbound.send(b"hello\n")
                    async for line in connection.inbound.receive().transform(lines()):
                        assert line == b"HELLO"
                        break
            assert server.metrics.connections_total == 1

    run_on(kind, main())


@on_each_loop
def test_tls_connections_are_used_again(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        server = TcpServer.create().secure(certificate=authority.certificate("localhost")).handle(shout)
        async with await server.bind() as running, ConnectionPool() as pool:
            client = TcpClient.create().port(running.port).pool(pool)
            client = client.secure(trust=authority.trust, server_hostname="localhost")
            assert [await asked(client, b"q%d" % n) for n in range(3)] == [b"Q0", b"Q1", b"Q2"]
            assert running.metrics.connections_total == 1

    run_on(kind, main())


@on_each_loop
def test_a_connection_that_was_given_back_is_closed_for_its_user(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                first = await soon(client.connect())
                peer = await listener.accept()
                first.close()
                assert first.closed
                await soon(first.wait_closed())
                second = await soon(client.connect())
                # The first user may neither send on the socket nor read from it, nor close it.
                with pytest.raises(ConnectionError, match="closed"):
                    await first.outbound.send(b"mine?")
                with pytest.raises(ReceiveStopped, match="given back"):
                    await first.inbound.receive().first()
                first.close()
                first.abort()
                await peer.send(b"for the second")
                assert await soon(second.inbound.receive().first()) == b"for the second"
                assert second.id == f"{first.id}-2"
                second.abort()
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_observers_hear_of_a_socket_from_its_beginning_to_its_end(kind: str) -> None:
    told: list[tuple[str, str]] = []

    def observe(connection: Connection, state: ConnectionState) -> None:
        told.append((connection.id, state.name))
        raise ValueError("an observer that fails harms nobody")

    async def main() -> None:
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool() as pool:
            client = TcpClient.create().port(server.port).pool(pool).observe(observe)
            assert [await asked(client, b"a"), await asked(client, b"b")] == [b"A", b"B"]

    run_on(kind, main())
    first = told[0][0]
    assert told == [
        (first, "CONNECTED"),
        (first, "ACQUIRED"),
        (first, "CONFIGURED"),
        (first, "RELEASED"),
        (f"{first}-2", "ACQUIRED"),
        (f"{first}-2", "CONFIGURED"),
        (f"{first}-2", "RELEASED"),
        (f"{first}-2", "DISCONNECTING"),
    ]


@on_each_loop
def test_a_handler_gives_its_connection_back_when_it_ends(kind: str) -> None:
    async def main() -> None:
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool() as pool:
            answers: list[Any] = []

            async def talk(inbound: Any, outbound: Any) -> None:
                await outbound.send(b"hello\n")
                answers.append(await inbound.receive().transform(lines()).first())

            client = TcpClient.create().port(server.port).pool(pool)
            for _ in range(3):
                await soon((await soon(client.handle(talk).connect())).wait_closed())
            # A handler that has nothing to do has ended before connect() returns.
            assert (await soon(client.handle(lambda inbound, outbound: Mono.empty()).connect())).closed
            assert answers == [b"HELLO"] * 3
            assert server.metrics.connections_total == 1
            assert pool.metrics.connections_idle == 1

    run_on(kind, main())


@on_each_loop
def test_callers_wait_in_a_queue_and_the_first_one_is_served_first(kind: str) -> None:
    async def main() -> None:
        order: list[int] = []
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool(1) as pool:
            client = TcpClient.create().port(server.port).pool(pool)

            async def use(n: int) -> None:
                async with await client.connect():
                    order.append(n)
                    await asyncio.sleep(0)

            async with await soon(client.connect()):
                users = []
                for n in range(20):
                    users.append(begun(use(n)))
                    await until(lambda n=n: pool.metrics.acquires_pending == n + 1)
                assert order == []
            await asyncio.gather(*users)
            assert order == list(range(20))
            assert server.metrics.connections_total == 1
            assert pool.metrics.acquires_waited > 0

    run_on(kind, main())


@on_each_loop
def test_the_bound_holds_for_each_remote_address_and_one_does_not_delay_another(kind: str) -> None:
    async def main() -> None:
        with Listener() as busy, Listener() as free:
            async with ConnectionPool(2) as pool:
                to_busy = TcpClient.create().port(busy.port).pool(pool)
                used = [await soon(to_busy.connect()) for _ in range(2)]
                waiting = begun(to_busy.connect())
                await until(lambda: pool.metrics.acquires_pending == 1)
                other = await soon(TcpClient.create().port(free.port).pool(pool).connect())
                by_remote = pool.metrics_by_remote()
                assert by_remote[f"127.0.0.1:{busy.port}"].acquires_pending == 1
                assert by_remote[f"127.0.0.1:{free.port}"].connections_active == 1
                assert pool.metrics.connections_active == 3
                used[0].close()
                last = await waiting
                for connection in (*used, other, last):
                    connection.abort()

    run_on(kind, main())


@on_each_loop
def test_a_full_queue_refuses_at_once_and_says_what_to_do(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1, max_pending=1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                used = await soon(client.connect())
                waiting = begun(client.connect())
                await until(lambda: pool.metrics.acquires_pending == 1)
                with pytest.raises(PoolFull) as refused:
                    await soon(client.connect())
                for words in (
                    f"127.0.0.1:{listener.port}",
                    "all 1 are in use",
                    "1 callers wait",
                    "max_pending",
                ):
                    assert words in str(refused.value)
                used.close()
                (await waiting).close()
                async with await soon(client.connect()):
                    assert pool.metrics.connections_active == 1

    run_on(kind, main())


@on_each_loop
def test_waiting_too_long_fails_and_leaves_the_queue(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1, acquire_timeout=0.05) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                used = await soon(client.connect())
                with pytest.raises(AcquireTimeout) as late:
                    await soon(client.connect())
                for words in ("acquiring", f"127.0.0.1:{listener.port}", "0.05 s", "acquire_timeout=…"):
                    assert words in str(late.value)
                assert isinstance(late.value, TimeoutError)
                assert pool.metrics.acquires_pending == 0
                used.close()
                assert pool.metrics.connections_idle == 1

    run_on(kind, main())


@on_each_loop
def test_clients_with_other_settings_share_the_bound_but_not_the_sockets(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                plain = TcpClient.create().port(listener.port).pool(pool)
                tuned = plain.option("TCP_NODELAY", 1)
                async with await soon(plain.connect()):
                    first = await listener.accept()
                    waiting = begun(tuned.connect())
                    await until(lambda: pool.metrics.acquires_pending == 1)
                assert await first.rest() == b""  # It was closed to make room for the other kind.
                first.socket.close()
                connection = await waiting
                second = await listener.accept()
                connection.close()
                # An idle one makes room, too.
                another = begun(plain.connect())
                assert await second.rest() == b""
                second.socket.close()
                async with await another:
                    assert pool.metrics.connections_active == 1

    run_on(kind, main())


@on_each_loop
def test_an_idle_connection_is_closed_in_the_background(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(max_idle_time=0.05) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                async with await soon(client.connect()):
                    peer = await listener.accept()
                assert pool.metrics.connections_idle == 1
                assert await peer.rest() == b""
                await until(lambda: not pool.metrics_by_remote())
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_a_connection_that_is_used_often_is_closed_at_the_end_of_its_life(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with (
            await TcpServer.create().handle(shout).bind() as server,
            ConnectionPool(1, max_life_time=0.05) as pool,
        ):
            client = TcpClient.create().port(server.port).pool(pool)
            async with await soon(client.connect()):
                began = loop.time()
                await until(lambda: loop.time() > began + 0.06)
            assert pool.metrics.connections_idle == 0
            async with await soon(client.connect()) as connection:
                assert "-" not in connection.id
            await until(lambda: not pool.metrics_by_remote())  # Idle, it is closed without being used.
            assert server.metrics.connections_total == 2

    run_on(kind, main())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_connections": 0}, "max_connections"),
        ({"max_pending": -1}, "max_pending"),
        ({"acquire_timeout": 0}, "acquire_timeout"),
        ({"max_idle_time": -1}, "max_idle_time"),
        ({"max_life_time": 0}, "max_life_time"),
    ],
)
def test_wrong_bounds_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        ConnectionPool(**wrong)


def test_a_pool_has_to_be_one() -> None:
    with pytest.raises(TypeError, match="ConnectionPool"):
        TcpClient.create().pool(16)  # type: ignore[arg-type]


def test_the_counts_have_names_for_a_metrics_system() -> None:
    assert ConnectionPool(3, max_pending=7).metrics.as_dict() == {
        "penstock.net.pool.connections.active": 0,
        "penstock.net.pool.connections.idle": 0,
        "penstock.net.pool.connections.max": 3,
        "penstock.net.pool.acquires.pending": 0,
        "penstock.net.pool.acquires.max": 7,
        "penstock.net.pool.acquires.total": 0,
        "penstock.net.pool.acquires.waited": 0.0,
    }
