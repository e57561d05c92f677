"""Legal subjects that are slow, or have threads of their own, at the places where a kit is easily wrong."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.tck import Environment, PublisherVerification, SubscriberWhiteboxVerification, run
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import RangePublisher, SequenceSubscription, Signal
from tests.tck.legal.subscribers import AsksOnItsOwnThread
from tests.tck.loaded import about_leaving, working_for

SPEC101 = "test_required_spec101_subscription_request_must_result_in_the_correct_number_of_produced_elements"
SPEC313 = (
    "test_required_spec313_cancel_must_make_the_publisher_eventually_drop_all_references_to_the_subscriber"
)


def verification(create: Callable[[int], Any], **settings: Any) -> type[PublisherVerification]:
    made = {"create_publisher": lambda self, elements: create(elements), **settings}
    return type("TestSubject", (PublisherVerification,), made)


def failures(kind: Any, only: Callable[[str], bool]) -> list[str]:
    return [f"{result.test}: {result.message}" for result in run(kind, only) if result.verdict == "fail"]


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [25, 30, 35])
def test_an_element_that_is_worked_on_when_the_subscriber_leaves_may_come(milliseconds: int) -> None:
    assert failures(working_for(milliseconds), about_leaving) == []


class HoldsOneBack(RangePublisher):
    """Sends an element that was on its way only when a request has been made after cancel."""

    class Subscription(ThreadedPublisher.Subscription):
        def __init__(self, subscriber: Any, elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.too_late = threading.Event()

        def request(self, n: int, /) -> None:
            if self.done:
                self.too_late.set()
            super().request(n)

        def deliver(self, signal: Signal) -> None:
            # It was asked for before cancel, and is delivered after it: §2.8.
            self.too_late.wait(0.02)
            signal()


def test_what_was_asked_for_before_cancel_may_come_after_a_request_that_does_nothing() -> None:
    assert failures(verification(HoldsOneBack), lambda name: "_spec305_cancel_must_be_safe" in name) == []


class RequestsAgain(RangePublisher):
    """Serves what is asked for after cancel, which nobody may do."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            if not self.done:
                self.served = self.subscriber
            self.done, self.subscriber = False, self.served
            super().request(n)


def test_what_is_asked_for_after_cancel_must_not_come() -> None:
    (found,) = failures(verification(RequestsAgain), lambda name: "_spec305_cancel_must_be_safe" in name)

    assert "§3.6 violated: element 6 came, 5 were requested before cancel() and more after it" in found


@pytest.mark.parametrize("attempt", range(3))
def test_a_puppet_on_the_thread_of_the_kit_does_not_overlap_with_the_subscriber(attempt: int) -> None:
    kind = type(
        "TestSubject",
        (SubscriberWhiteboxVerification,),
        {"create_subscriber": lambda self, probe: AsksOnItsOwnThread(probe)},
    )

    assert failures(kind, lambda name: True) == []


def test_a_hook_that_makes_subjects_slowly_has_time_of_its_own() -> None:
    def slowly(elements: int) -> Any:
        # Longer than a signal may take, on any machine.
        threading.Event().wait(3.1)
        return RangePublisher(elements)

    kind = verification(slowly, environment=Environment(timeout=3), profile="sync")

    assert failures(kind, lambda name: name == SPEC101) == []


def test_a_hook_that_never_comes_back_is_told_after_its_own_time() -> None:
    kind = verification(lambda elements: threading.Event().wait(30), environment=Environment(setup=0.1))

    (found,) = failures(kind, lambda name: name == SPEC101)

    assert found.splitlines()[0].endswith(
        "create_publisher(5) did not return within 0.1 s (expected a Publisher)"
    )


class KeptElsewhere(RangePublisher):
    """Its Subscribers are also known to another runtime, which lets go when it collects garbage there."""

    there: list[Any] = []  # noqa: RUF012

    def subscribe(self, subscriber: Any, /) -> None:
        if subscriber is not None:
            self.there.append(subscriber)
        super().subscribe(subscriber)


def test_garbage_can_be_collected_in_another_runtime() -> None:
    def collect_garbage(self: Any) -> None:
        KeptElsewhere.there.clear()
        gc.collect()

    settings: dict[str, Any] = {"profile": "sync", "environment": Environment(gc=0.1)}
    (found,) = failures(verification(KeptElsewhere, **settings), lambda name: name == SPEC313)
    assert "§3.13 violated" in found

    kind = verification(KeptElsewhere, collect_garbage=collect_garbage, **settings)
    assert failures(kind, lambda name: name == SPEC313) == []
