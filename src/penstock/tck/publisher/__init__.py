"""The verification of a Publisher, in parts: one module for each group of rules."""

from __future__ import annotations

from penstock.tck.publisher.cancellation import CancellingTests
from penstock.tck.publisher.contention import ContendingTests
from penstock.tck.publisher.demand import FlowingTests, RequestingTests
from penstock.tck.publisher.interference import InterferingTests
from penstock.tck.publisher.lifecycle import EndingTests, SubscribingTests
from penstock.tck.publisher.multicast import SharingTests

__all__ = ["PublisherVerification"]


class PublisherVerification(
    FlowingTests,
    EndingTests,
    SubscribingTests,
    SharingTests,
    RequestingTests,
    CancellingTests,
    InterferingTests,
    ContendingTests,
):
    """Verifies a Publisher, and the Subscriptions that it gives away.

    A test class says how to make one, and inherits the tests::

        class TestRange(PublisherVerification):
            def create_publisher(self, elements):
                return RangePublisher(0, elements)

            def create_failed_publisher(self):
                return FailedPublisher(OSError("no such file"))

    ``create_publisher`` is called anew for each test, with up to 10 000 as ``elements``.
    """
