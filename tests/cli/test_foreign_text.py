"""Text that somebody else has chosen: a terminal must not obey it, and no encoding must fail on it."""

import io
import json
import logging
import os
import subprocess
import sys

import pytest

from penstock.cli.block import Block
from penstock.cli.errors import CommandError, ScreenLog, report_errors
from penstock.cli.gateway.view import QuietView
from penstock.cli.screen import Screen, say
from penstock.cli.style import Tone, print_json, toned

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r\x00b"


def harmless(text: str) -> bool:
    """Whether nothing is left that a terminal obeys; the text is there."""
    return all(each.isprintable() or each == "\n" for each in text) and "owned" in text and "gnp.exe" in text


def test_messages_and_errors_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise CommandError(f"the server says: {EVIL}")

    say(EVIL)
    assert report_errors("why", fail) == 2
    with ScreenLog(say, layer="penstock.feeds"):
        logging.getLogger("penstock.feeds").warning("%s was disconnected", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("penstock.feeds").exception("it failed")
    QuietView(Screen()).note(EVIL)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 5
    assert all(map(harmless, said.splitlines()))


def test_what_is_drawn_has_no_control_characters_but_its_own() -> None:
    out = io.StringIO()
    drawn = Block(Screen(out))
    drawn.draw([EVIL, toned(EVIL, Tone.BAD)])
    drawn.say(EVIL)
    said = out.getvalue()
    for own in ("\x1b[2K", "\x1b[J", "\x1b[2A"):
        said = said.replace(own, "")
    assert harmless(said)


def test_json_is_right_and_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"id": EVIL, "file": "\udcff", "name": "größe 독자 😀"})
    said = capsys.readouterr().out
    assert harmless(said)
    assert "größe 독자 😀" in said
    assert json.loads(said) == {"id": EVIL, "file": "\udcff", "name": "größe 독자 😀"}


def test_json_is_ascii_where_the_output_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1"))
    print_json({"name": "größe 독자"})
    assert json.loads(out.getvalue().decode("ascii")) == {"name": "größe 독자"}


def test_an_output_that_has_only_ascii_gets_what_it_can() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "why", "--help"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"? through the streams of a process" in ran.stdout


def test_what_is_not_http_is_not_told() -> None:
    program = """
import logging
from penstock.cli.logs import CommandLog, LogOptions
log = logging.getLogger("uvicorn.error")
log.setLevel(logging.WARNING)  # As a server does.
with CommandLog(LogOptions(), "gateway"):
    log.warning("Invalid HTTP request received.")
    log.error("It failed.")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ran.stderr == "penstock gateway: It failed.\n"
