"""The pytest plugin: markers, reports in three formats, strict skips."""

from __future__ import annotations

import json
import platform
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

import pytest

pytest_plugins = ["pytester"]

SUBJECTS = """
import pytest
from penstock.tck import Environment, PublisherVerification
from tests.tck.broken.publishers_cancel import BadRequestIgnored
from tests.tck.legal.serving import FailedPublisher, RangePublisher

class TestGood(PublisherVerification):
    profile = "sync"
    fanout = "unicast"

    def create_publisher(self, elements):
        return RangePublisher(elements)

    def create_failed_publisher(self):
        return FailedPublisher()

class TestBad(TestGood):
    subject = "a | bad <one>"
    environment = Environment(timeout=1.0)  # what it does not do, it never does

    def create_publisher(self, elements):
        return BadRequestIgnored(elements)

class TestNeverFails(TestGood):
    def create_failed_publisher(self):
        return None

def test_something_else():
    pass

@pytest.mark.rs_rule("1.3", kind="stochastic")
def test_of_our_own():
    pass
"""


SHORT = "not TestBad or spec309"
"""Without most of what the bad subject fails: each of these tests waits for its whole time."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    installed = any(entry.value == "penstock.tck.plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "penstock.tck.plugin"]
    pytester.makepyfile(test_subjects=SUBJECTS)
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider")
    return pytester.runpytest(*plugin, *arguments)


def test_the_terminal_says_how_each_subject_did(pytester: pytest.Pytester) -> None:
    result = run(pytester)

    result.stdout.fnmatch_lines(
        [
            "*conformance to Reactive Streams*",
            "Good: * passed, 0 failed, * skipped",
            "a | bad <one>: * passed, 8 failed, * skipped*; failed: §1.6, §1.7, §3.9",
            "NeverFails: * passed, 0 failed, * skipped (2 of them unexpected)",
        ]
    )


def test_a_run_without_the_kit_says_nothing(pytester: pytest.Pytester) -> None:
    result = run(pytester, "-k", "something_else")

    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.no_fnmatch_line("*conformance*")


def test_tests_can_be_chosen_by_the_marker(pytester: pytest.Pytester) -> None:
    result = run(pytester, "-m", "rs_rule", "-k", "spec101 or something_else or of_our_own")

    result.assert_outcomes(passed=4, deselected=result.parseoutcomes()["deselected"])


def test_strict_turns_an_unexpected_skip_into_a_failure(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--rs-strict", "-k", "TestGood or TestNeverFails")

    assert result.parseoutcomes()["failed"] == 2
    result.stdout.fnmatch_lines(["*unexpected skip (--rs-strict): create_failed_publisher() gives None*"])


def report(pytester: pytest.Pytester, suffix: str, *arguments: str) -> str:
    path = pytester.path / f"report{suffix}"
    result = run(pytester, "--rs-report", str(path), *arguments)
    result.stdout.fnmatch_lines([f"report written to {path}"])
    return path.read_text("utf-8")


def test_the_report_in_json(pytester: pytest.Pytester) -> None:
    document: dict[str, Any] = json.loads(report(pytester, ".json"))

    assert document["subjects"] == ["Good", "a | bad <one>", "NeverFails", "test_subjects"]
    assert datetime.fromisoformat(document["date"]).tzinfo is not None
    assert document["versions"]["python"] == platform.python_version()
    assert document["versions"]["specification"] == "1.0.4"
    good, bad = document["settings"]["Good"], document["settings"]["a | bad <one>"]
    assert (good["profile"], good["fanout"], good["spelling"]) == ("sync", "unicast", "snake_case")
    assert good["verification"] == "PublisherVerification"
    assert (good["environment"]["timeout"], bad["environment"]["timeout"]) == (2.0, 1.0)
    rules = {row["rule"]: row for row in document["rules"]}
    assert len(rules) == 45
    assert rules["3.9"]["subjects"]["Good"] == {"verdict": "pass", "pass": 6, "fail": 0, "skip": 0}
    assert rules["3.9"]["subjects"]["a | bad <one>"]["verdict"] == "fail"
    assert rules["2.11"]["not_checked"]
    assert rules["1.3"]["subjects"]["test_subjects"]["verdict"] == "pass"
    failed = [result for result in document["results"] if result["verdict"] == "fail"]
    assert all("§3.9 violated" in result["message"] for result in failed)
    assert "signals, in their order" in failed[0]["message"]


def test_the_report_in_markdown(pytester: pytest.Pytester) -> None:
    text = report(pytester, ".md", "-k", SHORT)

    lines = text.splitlines()
    assert lines[0] == "# Conformance to Reactive Streams"
    assert f"CPython {platform.python_version()} on " in text
    assert any(line.startswith("| §1.1 | MUST | ✓ 1 passed |") for line in lines)
    assert any("✗ 5 failed" in line for line in lines if line.startswith("| §3.9 "))
    assert "a \\| bad <one>" in text
    assert "not checked: " in text


def test_the_report_in_html(pytester: pytest.Pytester) -> None:
    text = report(pytester, ".html", "-k", SHORT)

    assert text.startswith("<!doctype html>")
    assert "a | bad &lt;one&gt;" in text
    assert '<td class="fail">✗ 5 failed' in text
    assert "<th>JVM kit</th>" not in text


def test_the_verdicts_of_the_jvm_kit_stand_beside(pytester: pytest.Pytester) -> None:
    name = "required_spec309_requestZeroMustSignalIllegalArgumentException"
    untested = "untested_spec106_mustConsiderSubscriptionCancelledAfterOnErrorOrOnCompleteHasBeenCalled"
    results = pytester.path / "jvm.json"
    results.write_text(json.dumps({"Good": {name: "pass", untested: "skip"}}))

    document = json.loads(report(pytester, ".json", "--rs-jvm-results", str(results), "-k", "TestGood"))

    beside = {result["test"]: result["jvm"] for result in document["results"]}
    assert beside["test_required_spec309_request_zero_must_signal_illegal_argument_exception"] == "pass"
    assert [jvm for test, jvm in beside.items() if "_spec106_must_consider" in test] == ["skip"]
    assert beside["test_required_validate_max_elements_from_publisher"] is None
    assert "| JVM kit |" in report(pytester, ".md", "--rs-jvm-results", str(results), "-k", "TestGood")
    assert "<th>JVM kit</th>" in report(pytester, ".html", "--rs-jvm-results", str(results), "-k", "TestGood")


def test_an_unknown_format_is_told_before_the_run(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--rs-report", "report.pdf")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--rs-report report.pdf: a report ends in .md, .json, .html, not in '.pdf'*"]
    )
