"""``penstock echo`` and ``penstock send`` as a user runs them: real processes, sockets and signals."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.net import TcpServer
from tests.cli.running import PATIENCE, Gateway, Program, penstock
from tests.free_ports import free_port

pytestmark = pytest.mark.slow


class Echo(Program):
    """A running ``penstock echo`` at any free port; ready when this returns."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("echo", "--port", "0", *arguments)
        try:
            self.port = int(self.wait_for(r"echo at \S+:(\d+)")[1])
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def address_of(server: socket.socket) -> str:
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def read(*arguments: str) -> list[bytes]:
    with Program(*arguments) as program:
        return program.stdout.read().splitlines()


def all_back(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_what_is_sent_comes_back_and_a_signal_ends_the_server() -> None:
    with Echo() as echo:
        with echo.connect() as connection:
            assert all_back(connection, b"hello\n" * 1000) == b"hello\n" * 1000
        echo.process.send_signal(signal.SIGTERM)
        assert echo.end() == 0
    assert echo.said[-1] == "1 connection; none was open at the end"


def test_ctrl_c_lets_a_connection_finish() -> None:
    with Echo() as echo:
        with echo.connect() as connection:
            connection.sendall(b"before")
            assert connection.recv(100) == b"before"
            echo.process.send_signal(signal.SIGINT)
            assert connection.recv(100) == b""  # not a reset
        assert echo.end() == 130
    assert "1 finished and 0 were aborted" in echo.said[-1]


def test_tls_with_a_certificate_made_for_the_occasion_and_every_byte_in_the_log() -> None:
    with Echo("--secure", "--wiretap", "text") as echo:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with echo.connect() as plain, context.wrap_socket(plain) as connection:
            connection.sendall(b"secret")
            assert connection.recv(100) == b"secret"
        echo.wait_for(r"\[\w+, L:127.0.0.1:\d+ - R:127.0.0.1:\d+\] READ: 6B 'secret'")


def test_a_file_arrives_byte_for_byte(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    with listening() as server, Program("send", str(path), address_of(server)) as send:
        connection, _ = server.accept()
        with connection:
            received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert send.end() == 0
    assert received == data
    assert send.said[-1].startswith("3,000,000 bytes were sent")


def test_a_server_that_answers_all_the_time_gets_everything(tmp_path: Path) -> None:
    """An echo stops reading when nobody takes its answers; the command then waited for it for ever."""
    path, place = tmp_path / "data", str(tmp_path / "echo")
    path.write_bytes(bytes(8_000_000))
    echo = TcpServer.create().metrics().unix(place)
    with echo.handle(lambda inbound, outbound: outbound.send(inbound.receive())).bind_now() as server:
        with Program("send", str(path), f"unix:{place}") as send:
            assert send.end() == 0
        assert send.said[-1].startswith("8,000,000 bytes were sent")
        server.close_now()
        assert server.metrics.data_received == 8_000_000


@pytest.mark.parametrize("acknowledged", [False, True])
def test_ctrl_c_ends_the_command_although_the_server_does_not_read(
    tmp_path: Path, acknowledged: bool
) -> None:
    """The close of the connection waited for the server, and a second Ctrl-C was needed."""
    path = tmp_path / "data"
    path.write_bytes(b"line\n" * 2_000_000)
    arguments = ("--acknowledged",) if acknowledged else ()
    with listening() as server, Program("send", *arguments, str(path), address_of(server)) as send:
        connection, _ = server.accept()
        with connection:
            if acknowledged:
                connection.sendall(b"0\n")
            send.wait_for("sending from line" if acknowledged else "the server is not reading")
            send.process.send_signal(signal.SIGINT)
            assert send.end() == 130
    assert send.said[-1] == "interrupted; the server may not have everything"


def test_standard_input_is_sent_as_it_comes() -> None:
    with listening() as server, Program("send", "-", address_of(server), stdin=subprocess.PIPE) as send:
        connection, _ = server.accept()
        with connection:
            send.send_lines("one")
            assert connection.recv(100) == b"one\n"
            send.send_lines("two")
            assert connection.recv(100) == b"two\n"
            send.stdin.close()
            assert connection.recv(100) == b""
        assert send.end() == 0


def test_a_server_that_goes_away_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(50_000_000))
    with listening() as server, Program("send", str(path), address_of(server)) as send:
        connection, _ = server.accept()
        connection.recv(1000)
        connection.close()
        assert send.end() == 1
    assert "while sending" in send.said[-1]


def test_acknowledged_lines_are_in_the_journal_once_over_a_kill_of_the_gateway(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = [b"line %d" % number for number in range(100_000)]
    path.write_bytes(b"\n".join(lines))  # the last one without an end
    port = free_port()
    gateway = ("--source", f"tcp-listen://127.0.0.1:{port}?acknowledge", "--stay", "--max-records", "20000")
    journal = ("--journal", str(tmp_path / "journal"))
    with ExitStack() as running:
        first = running.enter_context(Gateway(*gateway, *journal, "--quiet"))
        send = Program("send", "--acknowledged", str(path), f"tcp://127.0.0.1:{port}")
        running.enter_context(send)
        printed = read("tail", first.endpoint, "--id", "mine", "--count", "5000")
        first.process.kill()
        first.end()
        second = running.enter_context(Gateway(*gateway, *journal, "--quiet"))
        resumed = read("tail", second.endpoint, "--id", "mine", "--count", "95000")
        # What tail acknowledged last may not have been in the journal when the gateway was killed.
        known = lines.index(resumed[0])
        assert known <= len(printed)
        if known < len(printed):
            resumed += read("tail", second.endpoint, "--id", "mine", "--count", str(len(printed) - known))
        assert send.end() == 0
    assert printed == lines[: len(printed)]
    assert lines[:known] + resumed == lines
    assert "100,000 lines are in the journal" in send.said[-1]


def test_another_file_than_the_journal_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree\n")
    source = "tcp-listen://127.0.0.1:0?acknowledge"
    with Gateway("--source", source, "--stay", "--quiet") as gateway:
        address = "tcp://127.0.0.1:" + gateway.said[-1].partition("127.0.0.1:")[2].split()[0]
        assert penstock("send", "--acknowledged", str(path), address).returncode == 0
        path.write_bytes(b"one\n")
        refused = penstock("send", "--acknowledged", str(path), address)
    assert refused.returncode == 1
    assert "the gateway has 3 lines" in refused.stderr


def test_a_server_that_does_not_acknowledge_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = penstock("send", "--acknowledged", "--patience", "0.5", str(path), address)

    assert done.returncode == 1
    assert "the server has said nothing for 0.5 s" in done.stderr
    assert "'tcp-listen://HOST:PORT?acknowledge'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("send", "no/such/file", "tcp://127.0.0.1:1"), 2, "no/such/file does not exist"),
        (("send", ".", "tcp://127.0.0.1:1"), 2, "is a directory"),
        (("send", "/dev/null", "tcp://127.0.0.1:1"), 2, "put - in its place, and < /dev/null at the end"),
        (("send", __file__, "unix:"), 2, "write unix:PATH, as in unix:/tmp/echo.sock"),
        (("send", "-", "tcp://127.0.0.1:1", "--acknowledged"), 2, "name a file"),
        (("send", __file__, "tcp://*:1"), 2, "name the host and the port of one server"),
        (("send", __file__, "127.0.0.1:1"), 2, "has to start with tcp://"),
        (("send", __file__, "tcp://127.0.0.1:1"), 1, "Connection refused; is a server listening there?"),
        (("send", __file__, "unix:/no/such.sock"), 1, "no server has created this socket"),
        (("echo", "--port", "70000"), 2, "write a whole number from 0 to 65535"),
        (("echo", "--port", "0", "--key", "x"), 2, "--key belongs to a --certificate"),
        (("echo", "--port", "0", "--certificate", "no/such.pem"), 1, "there is no file 'no/such.pem'"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert main(arguments) == code
    assert says in capsys.readouterr().err
