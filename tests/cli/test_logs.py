"""Messages of commands as JSON: one object in a line, with fields, tracebacks and warnings, and no secret."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import AquiferPublisher
from penstock.cli import main
from penstock.cli.logs import CommandLog, JsonLines, LogOptions, is_json, tell, without_secrets
from penstock.cli.screen import Screen
from tests.cli.running import PATIENCE

KEYS = ["time", "level", "logger", "message"]


@pytest.fixture
def out() -> Iterator[StringIO]:
    """What is written by a logger of the test."""
    written = StringIO()
    handler = JsonLines(Screen(written))
    logger = logging.getLogger("penstock.test")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield written
    logger.removeHandler(handler)


LOG = logging.getLogger("penstock.test")


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_message_is_one_object_in_a_line(out: StringIO) -> None:
    LOG.warning("two\nlines of %s", "text", extra={"endpoint": "tcp://127.0.0.1:1", "lag": 7})
    (line,) = objects(out.getvalue())
    assert list(line) == [*KEYS, "endpoint", "lag"]
    assert line["message"] == "two\nlines of text"
    assert (line["level"], line["logger"]) == ("warning", "penstock.test")
    assert (line["endpoint"], line["lag"]) == ("tcp://127.0.0.1:1", 7)
    assert line["time"].endswith("Z")
    assert datetime.fromisoformat(line["time"]).timestamp() > 0


def test_an_exception_is_a_field_with_its_traceback(out: StringIO) -> None:
    try:
        raise ValueError("with password in redis://me:hunter2@host/")
    except ValueError:
        LOG.exception("it failed")
    (line,) = objects(out.getvalue())
    assert line["error"] == "ValueError: with password in redis://***@host/"
    assert line["traceback"].startswith("Traceback (most recent call last)")
    assert "hunter2" not in out.getvalue()


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_whatever_is_given_becomes_json() -> None:
    out = StringIO()
    given: dict[str, object] = {
        "nan": float("nan"),
        "path": Path("x"),
        "nested": {"list": [1, {"deep": b"\xff"}]},
        "broken": Unprintable(),
        "fields": {"message": "mine", "more": 1},
        "surrogate": "\udcff",
    }
    record = logging.makeLogRecord({"msg": "a %d", "args": ("wrong argument",), **given})
    JsonLines(Screen(out)).emit(record)
    (line,) = objects(out.getvalue())
    assert line["message"] == "a %d (TypeError in its arguments)"
    assert line["nan"] == "nan"
    assert line["path"] == "x"
    assert line["nested"] == {"list": [1, {"deep": "b'\\xff'"}]}
    assert "RuntimeError" in line["broken"]
    assert (line["message_"], line["more"]) == ("mine", 1)


def test_a_long_text_is_cut(out: StringIO) -> None:
    LOG.info("x" * 1_000_000)
    assert len(out.getvalue()) < 20_000
    assert "1,000,000 characters" in objects(out.getvalue())[0]["message"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://me:hunter2@host:6379/x", "redis://***@host:6379/x"),
        ("GET https://hunter2@host/", "GET https://***@host/"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: ***"),
        ("{'authorization': 'Basic aHVudGVyMg=='}", "{'authorization': '***'}"),
        ("sent Bearer hunter2hunter2 there", "sent Bearer *** there"),
        ("http://host/?a=1&token=hunter2&b=2", "http://host/?a=1&token=***&b=2"),
        ("tcp://127.0.0.1:5556/orders and me@example.org", "tcp://127.0.0.1:5556/orders and me@example.org"),
    ],
)
def test_secrets_do_not_get_into_the_log(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text() | st.floats() | st.integers() | st.none()))
def test_any_text_and_any_field_make_one_line(text: str, fields: dict[str, Any]) -> None:
    written = StringIO()
    record = logging.makeLogRecord({"msg": "%s", "args": (text,), "fields": fields})
    JsonLines(Screen(written)).emit(record)
    assert written.getvalue().count("\n") == 1
    assert written.getvalue().isascii()
    line = json.loads(written.getvalue(), parse_constant=pytest.fail)
    assert list(line)[:4] == KEYS
    assert len(line) == 4 + len(fields)


def test_threads_do_not_mix_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with CommandLog(LogOptions(format="json", level="info"), "gateway"):

        def many() -> None:
            for number in range(50):
                LOG.info("x" * 500, extra={"n": number})

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(objects(capsys.readouterr().err)) == 200


def test_the_log_is_as_it_was_when_the_command_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    before = list(root.handlers), root.level, ours.level, warnings.showwarning
    for form in ("json", "text"):
        with CommandLog(LogOptions(format=form, level="debug"), "gateway"):
            assert is_json() == (form == "json")
    assert (list(root.handlers), root.level, ours.level, warnings.showwarning) == before
    assert not is_json()
    tell("gateway", "for people", field=1)
    assert capsys.readouterr().err == "penstock gateway: for people\n"


def test_levels_hold_for_our_packages_and_others_begin_at_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = logging.getLogger("another.package")
    for level in ("debug", "error"):
        with CommandLog(LogOptions(format="json", level=level), "gateway"):
            logging.getLogger("penstock.aquifer").debug("ours, %s", level)
            other.info("not shown")
            other.warning("theirs, %s", level)
            tell("gateway", f"the command, {level}")
    said = [line["message"] for line in objects(capsys.readouterr().err)]
    assert said == [
        "ours, debug",
        "theirs, debug",
        "the command, debug",
        "theirs, error",
        "the command, error",
    ]


def test_a_warning_of_python_has_its_category(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with CommandLog(LogOptions(format="json"), "gateway"):
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = objects(capsys.readouterr().err)
    assert (line["logger"], line["message"], line["category"]) == ("py.warnings", "old", "DeprecationWarning")
    assert line["file"] == __file__


def test_text_has_no_secret_either(capsys: pytest.CaptureFixture[str]) -> None:
    with CommandLog(LogOptions(), "gateway"):
        logging.getLogger("penstock.feeds").warning("redis://me:hunter2@host/ is away")
        logging.getLogger("penstock.feeds").info("not shown")
    assert capsys.readouterr().err == "penstock gateway: redis://***@host/ is away\n"


def start(*arguments: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    )


def test_a_gateway_and_its_reader_tell_everything_as_json(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"n":1}\nnot JSON\n{"n":2}\n')
    serving = start(
        *("gateway", "--source", f"file:{lines}", "--control", "tcp://127.0.0.1:0", "--codec", "json"),
        *("--on-bad-line", "skip", "--stay", "--log-format", "json", "--log-level", "debug"),
    )
    with serving:
        assert serving.stderr is not None
        first = json.loads(serving.stderr.readline())
        while first["logger"] != "penstock.cli.gateway":
            first = json.loads(serving.stderr.readline())
        endpoint = first["control"]
        list(AquiferPublisher(endpoint, id="mine").flux().take(2))
        reading = start("tail", endpoint, "--count", "2", "--log-format", "json", "--log-level", "debug")
        printed, told = reading.communicate(timeout=PATIENCE)
        serving.send_signal(signal.SIGTERM)
        _, said = serving.communicate(timeout=PATIENCE)
    assert serving.returncode == 0
    assert printed.splitlines() == ['{"n":1}', '{"n":2}']
    objects(told)
    rest = objects(said)
    assert first["source"] == f"file:{lines}"
    assert all(list(line)[:4] == KEYS for line in rest)
    assert any(line.get("subscriber") == "mine" for line in rest)
    last = rest[-1]
    assert (last["logger"], last["reason"], last["taken"]) == ("penstock.cli.gateway", "interrupted", 2)


def test_the_error_that_ends_a_command_is_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = f"file:{tmp_path}/absent"
    arguments = ["gateway", "--source", source, "--log-format", "json", "--control", "tcp://127.0.0.1:0"]
    code = main(arguments)
    (line,) = objects(capsys.readouterr().err)
    assert (line["level"], line["exit_code"]) == ("error", code)
    assert "absent" in line["message"]
    assert "traceback" not in line
    assert main([*arguments, "--debug"]) == code
    (line,) = objects(capsys.readouterr().err)
    assert line["traceback"].startswith("Traceback")


@pytest.mark.parametrize(
    "command", ["gateway", "run", "tail", "dashboard", "echo", "why", "top", "send", "demo"]
)
def test_every_command_that_tells_what_happens_has_the_options(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--log-format {text,json}" in shown
    assert "--log-level {debug,info,warning,error}" in shown


def test_a_dashboard_tells_its_address_as_json() -> None:
    serving = start("dashboard", "tcp://127.0.0.1:1", "--listen", "127.0.0.1:0", "--log-format", "json")
    with serving:
        assert serving.stderr is not None
        line = json.loads(serving.stderr.readline())
        serving.send_signal(signal.SIGTERM)
        _, rest = serving.communicate(timeout=PATIENCE)
    assert (line["logger"], line["level"]) == ("penstock.cli.dashboard", "info")
    assert line["message"].startswith("dashboard at http://127.0.0.1:")
    objects(rest)


def test_an_echo_server_tells_its_connections_as_json() -> None:
    serving = start("echo", "--port", "0", "--log-format", "json")
    with serving:
        assert serving.stderr is not None
        said = [json.loads(serving.stderr.readline()) for _ in range(2)]
        serving.send_signal(signal.SIGTERM)
        _, rest = serving.communicate(timeout=PATIENCE)
    assert {line["logger"] for line in said} == {"penstock.net", "penstock.cli.echo"}
    objects(rest)


@pytest.mark.parametrize("command", ["why", "top"])
def test_a_gateway_that_does_not_answer_is_told_as_json(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "tcp://127.0.0.1:1", "--log-format", "json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = objects(err)
    assert (line["logger"], line["exit_code"]) == (f"penstock.cli.{command}", 1)
    assert "tcp://127.0.0.1:1" in line["message"]


def test_what_was_sent_is_told_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"line\n" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        code = main(["send", str(file), address, "--log-format", "json"])
    out, err = capsys.readouterr()
    (line,) = objects(err)
    assert (code, out) == (0, "")
    assert (line["logger"], line["bytes"]) == ("penstock.cli.send", 5000)
    assert line["message"].startswith("5,000 bytes were sent")


def test_the_part_of_a_demo_that_fails_is_told_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["demo", "--headless", "--picture", "none", "--start-limit", "0.001"]
    assert main([*arguments, "--log-format", "json"]) == 1
    told = objects(capsys.readouterr().err)
    assert {line["logger"] for line in told} == {"penstock.cli.demo"}
