"""RESULTS.md: a section for each question, with the day on which it was measured.

All questions together take more than an hour. So the page can be updated by a question at a time: its section
and its claims are replaced, and everything else stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.claims import CLAIMS, Finding
from benchmarks.measuring import Answer
from benchmarks.questions import NAMES
from benchmarks.report import Row, markdown, row_of, table_of

__all__ = ["ResultsPage"]

_EXPLANATION: Final = """\
Written by `make bench`; do not edit.

The alternatives of a table ran one after the other in each round, in rotating order, in several processes,
and each had to return the right result. *best* and *median* are nanoseconds for what the heading names: of
processor time where one thread works, of elapsed time where several threads or processes do. *ratio* compares
within each round with the first line, or if there are several groups with the first line of the group, and is
the median over the rounds; *of best* compares the best round of each. Where processes ran, *thousand per s*
says the same as *median*, and *MiB* is the peak of the memory of the sender, which is the gateway if there is
one, and of the largest receiver, with the interpreter. Trust the ratios, not the absolute figures: they are
those of one machine, which had other work to do as well.

Each table has its own date, because `make bench ARGS="--update --only NAME"` replaces one of them. The
versions are those of the last run."""

_SECTION: Final = re.compile(
    r"^## (?!Claims\n).+?\n\n`make bench ARGS='--only (?P<name>[^']+)'`: .+?(?=\n\n## |\Z)",
    re.DOTALL | re.MULTILINE,
)
_WHEN: Final = re.compile(r"rounds(?P<dated>, on \d{4}-\d\d-\d\d)?(?=[.;])")
_CELLS: Final = re.compile(r"^\| (?P<cells>.+) \|$", re.MULTILINE)


@dataclass
class ResultsPage:
    """What the page has, by question and by claim."""

    facts: Mapping[str, str] = field(default_factory=dict)
    """The machine and the versions."""
    sections: dict[str, str] = field(default_factory=dict)
    claims: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> ResultsPage:
        """The page as it was written before."""
        head, _, rest = text.partition("\n## Claims\n")
        facts = {cells[0]: cells[1] for cells in _rows(head)[2:] if len(cells) == 2}
        claims, _, _ = rest.partition("\n## ")
        page = cls(facts, claims={cells[0]: cells for cells in _rows(claims)[2:]})
        for section in _SECTION.finditer(rest):
            page.sections[section["name"]] = _dated(section[0].rstrip(), facts.get("Date", ""))
        return page

    def update(
        self,
        facts: Mapping[str, str],
        answers: Iterable[Answer],
        findings: Sequence[Finding],
        failed: Iterable[str],
    ) -> None:
        """Replace what was measured anew; ``failed`` are the questions of which a process failed."""
        self.facts, day = facts, facts["Date"]
        for answer in answers:
            question = answer.question
            note = "; a process failed" if question.name in failed else ""
            self.sections[question.name] = "\n\n".join(
                [
                    f"## {question.title[0].upper()}{question.title[1:]}",
                    f"`make bench ARGS='--only {question.name}'`: {question.clock.value}, {answer.count} "
                    f"rounds, on {day}{note}.",
                    table_of(answer),
                ]
            )
        self.claims |= {finding.claim.name: row_of(finding, "**not met**") for finding in findings}

    def text(self) -> str:
        """The page; questions and claims that do not exist any more are left out."""
        claims = [self.claims[claim.name] for claim in CLAIMS if claim.name in self.claims]
        parts = ["# Benchmark results", _EXPLANATION, markdown(("", ""), list(self.facts.items()))]
        parts += ["## Claims", markdown(("claim", "bound", "ratio", "of best", ""), claims)]
        parts += [self.sections[name] for name in NAMES if name in self.sections]
        return "\n\n".join(parts) + "\n"


def _rows(text: str) -> list[Row]:
    return [tuple(cell.strip() for cell in row["cells"].split(" | ")) for row in _CELLS.finditer(text)]


def _dated(section: str, day: str) -> str:
    """A section with its day: that of the whole page, before each section had its own."""
    return _WHEN.sub(lambda found: found[0] if found["dated"] else f"rounds, on {day}", section, count=1)
