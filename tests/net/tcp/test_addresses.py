"""Where servers listen and clients connect: ports, names, paths; and what is said when that cannot be."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.net import BindFailed, ConnectFailed, Inbound, NetError, Outbound, TcpClient, TcpServer
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, Listener, Peer, raw, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


async def echoed(client: TcpClient) -> bytes:
    async with await soon(client.connect()) as connection:
        await soon(connection.outbound.send(b"hello"))
        return b"".join(await soon(connection.inbound.receive().take(1).collect_list()))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def descriptors_after(failing: Any) -> int:
    """How many are open when this has failed once: a loop may open some for itself at its first work."""
    with pytest.raises(NetError, match="cannot"):
        await soon(failing)
    return descriptors()


@on_each_loop
def test_a_port_in_use_is_told_with_a_remedy_and_leaves_nothing_open(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            before = await descriptors_after(ECHO.port(listener.port).bind())
            for _ in range(3):
                with pytest.raises(
                    BindFailed, match=f"cannot listen on 127.0.0.1:{listener.port}: Address"
                ) as e:
                    await ECHO.port(listener.port).bind()
            assert "another program is using it" in str(e.value)
            assert isinstance(e.value, OSError)
            assert isinstance(e.value, NetError)
            await until(lambda: descriptors() <= before)

    run_on(kind, main())


@on_each_loop
def test_an_option_that_does_not_fit_fails_the_bind_and_leaves_nothing_open(
    kind: str, tmp_path: Path
) -> None:
    async def main() -> None:
        server = ECHO.unix(str(tmp_path / "s")).option("TCP_NODELAY", 1)
        before = await descriptors_after(server.bind())
        for _ in range(3):
            with pytest.raises(BindFailed, match="cannot listen on"):
                await server.bind()
        await until(lambda: descriptors() <= before)

    run_on(kind, main())


@on_each_loop
def test_an_address_of_another_machine_cannot_be_listened_on(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(BindFailed, match="this machine does not have that address"):
            await ECHO.host("192.0.2.1").bind()

    run_on(kind, main())


@on_each_loop
def test_the_same_server_can_be_bound_many_times(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as one, await ECHO.bind() as two:
            assert one.port != two.port
            assert one.where == f"127.0.0.1:{one.port}"
            for server in one, two:
                assert await echoed(TcpClient.create().port(server.port)) == b"hello"
            assert one.metrics.connections_total == two.metrics.connections_total == 1
            assert repr(one).startswith(f"<RunningServer {one.where}, ")

    run_on(kind, main())


@on_each_loop
def test_all_addresses_of_the_machine(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.host("0.0.0.0").bind() as server:
            assert await echoed(TcpClient.create().host("localhost").port(server.port)) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_ipv6(kind: str) -> None:
    async def main() -> None:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
        async with await ECHO.host("::1").bind() as server:
            assert server.where == f"[::1]:{server.port}"
            client = await TcpClient.create().host("::1").port(server.port).connect()
            assert f"R:[::1]:{server.port}]" in client.label
            await soon(client.aclose())
            assert await echoed(TcpClient.create().host("::1").port(server.port)) == b"hello"

    run_on(kind, main())


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@on_each_loop
@pytest.mark.parametrize(
    ("client", "text"),
    [
        (lambda: TcpClient.create().port(closed_port()), "Connection refused; is a server listening there"),
        (
            lambda: TcpClient.create().host("no-such-host.invalid").port(1),
            "the host name is unknown.*spelling",
        ),
        (
            lambda: TcpClient.create().unix("/no/such/socket"),
            "No such file.*no server has created this socket",
        ),
    ],
    ids=["refused", "name not found", "no such path"],
)
def test_what_cannot_be_reached_is_told_with_a_remedy(kind: str, client: Any, text: str) -> None:
    async def main() -> None:
        before = await descriptors_after(client().connect())
        with pytest.raises(ConnectFailed, match=text) as failed:
            await soon(client().connect())
        assert isinstance(failed.value, OSError)
        await until(lambda: descriptors() <= before)

    run_on(kind, main())


@on_each_loop
def test_a_client_without_a_port_is_told_so(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"connect\(\) needs a port"):
            await TcpClient.create().connect()

    run_on(kind, main())


@on_each_loop
def test_a_server_without_a_handler_is_told_so(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"give it handle\("):
            await TcpServer.create().bind()

    run_on(kind, main())


@on_each_loop
def test_a_server_that_accepts_nobody_is_given_up_in_time(kind: str) -> None:
    """Its queue of those who wait to be accepted is full: the system answers nobody any more."""

    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            waiting = []
            try:
                for _ in range(64):
                    another = socket.socket()
                    another.setblocking(False)
                    another.connect_ex(address)
                    waiting.append(another)
                client = TcpClient.create().port(address[1]).connect_timeout(0.1)
                before = await descriptors_after(client.connect())
                with pytest.raises(
                    ConnectFailed, match=r"no answer in time.*connect_timeout\(\) allows more"
                ):
                    await soon(client.connect())
                await until(lambda: descriptors() <= before)
            finally:
                for another in waiting:
                    another.close()
            await settled()

    run_on(kind, main())


# -------------------------------------------------------------------- Unix sockets
@on_each_loop
def test_a_unix_socket_is_made_named_and_removed(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "echo.socket"
        labels: list[str] = []
        server = ECHO.unix(str(path)).on_connection(lambda connection: labels.append(connection.label))
        async with await server.bind() as running:
            assert running.where == str(path)
            assert (running.host, running.port) == ("", 0)
            assert path.is_socket()
            assert await echoed(TcpClient.create().unix(str(path))) == b"hello"
        assert not path.exists()
        [label] = labels
        assert f"L:{path} - R:process {os.getpid()}]" in label

    run_on(kind, main())


@on_each_loop
def test_a_socket_that_a_dead_server_left_is_replaced(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "left.socket"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        assert path.is_socket()
        async with await ECHO.unix(str(path)).bind():
            assert await echoed(TcpClient.create().unix(str(path))) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_a_socket_that_somebody_serves_is_left_alone(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "served.socket")
        async with await ECHO.unix(path).bind():
            with pytest.raises(BindFailed, match=r"Address already in use.*another program is using it"):
                await ECHO.unix(path).bind()
            assert await echoed(TcpClient.create().unix(path)) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_a_file_that_is_no_socket_is_left_alone(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "notes.txt"
        path.write_text("mine")
        with pytest.raises(BindFailed, match="not a socket"):
            await ECHO.unix(str(path)).bind()
        assert path.read_text() == "mine"

    run_on(kind, main())


@on_each_loop
def test_an_abstract_name_needs_no_file(kind: str) -> None:
    async def main() -> None:
        name = f"\0penstock-test-{os.getpid()}-{kind}"
        async with await ECHO.unix(name).bind() as running:
            assert running.where == f"@{name[1:]}"
            assert await echoed(TcpClient.create().unix(name)) == b"hello"
        with pytest.raises(ConnectFailed, match=f"cannot connect to @{name[1:]}: .*refused"):
            await soon(TcpClient.create().unix(name).connect())

    run_on(kind, main())


@on_each_loop
def test_a_live_abstract_name_is_in_use(kind: str) -> None:
    async def main() -> None:
        name = f"\0penstock-live-{os.getpid()}-{kind}"
        async with await ECHO.unix(name).bind():
            with pytest.raises(BindFailed, match="in use"):
                await ECHO.unix(name).bind()

    run_on(kind, main())


@on_each_loop
def test_a_unix_socket_has_both_directions_to_itself(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "half.socket")
        async with await ECHO.unix(path).bind(), await TcpClient.create().unix(path).connect() as client:
            await soon(client.outbound.send(b"x" * 100_000))
            raw(client).write_eof()
            assert len(b"".join(await soon(client.inbound.receive().collect_list()))) == 100_000

    run_on(kind, main())


# -------------------------------------------------------------------- options
@on_each_loop
def test_options_are_set_on_the_listening_socket_and_on_connections(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.option("SO_KEEPALIVE", 1).bind() as running, await Peer.of(running):
            await until(lambda: running.connections)
            taken = running.connections[0].transport.socket
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    run_on(kind, main())


def test_an_option_that_no_system_has_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="this system has no such socket option"):
        TcpServer.create().option("SO_WISHES", 1)


# -------------------------------------------------------------------- threads without a loop
def test_a_server_and_a_client_for_threads() -> None:
    with ECHO.bind_now() as server:
        connection = TcpClient.create().port(server.port).connect_now()
        connection.outbound.send(b"from a thread").mono().block()
        assert connection.inbound.receive().take(1).collect_list().block() == [b"from a thread"]
        connection.close()
        connection.on_dispose().block()
        assert connection.closed
    with pytest.raises(ConnectFailed, match="refused"):
        TcpClient.create().port(server.port).connect_now()
    server.on_dispose().block()


def test_what_fails_for_threads_fails_the_same_way() -> None:
    with Listener() as listener, pytest.raises(BindFailed, match="another program is using it"):
        ECHO.port(listener.port).bind_now()


def test_close_now_tells_who_was_cut_off() -> None:
    begun = threading.Event()

    async def stays(inbound: Inbound, outbound: Outbound) -> None:
        begun.set()
        await asyncio.Event().wait()

    server = TcpServer.create().handle(stays).bind_now()
    with socket.create_connection((server.host, server.port)) as peer:
        assert begun.wait(LONG)
        closed = server.close_now(grace=0.05)
        assert len(closed.aborted) == 1
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


@on_each_loop
def test_nothing_blocks_the_loop_that_it_is_called_on(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"would block the event loop.*await bind\(\)"):
            ECHO.bind_now()
        async with await ECHO.bind() as running:
            with pytest.raises(RuntimeError, match=r"would block the event loop.*connect\(\)"):
                TcpClient.create().port(running.port).connect_now()
            with pytest.raises(RuntimeError, match=r"would block the event loop.*await aclose\(\)"):
                running.close_now()

    run_on(kind, main())


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@on_each_loop
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_one_socket_for_ipv6_and_ipv4(kind: str) -> None:
    async def main() -> None:
        remotes: list[str] = []
        server = TcpServer.create().dual_stack().handle(lambda i, o: o.send(b"hello"))
        server = server.on_connection(lambda connection: remotes.append(connection.remote))
        async with await server.bind() as running:
            for host in ("127.0.0.1", "::1"):
                client = TcpClient.create().host(host).port(running.port)
                async with await soon(client.connect()) as connection:
                    assert await soon(connection.inbound.receive().collect_list()) == [b"hello"]
        assert [remote.rsplit(":", 1)[0] for remote in remotes] == ["127.0.0.1", "[::1]"]

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("options", [False, True], ids=["alone", "with options"])
def test_a_client_connects_from_the_address_that_it_was_given(kind: str, options: bool) -> None:
    async def main() -> None:
        remotes: list[str] = []
        server = TcpServer.create().host("127.0.0.1").handle(lambda i, o: o.send(b"hello"))
        server = server.on_connection(lambda connection: remotes.append(connection.remote))
        async with await server.bind() as running:
            client = TcpClient.create().port(running.port).local_address("127.0.0.2")
            if options:
                client = client.option("SO_RCVBUF", 65_536)
            async with await soon(client.connect()) as connection:
                assert await soon(connection.inbound.receive().collect_list()) == [b"hello"]
                assert connection.local == remotes[0]
            assert remotes[0].startswith("127.0.0.2:")
            with pytest.raises(ConnectFailed):
                await soon(client.local_address("192.0.2.1").connect())

    run_on(kind, main())


def test_a_local_address_that_is_none_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="pass an address of this machine"):
        TcpClient.create().local_address("")
    with pytest.raises(ValueError, match="port of local_address"):
        TcpClient.create().local_address("127.0.0.1", 70_000)


@on_each_loop
def test_options_of_a_client_are_set_before_it_connects(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a window is settled with the first packet."""

    async def main() -> None:
        connected: list[int] = []
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def seen(calling: socket.socket, address: Any) -> None:
            connected.append(calling.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            await connect(calling, address)

        async with await TcpServer.create().handle(lambda i, o: o.send(b"hello")).bind() as running:
            if kind == "asyncio":
                monkeypatch.setattr(loop, "sock_connect", seen)
            client = TcpClient.create().port(running.port).option("SO_RCVBUF", 40_000)
            async with await soon(client.connect()) as connection:
                opened = connection.transport.socket
                assert opened is not None
                assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 80_000
        assert connected == ([80_000] if kind == "asyncio" else [])

    run_on(kind, main())


@on_each_loop
def test_servers_that_reuse_a_port_share_it_and_others_do_not(kind: str) -> None:
    async def main() -> None:
        sharing = ECHO.reuse_port()
        async with await sharing.bind() as first, await sharing.port(first.port).bind() as second:
            assert first.port == second.port
            client = TcpClient.create().port(first.port)
            while not (first.metrics.connections_total and second.metrics.connections_total):
                assert await echoed(client) == b"hello"
            with pytest.raises(BindFailed, match="another program is using it"):
                await soon(ECHO.port(first.port).bind())

    run_on(kind, main())
