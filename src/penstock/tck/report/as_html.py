"""A report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from penstock.tck.report.matrix import Report, rule_label
from penstock.tck.running import Result

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
    return "\n".join([*_head(report), *_matrix(report), *_details(report), "</body></html>"]) + "\n"


def _head(report: Report) -> Iterator[str]:
    title = "Conformance to Reactive Streams"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    yield f"<p>{escape(report.summary)}.</p>"
    yield f'<p class="about">{escape(report.about_run.line)}</p>'


def _matrix(report: Report) -> Iterator[str]:
    names = "".join(f"<th>{escape(subject)}</th>" for subject in report.subjects)
    yield f"<table><thead><tr><th>Rule</th><th>Level</th>{names}<th></th></tr></thead><tbody>"
    for rule in report.rules:
        cells = [report.cell(rule, subject) for subject in report.subjects]
        verdicts = "".join(f'<td class="{cell.verdict}">{escape(cell.text)}</td>' for cell in cells)
        about = f'<td class="about">{escape(report.about(rule))}</td>'
        yield f"<tr><th>{rule_label(rule)}</th><td>{report.level(rule)}</td>{verdicts}{about}</tr>"
    yield "</tbody></table>"


def _details(report: Report) -> Iterator[str]:
    for subject, results in report.by_subject():
        yield f"<h2>{escape(subject)}</h2>"
        jvm = "<th>JVM kit</th>" if report.compared() else ""
        yield f"<table><thead><tr><th>Rule</th><th>Test</th><th>Verdict</th>{jvm}</tr></thead><tbody>"
        yield from (_row(report, result) for result in results)
        yield "</tbody></table>"


def _row(report: Report, result: Result) -> str:
    test = f"<code>{escape(result.test)}</code>"
    if result.verdict == "fail":
        test += f"<pre>{escape(result.message)}</pre>"
    elif result.message:
        test += f'<div class="about">{escape(result.headline)}</div>'
    jvm = f"<td>{escape(report.jvm_verdict(result))}</td>" if report.compared() else ""
    verdict = result.verdict if result.expected else f"{result.verdict} (unexpected)"
    rule = rule_label(result.rule)
    return f'<tr><th>{rule}</th><td>{test}</td><td class="{result.verdict}">{verdict}</td>{jvm}</tr>'
