"""What a guard reports, under which names, and to whom; and which exceptions go on to the caller."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TypeAlias

from penstock.spec.violations import RuleViolation

Report: TypeAlias = Callable[[RuleViolation], None]
"""A function that gets every violation, on the thread that noticed it. It should return quickly."""

Propagates: TypeAlias = Callable[[BaseException], bool]
"""A function that tells whether an exception leaves a guard after it was reported."""

_log = logging.getLogger("penstock.spec")


def log_violation(violation: RuleViolation) -> None:
    """Write a violation to the logger ``penstock.spec`` at level ERROR.

    The record carries the number of the rule as ``record.rule``, for filters and formatters, and the
    exception behind the violation if there is one.
    """
    _log.error("%s", violation, exc_info=violation.__cause__, extra={"rule": violation.rule})


def dependable(report: Report | None) -> Report:
    """Return a report function that raises no ``Exception``: a broken one must not break the guard."""
    if report is None:
        return log_violation

    def report_or_log(violation: RuleViolation) -> None:
        try:
            report(violation)
        except BaseException as error:
            log_violation(violation)
            _log.exception("The report function given to strict() failed: %r", report)
            if propagates(error):
                is_new(error)  # marks it: the sides that it passes are not to blame
                raise

    return report_or_log


def propagates(error: BaseException) -> bool:
    """Tell whether an exception leaves the guard after it was reported.

    ``KeyboardInterrupt``, ``SystemExit`` and their kind are meant for the program as a whole. A
    ``CancelledError`` is not: signals are plain calls, in which no task can be cancelled, so it is treated
    like any other error.
    """
    if isinstance(error, Exception):
        return False
    # If one was raised, asyncio has been imported; this module does not import it itself.
    exceptions = sys.modules.get("asyncio.exceptions")
    return exceptions is None or not isinstance(error, exceptions.CancelledError)


def is_new(error: BaseException, leaves: Propagates = propagates) -> bool:
    """Tell whether an exception has not been reported yet, and mark it as reported.

    An exception that goes on passes through calls of both sides, and of other guards, on its way up. Only
    the side that raised it is to blame.
    """
    if not leaves(error):
        return True
    reported = getattr(error, "_penstock_reported", False)
    error._penstock_reported = True  # type: ignore[attr-defined]
    return not reported


class Guard:
    """The base of all guards; its ``repr`` is ``strict(…)``."""

    __slots__ = ("_guarded",)

    def __init__(self, guarded: object) -> None:
        self._guarded = name_of(guarded)

    def __repr__(self) -> str:
        return f"strict({self._guarded})"


def name_of(obj: object) -> str:
    """Return what to call an object in a message: a guard by what it guards, others by their type."""
    if isinstance(obj, Guard):
        return repr(obj)
    return obj.__name__ if isinstance(obj, type) else type(obj).__name__


def beyond_demand(source: str, sink: str, requested: int) -> RuleViolation:
    """One element more came than was requested (§1.1)."""
    return RuleViolation(
        "1.1",
        f"{source} sent {sink} element number {requested + 1}, but only {requested} had been requested",
        "Count what request(n) allows and keep back what goes beyond; the element was dropped and the "
        "Subscription cancelled",
    )


def overlapping_signal(source: str, sink: str) -> RuleViolation:
    """A signal came while another thread was still signalling (§1.3)."""
    return RuleViolation(
        "1.3",
        f"{source} signalled {sink} while another thread was still inside a signal",
        "Let one thread at a time signal, for example through a queue; the guard delivers this one later",
    )


def signal_after_end(source: str, sink: str, signal: str) -> RuleViolation:
    """A signal came after ``on_error`` or ``on_complete`` (§1.7)."""
    return RuleViolation(
        "1.7",
        f"{source} sent {signal} to {sink} after it had ended the stream",
        "Remember that the end was sent, and send nothing afterwards; the signal was dropped",
    )


def signal_before_subscription(source: str, sink: str, signal: str) -> RuleViolation:
    """A signal came before ``on_subscribe`` (§1.9)."""
    return RuleViolation(
        "1.9",
        f"{source} sent {signal} to {sink} before on_subscribe",
        "Call on_subscribe with a Subscription first, also when there is nothing to send or to serve",
    )


def subscribe_raised(source: str, sink: str, error: BaseException) -> RuleViolation:
    """``subscribe`` raised instead of signalling (§1.9)."""
    return _caused(
        error,
        "1.9",
        f"{source}.subscribe raised {error!r} instead of telling {sink}",
        "Call on_subscribe and then on_error with the exception, and return normally",
    )


def subscribed_twice(source: str, sink: str) -> RuleViolation:
    """A Subscriber was subscribed again while its first Subscription is active (§1.10)."""
    return RuleViolation(
        "1.10",
        f"a {sink} was subscribed to {source} again while its first Subscription is active",
        "Make a new Subscriber for each call of subscribe; the second call was ignored",
    )


def called_during_end(sink: str, call: str) -> RuleViolation:
    """The Subscription was used from within ``on_complete`` or ``on_error`` (§2.3)."""
    return RuleViolation(
        "2.3",
        f"{sink} called {call} on its Subscription while it handled the end of the stream",
        "After on_complete and on_error there is nothing to request or to cancel; leave the call out",
    )


def overlapping_requests(sink: str) -> RuleViolation:
    """``request`` was called while another thread was still inside ``request`` (§2.7)."""
    return RuleViolation(
        "2.7",
        f"{sink} called request while another of its threads was still inside request",
        "Let one thread at a time use the Subscription; the guard passes the requests on one by one",
    )


def second_subscription(source: str, sink: str) -> RuleViolation:
    """``on_subscribe`` was called again (§2.12)."""
    return RuleViolation(
        "2.12",
        f"{source} called on_subscribe on {sink}, which had been called before",
        "Subscribe a new Subscriber each time; the second Subscription was cancelled as §2.5 demands",
    )


def subscriber_raised(sink: str, signal: str, error: BaseException) -> RuleViolation:
    """A method of the Subscriber raised (§2.13)."""
    return _caused(
        error,
        "2.13",
        f"{sink}.{signal} raised {error!r}",
        "Catch the exception and call cancel on the Subscription; the Subscription counts as cancelled now",
    )


def cancel_raised(source: str, error: BaseException) -> RuleViolation:
    """``cancel`` raised (§3.15)."""
    return _caused(
        error,
        "3.15",
        f"the Subscription of {source} raised {error!r} from cancel",
        "Catch the exception inside cancel; the Subscriber that cancels cannot handle it",
    )


def request_raised(source: str, n: object, error: BaseException) -> RuleViolation:
    """``request`` raised (§3.16)."""
    return _caused(
        error,
        "3.16",
        f"the Subscription of {source} raised {error!r} from request({n!r})",
        "Catch the exception inside request and send it to on_error",
    )


def _caused(error: BaseException, rule: str, happened: str, remedy: str) -> RuleViolation:
    violation = RuleViolation(rule, happened, remedy)
    violation.__cause__ = error
    return violation
