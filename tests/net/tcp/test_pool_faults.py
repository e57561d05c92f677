"""What may go wrong around a pool: peers that close, callers that are cancelled, several loops, a fork."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import Any

import pytest

from penstock.net import (
    ConnectFailed,
    Connection,
    ConnectionAborted,
    ConnectionPool,
    PoolClosed,
    TcpClient,
    TcpServer,
)
from penstock.net.framing import lines
from tests.net.tcp.loops import LOOPS, LoopThread, run_on
from tests.net.tcp.peers import LONG, Listener, Peer, begun, refusing_port, soon, until
from tests.net.tcp.test_pool import asked, shout
from tests.streams.schedulers.child import run_script

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


async def idle_one(listener: Listener, client: TcpClient) -> Peer:
    """Put a connection into the pool. Returns its peer."""
    async with await soon(client.connect()):
        return await listener.accept()


# ---------------------------------------------------------------- what is not used again
@on_each_loop
@pytest.mark.parametrize("ends", ["close", "half_close", "reset"])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_connection_that_the_peer_closed_while_idle_is_never_handed_out(
    kind: str, ends: str, noticed: bool
) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                peer = await idle_one(listener, client)
                getattr(peer.socket if ends == "close" else peer, ends)()
                if noticed:
                    await until(lambda: not pool.metrics_by_remote())
                # Otherwise the kernel knows, and the event loop has not looked yet.
                async with await soon(client.connect()) as connection:
                    fresh = await listener.accept()
                    await fresh.send(b"hello")
                    assert await soon(connection.inbound.receive().first()) == b"hello"
                    assert pool.metrics.connections_active == 1
                peer.socket.close()
                fresh.socket.close()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("noticed", [True, False])
def test_bytes_that_arrive_while_it_is_idle_close_it(kind: str, noticed: bool) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                peer = await idle_one(listener, client)
                peer.socket.send(b"late")
                if noticed:
                    await peer.gone()
                async with await soon(client.connect()) as connection:
                    fresh = await listener.accept()
                    await fresh.send(b"mine")
                    assert await soon(connection.inbound.receive().first()) == b"mine"
                await peer.gone()
                peer.socket.close()
                fresh.socket.close()

    run_on(kind, main())


async def leave_unread(connection: Connection, peer: Peer) -> None:
    await peer.send(b"nobody reads this")
    await until(lambda: connection._receiver.waiting)


async def cancel_in_front_of_bytes(connection: Connection, peer: Peer) -> None:
    chunks = connection.inbound.receive().subscribe(lambda chunk: None)
    await asyncio.sleep(0)
    chunks.cancel()
    await peer.send(b"too late")
    await until(lambda: connection._receiver.dropped)


async def leave_half_a_line(connection: Connection, peer: Peer) -> None:
    await peer.send(b"a line\nand half")
    assert await soon(connection.inbound.receive().transform(lines()).first()) == b"a line"


async def leave_a_whole_line(connection: Connection, peer: Peer) -> None:
    await peer.send(b"one\ntwo\n")
    assert await soon(connection.inbound.receive().transform(lines()).first()) == b"one"


async def leave_a_line_in_the_loop(connection: Connection, peer: Peer) -> None:
    await peer.send(b"one\ntwo\n")
    async for line in connection.inbound.receive().transform(lines()):
        assert line == b"one"
        break


async def still_receive(connection: Connection, peer: Peer) -> None:
    connection.inbound.receive().subscribe(on_next=lambda chunk: None, on_error=lambda error: None)
    await asyncio.sleep(0)


async def end_our_side(connection: Connection, peer: Peer) -> None:
    await connection.outbound.send(b"bye").end()


async def learn_that_the_peer_ended(connection: Connection, peer: Peer) -> None:
    peer.half_close()
    await soon(connection.inbound.receive().collect_list())


# With a read-ahead of 0 nothing is read before it is asked for, so nothing can be left of it.
READ_AHEAD = [leave_unread, cancel_in_front_of_bytes]
ON_DEMAND = [
    leave_half_a_line,
    leave_a_whole_line,
    leave_a_line_in_the_loop,
    still_receive,
    end_our_side,
    learn_that_the_peer_ended,
]


@on_each_loop
@pytest.mark.parametrize(
    ("use", "read_ahead"),
    [*((use, 65_536) for use in READ_AHEAD + ON_DEMAND), *((use, 0) for use in ON_DEMAND)],
)
def test_a_connection_in_the_middle_of_something_is_closed(kind: str, use: Any, read_ahead: int) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).linger(0.1).read_ahead(read_ahead).pool(pool)
                async with await soon(client.connect()) as connection:
                    peer = await listener.accept()
                    await use(connection, peer)
                await peer.gone()
                assert pool.metrics.connections_idle == 0
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_bytes_that_only_the_kernel_has_close_it(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).linger(0.1).read_ahead(0).pool(pool)
                async with await soon(client.connect()) as connection:
                    peer = await listener.accept()
                    await asyncio.sleep(0)
                    peer.socket.send(b"unread")
                await peer.gone()
                assert connection.closed
                assert pool.metrics.connections_idle == 0
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_unsent_bytes_are_sent_and_the_connection_is_closed(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).option("SO_SNDBUF", 4096).pool(pool)
                sent = 0
                async with await soon(client.connect()) as connection:
                    peer = await listener.accept()
                    while not connection.transport.get_write_buffer_size():
                        await soon(connection.outbound.send(b"x" * 1024))
                        sent += 1024
                    connection.close()
                    rest = begun(peer.rest())
                assert len(await rest) == sent
                assert pool.metrics.connections_idle == 0
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_an_error_in_the_block_or_in_the_handler_closes_it(kind: str) -> None:
    async def main() -> None:
        async with await TcpServer.create().handle(shout).bind() as server, ConnectionPool(1) as pool:
            client = TcpClient.create().port(server.port).pool(pool)
            with pytest.raises(LookupError):
                async with await soon(client.connect()):
                    raise LookupError("in the block")
            assert pool.metrics.connections_idle == 0

            async def fail(inbound: Any, outbound: Any) -> None:
                raise LookupError("in the handler")

            await soon((await soon(client.handle(fail).connect())).wait_closed())
            assert pool.metrics.connections_idle == 0
            assert await asked(client, b"a") == b"A"
            assert pool.metrics.connections_idle == 1

    run_on(kind, main())


# ---------------------------------------------------------------- connecting
@on_each_loop
def test_a_refused_connection_leaves_its_place_to_the_next_caller(kind: str) -> None:
    async def main() -> None:
        with refusing_port() as port:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(port).pool(pool)
                attempts = [begun(client.connect()) for _ in range(5)]
                results = await asyncio.gather(*attempts, return_exceptions=True)
                assert [type(result) for result in results] == [ConnectFailed] * 5
                assert pool.metrics.connections_active == pool.metrics.acquires_pending == 0
                assert not pool.metrics_by_remote()

    run_on(kind, main())


@on_each_loop
def test_a_caller_that_is_cancelled_while_connecting_leaves_its_place(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                for turns in range(12):  # It is cancelled at each stage of connecting, and after it.
                    caller = asyncio.ensure_future(client.connect())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    if caller.cancel():
                        with pytest.raises(asyncio.CancelledError):
                            await caller
                    else:
                        (await caller).abort()
                    async with await soon(client.connect()):
                        assert pool.metrics.connections_active == 1

    run_on(kind, main())


# ---------------------------------------------------------------- waiting
@on_each_loop
@pytest.mark.parametrize("turns", range(5))
def test_a_caller_that_is_cancelled_in_the_moment_of_the_hand_over_loses_nobodys_connection(
    kind: str, turns: int
) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                used = await soon(client.connect())
                peer = await listener.accept()
                first, second = begun(client.connect()), begun(client.connect())
                await until(lambda: pool.metrics.acquires_pending == 2)
                used.close()
                for _ in range(turns):
                    await asyncio.sleep(0)
                if first.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await first
                else:
                    (await first).close()
                connection = await second
                await peer.send(b"the same socket")
                assert await soon(connection.inbound.receive().first()) == b"the same socket"
                connection.abort()
                peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_a_caller_that_is_cancelled_leaves_the_queue(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1, max_pending=1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                async with await soon(client.connect()):
                    for _ in range(3):
                        waiting = begun(client.connect())
                        await until(lambda: pool.metrics.acquires_pending == 1)
                        waiting.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await waiting
                        assert pool.metrics.acquires_pending == 0
                assert pool.metrics.connections_idle == 1

    run_on(kind, main())


@on_each_loop
def test_the_peer_closes_between_the_hand_over_and_the_use(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with ConnectionPool(1) as pool:
                client = TcpClient.create().port(listener.port).pool(pool)
                used = await soon(client.connect())
                peer = await listener.accept()
                waiting = begun(client.connect())
                await until(lambda: pool.metrics.acquires_pending == 1)
                used.close()
                peer.socket.close()
                connection = await waiting
                fresh = await listener.accept()
                await fresh.send(b"alive")
                assert await soon(connection.inbound.receive().first()) == b"alive"
                assert pool.metrics.connections_active == 1
                connection.abort()
                fresh.socket.close()

    run_on(kind, main())


# ---------------------------------------------------------------- closing
@on_each_loop
def test_closing_fails_who_waits_closes_what_is_idle_and_cuts_off_what_stays_in_use(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener, Listener() as other:
            pool = ConnectionPool(1)
            client = TcpClient.create().port(listener.port).pool(pool)
            idle_peer = await idle_one(other, client.port(other.port))
            used = await soon(client.connect())
            peer = await listener.accept()
            waiting = [begun(client.connect()) for _ in range(3)]
            await until(lambda: pool.metrics.acquires_pending == 3)
            report = await soon(pool.aclose(grace=0.05))
            assert report.finished == 0
            assert [used.id in label for label in report.aborted] == [True]
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, PoolClosed)
                assert f"127.0.0.1:{listener.port}" in str(result)
            assert await idle_peer.rest() == b""
            with pytest.raises(ConnectionResetError):
                await peer.rest()
            with pytest.raises(ConnectionAborted, match="pool was closed"):
                await used.inbound.receive().first()
            with pytest.raises(PoolClosed):
                await soon(client.connect())
            assert not pool.metrics_by_remote()
            peer.socket.close()
            idle_peer.socket.close()

    run_on(kind, main())


@on_each_loop
def test_closing_waits_for_what_is_given_back_in_time(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            pool = ConnectionPool()
            client = TcpClient.create().port(listener.port).pool(pool)
            used = await soon(client.connect())
            peer = await listener.accept()
            closing = begun(pool.aclose(grace=LONG))
            await until(lambda: pool.closed)
            assert not closing.done()
            used.close()
            assert await peer.rest() == b""
            peer.socket.close()
            report = await closing
            assert (report.finished, report.aborted) == (1, ())
            assert (await soon(pool.aclose())).finished == 0

    run_on(kind, main())


# ---------------------------------------------------------------- several loops and threads
@on_each_loop
def test_a_connection_stays_on_its_loop_and_makes_room_for_another_loop(kind: str) -> None:
    here, there = LoopThread(kind), LoopThread(kind)
    server = TcpServer.create().handle(shout).bind_now()
    pool = ConnectionPool(1)
    client = TcpClient.create().port(server.port).pool(pool)
    try:
        for _ in range(3):
            for loop in (here, there):
                assert loop.wait(asked(client, b"a")) == b"A"
                assert loop.wait(asked(client, b"b")) == b"B"
        assert server.metrics.connections_total == 6
        used = here.wait(client.connect())
        waiting = asyncio.run_coroutine_threadsafe(asked(client, b"c"), there.loop)
        here.wait(until(lambda: pool.metrics.acquires_pending == 1))
        used.close()
        assert waiting.result(LONG) == b"C"
    finally:
        pool.close_now()
        server.close_now()
        here.close()
        there.close()


def test_the_bound_holds_for_two_loops_together_under_load() -> None:
    open_now, most, lock = 0, 0, threading.Lock()

    async def count(inbound: Any, outbound: Any) -> None:
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        try:
            await shout(inbound, outbound)
        finally:
            with lock:
                open_now -= 1

    async def many(client: TcpClient, seed: int) -> int:
        chance, answers = random.Random(seed), 0
        for _ in range(40):
            # A task, because wait_for() of newer Pythons would run it in this one.
            asking = asyncio.ensure_future(asked(client, b"q"))
            if chance.random() < 0.3:
                for _ in range(chance.randrange(6)):
                    await asyncio.sleep(0)
                asking.cancel()
            (result,) = await asyncio.gather(asking, return_exceptions=True)
            answers += result == b"Q"
            assert result == b"Q" or isinstance(result, asyncio.CancelledError)
        return answers

    async def all_of(client: TcpClient, seeds: range) -> int:
        return sum(await asyncio.gather(*(many(client, seed) for seed in seeds)))

    loops = [LoopThread("asyncio"), LoopThread("uvloop")]
    server = TcpServer.create().handle(count).bind_now()
    pool = ConnectionPool(3)
    client = TcpClient.create().port(server.port).linger(0.1).pool(pool)
    try:
        under_way = [
            asyncio.run_coroutine_threadsafe(all_of(client, range(n * 5, n * 5 + 5)), thread.loop)
            for n, thread in enumerate(loops)
        ]
        assert all(result.result(50) > 0 for result in under_way)
        counted = pool.metrics
        assert counted.acquires_pending == 0
        # A peer may learn of a close later than we do, so it can see one more for each that is closed.
        assert counted.connections_active + counted.connections_idle <= 3
        assert pool.close_now().aborted == ()
        assert not pool.metrics_by_remote()
    finally:
        pool.close_now()
        server.close_now()
        for thread in loops:
            thread.close()
    assert open_now == 0
    assert most >= 1


def test_a_plain_thread_takes_and_gives_back() -> None:
    server = TcpServer.create().handle(shout).bind_now()
    with ConnectionPool(1) as pool:
        client = TcpClient.create().port(server.port).pool(pool)
        for _ in range(3):
            connection = client.connect_now()
            connection.outbound.send(b"hello\n").mono().block(timeout=LONG)
            line = connection.inbound.receive().transform(lines()).first().block(timeout=LONG)
            assert line == b"HELLO"
            connection.close()
            connection.on_dispose().block(timeout=LONG)
        assert server.metrics.connections_total == 1
    server.close_now()


def test_the_connections_of_a_closed_loop_do_not_count_any_more() -> None:
    printed = run_script("""
import asyncio, warnings
from penstock.net import ConnectionPool, TcpClient, TcpServer
warnings.simplefilter("ignore")  # Loops are closed, and connections are left open on them: that is the point.

server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive())).bind_now()
pool = ConnectionPool(1)
client = TcpClient.create().port(server.port).pool(pool)

async def ask(client):
    async with await client.connect() as connection:
        await connection.outbound.send(b"hello")
        return await connection.inbound.receive().first()

forgotten = asyncio.run(client.connect())
print(asyncio.run(ask(client)))  # And this one is left idle.
print(asyncio.run(ask(client)))
pool.close_now()
server.close_now()
""")
    assert printed == "b'hello'\nb'hello'\n"


def test_a_child_begins_without_connections_and_the_parents_go_on() -> None:
    printed = run_script("""
import asyncio, os, sys, warnings
from penstock.net import ConnectionPool, TcpClient, TcpServer
warnings.simplefilter("ignore")

async def ask(client):
    async with await client.connect() as connection:
        await connection.outbound.send(b"hello")
        return await connection.inbound.receive().first()

server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive())).bind_now()
pool = ConnectionPool(1)
client = TcpClient.create().port(server.port).pool(pool)

async def main():
    print("parent", await ask(client), pool.metrics.connections_idle, flush=True)
    child = os.fork()
    if not child:
        asyncio.events._set_running_loop(None)
        print("child", pool.metrics.connections_idle, asyncio.run(ask(client)), flush=True)
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    print("parent", await ask(client), server.metrics.connections_total)
    await pool.aclose()

asyncio.run(main())
server.close_now()
""")
    assert printed.splitlines() == [
        "parent b'hello' 1",
        "child 0 b'hello'",
        "parent b'hello' 2",
    ]
