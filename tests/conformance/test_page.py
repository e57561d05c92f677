"""``docs/conformance.md`` tells the truth: its programs and commands run, and its tables are up to date."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main, tck
from penstock.tck import Verification, kind_of, names_of_tests, rule_of, run
from tests.conformance import report

PAGE = report.PAGE.read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(python|text|console)\n(.*?)```", PAGE, flags=re.DOTALL)
PROGRAMS = [block for kind, block in BLOCKS if kind == "python"]
CONSOLE = [block for kind, block in BLOCKS if kind == "console"]

ANEW = "python -m tests.conformance.report --page writes the tables anew"


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("name", report.quick_parts())
def test_a_table_is_that_of_the_code(name: str) -> None:
    assert report.part(PAGE, name) == report.quick_parts()[name], ANEW


@pytest.mark.rare(45)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_table_of_our_own_subjects_is_what_the_kit_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report.logging, "disable", lambda: None)

    assert report.main([str(tmp_path / "conformance.html")]) == 0

    assert capsys.readouterr().out.startswith(report.part(PAGE, "matrix") + "\n"), ANEW
    assert "Flux.map" in (tmp_path / "conformance.html").read_text("utf-8")


def test_a_rule_with_a_stochastic_test_says_so() -> None:
    by_chance = {
        rule_of(name)
        for verification in report.LETTERS.values()
        for name in names_of_tests(verification)
        if kind_of(name) == "stochastic"
    }

    assert by_chance <= {rule for rule, strength in report.STRENGTHS.items() if "stochastic" in strength}


def test_a_part_is_found_and_replaced() -> None:
    page = "before\n<!-- x -->\n\nold\n\n<!-- end of x -->\nafter\n"

    changed = report.with_part(page, "x", "new\nlines")

    assert report.part(page, "x") == "old"
    assert report.part(changed, "x") == "new\nlines"
    assert changed == page.replace("old", "new\nlines")


# ---------------------------------------------------------------- programs


def test_the_programs_run_and_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for kind, block in BLOCKS:
        if kind == "python":
            exec(block, names)
        elif kind == "text":
            assert capsys.readouterr().out == block

    verifications = [found for name, found in names.items() if name.startswith("Test")]
    assert len(verifications) == 4
    for verification in verifications:
        assert issubclass(verification, Verification)
        assert [result for result in run(verification) if result.verdict == "fail"] == []


# ---------------------------------------------------------------- commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "numbers_source.py").write_text(PROGRAMS[0])
    (tmp_path / "test_doubles.py").write_text(PROGRAMS[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_command_says_what_the_page_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, *shown = CONSOLE[0].splitlines()
    assert command.startswith("$ penstock ")

    code = main(shlex.split(command)[2:])

    assert code == 1
    said = iter(capsys.readouterr().out.splitlines())
    for line in shown:
        # "…" stands for lines that are left out; a line may be cut.
        assert line == "…" or any(other.startswith(line) for other in said), line


def test_the_table_has_every_option_of_the_command() -> None:
    parser = argparse.ArgumentParser()
    tck.add_parser(parser.add_subparsers())
    usage = parser.parse_args(["tck", "module:name"])
    options = {f"--{name.replace('_', '-')}" for name in vars(usage)} - {"--run", "--subject"}

    assert set(re.findall(r"^\| `(--[a-z-]+)", PAGE, flags=re.MULTILINE)) == options


@pytest.mark.parametrize("line", CONSOLE[1].splitlines())
def test_the_commands_of_pytest_work(line: str, folder: Path) -> None:
    prompt, command, *arguments = shlex.split(line, comments=True)
    assert (prompt, command) == ("$", "pytest")
    installed = any(entry.value == "penstock.tck.plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "penstock.tck.plugin"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Doubles: " in done.stdout
    if "--rs-report" in arguments:
        assert (folder / arguments[-1]).exists()


def test_the_commands_for_a_report_are_those_of_the_module() -> None:
    for line in CONSOLE[2].splitlines():
        command = shlex.split(line, comments=True)
        assert command[:4] == ["$", "python", "-m", report.__name__]
        assert command[4:] in ([], ["conformance.html"])
