"""``penstock gateway`` as a user runs it: real processes, real sockets, real signals."""

import contextlib
import json
import re
import signal
import socket
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from penstock.aquifer import SqliteJournal, probe
from penstock.cli import main
from penstock.cli.gateway import status as status_command
from tests.aquifer.faults.rigs import eventually
from tests.cli.running import PATIENCE, Gateway, Program, penstock
from tests.cli.terminals import Terminal
from tests.free_ports import free_port


@pytest.fixture(autouse=True)
def _ask_soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A second is for people; what is asked here from within this process need not take it.
    monkeypatch.setattr(status_command, "BETWEEN", 0.1)


def numbered(count: int) -> list[bytes]:
    return [b"line %d" % number for number in range(count)]


@pytest.mark.slow
def test_lines_of_standard_input_reach_a_tail_complete_and_in_order() -> None:
    lines = numbered(20_000)

    with Gateway("--source", "stdin", stdin=subprocess.PIPE) as gateway:
        with Program("tail", gateway.endpoint, "--id", "reader") as tail:
            gateway.stdin.write(b"\n".join(lines))  # without a newline at the end: still a line
            gateway.stdin.close()
            printed = tail.stdout.read().splitlines()
            assert tail.end() == 0
        assert gateway.end() == 0

    assert printed == lines
    assert tail.said == []
    assert "20,000 records taken" in gateway.said[-1]
    assert "everything is served" in gateway.said[-1]


@pytest.mark.slow
def test_a_gateway_ends_when_a_reader_without_a_name_has_everything(tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(b"\n".join(numbered(20)) + b"\n")

    with Gateway("--source", f"file:{source}", "--quiet") as gateway:
        # Slowly, so that the gateway has time to see that it is there.
        with Program("tail", gateway.endpoint, "--rate", "20/s") as tail:
            assert tail.stdout.read().splitlines() == numbered(20)
            assert tail.end() == 0
        assert gateway.end() == 0


@pytest.mark.slow
def test_compressed_lines_take_less_space_and_arrive_as_they_are(tmp_path: Path) -> None:
    lines = numbered(20_000)
    source, journal = tmp_path / "lines.txt", tmp_path / "lines.db"
    source.write_bytes(b"\n".join(lines) + b"\n")

    arguments = ("--source", f"file:{source}", "--journal", str(journal), "--compress", "zstd")
    with Gateway(*arguments, "--quiet") as gateway:
        with Program("tail", gateway.endpoint, "--id", "reader") as tail:
            assert tail.stdout.read().splitlines() == lines
            assert tail.end() == 0
        assert gateway.end() == 0
    with closing(SqliteJournal(journal)) as opened:
        assert opened.held.records == 20_000
        assert opened.held.nbytes < sum(map(len, lines)) / 3


@pytest.mark.slow
def test_a_killed_gateway_goes_on_and_every_line_arrives_exactly_once(tmp_path: Path) -> None:
    lines = numbered(12_000)
    source, journal = tmp_path / "lines.txt", tmp_path / "lines.db"
    source.write_bytes(b"\n".join(lines) + b"\n")
    # With so little room it cannot have read the file to its end when it is killed.
    arguments = ("--source", f"file:{source}", "--journal", str(journal), "--max-records", "2000")

    with Gateway(*arguments) as first:
        endpoint = first.endpoint
        tail = Program("tail", endpoint, "--id", "reader", "--rate", "8000/s")
        with tail:
            printed = [tail.stdout.readline() for _ in range(1000)]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait(PATIENCE)
            with Gateway(*arguments, "--control", endpoint) as second:
                printed += tail.stdout.readlines()
                assert tail.end() == 0
                assert second.end() == 0

    assert [line.rstrip(b"\n") for line in printed] == lines
    assert any("reconnected" in line for line in tail.said)
    taken = re.search(r"([\d,]+) records taken", second.said[-1])
    assert taken is not None
    assert 0 < int(taken[1].replace(",", "")) < len(lines)
    assert any("lines that are in the journal" in line for line in second.said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_cleanly_though_the_source_is_silent(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    journal = tmp_path / "lines.db"
    with Gateway("--source", "stdin", "--journal", str(journal), stdin=subprocess.PIPE) as gateway:
        gateway.send_lines("one", "two", "three")
        assert penstock("tail", gateway.endpoint, "--count", "3").stdout == "one\ntwo\nthree\n"
        gateway.process.stdin.write(b"half a li")  # type: ignore[union-attr]
        gateway.process.stdin.flush()  # type: ignore[union-attr]
        gateway.process.send_signal(number)
        assert gateway.end() == code

    assert "interrupted: 3 records taken" in gateway.said[-1]
    assert "the journal has the offsets 0 to 2" in gateway.said[-1]
    assert not any("Traceback" in line for line in gateway.said)
    reopened = SqliteJournal(journal)
    assert (reopened.first, reopened.head) == (0, 3)
    reopened.close()


@pytest.mark.slow
def test_an_interrupted_gateway_does_not_tell_its_readers_that_the_stream_has_ended() -> None:
    with (
        Gateway("--source", "stdin", stdin=subprocess.PIPE) as gateway,
        Program("tail", gateway.endpoint, "--patience", "0.5") as tail,
    ):
        gateway.send_lines("one")
        assert tail.stdout.readline() == b"one\n"
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0
        assert tail.end() == 1

    assert "was lost" in tail.said[-1]


def test_it_stays_if_told_to_and_says_in_json_what_it_does() -> None:
    command = ("gateway", "--source", "stdin", "--stay", "--json", "--control", "tcp://127.0.0.1:0")
    with Program(*command) as gateway:
        listening = json.loads(gateway.stdout.readline())
        gateway.wait_for("the source has ended; serving until it is interrupted")
        progress = json.loads(gateway.stdout.readline())
        gateway.process.send_signal(signal.SIGTERM)
        end = json.loads(gateway.stdout.readlines()[-1])
        assert gateway.end() == 0

    assert listening["event"] == "listening"
    assert listening["control"].startswith("tcp://127.0.0.1:")
    assert (progress["event"], progress["end"], progress["readers"]) == ("progress", 0, [])
    assert (end["event"], end["reason"], end["taken"]) == ("end", "interrupted", 0)


def test_the_line_for_programs_has_no_password() -> None:
    sources = ("--stream", "a=ws://me:hush@127.0.0.1:1/x", "--stream", "b=ws://127.0.0.1:1/x?token=hush")
    with Program("gateway", *sources, "--json", "--control", "tcp://127.0.0.1:0") as gateway:
        listening = gateway.stdout.readline()
        gateway.process.send_signal(signal.SIGTERM)
        gateway.process.wait()

    assert set(json.loads(listening)["streams"]) == {"a", "b"}
    assert b"hush" not in listening


def test_an_empty_source_is_served_at_once() -> None:
    with Gateway("--source", "stdin") as gateway:
        assert gateway.end() == 0


@pytest.mark.slow
def test_a_slow_reader_holds_back_a_server_that_sends_lines(capsys: pytest.CaptureFixture[str]) -> None:
    line = b"x" * 999 + b"\n"
    sent = 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        source = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Gateway("--source", source, "--max-records", "500") as gateway:
            sender, _ = server.accept()
            with sender, Program("tail", gateway.endpoint, "--rate", "100/s") as tail:
                # A sender that has to wait for this long although the log is full is held back.
                sender.settimeout(1.5)
                is_full = False
                while not is_full and sent < 50_000_000:
                    try:
                        sent += sender.send(line * 64)
                    except TimeoutError:
                        is_full = probe(gateway.endpoint, PATIENCE).records >= 400
                printed = sum(1 for _ in range(100) if tail.stdout.readline() == line)
                assert main(["gateway", "status", gateway.endpoint, "--json"]) == 0

    status = json.loads(capsys.readouterr().out)

    # The log, the buffers of the two sockets, and what the gateway has read and not split yet.
    assert 500_000 < sent < 8_000_000
    assert printed == 100
    assert status["source"]["requested"] - status["source"]["received"] < 100
    assert status["head"] - status["floor"] > 400


def test_the_end_of_the_connection_is_the_end_of_the_source_if_told_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Gateway("--source", f"tcp://127.0.0.1:{port}?once") as gateway:
            sender, _ = server.accept()
            with sender:
                sender.sendall(b"one\ntwo\nthr")
                sender.sendall(b"ee\n")
            assert penstock("tail", gateway.endpoint, "--id", "a").stdout == "one\ntwo\nthree\n"
            assert gateway.end() == 0


def test_a_line_without_an_end_fails_the_source_and_what_came_before_is_served() -> None:
    with Gateway("--source", "stdin", "--max-line", "1K", stdin=subprocess.PIPE) as gateway:
        with Program("tail", gateway.endpoint, "--id", "a") as tail:
            gateway.send_lines("short")
            assert tail.stdout.readline() == b"short\n"
            gateway.send_lines("x" * 2000)
            assert tail.end() == 1
        assert gateway.end() == 1

    assert any("line 2 has more than 1024 bytes" in line for line in gateway.said)
    assert any("--max-line" in line for line in tail.said)


def test_the_status_shows_who_is_there_and_who_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    with Gateway("--source", "stdin", stdin=subprocess.PIPE) as gateway:
        gateway.send_lines(*numbered(100))
        early = penstock("tail", gateway.endpoint, "--id", "nightly", "--count", "10")
        assert early.stdout.splitlines() == [line.decode() for line in numbered(10)]
        with Program("tail", gateway.endpoint, "--id", "dashboard") as tail:
            for _ in range(100):
                assert tail.stdout.readline()
            assert main(["gateway", "status", gateway.endpoint]) == 0
            shown = capsys.readouterr()
            assert main(["gateway", "status", gateway.endpoint, "--json"]) == 0
            as_json = json.loads(capsys.readouterr().out)

    assert shown.err == ""
    assert re.search(r"subscribers dashboard +extended +streaming .* lag 0", shown.out)
    assert re.search(r"away +nightly +90 behind \(.+ s\);", shown.out)
    assert "offsets 0..99, 100 of 1,000,000 records" in shown.out
    assert [subscriber["id"] for subscriber in as_json["subscribers"]] == ["dashboard"]
    assert as_json["absent"]["nightly"]["acknowledged"] == 10
    assert as_json["rates"]["source"] == 0


@pytest.mark.slow
def test_the_status_of_nobody_is_an_error_soon() -> None:
    done = penstock("gateway", "status", f"tcp://127.0.0.1:{free_port()}")

    assert done.returncode == 1
    assert re.fullmatch(
        r"penstock gateway status: no gateway answers at .* after 2 s; is it running there.*\n", done.stderr
    )


def test_a_plain_gateway_has_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    zmq = pytest.importorskip("zmq")
    heard = []
    with zmq.Context() as context, context.socket(zmq.REP) as plain:
        plain.linger = 0
        port = plain.bind_to_random_port("tcp://127.0.0.1")

        def answer() -> None:
            for reply in (b'{"jsonClass":"OnSubscribe","size":1,"port":1}', b'{"jsonClass":"OnComplete"}'):
                heard.append(plain.recv())
                plain.send(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["gateway", "status", f"tcp://127.0.0.1:{port}"]) == 1
        thread.join(PATIENCE)

    assert "speaks the plain dialect only" in capsys.readouterr().err
    assert b'"cancel":true' in heard[1]  # It had taken the question for a subscription.


@pytest.mark.slow
def test_keys_let_in_those_who_are_on_the_list_and_nobody_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = tmp_path / "clients"
    clients.mkdir()
    for key in (tmp_path / "gateway", clients / "alice", tmp_path / "mallory"):
        assert main(["gateway", "--keygen", str(key)]) == 0
        assert "--allow" in capsys.readouterr().out
    assert main(["gateway", "--keygen", str(tmp_path / "mallory.key")]) == 1
    assert "is there already" in capsys.readouterr().err
    keys = ("--curve", str(tmp_path / "gateway.key"), "--allow", str(clients))
    server = ("--server-key", str(tmp_path / "gateway.pub"))
    alice, mallory = ("--curve", str(clients / "alice.key")), ("--curve", str(tmp_path / "mallory.key"))

    with Gateway(
        *("--source", "stdin", "--control", "none", "--curve-control", "tcp://127.0.0.1:0"),
        *keys,
        stdin=subprocess.PIPE,
    ) as gateway:
        gateway.send_lines("secret")
        allowed = penstock("tail", gateway.endpoint, "--count", "1", *alice, *server)
        refused = penstock("tail", gateway.endpoint, "--count", "1", *mallory, *server)
        assert main(["gateway", "status", gateway.endpoint, *alice, *server]) == 0
        assert main(["gateway", "status", gateway.endpoint, *mallory, *server]) == 1
        gateway.wait_for("refused a client .* it is not allowed")

    assert (allowed.returncode, allowed.stdout) == (0, "secret\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "does not let this key in" in refused.stderr
    assert "does not let this key in" in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_terminal_it_draws_over_its_own_block() -> None:
    command = ("gateway", "--source", "stdin", "--stay", "--control", "tcp://127.0.0.1:0")
    with Terminal() as terminal, terminal.run(*command) as program:
        shown = terminal.read_until(b"\x1b[4A")
        program.send_signal(signal.SIGINT)
        shown += terminal.read_all()
        assert program.wait(PATIENCE) == 130

    assert b"subscribers none" in shown
    assert b"interrupted: 0 records taken" in shown


# ---------------------------------------------------------------- several streams
def stored_cursors(journal: Path) -> list[tuple[str, int]]:
    """The cursors that the file has, while a gateway has it open."""
    with closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute("select name, acknowledged from cursors").fetchall()


@pytest.mark.slow
def test_several_streams_have_a_log_each_and_go_on_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("orders", 3000), ("clicks", 20)):
        (tmp_path / name).write_bytes(b"".join(b"%s %d\n" % (name.encode(), n) for n in range(count)))
    sources = [f"--stream={name}=file:{tmp_path / name}" for name in ("orders", "clicks")]
    arguments = (*sources, "--journal", str(tmp_path / "logs"))

    with Gateway(*arguments, "--stay") as first:
        eventually(lambda: probe(f"{first.endpoint}/clicks", PATIENCE).end == 20)
        assert main(["gateway", "status", f"{first.endpoint}/clicks"]) == 0
        shown = capsys.readouterr().out
        with Program("tail", f"{first.endpoint}/clicks", "--id", "reader", "--count", "5") as tail:
            printed = tail.stdout.readlines()
            assert tail.end() == 0
        # Cursors are stored four times a second; a kill before that lets the reader begin again.
        eventually(lambda: stored_cursors(tmp_path / "logs" / "clicks.db") == [("reader", 5)])
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(PATIENCE)
    with Gateway(*arguments) as second:
        with Program("tail", f"{second.endpoint}/clicks", "--id", "reader") as tail:
            printed += tail.stdout.readlines()
            assert tail.end() == 0
        assert len(penstock("tail", second.endpoint, "--id", "all").stdout.splitlines()) == 3000
        assert second.end() == 0

    assert "orders (default):" in shown
    assert "clicks: 20 records, the next at offset 20\n" in shown  # the last of them
    assert [line.rstrip() for line in printed] == [b"clicks %d" % number for number in range(20)]
    assert "the journal of orders has the offsets 0 to 2,999, the journal of clicks has" in second.said[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--stream", "orders"], "NAME=SOURCE"),
        (["--stream", "a/b=stdin"], "not the name of a stream"),
        (["--stream", "a=stdin", "--stream", "a=writers"], "a name of its own"),
        (["--stream", "a=stdin", "--source", "stdin"], "one or the other"),
        (["--stream", "a=nothing://x"], "--stream a: "),
        (["--stream", "a=writers", "--journal", "/dev/null"], "names a directory"),
    ],
)
def test_a_wrong_stream_is_told_before_anything_is_opened(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["gateway", "--control", "tcp://127.0.0.1:0", *arguments]) != 0

    assert told in capsys.readouterr().err
