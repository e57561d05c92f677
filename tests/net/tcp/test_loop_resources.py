"""Event loops that servers and clients share: who lives where, and how all of it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.net import (
    CloseReport,
    ConnectFailed,
    Connection,
    ConnectionPool,
    Inbound,
    LoopResources,
    LoopsClosed,
    Outbound,
    TcpClient,
    TcpServer,
    UdpClient,
    UdpServer,
)
from penstock.streams import Mono
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, until
from tests.net.tcp.test_pool_faults import run_script

on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
WHERE = TcpServer.create().handle(
    lambda inbound, outbound: outbound.send(threading.current_thread().name.encode())
)
"""Says on which thread it runs."""


def threads(name: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(name))


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


async def answer(client: TcpClient) -> bytes:
    async with asyncio.timeout(LONG), await client.connect() as connection:
        return b"".join([chunk async for chunk in connection.inbound.receive()])


# ---------------------------------------------------------------- who lives where
@on_each_loop
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_the_connections_of_a_server_are_dealt_out_to_all_loops(
    kind: str, secure: bool, tmp_path: Path
) -> None:
    server, client = WHERE, TcpClient.create()
    if secure:
        authority = Authority.make(tmp_path)
        server = server.secure(certificate=authority.certificate("localhost"))
        client = client.host("localhost").secure(trust=authority.trust)

    async def main() -> None:
        async with LoopResources(3, name="dealt") as loops:
            one, two = await server.run_on(loops).bind(), await server.run_on(loops).bind()
            for running in (one, two):
                where = Counter([await answer(client.port(running.port)) for _ in range(9)])
                assert where == {b"dealt-1": 3, b"dealt-2": 3, b"dealt-3": 3}
            assert threads("dealt") == ["dealt-1", "dealt-2", "dealt-3"]
        assert threads("dealt") == []

    run_on(kind, main())


def test_the_threads_are_daemons_and_start_when_they_are_needed() -> None:
    with LoopResources(3, name="lazy") as loops:
        assert threads("lazy") == []
        first = loops.next_loop()
        assert threads("lazy") == ["lazy-1"]
        assert [loops.next_loop() for _ in range(3)][2] is first
        assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("lazy"))
    assert threads("lazy") == []


def test_what_a_handler_opens_stays_on_its_loop() -> None:
    together: list[bool] = []

    async def ask(inbound: Inbound, outbound: Outbound) -> None:
        connection = await TcpClient.create().port(target.port).run_on(loops).connect()
        together.append(connection.transport.loop is asyncio.get_running_loop())
        await connection.aclose()

    with LoopResources(4, name="stays") as loops:
        target = WHERE.run_on(loops).bind_now()
        front = TcpServer.create().handle(ask).run_on(loops).bind_now()
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", front.port)) as caller:
                caller.settimeout(LONG)
                assert caller.recv(1) == b""
    assert together == [True] * 4


@on_each_loop
def test_clients_are_dealt_out_and_used_from_a_loop_of_the_callers_own(kind: str) -> None:
    async def main() -> None:
        async with LoopResources(2, name="clients") as loops, await ECHO.bind() as server:
            client = TcpClient.create().port(server.port).run_on(loops)
            connections = [await client.connect() for _ in range(4)]
            assert Counter(id(each.transport.loop) for each in connections).most_common() == [
                (id(loop), 2) for loop in dict.fromkeys(each.transport.loop for each in connections)
            ]
            for each in connections:
                async with asyncio.timeout(LONG), each:
                    await each.outbound.send(b"hello")
                    assert await each.inbound.receive().first() == b"hello"

    run_on(kind, main())


def test_a_program_without_an_event_loop_uses_them_too() -> None:
    with LoopResources(2, name="plain") as loops:
        server = (
            TcpServer.create()
            .handle(lambda inbound, outbound: outbound.send(inbound.receive().map(bytes.upper)))
            .run_on(loops)
            .bind_now()
        )
        connection = TcpClient.create().port(server.port).run_on(loops).connect_now()
        connection.outbound.send(b"hello").mono().block()
        assert connection.inbound.receive().take(1).collect_list().block() == [b"HELLO"]
        connection.close()


@on_each_loop
def test_datagrams_are_received_and_sent_on_them(kind: str) -> None:
    async def main() -> None:
        async with LoopResources(2, name="udp") as loops:
            server = await (
                UdpServer.create()
                .handle(lambda inbound, outbound: outbound.send(inbound.receive()))
                .run_on(loops)
                .bind()
            )
            channel = await UdpClient.create().port(server.port).run_on(loops).connect()
            assert {server.loop, channel.loop} == set(loops.loops)
            async with asyncio.timeout(LONG):
                await channel.outbound.send(b"ping")
                assert (await channel.inbound.receive().first()).data == b"ping"
        assert server.closed
        assert channel.closed

    run_on(kind, main())


def test_pooled_connections_are_used_again_on_their_loop() -> None:
    async def ask(client: TcpClient) -> bytes:
        async with asyncio.timeout(LONG), await client.connect() as connection:
            await connection.outbound.send(b"hello")
            return await connection.inbound.receive().first()

    async def main() -> None:
        async with LoopResources(2, name="pooled") as loops, ConnectionPool(4) as pool:
            server = await ECHO.run_on(loops).bind()
            client = TcpClient.create().port(server.port).run_on(loops).pool(pool)
            assert {await ask(client) for _ in range(10)} == {b"hello"}
            assert server.metrics.connections_total == 2  # one for each loop

    asyncio.run(main())


# ---------------------------------------------------------------- one server on several threads
def test_the_bound_of_connections_holds_for_all_loops_together() -> None:
    with LoopResources(4, name="bound") as loops:
        server = (
            TcpServer.create()
            .handle(lambda inbound, outbound: Mono.never())
            .max_connections(10)
            .run_on(loops)
            .bind_now()
        )
        callers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
        eventually(lambda: server.metrics.connections_refused == 50)
        assert server.metrics.connections_active == len(server.connections) == 10
        for caller in callers:
            caller.close()


def test_the_counts_of_all_loops_are_added_up() -> None:
    size, calls = 64 * 1024, 200

    def call(number: int) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as caller:
            caller.settimeout(LONG)
            caller.sendall(b"x" * size)
            caller.shutdown(socket.SHUT_WR)
            received = 0
            while chunk := caller.recv(size):
                received += len(chunk)
            assert received == size

    with LoopResources(4, name="counts") as loops, ThreadPoolExecutor(8) as callers:
        server = ECHO.metrics().run_on(loops).bind_now()
        list(callers.map(call, range(calls)))
        eventually(lambda: server.metrics.connections_active == 0)
        counted = server.metrics
        assert (counted.connections_total, counted.errors) == (calls, 0)
        assert counted.data_received == counted.data_sent == size * calls


def test_a_handler_that_blocks_holds_up_its_own_loop_only() -> None:
    release, blocked = threading.Event(), threading.Event()

    def block(inbound: Inbound, outbound: Outbound) -> object:
        if not blocked.is_set():
            blocked.set()
            release.wait(LONG)
        return Mono.empty()

    with LoopResources(2, name="blocked") as loops:
        server = TcpServer.create().handle(block).run_on(loops).bind_now()
        callers = [socket.create_connection(("127.0.0.1", server.port))]
        try:
            assert blocked.wait(LONG)
            assert server.connections[0].transport.loop is not server.loop  # which accepts
            # Those that come at once are dealt to the blocked loop, until it is known to be blocked.
            while server.metrics.connections_total < 21:
                callers.append(socket.create_connection(("127.0.0.1", server.port)))
                time.sleep(0.01)
            assert {each.transport.loop for each in server.connections} <= set(loops.loops)
        finally:
            release.set()
        for caller in callers:
            caller.settimeout(LONG)
            assert caller.recv(1) == b""  # Each of them is served in the end.
            caller.close()


# ---------------------------------------------------------------- the end
def test_closing_them_closes_what_lives_there_and_ends_the_threads() -> None:
    async def hold(inbound: object, outbound: object) -> None:
        await asyncio.Event().wait()

    states: list[str] = []
    loops = LoopResources(2, name="ends")
    server = TcpServer.create().handle(hold).run_on(loops).bind_now()
    channel = UdpServer.create().handle(lambda inbound, outbound: inbound.receive().then()).run_on(loops)
    bound = channel.bind_now()
    with TcpServer.create().handle(hold).bind_now() as other:
        client = TcpClient.create().observe(lambda each, state: states.append(state.name)).run_on(loops)
        connection = client.port(other.port).connect_now()
        with socket.create_connection(("127.0.0.1", server.port)):
            eventually(lambda: server.connections)
            label = server.connections[0].label
            report = loops.close_now(2)  # long enough for whoever can end, on a busy machine as well
        assert [cut.replace("!", "-") for cut in report.aborted] == [label]
        assert connection.closed
        assert bound.closed
        assert states[-1] == "DISCONNECTING"
        other.close_now(0)
    assert threads("ends") == []
    assert loops.closed
    assert loops.close_now() is report
    assert server.close_now() == CloseReport(0, (report.aborted))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_nothing_can_be_opened_on_closed_loops() -> None:
    loops = LoopResources(1)
    loops.close_now()
    with pytest.raises(LoopsClosed, match="make a new LoopResources"):
        ECHO.run_on(loops).bind_now()
    with pytest.raises(LoopsClosed):
        asyncio.run(TcpClient.create().port(1).run_on(loops).connect())
    with pytest.raises(LoopsClosed):
        UdpServer.create().run_on(loops).bind_now()


def test_a_server_that_nobody_holds_is_closed_with_its_loops() -> None:
    with LoopResources(2, name="dropped") as loops:
        port = ECHO.run_on(loops).bind_now().port
        gc.collect()
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"x")
            caller.settimeout(LONG)
            assert caller.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("attempt", range(5))
def test_a_server_is_closed_from_many_threads_and_loops_at_once(attempt: int) -> None:
    begin = threading.Barrier(7)

    async def close() -> CloseReport:
        return await server.aclose()

    def by_thread() -> CloseReport:
        begin.wait()
        return server.close_now()

    def by_loop() -> CloseReport:
        begin.wait()
        return asyncio.run(close())

    with LoopResources(3, name="many") as loops, ThreadPoolExecutor(6) as others:
        server = ECHO.linger(0.05).run_on(loops).bind_now()
        callers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
        eventually(lambda: server.metrics.connections_total == 6)
        closing = [others.submit(each) for each in (by_thread, by_loop) * 3]
        begin.wait()
        loops.close_now()
        assert {each.result(LONG) for each in closing} == {CloseReport(6, ())}
        for caller in callers:
            caller.close()


@pytest.mark.parametrize("attempt", range(10))
def test_the_loops_are_closed_from_many_threads_at_once_while_callers_connect(attempt: int) -> None:
    begin = threading.Barrier(5)
    loops = LoopResources(2, name="race")
    server = ECHO.linger(0.05).run_on(loops).bind_now()
    client = TcpClient.create().port(server.port).run_on(loops)

    def call() -> object:
        begin.wait()
        try:
            return client.connect_now()
        except (LoopsClosed, ConnectFailed) as error:
            return error

    def close() -> object:
        begin.wait()
        return loops.close_now(1)

    with ThreadPoolExecutor(5) as everybody:
        calls = [everybody.submit(call) for _ in range(3)]
        closes = [everybody.submit(close) for _ in range(2)]
        assert closes[0].result(LONG) is closes[1].result(LONG)
        for each in calls:
            result = each.result(LONG)
            assert not isinstance(result, Connection) or result.closed
    assert threads("race") == []


def test_a_loop_cannot_close_itself() -> None:
    with LoopResources(1) as loops:
        closing = asyncio.run_coroutine_threadsafe(loops.aclose(), loops.next_loop())
        with pytest.raises(RuntimeError, match="from another thread"):
            closing.result(LONG)
        assert not loops.closed


@on_each_loop
def test_a_caller_that_is_cancelled_leaves_no_connection(kind: str) -> None:
    async def main() -> None:
        async with LoopResources(2, name="cancelled") as loops:
            server = await ECHO.run_on(loops).bind()
            client = TcpClient.create().port(server.port).run_on(loops)
            for n in range(200):
                calling = asyncio.ensure_future(client.connect())
                for _ in range(n % 20):
                    await asyncio.sleep(0)
                if calling.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await calling
                else:
                    await calling.result().aclose()
            await until(lambda: not server.connections)

    run_on(kind, main())


# ---------------------------------------------------------------- loops that misbehave
def _exit() -> None:
    raise SystemExit(3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_neither_an_exit_nor_a_stop_ends_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    with LoopResources(1, name="stubborn") as loops:
        server = ECHO.run_on(loops).bind_now()
        loop = loops.next_loop()
        for harm in (_exit, loop.stop):
            loop.call_soon_threadsafe(harm)
            with socket.create_connection(("127.0.0.1", server.port)) as caller:
                caller.sendall(b"x")
                caller.settimeout(LONG)
                assert caller.recv(1) == b"x"
        assert loops.next_loop() is loop
    assert any("SystemExit(3)" in record.getMessage() for record in caplog.records)


def test_a_loop_that_hangs_is_left_behind_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.net.loop_resources._STUCK", 0.2)
    monkeypatch.setattr("penstock.net.connections._STUCK", 0.2)
    release, hangs = threading.Event(), threading.Event()

    def hang(inbound: object, outbound: object) -> object:
        hangs.set()
        release.wait(LONG)
        return Mono.empty()

    loops = LoopResources(1, name="hung")
    server = TcpServer.create().handle(hang).run_on(loops).bind_now()
    with (
        caplog.at_level(logging.WARNING, "penstock.net"),
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert hangs.wait(LONG)
        loops.close_now(0.1)
        assert any("hung-1 was left behind" in record.getMessage() for record in caplog.records)
        release.set()
    eventually(lambda: threads("hung") == [])


# ---------------------------------------------------------------- processes
def test_a_child_begins_with_new_loops_and_does_not_listen_for_its_parent() -> None:
    printed = run_script("""
import os, socket, threading, time, warnings
from penstock.net import LoopResources, TcpClient, TcpServer
warnings.simplefilter("ignore")

def names():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("forked"))

def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.settimeout(20)
        caller.sendall(b"hello")
        return caller.recv(5)

loops = LoopResources(2, name="forked")
echo = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive())).run_on(loops)
server = echo.bind_now()
print("parent", names(), ask(server.port), flush=True)
go_on, told = os.pipe()
child = os.fork()
if not child:
    print("child", names(), server.close_now(), ask(server.port), flush=True)
    with echo.bind_now() as own:
        print("child", names(), ask(own.port), flush=True)
    os.write(told, b"x")
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
        except ConnectionRefusedError:
            break  # The parent has closed it, and the child does not listen.
        time.sleep(0.01)
    print("child", loops.close_now(), names(), flush=True)
    os._exit(0)
os.read(go_on, 1)
print("parent", names(), ask(server.port), flush=True)
loops.close_now()
os.waitpid(child, 0)
print("parent", names())
""")
    assert printed.splitlines() == [
        "parent ['forked-1', 'forked-2'] b'hello'",
        "child [] CloseReport(finished=0, aborted=()) b'hello'",
        "child ['forked-1', 'forked-2'] b'hello'",
        "parent ['forked-1', 'forked-2'] b'hello'",
        "child CloseReport(finished=0, aborted=()) []",
        "parent []",
    ]


def test_the_interpreter_exits_quietly_while_they_run() -> None:
    assert (
        run_script("""
import socket
from penstock.net import LoopResources, TcpServer
quiet = TcpServer.create().handle(lambda inbound, outbound: outbound.keep_open())
server = quiet.run_on(LoopResources(2)).bind_now()
with socket.create_connection(("127.0.0.1", server.port)):
    print("bye")
""")
        == "bye\n"
    )


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2"])
def test_a_number_of_loops_is_a_whole_number_above_zero(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match="LoopResources"):
        LoopResources(wrong)  # type: ignore[arg-type]


def test_only_loop_resources_can_be_run_on() -> None:
    with pytest.raises(TypeError, match="pass a LoopResources"):
        ECHO.run_on(asyncio)  # type: ignore[arg-type]
    assert ECHO.run_on(None).settings.loops is None
