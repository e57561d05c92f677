"""A report as JSON, for other programs."""

from __future__ import annotations

import json
from typing import Any

from penstock.tck.not_checked import NOT_CHECKED
from penstock.tck.report.matrix import Report
from penstock.tck.running import Result

SCHEMA = 2
"""Counted up when a field changes its meaning or goes away."""


def to_json(report: Report) -> str:
    """The matrix, and below it every result with its whole message."""
    document = {
        "schema": SCHEMA,
        "date": report.about_run.date,
        "versions": dict(report.about_run.versions),
        "settings": {subject: dict(said) for subject, said in report.about_run.settings.items()},
        "subjects": report.subjects,
        "counts": dict(report.counts),
        "rules": [_rule(report, rule) for rule in report.rules],
        "results": [_result(report, result) for result in report.results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _rule(report: Report, rule: str) -> dict[str, Any]:
    cells = {subject: report.cell(rule, subject) for subject in report.subjects}
    return {
        "rule": rule,
        "level": report.level(rule),
        "not_checked": NOT_CHECKED.get(rule),
        "subjects": {
            subject: {"verdict": cell.verdict, **{v: cell.count(v) for v in ("pass", "fail", "skip")}}
            for subject, cell in cells.items()
        },
    }


def _result(report: Report, result: Result) -> dict[str, Any]:
    return {
        "subject": result.subject,
        "test": result.test,
        "rule": result.rule,
        "kind": result.kind,
        "verdict": result.verdict,
        "expected": result.expected,
        "message": result.message,
        "seconds": round(result.seconds, 6),
        "jvm": report.jvm_verdict(result) or None,
    }
