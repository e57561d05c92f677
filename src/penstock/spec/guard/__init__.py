"""The guard: ``strict`` around a Publisher, a Subscriber or a Processor reports every broken rule.

Use it around code that you did not write, and in the tests of code that signals by hand::

    from penstock.spec import strict

    strict(publisher).subscribe(subscriber)         # the subscriber sees a legal stream in any case
    publisher.subscribe(strict(subscriber))         # the publisher is safe from the subscriber

Violations are logged to ``penstock.spec``, or given to a function: ``strict(publisher,
report=found.append)``.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from penstock.spec.guard.guards import StrictProcessor, StrictPublisher, StrictSubscriber
from penstock.spec.guard.reports import Guard, Propagates, Report, propagates
from penstock.spec.interfaces import Processor, Publisher, Subscriber

T = TypeVar("T")
R = TypeVar("R")


@overload
def strict(
    guarded: Processor[T, R], report: Report | None = None, *, propagates: Propagates = propagates
) -> Processor[T, R]: ...
@overload
def strict(
    guarded: Publisher[T], report: Report | None = None, *, propagates: Propagates = propagates
) -> Publisher[T]: ...
@overload
def strict(
    guarded: Subscriber[T], report: Report | None = None, *, propagates: Propagates = propagates
) -> Subscriber[T]: ...
def strict(guarded: Any, report: Report | None = None, *, propagates: Propagates = propagates) -> Any:
    """Return a guard of the same kind as ``guarded`` that lets only legal signals through.

    A guard checks the order of the signals, demand, overlapping calls, ``None`` and exceptions. It reports a
    violation to ``report``, by default to the logger ``penstock.spec``, and protects both sides: it drops a
    surplus element, ends a stream that cannot go on with ``on_error`` and the violation, and keeps exceptions
    of the Subscriber away from the Publisher.

    Around a Publisher the guard answers an illegal request itself (§3.9); around a Subscriber it passes it
    on, and watches in addition how the Subscriber uses its Subscription (§2.3, §2.7). Around a Processor it
    does both, one on each side. A guard that is guarded again is returned as it is.

    ``propagates`` tells which exceptions are raised to the caller, too, after they were reported. By default
    these are all but an ``Exception`` and a ``CancelledError``: they are meant for the program as a whole.
    """
    if isinstance(guarded, Guard):
        return guarded
    if isinstance(guarded, Processor):
        return StrictProcessor(guarded, report, propagates)
    if isinstance(guarded, Publisher):
        return StrictPublisher(guarded, report, propagates)
    if isinstance(guarded, Subscriber):
        return StrictSubscriber(guarded, report, propagates)
    raise TypeError(
        f"strict() guards a Publisher, a Subscriber or a Processor, not {guarded!r}, which has neither "
        "subscribe nor the four methods of a Subscriber."
    )


__all__ = ["Report", "StrictProcessor", "StrictPublisher", "StrictSubscriber", "strict"]
