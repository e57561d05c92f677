"""The runner: the tests of a verification without pytest, their results, and a line of progress."""

from __future__ import annotations

import shutil
import threading
import time
import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TextIO

from penstock.tck.caller import is_from_outside
from penstock.tck.evidence import described
from penstock.tck.names import Kind, kind_of, rule_of
from penstock.tck.verdicts import NotCheckable, NotPromised
from penstock.tck.verification import Verification, forget_failed_setup, names_of_tests

Verdict = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test of one subject.

    ``rule`` is the number of the rule or ``"setup"``. ``expected`` is true for a skip without
    consequences: the rule cannot be checked or was not promised, or ``expected_skips`` names the test.
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
    """Run the tests of a verification and yield their results; no test framework is needed.

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
    except BaseException as error:
        if is_from_outside(error):
            raise
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


EVERY: Final[float] = 10.0
"""If the output is not a terminal, a line is written every so many seconds."""
_REDRAW = 0.5


class ProgressLine:
    """Shows the progress of a run: one changing line on a terminal, elsewhere a line now and then."""

    def __init__(self, names: Sequence[str], to: TextIO | None, *, every: float = EVERY) -> None:
        """Write to ``to`` about the tests ``names``, in this order; ``None`` if there is no output."""
        self._names = names
        self._to = to
        self._every = every
        self._on_terminal = to is not None and not to.closed and to.isatty()
        self._done = self._failed = 0
        self._began = time.monotonic()
        self._over = threading.Event()

    def over(self, results: Iterable[Result]) -> Iterator[Result]:
        """Yield the results, and show the progress meanwhile."""
        # A test may take long, so another thread writes the line.
        teller = threading.Thread(target=self._tell, name="tck-progress", daemon=True)
        teller.start()
        try:
            for result in results:
                self._done += 1
                self._failed += result.verdict == "fail"
                yield result
        finally:
            self._over.set()
            teller.join()
            if self._on_terminal:
                self._write("\r\033[K")

    @property
    def line(self) -> str:
        """Where the run is now."""
        name = self._names[min(self._done, len(self._names) - 1)]
        rule = rule_of(name)
        label = f"§{rule}" if rule and rule[0].isdigit() else "set-up"
        failed = f", {self._failed} failed" if self._failed else ""
        took = time.monotonic() - self._began
        return f"{self._done} of {len(self._names)} tests{failed}, {took:.0f} s: {label} {name}"

    def _tell(self) -> None:
        while not self._over.wait(_REDRAW if self._on_terminal else self._every):
            if self._on_terminal:
                width = shutil.get_terminal_size().columns
                self._write(f"\r{self.line[: width - 1]}\033[K")
            else:
                self._write(f"{self.line}\n")

    def _write(self, text: str) -> None:
        if self._to is None:
            return
        try:
            self._to.write(text)
            self._to.flush()
        except (OSError, ValueError):
            # The output was closed; the tests go on.
            self._over.set()
