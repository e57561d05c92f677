"""Commands whose output or whose terminal is gone: they end quietly, or go on."""

import shutil
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, SqliteJournal
from penstock.aquifer import Gateway as LibraryGateway
from penstock.cli import main
from penstock.streams import Flux
from tests.cli.running import PATIENCE, Gateway, Program, complaints, penstock
from tests.cli.terminals import Terminal

COMMANDS = [
    ["--help"],
    ["--version"],
    ["rules"],
    ["rules", "3.9"],
    ["rules", "--help"],
    ["gateway", "--help"],
    ["tail", "--help"],
    ["demo", "--only-streams", "--duration", "1"],
    ["tail", "{endpoint}"],
    ["gateway", "status", "{endpoint}"],
    ["gateway", "status", "{endpoint}", "--json"],
]

OTHERS = [
    ["gateway", "ls", "{endpoint}"],
    ["gateway", "peek", "{endpoint}", "0", "--count", "50"],
    ["gateway", "export", "{endpoint}", "{new}", "--to", "50"],
    ["gateway", "verify", "{journal}"],
    ["gateway", "compact", "{journal}"],
    ["gateway", "replay", "{letters}", "--yes"],
    ["top", "{endpoint}"],
    ["top", "{endpoint}", "--json"],
    ["why", "{endpoint}"],
    ["why", "{endpoint}", "--watch"],
    ["gateway", "status", "{endpoint}", "--watch"],
    ["completion", "bash"],
    ["doctor", "--no-spark"],
    ["tck", "tests.tck.legal.serving:RangePublisher", "--profile", "sync", "--fanout", "unicast"],
    ["send", "{lines}", "{listener}", "--json"],
    ["run", "--help"],
]
"""All others, of which none writes for long."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with LibraryGateway(Flux.range(0, 100_000).map(str), "tcp://127.0.0.1:0", codec="text") as gateway:
        yield gateway.endpoint


@pytest.fixture(scope="module")
def letters() -> Iterator[str]:
    elements: Flux[Any] = Flux.just("one", 2).concat_with(Flux.never())
    with LibraryGateway(
        elements, "tcp://127.0.0.1:0", codec="text", on_bad_record="dead-letter", writable=True
    ) as gateway:
        yield f"{gateway.endpoint}/dead-letters"


@pytest.fixture(scope="module")
def listener() -> Iterator[str]:
    """Takes what is sent to it."""

    class Reading(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.read()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Reading) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def words(endpoint: str, letters: str, listener: str, tmp_path: Path) -> dict[str, str]:
    """What stands for the words in braces."""
    journal, lines = tmp_path / "journal.db", tmp_path / "lines"
    with LibraryGateway(Flux.just(b"one"), "tcp://127.0.0.1:0", journal=SqliteJournal(journal)) as gateway:
        assert gateway.join(PATIENCE)
    lines.write_text("one\ntwo\n")
    given = {"endpoint": endpoint, "letters": letters, "listener": listener}
    return given | {"journal": str(journal), "lines": str(lines), "new": str(tmp_path / "new")}


def shell(arguments: list[str], redirection: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "penstock.cli", *arguments]
    command = " ".join(f"'{word}'" for word in words)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {redirection}"], capture_output=True, timeout=PATIENCE
    )


@pytest.mark.parametrize("arguments", COMMANDS + OTHERS, ids=" ".join)
def test_a_command_with_a_closed_output_ends_quietly(arguments: list[str], words: dict[str, str]) -> None:
    done = shell([word.format(**words) for word in arguments], ">&-")

    assert complaints(done.stderr.decode()) == []
    # A doctor may find that the disk of a busy machine is slow.
    assert done.returncode in ((0, 1) if arguments[0] == "doctor" else (0,))


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_whose_reader_has_enough_ends_quietly(arguments: list[str], words: dict[str, str]) -> None:
    done = shell([word.format(**words) for word in arguments], "| head -c 1")

    assert (done.returncode, complaints(done.stderr.decode())) == (0, [])


def test_an_echo_with_a_closed_output_serves_and_ends_quietly() -> None:
    command = f"exec '{sys.executable}' -m penstock.cli echo --port 0 >&-"
    with subprocess.Popen(["bash", "-c", command], stderr=subprocess.PIPE) as echo:
        assert echo.stderr is not None
        first = echo.stderr.readline()
        echo.send_signal(signal.SIGTERM)
        rest = echo.stderr.read()

    assert (echo.returncode, b"Traceback" in first + rest) == (0, False), first + rest


@pytest.mark.parametrize(
    "arguments", [["rules", "9.9"], ["tail", "nowhere"], ["gateway"], ["send", "x", "y"]]
)
def test_a_wrong_command_line_is_one_though_nobody_can_be_told(arguments: list[str]) -> None:
    assert shell(arguments, ">&- 2>&-").returncode == 2


def test_a_gateway_without_any_output_serves(tmp_path: Path) -> None:
    source, port = tmp_path / "lines", tmp_path / "port"
    source.write_bytes(b"one\ntwo\n")
    words = ["gateway", "--source", f"file:{source}", "--control", "tcp://127.0.0.1:0", "--json"]
    command = " ".join(f"'{word}'" for word in [sys.executable, "-m", "penstock.cli", *words])
    with subprocess.Popen(["bash", "-c", f"exec {command} <&- 2>&- >{port}"]) as gateway:
        try:
            while not port.exists() or b"\n" not in port.read_bytes():
                assert gateway.poll() is None
            endpoint = port.read_text().partition('"control": "')[2].partition('"')[0]
            assert list(AquiferPublisher(endpoint).flux()) == [b"one", b"two"]
            assert gateway.wait(PATIENCE) == 0
        finally:
            gateway.kill()


# ---------------------------------------------------------------- the terminal
def test_a_hangup_ends_a_gateway_and_a_tail_as_sigterm_does() -> None:
    with (
        Gateway("--source", "stdin", stdin=subprocess.PIPE) as gateway,
        Program("tail", gateway.endpoint, "--id", "reader") as tail,
    ):
        gateway.send_lines("one")
        assert tail.stdout.readline() == b"one\n"
        tail.process.send_signal(signal.SIGHUP)
        assert tail.end() == 0
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.end() == 0

    assert "interrupted: 1 record printed" in tail.said[-1]
    assert "interrupted: 1 record taken" in gateway.said[-1]


def test_a_gateway_whose_terminal_is_gone_ends_in_good_order(tmp_path: Path) -> None:
    journal = tmp_path / "lines.db"
    command = ["gateway", "--source", "stdin", "--journal", str(journal), "--control", "tcp://127.0.0.1:0"]
    terminal = Terminal()
    with terminal.run(*command, controlling=True) as gateway:
        terminal.write(b"one\n")
        terminal.read_until(b"subscribers none")
        terminal.close()
        assert gateway.wait(PATIENCE) == 0

    assert not Path(f"{journal}-wal").exists()


def test_a_hangup_is_ignored_if_it_was_ignored_from_the_start() -> None:
    command = [sys.executable, "-m", "penstock.cli", "gateway", "--source", "stdin", "--stay"]
    with subprocess.Popen(
        [*command, "--control", "tcp://127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as gateway:
        assert gateway.stderr is not None
        gateway.stderr.readline()
        gateway.send_signal(signal.SIGHUP)
        gateway.send_signal(signal.SIGINT)
        assert gateway.wait(PATIENCE) == 130


@pytest.mark.slow
def test_a_hangup_reads_the_keys_again_where_there_are_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = tmp_path / "clients"
    clients.mkdir()
    for key in (tmp_path / "gateway", tmp_path / "alice", clients / "bob"):
        assert main(["gateway", "--keygen", str(key)]) == 0
    keys = ("--curve", str(tmp_path / "gateway.key"), "--allow", str(clients))
    where = ("--control", "none", "--curve-control", "tcp://127.0.0.1:0")
    alice = ("--curve", str(tmp_path / "alice.key"), "--server-key", str(tmp_path / "gateway.pub"))

    with Gateway("--source", "stdin", *where, *keys, stdin=subprocess.PIPE) as gateway:
        gateway.send_lines("secret")
        shutil.copy(tmp_path / "alice.pub", clients)
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for("SIGHUP: reloaded the list of clients")
        done = penstock("tail", gateway.endpoint, "--count", "1", *alice)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0

    assert (done.returncode, done.stdout) == (0, "secret\n")
