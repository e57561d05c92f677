"""Where violations go: to the function the user gave, or else to the log; and where exceptions go on to."""

from __future__ import annotations

import logging
import sys
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
        except BaseException as error:
            log_violation(violation)
            _log.exception("The report function given to strict() failed: %r", report)
            if goes_on(error):
                is_new(error)  # not the fault of whoever it comes through
                raise

    return report_or_log


def goes_on(error: BaseException) -> bool:
    """Tell whether an exception leaves the guard after it was reported.

    An interrupt, an exit and their kind belong to whoever runs the program. A ``CancelledError`` does not:
    signals are plain calls, in which no task can be cancelled, so here it is an error like others.
    """
    if isinstance(error, Exception):
        return False
    # Whoever raises one has imported asyncio; this layer does without it.
    exceptions = sys.modules.get("asyncio.exceptions")
    return exceptions is None or not isinstance(error, exceptions.CancelledError)


def is_new(error: BaseException) -> bool:
    """Tell whether nobody has been blamed for an exception yet; whoever asks is about to do so.

    An exception that goes on leaves calls of both sides on its way up, and of other guards. Only the side
    that raised it is to blame.
    """
    if not goes_on(error):
        return True
    reported = getattr(error, "_penstock_reported", False)
    error._penstock_reported = True  # type: ignore[attr-defined]
    return not reported
