"""The help of a command fits into the width of the terminal, and its examples can be copied."""

import os
import re
import subprocess
import sys

import pytest

from penstock.cli import build_parser, main
from penstock.cli.table import columns

COMMANDS = ["", "demo", "gateway", "gateway replay", "tail", "run", "why", "dashboard", "doctor"]


def shown_help(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    assert main([*command.split(), "--help"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [50, 80, 200])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal_but_for_commands_to_copy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    lines = shown_help(capsys, command)

    wide = [line for line in lines if columns(line) > min(width, 110) - 2]
    assert [line for line in wide if not re.match(r"  (\S.* \| )?(penstock|curl) |    ", line)] == []


def test_a_command_among_the_examples_keeps_to_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    lines = shown_help(capsys, "gateway")

    command = next(line for line in lines if "app.follow" in line and "--stream " in line)
    words = command.partition("penstock gateway")[2].split()
    build_parser().parse_args(["gateway", *words])


def test_what_is_said_about_an_example_goes_below_it_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    narrow = shown_help(capsys, "rules")
    monkeypatch.setenv("COLUMNS", "100")
    wide = shown_help(capsys, "rules")

    at = narrow.index("  penstock rules")
    assert narrow[at + 1] == "      all rules, briefly"
    assert "  penstock rules                        all rules, briefly" in wide


def test_code_in_a_description_keeps_its_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    assert '        .through(lambda df: df.where("celsius > 30"))' in shown_help(capsys, "run")


def test_an_option_is_not_broken_at_a_hyphen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in range(60, 110, 5):
        monkeypatch.setenv("COLUMNS", str(width))
        assert "penstock-demo.svg" in "\n".join(shown_help(capsys, "demo"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "gateway --help", "--version"])
def test_help_that_cannot_be_written_is_a_failure_in_one_sentence(arguments: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )

    assert done.returncode == 1
    assert done.stderr == (
        "penstock: cannot write the output: No space left on device; free some space and try again\n"
    )
