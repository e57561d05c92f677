"""Running a verification without pytest, and what comes out of it."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.tck.naming import Kind, kind_of, rule_of
from penstock.tck.verdicts import NotCheckable, NotPromised
from penstock.tck.verification import Verification, names_of_tests

Verdict = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one test said about one subject.

    ``rule`` is the number of the rule or ``"setup"``. ``expected`` says of a skip that nobody has to worry:
    the rule cannot be checked or was not promised, or the test class names the test in ``expected_skips``.
    """

    subject: str
    test: str
    rule: str
    kind: Kind
    verdict: Verdict
    message: str
    seconds: float
    expected: bool = True

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


def run(verification: type[Verification], only: Callable[[str], bool] | None = None) -> Iterator[Result]:
    """Run the tests of a verification one by one, and yield what each says; no test framework is needed.

    ``only`` chooses tests by name. Every test has an object of its own, as under pytest.
    """
    for name in names_of_tests(verification):
        if only is None or only(name):
            yield _run_one(verification, name)


def _run_one(verification: type[Verification], name: str) -> Result:
    verdict: Verdict = "pass"
    message, expected = "", True
    start = time.perf_counter()
    try:
        getattr(verification(), name)()
    except unittest.SkipTest as skip:
        verdict, message, expected = "skip", str(skip), is_expected(verification, name, skip)
    except Exception as error:
        verdict = "fail"
        message = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    rule = rule_of(name) or ""
    subject = verification.subject_name()
    return Result(subject, name, rule, kind_of(name), verdict, message, seconds, expected)


def is_expected(verification: type[Verification], name: str, skip: BaseException) -> bool:
    """Tell whether a skip may happen under ``--rs-strict``."""
    if isinstance(skip, (NotCheckable, NotPromised)):
        return True
    return any(
        name.startswith(f"test_{start.removeprefix('test_')}") for start in verification.expected_skips
    )
