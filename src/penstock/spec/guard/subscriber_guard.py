"""``strict(subscriber)``: a Subscriber that may be given to any Publisher."""

from __future__ import annotations

from typing import TypeVar

from penstock.spec.guard.conversation import Conversation
from penstock.spec.guard.reporting import Report, dependable
from penstock.spec.interfaces import Subscriber
from penstock.spec.violations import check_subscriber

T = TypeVar("T")


class StrictSubscriber(Conversation[T]):
    """A guard around a Subscriber: the Publisher cannot be hurt by it, nor it by the Publisher.

    Like the Subscriber inside, it is good for one Subscription (§2.12).
    """

    __slots__ = ()

    def __init__(self, subscriber: Subscriber[T], report: Report | None = None) -> None:
        """Guard ``subscriber``; violations go to ``report``, or to the log."""
        check_subscriber(subscriber)
        super().__init__(subscriber, dependable(report), source="the Publisher", guards_subscriber=True)
