"""The results of all tests of all subjects, sorted by rule and subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.spec import RULES
from penstock.tck.naming import SETUP, python_name
from penstock.tck.not_checked import NOT_CHECKED
from penstock.tck.report.about import About
from penstock.tck.running import Result

JvmResults = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Cell:
    """What the tests of one rule say about one subject."""

    results: tuple[Result, ...]

    def count(self, verdict: str) -> int:
        """How many tests said this."""
        return sum(result.verdict == verdict for result in self.results)

    @property
    def verdict(self) -> str:
        """``fail`` if one test fails, else ``pass`` if one passes, else ``skip``; ``none`` without tests."""
        for verdict in ("fail", "pass", "skip"):
            if self.count(verdict):
                return verdict
        return "none"

    @property
    def text(self) -> str:
        """The verdict with its counts; a skip is never left out."""
        marks = {"fail": "✗", "pass": "✓", "skip": "–", "none": ""}
        words = {"fail": "failed", "pass": "passed", "skip": "skipped"}
        counts = [f"{self.count(verdict)} {word}" for verdict, word in words.items() if self.count(verdict)]
        return f"{marks[self.verdict]} {', '.join(counts)}".strip()


class Report:
    """All results, and what the JVM kit says about the same subjects where that is known."""

    def __init__(
        self, results: Iterable[Result], jvm: JvmResults | None = None, about: About | None = None
    ) -> None:
        """Sort ``results``; ``jvm`` has verdicts by subject and by the name of the test in the JVM kit.

        ``about`` says when, with what and with which settings the tests were run.
        """
        self.results = list(results)
        self.about_run = about or About()
        self._jvm = {
            subject: {python_name(name): verdict for name, verdict in verdicts.items()}
            for subject, verdicts in (jvm or {}).items()
        }

    @property
    def subjects(self) -> list[str]:
        """The names of the subjects, in the order in which they were tested."""
        return list(dict.fromkeys(result.subject for result in self.results))

    @property
    def rules(self) -> list[str]:
        """The rows: the set-up, and every rule of the specification, tested or not."""
        return [SETUP, *RULES]

    @property
    def counts(self) -> Counter[str]:
        """How many tests passed, failed and were skipped, and how many of the skips nobody expected."""
        counts = Counter(result.verdict for result in self.results)
        unexpected = sum(result.verdict == "skip" and not result.expected for result in self.results)
        return Counter({"pass": 0, "fail": 0, "skip": 0, "unexpected skip": unexpected}) + counts

    @property
    def summary(self) -> str:
        """The counts in a line."""
        counts = self.counts
        surprise = f" ({counts['unexpected skip']} of them unexpected)" if counts["unexpected skip"] else ""
        return f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped{surprise}"

    def cell(self, rule: str, subject: str) -> Cell:
        """What is known about one rule and one subject."""
        return Cell(tuple(r for r in self.results if r.rule == rule and r.subject == subject))

    def jvm_verdict(self, result: Result) -> str:
        """What the JVM kit says in the same test about the same subject, or an empty text."""
        return self._jvm.get(result.subject, {}).get(result.test, "")

    def compared(self) -> bool:
        """Whether there are results of the JVM kit at all."""
        return bool(self._jvm)

    def about(self, rule: str) -> str:
        """What a row is about: the rule in short, or why it is not checked."""
        if rule == SETUP:
            return "what the test class declares"
        reason = NOT_CHECKED.get(rule)
        return f"not checked: {reason}" if reason else RULES[rule].statement()

    def level(self, rule: str) -> str:
        """How strongly a rule binds."""
        return "" if rule == SETUP else str(RULES[rule].level)

    def by_subject(self) -> Iterator[tuple[str, list[Result]]]:
        """Every subject with its results."""
        for subject in self.subjects:
            yield subject, [result for result in self.results if result.subject == subject]


def rule_label(rule: str) -> str:
    """``§1.1``, or ``set-up``."""
    return "set-up" if rule == SETUP else f"§{rule}"
