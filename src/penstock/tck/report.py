"""The report: the results of all tests sorted by rule and subject, and the settings they were run with."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from penstock.spec import RULES, VERSIONS
from penstock.tck.names import NOT_CHECKED, SETUP, python_name
from penstock.tck.runner import Result
from penstock.tck.verification import Verification

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
        """How many tests passed, failed and were skipped, and how many of the skips were unexpected."""
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


SETTINGS: Final[tuple[str, ...]] = (
    "profile",
    "fanout",
    "max_elements_from_publisher",
    "max_supported_subscribers",
    "bounded_depth_of_on_next_and_request_recursion",
    "does_coordinated_emission",
    "skip_stochastic_tests",
    "processor_buffer_size",
    "puppet_is_the_subscriber",
)
"""The attributes of a test class that say what its subject is like, where it has them."""


def _own_version() -> str:
    for distribution in ("penstock-streams", "penstock"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "not installed"


@dataclass(frozen=True, slots=True)
class About:
    """What one has to know to run the same tests again."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(
        default_factory=lambda: {
            "penstock": _own_version(),
            "specification": list(VERSIONS)[-1],
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(),
        }
    )

    @classmethod
    def of(cls, verifications: Iterable[type[Verification]]) -> About:
        """Say it of a run of these, now."""
        return cls({kind.subject_name(): settings_of(kind) for kind in verifications})

    @property
    def line(self) -> str:
        """All but the settings, in a line."""
        said = self.versions
        return (
            f"{self.date}; penstock.tck {said['penstock']}, Reactive Streams {said['specification']}, "
            f"{said['implementation']} {said['python']} on {said['platform']}."
        )


def settings_of(verification: type[Verification]) -> dict[str, Any]:
    """What a test class says about its subject, in plain values."""
    said: dict[str, Any] = {
        "verification": next(
            (kind.__name__ for kind in verification.__mro__ if kind.__module__.startswith("penstock.tck.")),
            verification.__name__,
        ),
        "spelling": verification.spelling.name,
        "environment": asdict(verification.environment.with_variables()),
        "none_error_type": verification.none_error_type.__name__,
        "illegal_request_error_type": verification.illegal_request_error_type.__name__,
        "expected_skips": sorted(verification.expected_skips),
    }
    return said | {name: getattr(verification, name) for name in SETTINGS if hasattr(verification, name)}
