"""``penstock tck``: the kit on anybody's publisher, from the command line."""

from __future__ import annotations

import argparse
import errno
import json
from pathlib import Path
from typing import Any

import pytest

import penstock.tck
from penstock.cli.tck import add_parser

MODULE = """
import threading

from penstock.tck import SubscriberBlackboxVerification
from tests.tck.broken.publishers_demand import OneExtra
from tests.tck.legal.publishers import AsyncioTaskPublisher
from tests.tck.legal.serving import FailedPublisher, RangePublisher
from tests.tck.legal.subscribers import ReferenceSubscriber
from tests.tck.subjects import CamelPublisher

numbers = RangePublisher
broken = OneExtra
failed = FailedPublisher
on_a_loop = AsyncioTaskPublisher
nothing = None

async def awaited(elements):
    return RangePublisher(elements)

def forgetful(elements):
    RangePublisher(elements)

def exits(elements):
    raise SystemExit(3)

class Waits(RangePublisher):
    class Subscription(RangePublisher.Subscription):
        def request(self, n):
            threading.Event().wait()

def camel(elements):
    return CamelPublisher(RangePublisher(elements))

class Subscribers(SubscriberBlackboxVerification):
    profile = "sync"

    def create_subscriber(self):
        return ReferenceSubscriber()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tck_subjects_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def tck(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["tck", *arguments])
    code: int = parsed.run(parsed)
    return code


def test_a_publisher_that_keeps_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    code = tck(
        "tck_subjects_here:numbers",
        "--failed",
        "tck_subjects_here:failed",
        "--profile",
        "sync",
        "--fanout",
        "unicast",
        "--strict",
    )

    out = capsys.readouterr().out
    assert code == 0, out
    assert "  §1.1    ✓ 1 passed\n" in out
    assert "  §1.10   – 1 skipped\n" in out
    assert "0 failed" in out


def test_a_publisher_that_breaks_one(capsys: pytest.CaptureFixture[str]) -> None:
    code = tck("tck_subjects_here:broken", "--profile", "sync", "--timeout", "0.2")

    out = capsys.readouterr().out
    assert code == 1
    assert "  §1.1    ✗ 1 failed\n" in out
    assert "§1.1 violated: element 2 came, 1 were requested" in out
    assert "signals, in their order:" in out


def test_without_a_subject_the_reason_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert tck("tck_subjects_here:forgetful", "--profile", "sync") == 1

    out = capsys.readouterr().out
    assert "  §1.10   – 1 skipped, as above\n" in out
    assert out.count("not run, there is no subject") == 2  # Beside the failure, and at the first rule.


def test_skips_that_nobody_expected_fail_a_strict_run() -> None:
    assert tck("tck_subjects_here:numbers", "--profile", "sync") == 0
    assert tck("tck_subjects_here:numbers", "--profile", "sync", "--strict") == 1


def test_other_spellings_and_event_loops() -> None:
    assert tck("tck_subjects_here:camel", "--spelling", "camelCase", "--profile", "sync") == 0
    assert tck("tck_subjects_here:on_a_loop", "--profile", "asyncio") == 0


def test_short_streams(capsys: pytest.CaptureFixture[str]) -> None:
    assert tck("tck_subjects_here:numbers", "--profile", "sync", "--elements", "3") == 0
    assert "needs 5 elements; max_elements_from_publisher is 3" in capsys.readouterr().out


def test_any_verification_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert tck("tck_subjects_here:Subscribers") == 0
    assert "§2.1" in capsys.readouterr().out


def test_a_report_is_written(tmp_path: Path) -> None:
    assert tck("tck_subjects_here:numbers", "--profile", "sync", "--report", "out.json") == 0

    document = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert document["subjects"] == ["tck_subjects_here:numbers"]
    assert document["settings"]["tck_subjects_here:numbers"]["profile"] == "sync"
    assert document["versions"]["penstock"]
    assert document["date"]


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_a_report_that_cannot_be_written_at_the_end_does_not_hide_the_result(
    json_too: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out.md")

    written = penstock.tck.write_report

    def write(report: Any, path: str) -> None:
        return disk_full() if path == "out.md" else written(report, path)

    monkeypatch.setattr(penstock.tck, "write_report", write)

    assert tck("tck_subjects_here:numbers", "--profile", "sync", "--report", "out.md", *json_too) == 1

    out, err = capsys.readouterr()
    assert "cannot write the report out.md: No space left on device" in err
    assert "report written" not in out
    if json_too:
        assert json.loads(out)["subjects"] == ["tck_subjects_here:numbers"]
    else:
        assert " passed, 0 failed, " in out


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (
            "awaited",
            "create_publisher(1) only made an object that is never run: this is a coroutine function",
        ),
        ("forgetful", "create_publisher(1) returned None (expected a Publisher)"),
        ("exits", "create_publisher(1) raised SystemExit: 3 at tck_subjects_here.py:"),
    ],
)
def test_a_factory_that_fails_is_one_failure(
    factory: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tck(f"tck_subjects_here:{factory}") == 1

    out = capsys.readouterr().out
    assert says in out
    assert ", 1 failed, " in out


def test_camel_case_without_a_word_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert tck("tck_subjects_here:camel", "--timeout", "0.2") == 1
    assert "say spelling = CAMEL_CASE, or --spelling camelCase" in capsys.readouterr().out


def test_a_run_has_a_time_limit_and_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert tck("tck_subjects_here:Waits", "--time-limit", "0.5") == 1

    out = capsys.readouterr().out
    assert "not run: the time limit of 0.5 s is over" in out
    assert "allow more with --time-limit" in out


def test_a_module_that_exits_when_it_is_imported_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tck_exits_here.py").write_text("import sys\nsys.exit(3)\n")

    assert tck("tck_exits_here:numbers") == 2
    assert "cannot import tck_exits_here: SystemExit: 3 at tck_exits_here.py:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["numbers"], "write MODULE:FACTORY"),
        (["no_such_module_here:numbers"], "run the command in the folder that has it, or set PYTHONPATH"),
        (["tck_subjects_here:letters"], "has no attribute 'letters'"),
        (["tck_subjects_here:nothing"], "is not a function"),
        (["tck_subjects_here:numbers", "--report", "out.pdf"], "a report ends in .md, .json, .html"),
        (["tck_subjects_here:numbers", "--report", "no/out.md"], "there is no folder no; make it first"),
        (["tck_subjects_here:numbers", "--report", "folder.md"], "it is a folder; name a file"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.md").mkdir()

    assert tck(*arguments) == 2

    out, err = capsys.readouterr()
    assert message in err
    assert not out  # Before a test has run.
