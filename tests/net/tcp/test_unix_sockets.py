"""Unix sockets whose server is busy, and whose file somebody else has removed or replaced."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.net import BindFailed, ConnectFailed, ProxyHeader, TcpClient, TcpServer
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import begun, settled, soon

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


@contextlib.contextmanager
def busy_server(path: str) -> Iterator[socket.socket]:
    """A server that accepts nobody, with as many callers in its queue as it allows."""
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(path)
        server.listen(1)
        while True:
            caller = opened.enter_context(socket.socket(socket.AF_UNIX))
            caller.setblocking(False)
            try:
                caller.connect(path)
            except BlockingIOError:
                break
        yield server


def accepted(server: socket.socket) -> Iterator[socket.socket]:
    """Everybody who waits in the queue."""
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            yield server.accept()[0]


@on_each_loop
@pytest.mark.parametrize("header", [False, True], ids=["plain", "with a PROXY header"])
@pytest.mark.parametrize("abstract", [False, True], ids=["a path", "an abstract name"])
def test_a_client_waits_for_a_server_whose_queue_is_full(
    kind: str, header: bool, abstract: bool, tmp_path: Path
) -> None:
    """The system refuses such a caller. asyncio took that for a connection, and what was sent was lost."""
    path = f"\0penstock-busy-{os.getpid()}-{kind}" if abstract else str(tmp_path / "busy")
    client = TcpClient.create().unix(path)
    if header:
        client = client.proxy_protocol(ProxyHeader(source=("192.0.2.1", 1), destination=("192.0.2.2", 2)))

    async def main() -> None:
        with busy_server(path) as server:
            connecting = begun(client.connect())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not connecting.done()
            for caller in accepted(server):
                caller.close()
            async with await connecting as connection:
                await soon(connection.outbound.send(b"hello"))
                [peer] = accepted(server)
                with peer:
                    assert peer.recv(1000).endswith(b"hello")
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_server_whose_queue_stays_full_is_given_up_in_time(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "busy")
        client = TcpClient.create().unix(path).connect_timeout(0.1)
        late = pytest.raises(ConnectFailed, match=r"no answer in time.*connect_timeout\(\) allows more")
        with busy_server(path), late:
            await soon(client.connect())
        await settled()

    run_on(kind, main())


@on_each_loop
def test_a_server_whose_queue_is_full_is_not_taken_for_dead(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "busy"
        with busy_server(str(path)):
            with pytest.raises(BindFailed, match="another program is using it"):
                await ECHO.unix(str(path)).bind()
            assert path.is_socket()

    run_on(kind, main())


@on_each_loop
def test_a_server_whose_file_was_removed_leaves_that_of_the_next_one_alone(kind: str, tmp_path: Path) -> None:
    """Somebody has cleaned up and started another server: the first one took its file away at its end."""

    async def main() -> None:
        path = tmp_path / "echo"
        first = await ECHO.unix(str(path)).bind()
        path.unlink()
        async with await ECHO.unix(str(path)).bind():
            await first.aclose()
            assert path.is_socket()
            async with await soon(TcpClient.create().unix(str(path)).connect()) as connection:
                await soon(connection.outbound.send(b"hello"))
                assert await soon(connection.inbound.receive().first()) == b"hello"
        assert not path.exists()

    run_on(kind, main())


@on_each_loop
def test_the_file_is_removed_after_the_program_has_changed_its_directory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.chdir(tmp_path)
        async with await ECHO.unix("echo").bind():
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir()
            monkeypatch.chdir(elsewhere)
            assert (tmp_path / "echo").is_socket()
        assert not (tmp_path / "echo").exists()

    run_on(kind, main())


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EMFILE, r"Too many open files; .*ulimit -n"), (errno.EACCES, "Permission denied; may this user")],
)
def test_a_limit_and_a_missing_right_are_told_with_a_remedy(number: int, remedy: str) -> None:
    error = OSError(number, os.strerror(number))

    assert ConnectFailed.to("/run/echo", error).errno == number
    with pytest.raises(ConnectFailed, match=remedy):
        raise ConnectFailed.to("/run/echo", error)
    if number == errno.EMFILE:
        with pytest.raises(BindFailed, match=remedy):
            raise BindFailed.at("127.0.0.1:7000", error)
