"""``penstock gateway --journal`` when something is wrong with the file: a sentence, and an exit code."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from penstock.aquifer import SqliteJournal
from tests.cli.running import Gateway, penstock


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "lines.db"


def refused(journal: Path, *arguments: str) -> str:
    """What a gateway says that does not start with this journal."""
    ended = penstock(
        "gateway",
        "--source",
        "writers",
        "--control",
        "tcp://127.0.0.1:0",
        "--journal",
        str(journal),
        *arguments,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


def test_a_journal_that_is_removed_while_it_runs_is_told_and_success_is_not_claimed(journal: Path) -> None:
    with Gateway("--source", "stdin", "--journal", str(journal), "--stay", stdin=subprocess.PIPE) as gateway:
        gateway.send_lines("one", "two")
        assert penstock("tail", gateway.endpoint, "--count", "2").stdout == "one\ntwo\n"
        journal.unlink()
        gateway.wait_for("lines.db was removed or moved away while the journal was in use")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 1

    assert "nothing can be stored any more" in gateway.said[-1]
    assert not any("the journal has the offsets" in line for line in gateway.said)
    assert not any("Traceback" in line for line in gateway.said)


def test_another_codec_is_refused(journal: Path) -> None:
    with Gateway(
        "--source", "stdin", "--codec", "text", "--journal", str(journal), stdin=subprocess.PIPE
    ) as gateway:
        gateway.send_lines("one")
        assert penstock("tail", gateway.endpoint, "--count", "1", "--codec", "text").stdout == "one\n"
        gateway.process.send_signal(signal.SIGTERM)
        gateway.end()

    assert "has records of the codec 'text'" in refused(journal, "--codec", "json")


def test_a_lost_log_is_refused_until_the_loss_is_accepted(journal: Path) -> None:
    with Gateway("--source", "stdin", "--journal", str(journal), stdin=subprocess.PIPE) as gateway:
        gateway.send_lines("one")
        assert penstock("tail", gateway.endpoint, "--count", "1").stdout == "one\n"
        gateway.process.kill()
        gateway.end()
    Path(f"{journal}-wal").unlink()

    assert "penstock gateway --accept-loss" in refused(journal)
    with Gateway("--source", "writers", "--journal", str(journal), "--accept-loss", "--stay") as gateway:
        gateway.process.send_signal(signal.SIGTERM)
        gateway.end()

    assert any("continues with a new epoch" in line for line in gateway.said)
    SqliteJournal(journal).close()


def test_damage_is_a_sentence(journal: Path) -> None:
    SqliteJournal(journal).close()
    content = bytearray(journal.read_bytes())
    content[-100:] = bytes(100)
    content[8000:20000] = b"\xff" * 12000
    journal.write_bytes(content)

    assert "is damaged" in refused(journal)
