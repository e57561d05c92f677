"""``--json``: one object, or one in each line, and nothing else on standard output."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import build_parser, main
from penstock.cli.parser import Parser
from tests.cli.running import Program, penstock
from tests.cli.tables import DOCS, commands_of


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_rules_and_their_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "3.9", "1.1", "--json"]) == 0
    (shown,) = objects(capsys.readouterr().out)
    assert [rule["id"] for rule in shown["rules"]] == ["3.9", "1.1"]
    assert all(rule["statement"] and rule["intent"] and rule["levels"] for rule in shown["rules"])
    assert main(["rules", "--json"]) == 0
    assert len(objects(capsys.readouterr().out)[0]["rules"]) == 44
    assert main(["rules", "--glossary", "--json", "--lang", "ko"]) == 0
    assert all(term["name"] and term["meaning"] for term in objects(capsys.readouterr().out)[0]["terms"])


def test_a_report_of_the_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = penstock("tck", "penstock.streams:Flux.range", "--json", "--timeout", "0.1", timeout=55)
    (shown,) = objects(done.stdout)

    assert done.returncode == 0
    assert {"rules", "results"} <= shown.keys()


def test_what_was_sent_and_what_a_server_did(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    with Program("echo", "--port", "0", "--json") as server:
        listening = json.loads(server.stdout.readline())
        assert (listening["event"], listening["tls"]) == ("listening", False)
        done = penstock("send", str(file), f"tcp://{listening['address'].removeprefix('tcp://')}", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert objects(done.stdout)[0]["bytes"] == 10
        server.process.send_signal(signal.SIGTERM)
        ended = json.loads(server.stdout.readline())
        assert server.end() == 0
    assert (ended["event"], ended["connections"]) == ("end", 1)


def test_the_page_names_every_command_with_the_flag() -> None:
    parser = build_parser()
    names = [name.removeprefix("penstock ") for name, _ in commands_of(parser, "penstock")]
    page = (DOCS / "cli.md").read_text().partition("## JSON")[2]
    silent = {"completion", "dashboard"}  # A script, and a page.
    for name in names:
        command: Any = parser
        for word in name.split():
            command = next(a for a in command._actions if hasattr(a, "_name_parser_map")).choices[word]
        assert isinstance(command, Parser)
        has_flag = "--json" in command._option_string_actions
        assert has_flag or name in silent, f"{name} has no --json"
        if has_flag:
            assert name.split()[-1] in page, f"docs/cli.md does not show the JSON of {name}"
