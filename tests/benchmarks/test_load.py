"""The load generator counts what really came back, and ends with a reason when something else came."""

import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.net import load
from benchmarks.net.serving import Running, of_python
from tests.benchmarks.durations import DURATIONS, long_enough
from tests.required_tools import missing_part

ELEMENT = bytes(range(100))
SHORT = DURATIONS[0]


@pytest.fixture(scope="module", autouse=True)
def program() -> Path:
    try:
        return load.compiled()
    except load.NoCompiler as problem:
        missing_part("The load generator", str(problem))


@pytest.fixture(scope="module")
def echo_port(program: Path) -> Iterator[int]:
    with Running(of_python("asyncio", "raw-asyncio")) as server:
        yield server.port


Handle = Callable[[socketserver.BaseRequestHandler], None]


@contextmanager
def serving(handle: Handle) -> Iterator[int]:
    """The port of a server that does this with each connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            handle(self)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = False  # They end with their connections, and are waited for.

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("connections", [1, 10])
def test_messages_go_to_and_fro(echo_port: int, connections: int) -> None:
    def load_for(seconds: float) -> load.Report:
        report = load.pingpong(echo_port, connections=connections, size=64, seconds=seconds)
        assert report["seconds"] >= seconds
        return report

    report = long_enough(
        load_for, lambda report: report["round_trips"] > connections and report["p50_us"] > 0
    )

    assert report["bytes"] == pytest.approx(64 * report["round_trips"], abs=1)
    assert report["p50_us"] <= report["p99_us"]


def test_a_message_larger_than_the_buffers_of_the_kernel_comes_back_whole(echo_port: int) -> None:
    long_enough(
        lambda seconds: load.pingpong(echo_port, connections=2, size=2**20, seconds=seconds),
        lambda report: report["bytes"] > 0,
    )


def test_writes_are_in_flight(echo_port: int) -> None:
    report = long_enough(
        lambda seconds: load.stream(echo_port, size=2**16, in_flight=2**18, seconds=seconds),
        lambda report: report["bytes"] > 2**18,
    )

    assert report["round_trips"] == pytest.approx(report["bytes"] / 2**16, abs=0.01)
    assert "p50_us" not in report


def test_what_a_server_sends_is_counted_until_the_time_is_up() -> None:
    def send_for_ever(connection: socketserver.BaseRequestHandler) -> None:
        with suppress(ConnectionError):  # The load generator has gone.
            while True:
                connection.request.sendall(ELEMENT * 100)

    with serving(send_for_ever) as port:
        report = long_enough(
            lambda seconds: load.sink(port, seconds=seconds), lambda report: report["bytes"] > 0
        )

    assert report["seconds"] >= SHORT


def test_idle_connections_are_held_until_the_block_ends() -> None:
    came, open_now = threading.Semaphore(0), set()

    def echo_once(connection: socketserver.BaseRequestHandler) -> None:
        open_now.add(connection)
        connection.request.sendall(connection.request.recv(4096))
        came.release()
        assert connection.request.recv(1) == b""
        open_now.remove(connection)

    with serving(echo_once) as port, load.idle(port, connections=20) as report:
        for _ in range(20):
            assert came.acquire(timeout=60)
        assert len(open_now) == 20
    assert report["connections"] == 20
    assert not open_now


def test_a_wrong_byte_is_noticed() -> None:
    def alter(connection: socketserver.BaseRequestHandler) -> None:
        connection.request.sendall(connection.request.recv(4096))
        connection.request.sendall(bytes(byte ^ 1 for byte in connection.request.recv(4096)))

    with (
        serving(alter) as port,
        pytest.raises(load.LoadFailed, match="what came after 111 bytes is not what it should be"),
    ):
        load.pingpong(port, connections=1, size=64, seconds=SHORT)


def test_a_byte_too_few_is_noticed() -> None:
    def skip_one(connection: socketserver.BaseRequestHandler) -> None:
        connection.request.sendall(ELEMENT[:99] + ELEMENT)
        connection.request.recv(1)

    with serving(skip_one) as port, pytest.raises(load.LoadFailed, match="not what it should be"):
        load.sink(port, seconds=SHORT)


def test_a_connection_that_is_closed_early_is_noticed() -> None:
    def echo_twice(connection: socketserver.BaseRequestHandler) -> None:
        for _ in range(2):
            connection.request.sendall(connection.request.recv(4096))

    with serving(echo_twice) as port, pytest.raises(load.LoadFailed, match=r"closed a connection|recv|send"):
        load.pingpong(port, connections=1, size=64, seconds=SHORT)


def test_a_new_connection_that_is_closed_is_noticed() -> None:
    def turn_away(connection: socketserver.BaseRequestHandler) -> None:
        connection.request.recv(4096)

    with (
        serving(turn_away) as port,
        pytest.raises(load.LoadFailed, match="closed a new connection"),
        load.idle(port, connections=2),
    ):
        pytest.fail("nothing was held")


def test_an_idle_connection_that_the_server_closes_is_noticed() -> None:
    closed = threading.Event()

    def lose_patience(connection: socketserver.BaseRequestHandler) -> None:
        connection.request.sendall(connection.request.recv(4096))
        connection.request.close()
        closed.set()

    with (
        serving(lose_patience) as port,
        pytest.raises(load.LoadFailed, match="connection 0 was not left alone"),
        load.idle(port, connections=1),
    ):
        assert closed.wait(60)


def test_nobody_listens() -> None:
    with socket.socket() as taken:  # Nobody else can listen there, either.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with pytest.raises(load.LoadFailed, match=f"cannot connect to port {port}: Connection refused"):
            load.sink(port, seconds=SHORT)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "usage"),
        (["pingpong", "80"], "usage"),
        (["sink", "0", "1"], "PORT must be a number from 1 to 65535"),
        (["sink", "80x", "1"], "PORT must be a number"),
        (["sink", "80", "0"], "SECONDS must be more than 0"),
        (["sink", "80", "nan"], "SECONDS must be more than 0"),
        (["pingpong", "80", "0", "64", "1"], "CONNECTIONS must be a number from 1"),
        (["pingpong", "80", "1", "99999999", "1"], "SIZE must be a number"),
        (["stream", "80", "1000", "999", "1"], "IN_FLIGHT must be a number from 1000"),
    ],
)
def test_wrong_arguments_are_told(program: Path, arguments: list[str], reason: str) -> None:
    result = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 2
    assert reason in result.stderr
    assert result.stdout == ""


def test_without_a_compiler_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "STORE", tmp_path / "build")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    with pytest.raises(load.NoCompiler, match=r"apt-get install gcc libc6-dev.*CC=.*--only"):
        load.compiled()


def test_the_compiler_that_cc_names_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "STORE", tmp_path / "build")
    monkeypatch.setenv("CC", "no-such-compiler -m64")

    with pytest.raises(load.NoCompiler, match="no-such-compiler"):
        load.compiled()


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(load, "STORE", tmp_path)
    monkeypatch.setattr(load, "SOURCE", tmp_path / "broken.c")
    (tmp_path / "broken.c").write_text("int main(void) { return nothing; }\n")

    with pytest.raises(load.NoCompiler, match="nothing"):
        load.compiled()
    assert [path.name for path in tmp_path.iterdir()] == ["broken.c"]
