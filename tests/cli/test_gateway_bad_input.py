"""Whatever is wrong with a command line for gateways is told in one line, with the remedy."""

import socket
import sqlite3
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher, SqliteJournal
from penstock.cli import main
from penstock.cli.gateway.useless_options import refuse_useless_for_writers
from penstock.feeds import FeedOptions
from tests.cli.running import Gateway, penstock
from tests.free_ports import free_port

HERE = "tcp://127.0.0.1:0"
ENCRYPTED = ("--curve-control", HERE, "--curve", "x", "--allow", "y")


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command in this process; its exit code, and what it says on standard error."""
    code = main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


def test_an_option_for_all_streams_is_not_refused_because_one_of_them_reads_nothing() -> None:
    refuse_useless_for_writers(FeedOptions(max_line=1024, on_bad_line="skip"), (), alone=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which source? Give --source stdin"),
        (
            ("--source", "kafka"),
            "'kafka' is not a feed; write kafka://HOST:PORT/TOPIC, or one of dir:PATH, file:PATH, ",
        ),
        (("--source", "app.log"), "'app.log' is not a feed; write file:app.log, or one of dir:PATH, "),
        (("--source", "files:app.log"), "is not a feed; write file:app.log, or one of dir:PATH, "),
        (("--source", "amqp://127.0.0.1:1"), "HOST:PORT/PATH or writers"),
        (("--source", "tcp-listen://127.0.0.1:0?what"), "after the ? there can be acknowledge"),
        (("--source", "tcp://127.0.0.1"), "the port is missing"),
        (("--source", "tcp://*:80"), "name the host and the port of one server"),
        (("--source", "file:no/such/file"), "cannot read no/such/file: No such file or directory"),
        (("--source", "file:."), "is a directory; name a file in it"),
        (("--source", "file:/dev/null"), "is not a regular file; read it with --source stdin < /dev/null"),
        (("--source", "stdin", "--control", "ipc://x"), "has to start with tcp://"),
        (("--source", "stdin", "--control", "tcp://0.0.0.0:0"), "--insecure"),
        (("--source", "stdin", "--data", "tcp://0.0.0.0:0"), "--insecure"),
        (("--source", "stdin", "--control", "none"), "needs an endpoint"),
        (("--source", "stdin", "--max-age", "1h"), "--journal PATH.db"),
        (("--source", "stdin", "--allow", "clients"), "without --curve"),
        (("--source", "stdin", "--accept-loss"), "--accept-loss is for a journal in a file"),
        (
            ("--source", "stdin", "--accept-loss", "--journal", "kafka://127.0.0.1:9/t"),
            "--accept-loss is for a journal in a file",
        ),
        (
            ("--source", "stdin", "--control", "none", "--data", HERE, *ENCRYPTED),
            "leave --data out",
        ),
        (("--source", "stdin", "--dashboard-token", "x"), "add --dashboard HOST:PORT"),
        (("--source", "stdin", "--dashboard-name", "x"), "add --dashboard HOST:PORT"),
        (("--source", "stdin", "--keygen", "x"), "leave the source out"),
        (("--source", "writers", "--follow"), "--follow is for a source that is read"),
        (("--source", "writers", "--take-last-line"), "--take-last-line is for a source that is read"),
        (("--source", "writers", "--format", "csv"), "--format is for a source that is read"),
        (("--source", "writers", "--restart", "always"), "--restart is for a source that is read"),
        (("--source", "writers", "--max-line", "1K"), "--max-line is for a source that is read"),
        (("--source", "writers", "--on-bad-line", "skip"), "a writer is told of each record"),
        (("--stream", "a=writers", "--follow"), "--follow is for a source that is read"),
        (
            ("--stream", "a=writers", "--stream", "b=stdin", "--stream-option", "a.max-line=1K"),
            "--max-line is for a source that is read",
        ),
        (("--source", "stdin", "--curve", "x"), "--curve and --curve-control go together"),
        (("--source", "stdin", "--curve", "x", "--curve-control", "tcp://*:0"), "--curve needs --allow"),
        (
            ("--source", "stdin", "--curve", "x", "--allow", ".", "--curve-control", "tcp://*:0"),
            "there is no key file x",
        ),
        (("status", "127.0.0.1:5556"), "has to start with tcp://"),
        (("status", "tcp://127.0.0.1:5556", "--curve", "me"), "--curve and --server-key go together"),
    ],
)
def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    code, said = complaint(capsys, "gateway", *arguments)

    assert code == 2
    assert said.startswith("penstock gateway")
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max-bytes", "lots"), "write 500000, 512K, 64M or 2G"),
        (("--max-age", "soon"), "write 90s, 15m, 1h or 7d"),
        (("--max-records", "0"), "is not a whole number of at least 1"),
        (("--compress", "gzip"), "'gzip' is not a compression; write zstd, or zstd:LEVEL"),
        (("--compress", "zstd:99"), "with a level up to 19"),
        (("--codec", "xml"), "'xml' is not a codec; write bytes, text, json"),
    ],
)
def test_a_wrong_value(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    code, said = complaint(capsys, "gateway", "--source", "stdin", *arguments)

    assert code == 2
    assert says in said


def test_a_list_of_clients_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(("gateway", "--keygen", str(tmp_path / "gateway"))) == 0
    capsys.readouterr()
    keys = ("--curve", str(tmp_path / "gateway.key"), "--allow", "no/such", "--curve-control", "tcp://*:0")
    code, said = complaint(capsys, "gateway", "--source", "stdin", *keys)

    assert code == 2
    assert "--allow: there is no no/such; name a directory of .pub files, or a list" in said


@pytest.mark.parametrize("command", [("gateway", "status"), ("tail", "--patience", "0.5")])
def test_a_wrong_public_key_of_the_gateway(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    for name in ("alice", "other"):
        assert main(("gateway", "--keygen", str(tmp_path / name))) == 0
    capsys.readouterr()
    keys = ("--curve", str(tmp_path / "alice.key"), "--server-key", str(tmp_path / "other.pub"))
    code, said = complaint(capsys, *command, "tcp://127.0.0.1:1", *keys)

    assert code == 1
    assert "is it running there, with keys, and is " in said


def test_a_bad_line_names_the_option_that_leaves_it_out(tmp_path: Path) -> None:
    source = tmp_path / "lines.jsonl"
    source.write_text('{"n": 1}\nnot JSON\n')
    with Gateway("--source", f"file:{source}", "--codec", "json", "--on-bad-line", "fail") as gateway:
        tail = penstock("tail", gateway.endpoint)
        assert gateway.end() == 1

    assert tail.returncode == 1
    assert tail.stderr.startswith("penstock tail: the source of the gateway failed: ValueError: line 2: JSON")
    (failed,) = (line for line in gateway.said if "the source failed: " in line)
    assert "(--on-bad-line skip leaves such a line out, and dead-letter keeps it)" in failed


def test_a_line_that_is_not_json_does_not_end_the_stream_and_is_kept(tmp_path: Path) -> None:
    source, journal = tmp_path / "lines.jsonl", tmp_path / "lines.db"
    source.write_text('{"n": 1}\nnot JSON\n{"n": 3}\n')
    with Gateway("--source", f"file:{source}", "--codec", "json", "--journal", str(journal)) as gateway:
        letters = AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux()
        assert [letter["text"] for letter in letters] == ["not JSON"]
        replayed = penstock("gateway", "replay", f"{gateway.endpoint}/dead-letters", "--yes")
        assert penstock("tail", gateway.endpoint).stdout == '{"n":1}\n{"n":3}\n'
        assert gateway.end() == 0

    assert ", 1 bad line is a dead letter, " in gateway.said[-1]
    assert replayed.returncode == 1, "nobody may write unless --on-bad-line says so"
    assert "--on-bad-line dead-letter to replay dead letters" in replayed.stderr
    assert (tmp_path / "lines.db.dead-letters").exists()


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("one\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        control = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        code, said = complaint(capsys, "gateway", "--source", f"file:{source}", "--control", control)

    assert code == 1
    assert said.startswith(f"penstock gateway: cannot listen at {control}: Address already in use; choose")


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    source = f"tcp://127.0.0.1:{free_port()}?once"  # otherwise it is looked for
    code, said = complaint(capsys, "gateway", "--source", source)

    assert code == 1
    assert "Connection refused; is a server listening there?" in said


def test_a_journal_that_somebody_else_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.db"
    journal = SqliteJournal(path)
    try:
        code, said = complaint(capsys, "gateway", "--source", "stdin", "--journal", str(path))
    finally:
        journal.close()

    assert code == 1
    assert "already open" in said


def test_a_file_that_is_no_journal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a journal, but a text of a hundred and more characters" * 3)
    code, said = complaint(capsys, "gateway", "--source", "stdin", "--journal", str(path))

    assert code == 1
    assert "is not a journal" in said


def test_a_journal_of_a_later_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.db"
    SqliteJournal(path).close()
    with sqlite3.connect(path) as database:
        database.execute("pragma user_version = 99")
    database.close()
    code, said = complaint(capsys, "gateway", "--source", "stdin", "--journal", str(path))

    assert code == 1
    assert "Update Penstock" in said


@pytest.mark.parametrize("command", [("gateway",), ("gateway", "status"), ("tail",)])
def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert main([*command, "--help"]) == 0

    shown = capsys.readouterr().out
    assert "examples:\n" in shown
    assert f"penstock {' '.join(command)} " in shown.partition("examples:")[2]
