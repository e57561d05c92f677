"""``penstock gateway --on-bad-line dead-letter`` and ``penstock gateway replay``, over kills of either."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher, probe
from tests.cli.running import Gateway, Program, penstock
from tests.free_ports import free_port

MEND = """
def mend(letter):
    return letter.value.removeprefix(b"bad ")

def some(letter):
    return letter.value.removeprefix(b"bad ") if letter.value.endswith(b"1") else None

def broken(letter):
    raise KeyError("oh")
"""


@pytest.fixture
def mend(tmp_path: Path) -> Path:
    (tmp_path / "mend.py").write_text(MEND)
    return tmp_path / "mend.py"


def test_bad_lines_are_dead_letters_that_a_command_replays(tmp_path: Path, mend: Path) -> None:
    source, edited = tmp_path / "in.jsonl", tmp_path / "edited.jsonl"
    source.write_bytes(b'{"n": 1}\nbad 11\nbad 2\n\xff\n{"n": 4}\n')
    arguments = ("--follow", "--codec", "json", "--on-bad-line", "dead-letter")
    with Gateway("--source", f"file:{source}", *arguments) as gateway:
        letters = f"{gateway.endpoint}/dead-letters"
        shown = penstock("tail", letters, "--count", "3")
        assert [json.loads(line).get("text") for line in shown.stdout.splitlines()] == [
            "bad 11",
            "bad 2",
            None,
        ]

        asked = penstock("gateway", "replay", letters)
        assert (asked.returncode, "Confirm with --yes" in asked.stderr) == (2, True)
        still = penstock("gateway", "replay", letters, "--yes")
        assert still.returncode == 1
        assert "3 are still wrong" in still.stdout
        some = penstock("gateway", "replay", letters, "--yes", "--by", f"{mend}:some")
        assert (some.returncode, some.stdout) == (
            0,
            "1 of 3 letters replayed, as 1 record; 2 left by the function\n",
        )
        assert penstock("gateway", "export", letters, str(edited)).returncode == 0
        edited.write_bytes(
            edited.read_bytes().replace(b"bad 2", b"22").replace(b'"base64":"/w=="', b'"text":"33"')
        )
        done = penstock("gateway", "replay", letters, "--yes", "--json", "--edited", str(edited))
        report = json.loads(done.stdout)["replayed"]
        assert (done.returncode, report["replayed"], report["replayed_before"]) == (0, 2, 1)
        main = penstock("tail", gateway.endpoint, "--count", "5", "--codec", "json")
        assert main.stdout.splitlines() == ['{"n":1}', '{"n":4}', "11", "22", "33"]
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0
        assert any("3 bad lines are dead letters" in line for line in gateway.said), gateway.said


def test_a_gateway_with_dead_letters_that_nobody_reads_ends_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1\n{\n2\n")
    arguments = ("--source", f"file:{tmp_path / 'in'}", "--codec", "json", "--on-bad-line", "dead-letter")
    with Gateway(*arguments) as gateway:
        assert list(AquiferPublisher(gateway.endpoint, codec="json").flux()) == [1, 2]
        assert gateway.end() == 0


@pytest.mark.parametrize(
    ("by", "code", "text"),
    [
        ("mend", 2, "--by mend: write FILE.py:FUNCTION"),
        ("nowhere.py:mend", 1, "nowhere.py cannot be loaded: FileNotFoundError"),
        ("mend.py:nothing", 2, "there is no function nothing in mend.py"),
        ("mend.py:broken", 1, "the function failed for the letter 0: KeyError: 'oh'"),
    ],
)
def test_a_wrong_function_is_named(
    tmp_path: Path, mend: Path, monkeypatch: pytest.MonkeyPatch, by: str, code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_bytes(b"{\n")
    arguments = ("--follow", "--codec", "json", "--on-bad-line", "dead-letter")
    with Gateway("--source", f"file:{tmp_path / 'in'}", *arguments) as gateway:
        letters = f"{gateway.endpoint}/dead-letters"
        list(AquiferPublisher(letters).flux().take(1))
        done = penstock("gateway", "replay", letters, "--yes", "--by", by)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr


@pytest.mark.slow
def test_letters_are_replayed_once_though_gateway_and_command_are_killed(tmp_path: Path, mend: Path) -> None:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    total = 3000
    (tmp_path / "in").write_bytes(b"".join(b"bad %d\n" % number for number in range(total)))
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    arguments = [
        *("--source", f"file:{tmp_path / 'in'}", "--follow", "--codec", "json", "--control", endpoint),
        *("--on-bad-line", "dead-letter", "--journal", str(tmp_path / "log.db")),
    ]
    replay = ("gateway", "replay", f"{endpoint}/dead-letters", "--yes", "--by", f"{mend}:mend")
    for turn in range(4):
        with Gateway(*arguments) as gateway:
            if turn == 0:
                assert len(list(AquiferPublisher(f"{endpoint}/dead-letters").flux().take(total))) == total
            if turn == 3:
                done = penstock(*replay)
                assert done.returncode == 0, done.stderr
                assert gateway_head(endpoint) == total
                stored = list(AquiferPublisher(endpoint, codec="json").flux().take(total))
                assert sorted(stored) == list(range(total))
                return
            with Program(*replay) as command:
                wanted = min(gateway_head(endpoint) + chance.randrange(1, 900), total)
                while gateway_head(endpoint) < wanted and command.process.poll() is None:
                    pass
                (command if turn == 1 else gateway).process.kill()


def gateway_head(endpoint: str) -> int:
    return probe(endpoint, 60.0).head
