"""Reports in files, and results of the JVM kit from files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock.tck.report.as_html import to_html
from penstock.tck.report.as_json import to_json
from penstock.tck.report.as_markdown import to_markdown
from penstock.tck.report.matrix import JvmResults, Report

FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    ".md": to_markdown,
    ".json": to_json,
    ".html": to_html,
}
"""How a report is written, by the suffix of its file."""


def write_report(report: Report, path: str | Path) -> None:
    """Write a report to a file whose suffix says how; an unknown suffix raises ``ValueError``."""
    Path(path).write_text(format_for(path)(report), encoding="utf-8")


def format_for(path: str | Path) -> Callable[[Report], str]:
    """How to write a report to this file."""
    suffix = Path(path).suffix.lower()
    try:
        return FORMATS[suffix]
    except KeyError:
        raise ValueError(f"{path}: a report ends in {', '.join(FORMATS)}, not in {suffix!r}") from None


def jvm_results(path: str | Path) -> JvmResults:
    """Read results of the JVM kit: ``{subject: {name of the test there: verdict}}``."""
    read = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(read, dict) or not all(isinstance(tests, dict) for tests in read.values()):
        raise ValueError(f"{path}: expected {{subject: {{test: verdict}}}}")
    return {
        subject: {name: str(verdict) for name, verdict in tests.items()} for subject, tests in read.items()
    }
