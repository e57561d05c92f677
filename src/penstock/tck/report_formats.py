"""A report in a file: Markdown, JSON for other programs, or one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from penstock.tck.names import NOT_CHECKED
from penstock.tck.report import JvmResults, Report, rule_label
from penstock.tck.runner import Result

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
th, td { border: 1px solid #8885; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.pass { background: #2a92; } td.fail { background: #d332; font-weight: 600; } td.skip { background: #d912; }
td.about { color: #777; font-size: .9em; } code { font-size: .9em; overflow-wrap: anywhere; }
pre { background: #8881; padding: .8rem; overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #dde; } }
"""


def to_html(report: Report) -> str:
    """The matrix, and below it every test, with the message of those that did not pass."""
    return (
        "\n".join([*_html_head(report), *_html_matrix(report), *_html_details(report), "</body></html>"])
        + "\n"
    )


def _html_head(report: Report) -> Iterator[str]:
    title = "Conformance to Reactive Streams"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    yield f"<p>{escape(report.summary)}.</p>"
    yield f'<p class="about">{escape(report.about_run.line)}</p>'


def _html_matrix(report: Report) -> Iterator[str]:
    names = "".join(f"<th>{escape(subject)}</th>" for subject in report.subjects)
    yield f"<table><thead><tr><th>Rule</th><th>Level</th>{names}<th></th></tr></thead><tbody>"
    for rule in report.rules:
        cells = [report.cell(rule, subject) for subject in report.subjects]
        verdicts = "".join(f'<td class="{cell.verdict}">{escape(cell.text)}</td>' for cell in cells)
        about = f'<td class="about">{escape(report.about(rule))}</td>'
        yield f"<tr><th>{rule_label(rule)}</th><td>{report.level(rule)}</td>{verdicts}{about}</tr>"
    yield "</tbody></table>"


def _html_details(report: Report) -> Iterator[str]:
    for subject, results in report.by_subject():
        yield f"<h2>{escape(subject)}</h2>"
        jvm = "<th>JVM kit</th>" if report.compared() else ""
        yield f"<table><thead><tr><th>Rule</th><th>Test</th><th>Verdict</th>{jvm}</tr></thead><tbody>"
        yield from (_html_row(report, result) for result in results)
        yield "</tbody></table>"


def _html_row(report: Report, result: Result) -> str:
    test = f"<code>{escape(result.test)}</code>"
    if result.verdict == "fail":
        test += f"<pre>{escape(result.message)}</pre>"
    elif result.message:
        test += f'<div class="about">{escape(result.headline)}</div>'
    jvm = f"<td>{escape(report.jvm_verdict(result))}</td>" if report.compared() else ""
    verdict = result.verdict if result.expected else f"{result.verdict} (unexpected)"
    rule = rule_label(result.rule)
    return f'<tr><th>{rule}</th><td>{test}</td><td class="{result.verdict}">{verdict}</td>{jvm}</tr>'


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
        "rules": [_json_rule(report, rule) for rule in report.rules],
        "results": [_json_result(report, result) for result in report.results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _json_rule(report: Report, rule: str) -> dict[str, Any]:
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


def _json_result(report: Report, result: Result) -> dict[str, Any]:
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


def to_markdown(report: Report) -> str:
    """The matrix, and below it what did not pass."""
    return (
        "\n".join([*_markdown_head(report), *_markdown_matrix(report), *_markdown_details(report)]).rstrip()
        + "\n"
    )


def _markdown_head(report: Report) -> Iterator[str]:
    yield "# Conformance to Reactive Streams"
    yield ""
    yield report.summary + "."
    yield ""
    yield report.about_run.line
    yield ""


def _markdown_matrix(report: Report) -> Iterator[str]:
    yield _markdown_row("Rule", "Level", *report.subjects, "")
    yield _markdown_row(*["---"] * (len(report.subjects) + 3))
    for rule in report.rules:
        cells = [report.cell(rule, subject).text for subject in report.subjects]
        yield _markdown_row(rule_label(rule), report.level(rule), *cells, report.about(rule))
    yield ""


def _markdown_details(report: Report) -> Iterator[str]:
    for subject, results in report.by_subject():
        yield f"## {subject}"
        yield ""
        header = ["Rule", "Test", "Verdict", *(["JVM kit"] if report.compared() else []), "Message"]
        yield _markdown_row(*header)
        yield _markdown_row(*["---"] * len(header))
        for result in results:
            jvm = [report.jvm_verdict(result)] if report.compared() else []
            verdict = result.verdict if result.expected else f"{result.verdict} (unexpected)"
            yield _markdown_row(rule_label(result.rule), f"`{result.test}`", verdict, *jvm, result.headline)
        yield ""
        for result in results:
            if result.verdict == "fail":
                yield f"### `{result.test}`"
                yield ""
                yield from ["```text", result.message, "```", ""]


def _markdown_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


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
