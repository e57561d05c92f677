"""What a test says when it does not simply pass: a violation, or one of several kinds of skip.

The skips are kinds of ``unittest.SkipTest``, which pytest and unittest both understand, so that the kit needs
neither of them.
"""

from __future__ import annotations

import unittest


class Violation(AssertionError):
    """The subject breaks a rule: ``rule`` is its number, ``happened`` and ``expected`` say how.

    The message goes on with whatever else was found in the same test, and with the signals in their order, so
    that it can be understood without running the test again.
    """

    def __init__(self, rule: str, happened: str, expected: str = "") -> None:
        """Say what ``happened``, what was ``expected`` instead, and which ``rule`` (``"1.1"``) says so.

        An empty rule stands for a test that is set up wrongly: no rule is broken, but nothing can be checked.
        """
        super().__init__(rule, happened, expected)
        self.rule = rule
        self.happened = happened
        self.expected = expected
        self.others: list[Violation] = []
        self.trace = ""
        """The traceback of the subject's exception, if there was one."""
        self.hints: list[str] = []
        self.log = ""

    @property
    def headline(self) -> str:
        """The violation in one line."""
        start = f"§{self.rule} violated: {self.happened}" if self.rule else self.happened
        return f"{start} (expected {self.expected})" if self.expected else start

    @property
    def rules(self) -> list[str]:
        """The number of every rule that was found broken in the test, this one's first."""
        return list(dict.fromkeys(v.rule for v in (self, *self.others) if v.rule))

    def __str__(self) -> str:
        lines = [self.headline, *(f"also {other.headline}" for other in self.others)]
        lines += [f"hint: {hint}" for hint in self.hints]
        for violation in (self, *self.others):
            if violation.trace:
                lines += ["the subject's traceback:", violation.trace]
        if self.log:
            lines += ["signals, in their order:", self.log]
        return "\n".join(lines)


class SetupFailed(Violation):
    """A hook of the test class did not do its part, so there is nothing to verify; no rule is broken."""

    def __init__(self, happened: str, expected: str) -> None:
        """Say what the hook did, and what was ``expected`` of it."""
        super().__init__("", happened, expected)


class NotApplicable(unittest.SkipTest):
    """What the test class declares rules this test out: too few elements, no failed Publisher, ..."""


class NotPromised(NotApplicable):
    """The test class does not promise what this test is about, and need not; such a skip is expected."""


class NotCheckable(NotApplicable):
    """No test can tell whether this rule is kept; the reason says why. Such a skip is always expected."""


class OptionalNotMet(unittest.SkipTest):
    """The subject does not do what it MAY or SHOULD do: no failure, but worth knowing."""

    def __init__(self, violation: Violation) -> None:
        """Tell what was not met."""
        super().__init__(f"optional: {violation}")
        self.violation = violation


class Rejected(Exception):
    """Raised by a Subscriber of the kit that breaks §2.13 on purpose; it comes back through the subject."""


class Runaway(Exception):
    """Thrown out of a signal into a subject that does not stop on its own, so that it ends after all."""
