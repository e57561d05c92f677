"""Where violations go: to the function the user gave, or else to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from penstock.spec.violations import RuleViolation

Report: TypeAlias = Callable[[RuleViolation], None]
"""A function that is told of every violation, on the thread that noticed it. It should be quick."""

_log = logging.getLogger("penstock.spec")


def log_violation(violation: RuleViolation) -> None:
    """Write a violation to the logger ``penstock.spec`` at level ERROR.

    The record carries the number of the rule as ``record.rule``, for filters and formatters, and the
    exception behind the violation if there is one.
    """
    _log.error("%s", violation, exc_info=violation.__cause__, extra={"rule": violation.rule})


def dependable(report: Report | None) -> Report:
    """Return a report function that never raises: the guard must hold even if the function is broken."""
    if report is None:
        return log_violation

    def report_or_log(violation: RuleViolation) -> None:
        try:
            report(violation)
        except Exception:
            log_violation(violation)
            _log.exception("The report function given to strict() failed: %r", report)

    return report_or_log
