"""The tables, for the terminal and for RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.claims import Direction, Finding
from benchmarks.measuring import Answer

__all__ = ["answer_text", "findings_text", "page"]

Row = tuple[str, ...]

_EXPLANATION = """\
Written by `make bench`; do not edit.

The alternatives of a table ran one after the other in each round, in rotating order, in several processes,
and each had to return the right result. *best* and *median* are nanoseconds per {units}: of processor
time where one thread works, of elapsed time where several threads or processes do. *ratio* compares within
each round with the first line, or if there are several groups with the first line of the group, and is the
median over the rounds; *of best* compares the best round of each. Where processes ran, *thousand per s* says
the same as *median*, and *MiB* is the peak of the memory of the sender, which is the gateway if there is one,
and of the largest receiver, with the interpreter. Trust the ratios, not the absolute figures: they are those
of one machine, which had other work to do as well."""


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
    rows = [(f.claim.name, *_figures(f), "ok" if f.met else "NOT MET") for f in findings]
    return f"claims\n{_aligned([head, *rows])}\n"


def page(facts: Mapping[str, str], answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """The whole as RESULTS.md."""
    units = " or ".join(dict.fromkeys(answer.question.unit for answer in answers))
    parts = ["# Benchmark results", _EXPLANATION.format(units=units)]
    parts.append(_markdown(("", ""), list(facts.items())))
    parts.append("## Claims")
    claims = [(f.claim.name, *_figures(f), "ok" if f.met else "**not met**") for f in findings]
    parts.append(_markdown(("claim", "bound", "ratio", "of best", ""), claims))
    for answer in answers:
        parts.append(f"## {answer.question.title[0].upper()}{answer.question.title[1:]}")
        command = f"`make bench ARGS='--only {answer.question.name}'`"
        parts.append(f"{command}: {answer.question.clock.value}, {answer.count} rounds.")
        first = f"best, ns per {answer.question.unit}"
        head = ("", first, "median", "ratio", "of best", *_headings(answer))
        rows = _matrix(answer) if answer.question.matrix else [head, *_rows(answer)]
        parts.append(_markdown(rows[0], rows[1:]))
    return "\n\n".join(parts) + "\n"


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


def _markdown(head: Row, rows: Sequence[Row]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
