"""A test class that is not set up well is told so once, clearly, and with a hint."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.tck import (
    CAMEL_CASE,
    Environment,
    PublisherVerification,
    Result,
    SubscriberBlackboxVerification,
    Verification,
    run,
)
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import RangePublisher
from tests.tck.subjects import CamelPublisher, CamelSubscriber, RSocketPublisher

SPEC101 = "test_required_spec101_subscription_request_must_result_in_the_correct_number_of_produced_elements"


def publishers(create: Any, **settings: Any) -> type[PublisherVerification]:
    made = {
        "create_publisher": lambda self, elements: create(elements),
        "environment": Environment(timeout=10),
        **settings,
    }
    return type("TestSubject", (PublisherVerification,), made)


def subscribers(create: Any, **settings: Any) -> type[SubscriberBlackboxVerification]:
    made = {"create_subscriber": lambda self: create(), "profile": "sync", **settings}
    return type("TestSubject", (SubscriberBlackboxVerification,), made)


def only_failure(kind: type[Verification]) -> Result:
    """The one failure of a run, in which all others are skipped."""
    results = list(run(kind))
    (failure,) = [result for result in results if result.verdict == "fail"]
    assert len(results) > 20
    others = [result for result in results if result is not failure and not result.message.startswith("not ")]
    # Those that look at the settings need no subject, nor do those of a promise that was not made.
    assert all(result.rule in ("setup", "1.11", "1.12") for result in others)
    assert not any(result.expected for result in results if result.message.startswith("not run"))
    return failure


@pytest.mark.parametrize(
    ("create", "says"),
    [
        (lambda elements: None, "create_publisher(1) returned None (expected a Publisher)"),
        (
            lambda elements: RangePublisher,
            "create_publisher(1) returned the class RangePublisher, not one of its",
        ),
        (lambda elements: 3, "create_publisher(1) returned 3, which has no subscribe (expected a Publisher)"),
    ],
)
def test_a_hook_that_makes_no_publisher_is_one_failure(create: Any, says: str) -> None:
    failure = only_failure(publishers(create))

    assert failure.headline.startswith(says)
    assert failure.rule == "setup"


def test_a_hook_that_makes_no_subscriber_is_one_failure() -> None:
    failure = only_failure(subscribers(lambda: object()))

    assert (
        "which has no on_subscribe, on_next, on_error, on_complete (expected a Subscriber)"
        in failure.headline
    )


def test_a_new_run_tries_again() -> None:
    lucky = False

    def create(elements: int) -> Any:
        return RangePublisher(elements) if lucky else None

    kind = publishers(create, profile="sync")
    only_failure(kind)
    lucky = True

    assert [result.verdict for result in run(kind, lambda name: name == SPEC101)] == ["pass"]


def test_a_hook_that_fails_for_some_sizes_fails_only_what_needs_them() -> None:
    def create(elements: int) -> Any:
        if elements == 5:
            raise LookupError("five is too many")
        return RangePublisher(elements)

    failed = [result.test for result in run(publishers(create, profile="sync")) if result.verdict == "fail"]

    assert SPEC101 in failed
    assert len(failed) < 5


def test_a_failed_publisher_that_cannot_be_made_fails_only_what_needs_it() -> None:
    def create_failed_publisher(self: Any) -> Any:
        raise LookupError("it never fails")

    kind = publishers(RangePublisher, profile="sync", create_failed_publisher=create_failed_publisher)
    results = list(run(kind))

    failed = [result for result in results if result.verdict == "fail"]
    assert failed
    assert all("create_failed_publisher() raised LookupError: it never fails" in r.message for r in failed)
    assert sum(result.verdict == "pass" for result in results) > 40


# ---------------------------------------------------------------- spellings

CAMEL = (
    "hint: the subject spells the methods in camelCase: say spelling = CAMEL_CASE, or --spelling camelCase"
)
SNAKE = "hint: the subject spells the methods in snake_case"
RSOCKET = "hint: the subject tells with an element whether it is the last: say spelling = RSOCKET"


def message(kind: type[Verification], test: str) -> str:
    (result,) = run(kind, lambda name: name == test)
    assert result.verdict == "fail"
    return result.message


@pytest.mark.parametrize("inner", [RangePublisher, ThreadedPublisher])
def test_a_publisher_in_camel_case_gets_a_hint(inner: Any) -> None:
    assert CAMEL in message(publishers(lambda elements: CamelPublisher(inner(elements))), SPEC101)


def test_a_publisher_that_is_not_in_camel_case_gets_the_other_hint() -> None:
    assert SNAKE in message(publishers(RangePublisher, spelling=CAMEL_CASE), SPEC101)


def test_a_publisher_of_rsocket_gets_a_hint() -> None:
    assert RSOCKET in message(publishers(RSocketPublisher), SPEC101)


def test_a_subscriber_in_camel_case_gets_a_hint() -> None:
    failure = only_failure(subscribers(CamelSubscriber))

    assert "which has no on_subscribe" in failure.headline
    assert CAMEL in failure.message


def test_a_publisher_that_looks_for_both_spellings_is_left_alone() -> None:
    class Bilingual(RangePublisher):
        def subscribe(self, subscriber: Any, /) -> None:
            assert subscriber is None or not hasattr(subscriber, "onNext")
            super().subscribe(subscriber)

    assert [
        result.verdict for result in run(publishers(Bilingual, profile="sync")) if result.verdict == "fail"
    ] == []


# ---------------------------------------------------------------- limits of time


def test_a_run_ends_at_its_time_limit() -> None:
    released = threading.Event()

    class Slow(RangePublisher):
        class Subscription(RangePublisher.Subscription):
            def request(self, n: int, /) -> None:
                released.wait(60)

    kind = publishers(Slow, environment=Environment(timeout=60))
    began = time.monotonic()
    results = list(run(kind, time_limit=0.5))
    released.set()

    assert time.monotonic() - began < 30
    assert "the test took" in results[0].message
    assert results[-1].verdict == "skip"
    assert results[-1].message == "not run: the time limit of 0.5 s is over"
    assert not results[-1].expected


def test_a_subject_that_never_stops_signalling_ends_its_test_at_the_limit() -> None:
    over = threading.Event()

    class Chatters(RangePublisher):
        class Subscription(RangePublisher.Subscription):
            def request(self, n: int, /) -> None:
                threading.Thread(target=self.chatter, daemon=True).start()

            def chatter(self) -> None:
                while not over.wait(0.01):
                    self.subscriber.on_subscribe(self)

            def cancel(self) -> None:
                pass

    kind = publishers(Chatters, environment=Environment(timeout=0.3, limit=1))
    began = time.monotonic()
    (result,) = run(kind, lambda name: "_spec312_cancel_must_make" in name)
    over.set()

    assert result.verdict == "fail"
    assert time.monotonic() - began < 30


def test_an_attribute_that_does_not_return_is_waited_for_no_longer_than_the_hook() -> None:
    never = threading.Event()

    class Waits:
        @property
        def subscribe(self) -> Any:
            never.wait()

    class TestWaits(PublisherVerification):
        environment = Environment(setup=0.1)

        def create_publisher(self, elements: int) -> Any:
            return Waits()

    try:
        said, *others = run(TestWaits, lambda name: "_spec101_" in name or "_spec102_" in name)
    finally:
        never.set()

    assert said.headline == "create_publisher(5) did not return within 0.1 s (expected a Publisher)"
    assert [other.verdict for other in others] == ["skip"]
