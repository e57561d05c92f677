"""The tables, for the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.claims import Direction, Finding
from benchmarks.measuring import Answer

__all__ = ["Row", "answer_text", "findings_text", "markdown", "row_of", "table_of"]

Row = tuple[str, ...]


def answer_text(answer: Answer) -> str:
    """One question as a table for the terminal."""
    title = f"{answer.question.name}: {answer.question.title}"
    head = ("", f"ns per {answer.question.unit}", "median", "ratio", "of best", *_headings(answer))
    how = f"{answer.question.clock.value}, {answer.count} rounds"
    rows = _matrix(answer) if answer.question.matrix else [head, *_rows(answer)]
    return f"{title} ({how})\n{_aligned(rows)}\n"


def findings_text(findings: Sequence[Finding]) -> str:
    """The claims, met or not, for the terminal."""
    head = ("", "claimed", "ratio", "of best", "")
    rows = [row_of(finding, "NOT MET") for finding in findings]
    return f"claims\n{_aligned([head, *rows])}\n"


def table_of(answer: Answer) -> str:
    """One question as a table in Markdown."""
    head = ("", f"best, ns per {answer.question.unit}", "median", "ratio", "of best", *_headings(answer))
    rows = _matrix(answer) if answer.question.matrix else [head, *_rows(answer)]
    return markdown(rows[0], rows[1:])


def row_of(finding: Finding, not_met: str) -> Row:
    """What was found about a claim."""
    return (finding.claim.name, *_figures(finding), "ok" if finding.met else not_met)


def _rows(answer: Answer) -> list[Row]:
    rows = []
    for alternative in answer.question.alternatives:
        name, base = alternative.name, answer.question.base_of(alternative)
        facts = answer.facts.get(name, {})
        rows.append(
            (
                name,
                f"{answer.best(name):,.0f}",
                f"{answer.median(name):,.0f}",
                f"{answer.ratio(name, base):.2f}",
                f"{answer.ratio_of_best(name, base):.2f}",
                *(f"{median(facts[key]):,.0f}" if key in facts else "" for key in _headings(answer)),
            )
        )
    return rows


def _matrix(answer: Answer) -> list[Row]:
    """A line for each row of the matrix: medians of all its columns, then the first by each of the others."""
    names = [alternative.name for alternative in answer.question.alternatives]
    ours, *others = columns = list(dict.fromkeys(name.split(": ")[1] for name in names))
    rows: list[Row] = [("ns, median", *columns, *(f"{ours} / {other}" for other in others))]
    for row in dict.fromkeys(name.split(": ")[0] for name in names):
        here = {column: f"{row}: {column}" for column in columns if f"{row}: {column}" in names}
        figures = [f"{answer.median(here[column]):,.0f}" if column in here else "" for column in columns]
        ratios = [f"{answer.ratio(here[ours], here[other]):.2f}" if other in here else "" for other in others]
        rows.append((row, *figures, *ratios))
    return rows


def _headings(answer: Answer) -> Row:
    """What was seen of at least one alternative."""
    return tuple(dict.fromkeys(heading for facts in answer.facts.values() for heading in facts))


def _figures(finding: Finding) -> Row:
    sign = "≤" if finding.claim.direction is Direction.AT_MOST else "≥"
    unit, places = finding.claim.unit, 2 if finding.claim.to is not None else 0
    bound = f"{sign} {finding.claim.bound:g}{unit}"
    return bound, *(f"{figure:.{places}f}{unit}" for figure in (finding.ratio, finding.ratio_of_best))


def _aligned(rows: Sequence[Row]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first:<{widths[0]}}", *cells]).rstrip())
    return "\n".join(lines)


def markdown(head: Row, rows: Sequence[Row]) -> str:
    """A table."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
