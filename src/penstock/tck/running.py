"""Running a verification without pytest, and what comes out of it."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from penstock.tck.calling import CONTAINED
from penstock.tck.naming import Kind, kind_of, rule_of
from penstock.tck.traces import described
from penstock.tck.verdicts import NotCheckable, NotPromised
from penstock.tck.verification import Verification, forget_failed_setup, names_of_tests

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


def run(
    verification: type[Verification],
    only: Callable[[str], bool] | None = None,
    *,
    time_limit: float | None = None,
) -> Iterator[Result]:
    """Run the tests of a verification one by one, and yield what each says; no test framework is needed.

    ``only`` chooses tests by name. Every test has an object of its own, as under pytest. Tests that have not
    begun after ``time_limit`` seconds are skipped, which counts as unexpected; one that is under way fails.
    """
    forget_failed_setup(verification)
    names = [name for name in names_of_tests(verification) if only is None or only(name)]
    began = time.monotonic()
    for name in names:
        left = None if time_limit is None else time_limit - (time.monotonic() - began)
        if left is not None and left <= 0:
            message = f"not run: the time limit of {time_limit:g} s is over"
            yield _result(verification, name, "skip", message, 0.0, expected=False)
        else:
            yield _run_one(verification, name, left)


def _run_one(verification: type[Verification], name: str, limit: float | None) -> Result:
    verdict: Verdict = "pass"
    message, expected = "", True
    start = time.perf_counter()
    try:
        test = verification()
        if limit is not None:
            test.environment = replace(test.environment, limit=min(limit, test.environment.limit))
        getattr(test, name)()
    except unittest.SkipTest as skip:
        verdict, message, expected = "skip", str(skip), is_expected(verification, name, skip)
    except CONTAINED as error:
        verdict = "fail"
        message = str(error) if isinstance(error, AssertionError) else described(error)
    return _result(verification, name, verdict, message, time.perf_counter() - start, expected=expected)


def _result(
    verification: type[Verification],
    name: str,
    verdict: Verdict,
    message: str,
    seconds: float,
    *,
    expected: bool,
) -> Result:
    rule, subject = rule_of(name) or "", verification.subject_name()
    return Result(subject, name, rule, kind_of(name), verdict, message, seconds, expected)


def is_expected(verification: type[Verification], name: str, skip: BaseException) -> bool:
    """Tell whether a skip may happen under ``--rs-strict``."""
    if isinstance(skip, (NotCheckable, NotPromised)):
        return True
    return any(
        name.startswith(f"test_{start.removeprefix('test_')}") for start in verification.expected_skips
    )
