"""The pytest plugin: rule markers, reports, and a strict mode that fails unexpected skips.

The verifications need no plugin; with it a run can say more::

    pytest --rs-report conformance.md       # the matrix: rules by subjects; .json and .html as well
    pytest --rs-strict                      # a skip fails, unless the rule cannot be checked
    pytest -m rs_rule                       # the tests of the kit only

Every test of the kit carries the marker ``rs_rule("1.1", kind="required")``. Put it on a
test of your own, and the report has that test as well.
"""

from __future__ import annotations

import unittest
from collections.abc import Generator
from typing import Any, cast

import pytest

from penstock.tck.names import Kind, kind_of, rule_of
from penstock.tck.report import About, Report, settings_of
from penstock.tck.report_formats import format_for, jvm_results, write_report
from penstock.tck.runner import Result, Verdict, is_expected
from penstock.tck.verification import Verification

MARKER = "rs_rule"
_PROPERTY = "penstock_tck"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("penstock.tck", "conformance to Reactive Streams")
    group.addoption(
        "--rs-report",
        action="append",
        default=[],
        metavar="FILE",
        help="write rules by subjects to FILE: .md, .json or .html (may be repeated)",
    )
    group.addoption(
        "--rs-jvm-results",
        metavar="FILE",
        help="put the verdicts of the JVM kit beside: JSON of {subject: {test: verdict}}",
    )
    group.addoption(
        "--rs-strict",
        action="store_true",
        help="a skip fails, unless no test can check the rule or expected_skips names the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the collector of results."""
    config.addinivalue_line(
        "markers", f"{MARKER}(rule, kind='required'): the test checks this rule of Reactive Streams"
    )
    for path in config.getoption("--rs-report"):
        try:
            format_for(path)
        except ValueError as error:
            raise pytest.UsageError(f"--rs-report {error}") from None
    config.pluginmanager.register(_Results(config), "penstock-tck-results")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the kit with the rules that their names say."""
    for item in items:
        rule = rule_of(_name(item)) if _verification(item) is not None else None
        if rule is not None and item.get_closest_marker(MARKER) is None:
            item.add_marker(pytest.mark.rs_rule(rule, kind=kind_of(_name(item))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the rule and the subject to each report, and fail an unexpected skip under ``--rs-strict``."""
    # pytest replaces a unittest.SkipTest by its own kind of skip; which one it was counts here.
    raised = call.excinfo.value if call.excinfo is not None else None
    report = yield
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return report
    expected = _expects(item, raised)
    if report.skipped and not expected and item.config.getoption("--rs-strict"):
        report.outcome = "failed"
        report.longrepr = f"unexpected skip (--rs-strict): {raised}"
    if report.when == "call" or report.outcome != "passed":
        report.user_properties.append((_PROPERTY, _described(item, marker, raised, expected)))
    return report


class _Results:
    """Collects what the reports say; with several processes this happens in the one that started them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: list[Result] = []
        self._settings: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        described = dict(report.user_properties).get(_PROPERTY)
        if described is not None and not hasattr(report, "wasxfail"):
            said = cast("dict[str, Any]", described)
            self._results.append(_result(report, said))
            if said["settings"]:
                self._settings[said["subject"]] = said["settings"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._results:
            return
        jvm = self._config.getoption("--rs-jvm-results")
        report = Report(self._results, jvm_results(jvm) if jvm else None, About(self._settings))
        terminalreporter.section("conformance to Reactive Streams")
        for subject, results in report.by_subject():
            mine = Report(results)
            broken = [rule for rule in mine.rules if mine.cell(rule, subject).verdict == "fail"]
            rules = f"; failed: {', '.join(f'§{rule}' for rule in broken)}" if broken else ""
            terminalreporter.write_line(f"{subject}: {mine.summary}{rules}", red=bool(broken))
        for path in self._config.getoption("--rs-report"):
            write_report(report, path)
            terminalreporter.write_line(f"report written to {path}")


def _result(report: pytest.TestReport, described: dict[str, Any]) -> Result:
    verdict: Verdict = "pass" if report.passed else "skip" if report.skipped else "fail"
    return Result(
        described["subject"],
        described["test"],
        described["rule"],
        described["kind"],
        verdict,
        "" if report.passed else described["message"],
        report.duration,
        described["expected"],
    )


def _described(
    item: pytest.Item, marker: pytest.Mark, raised: BaseException | None, expected: bool
) -> dict[str, Any]:
    kind: Kind = marker.kwargs.get("kind", "required")
    verification = _verification(item)
    message = "" if raised is None else str(raised)
    if raised is not None and not isinstance(raised, (AssertionError, unittest.SkipTest)):
        message = f"{type(raised).__name__}: {message}"
    return {
        "subject": _subject(item),
        "test": _name(item),
        "rule": str(marker.args[0]) if marker.args else "",
        "kind": kind,
        "message": message,
        "expected": expected,
        "settings": settings_of(verification) if verification is not None else {},
    }


def _subject(item: pytest.Item) -> str:
    verification = _verification(item)
    kind = getattr(item, "cls", None)
    name = verification.subject_name() if verification is not None else getattr(kind, "__name__", "")
    parameters = getattr(getattr(item, "callspec", None), "id", "")
    return f"{name or item.path.stem}[{parameters}]" if parameters else name or item.path.stem


def _verification(item: pytest.Item) -> type[Verification] | None:
    kind = getattr(item, "cls", None)
    return kind if isinstance(kind, type) and issubclass(kind, Verification) else None


def _expects(item: pytest.Item, raised: BaseException | None) -> bool:
    if raised is None:
        return True
    verification = _verification(item)
    return verification is not None and is_expected(verification, _name(item), raised)


def _name(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", None) or item.name)
