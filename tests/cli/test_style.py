"""One style for all commands: colours, tables and errors, with rich and without it."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main, style
from penstock.cli.errors import ExitCode, report_errors
from penstock.cli.progress import ProgressBar
from penstock.cli.screen import Screen
from penstock.cli.style import Column, Tone, paint, show_table, table_lines, toned
from penstock.cli.table import columns
from tests.cli.terminals import Terminal

HEADS = [Column("ID"), Column("BEHIND", right=True), Column("STATE")]
ROWS = [
    ["nightly", "90", toned("away", Tone.WARNING)],
    ["\x1b[2Jevil" + "x" * 200, "1,234,567", "streaming"],
    ["독자" * 30, "1", "streaming"],
]


class Tty(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich."""
    monkeypatch.setattr(style, "has_rich", lambda: False)
    monkeypatch.setattr("penstock.cli.progress.has_rich", lambda: False)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("settings", "tty", "coloured", "redrawn"),
    [
        ({}, True, True, True),
        ({}, False, False, False),
        ({"NO_COLOR": "1"}, True, False, True),
        ({"NO_COLOR": ""}, True, True, True),
        ({"FORCE_COLOR": "1"}, False, True, False),
        ({"FORCE_COLOR": "0"}, False, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False, True),
        ({"TERM": "dumb"}, True, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True, False),
    ],
)
def test_the_environment_decides_on_colours_and_redrawing(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], tty: bool, coloured: bool, redrawn: bool
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    screen = Screen(Tty() if tty else io.StringIO())

    assert (screen.is_coloured, screen.is_terminal) == (coloured, redrawn)
    assert ("\x1b[" in paint("  log  BLOCKED", screen)) == coloured


@pytest.mark.parametrize("width", [36, 50, 80])
def test_a_table_fits_its_screen_and_names_cannot_command_it(width: int) -> None:
    lines = table_lines(HEADS, ROWS, width)

    assert [strip(line).rstrip() for line in table_lines(HEADS, ROWS, width, coloured=True)] == lines
    assert all(columns(line) <= width for line in lines)
    assert "\x1b" not in "".join(lines)
    assert lines[1].split() == ["nightly", "90", "away"]
    assert "1,234,567" in lines[2]


@pytest.mark.parametrize("width", [36, 80])
@pytest.mark.usefixtures("plain")
def test_a_table_without_rich_fits_too(width: int) -> None:
    lines = table_lines(HEADS, ROWS, width)

    assert all(columns(line) <= width for line in lines)
    assert lines[1].split() == ["nightly", "90", "away"]


def test_in_a_pipe_a_table_is_as_wide_as_it_has_to_be_and_has_no_colours() -> None:
    out = io.StringIO()
    show_table(HEADS, [["a" * 30, "1", "state " * 40]], Screen(out))

    assert out.getvalue().splitlines()[1] == f"{'a' * 30}       1  {'state ' * 40}".rstrip()


def test_colours_are_added_to_the_text_and_change_nothing_of_it() -> None:
    line = "  log         [████······]  40% full, HELD BACK"
    painted = paint(line, Screen(Tty()))

    assert painted != line
    assert strip(painted) == line


def strip(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("command", [[], ["gateway", "status"], ["rules"]])
def test_the_help_has_colours_at_a_terminal_and_the_same_text(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*command, "--help"]) == 0
    without = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main([*command, "--help"]) == 0
    coloured = capsys.readouterr().out

    assert "\x1b" not in without
    assert coloured != without
    assert strip(coloured) == without


def _broken() -> int:
    raise KeyError("what nobody expected")


def test_a_defect_is_one_line_and_with_debug_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_errors("tail", _broken) == ExitCode.DEFECT
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("penstock tail: KeyError: 'what nobody expected'")
    assert "--debug" in told

    assert report_errors("tail", _broken, debug=True) == ExitCode.DEFECT
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert "in _broken" in told


@pytest.mark.parametrize("place", [["--debug", "send", "x", "y"], ["send", "x", "y", "--debug"]])
def test_debug_may_stand_before_or_after_the_command(
    place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(place) == ExitCode.USAGE
    assert "Traceback" in capsys.readouterr().err


def test_progress_at_a_terminal_is_a_bar_with_an_estimate_and_is_gone_afterwards() -> None:
    with Terminal(80, 24) as terminal:
        code = (
            "import time\n"
            "from penstock.cli.progress import ProgressBar\n"
            "with ProgressBar('verify', total=1000) as progress:\n"
            "    progress.update(500, 'half')\n"
            "    input()\n"
            "print('done')\n"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=terminal.fileno(),
            stderr=terminal.fileno(),
        )
        with program:
            shown = terminal.read_until(b"left")
            assert program.stdin is not None
            program.stdin.write(b"\n")
            program.stdin.close()
            shown += terminal.read_until(b"done")
    text = strip(shown.decode())
    assert "verify" in text
    assert "50 %" in text
    assert "500 of 1,000 records" in text
    assert "half" in text


@pytest.mark.usefixtures("plain")
def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("penstock.cli.progress.time.monotonic", lambda: now[0])
    out = io.StringIO()
    with ProgressBar("export", total=200, screen=Screen(out)) as progress:
        for _ in range(10):
            now[0] += 1.0
            progress.advance(10)

    assert out.getvalue().splitlines() == [
        "export   25 %  50 of 200 records, 10/s, 15 s left",
        "export   50 %  100 of 200 records, 10/s, 10 s left",
    ]


def test_hidden_progress_writes_nothing(tmp_path: Path) -> None:
    out = Tty()
    with ProgressBar("export", total=200, hidden=True, screen=Screen(out)) as progress:
        progress.advance(200)

    assert out.getvalue() == ""
