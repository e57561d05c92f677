"""A report as Markdown, for a repository or a comment."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.tck.report.matrix import Report, rule_label


def to_markdown(report: Report) -> str:
    """The matrix, and below it what did not pass."""
    return "\n".join([*_head(report), *_matrix(report), *_details(report)]).rstrip() + "\n"


def _head(report: Report) -> Iterator[str]:
    yield "# Conformance to Reactive Streams"
    yield ""
    yield report.summary + "."
    yield ""
    yield report.about_run.line
    yield ""


def _matrix(report: Report) -> Iterator[str]:
    yield _row("Rule", "Level", *report.subjects, "")
    yield _row(*["---"] * (len(report.subjects) + 3))
    for rule in report.rules:
        cells = [report.cell(rule, subject).text for subject in report.subjects]
        yield _row(rule_label(rule), report.level(rule), *cells, report.about(rule))
    yield ""


def _details(report: Report) -> Iterator[str]:
    for subject, results in report.by_subject():
        yield f"## {subject}"
        yield ""
        header = ["Rule", "Test", "Verdict", *(["JVM kit"] if report.compared() else []), "Message"]
        yield _row(*header)
        yield _row(*["---"] * len(header))
        for result in results:
            jvm = [report.jvm_verdict(result)] if report.compared() else []
            verdict = result.verdict if result.expected else f"{result.verdict} (unexpected)"
            yield _row(rule_label(result.rule), f"`{result.test}`", verdict, *jvm, result.headline)
        yield ""
        for result in results:
            if result.verdict == "fail":
                yield f"### `{result.test}`"
                yield ""
                yield from ["```text", result.message, "```", ""]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
