"""What the kit says about a broken subject, and that no subject can harm the test run."""

from __future__ import annotations

import threading
import time
import unittest
from typing import Any

import pytest

from penstock.tck import (
    Environment,
    NotCheckable,
    OptionalNotMet,
    PublisherVerification,
    Result,
    SubscriberWhiteboxVerification,
    Verification,
    Violation,
    run,
)
from tests.tck.broken.publishers_cancel import BadRequestPoorMessage, CancelIgnored, CompletesLongAfterCancel
from tests.tck.broken.publishers_demand import IgnoresDemand, OneExtra
from tests.tck.broken.publishers_lifecycle import SecondSubscriberRaises
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import FailedPublisher, RangePublisher
from tests.tck.legal.subscribers import ReferenceSubscriber
from tests.tck.subjects import NeverReturns, NeverStops

SPEC101 = "test_required_spec101_subscription_request_must_result_in_the_correct_number_of_produced_elements"
SPEC307 = "test_required_spec307_after_subscription_is_cancelled_additional_cancelations_must_be_nops"
SPEC309_MESSAGE = (
    "test_optional_spec309_request_negative_number_may_signal_illegal_argument_exception_"
    "with_specific_message"
)
SPEC313 = (
    "test_required_spec313_cancel_must_make_the_publisher_eventually_drop_all_references_to_the_subscriber"
)


def verification(publisher: Any, **settings: Any) -> type[PublisherVerification]:
    made: dict[str, Any] = {
        "environment": Environment(timeout=10),
        "create_publisher": lambda self, elements: publisher(elements),
        **settings,
    }
    return type("TestSubject", (PublisherVerification,), made)


def failure(kind: type[Verification], test: str) -> Violation:
    with pytest.raises(Violation) as raised:
        getattr(kind(), test)()
    return raised.value


# ---------------------------------------------------------------- messages


def test_a_failure_says_what_happened_what_was_expected_and_shows_the_signals() -> None:
    violation = failure(verification(OneExtra), SPEC101)

    first, *rest = str(violation).splitlines()
    assert first == (
        "§1.1 violated: element 2 came, 1 were requested [thread tck-caller] "
        "(expected no element without demand)"
    )
    assert violation.rule == "1.1"
    assert "signals, in their order:" in rest
    log = "\n".join(rest[rest.index("signals, in their order:") + 1 :])
    assert (
        log.index("→ subscriber: request(1)") < log.index("← subscriber: on_next(1)") < log.index("!! §1.1")
    )
    assert "tck-caller" in log


def test_whatever_a_test_is_about_the_probe_watches_everything() -> None:
    assert failure(verification(OneExtra), SPEC313).rule == "1.1"


def test_what_the_test_itself_finds_comes_after_what_the_probe_noticed() -> None:
    violation = failure(verification(IgnoresDemand), SPEC101)

    assert violation.rule == "1.1"
    assert "also §1.1 violated: 5 elements came (expected exactly 0)" in str(violation)


def test_a_long_run_is_shown_from_both_ends() -> None:
    violation = failure(
        verification(CancelIgnored), "test_required_spec108_signals_must_cease_after_cancel_in_on_next"
    )

    assert len(str(violation).splitlines()) < 100
    assert " more …" in str(violation)


def test_a_late_signal_fails_the_test_that_caused_it() -> None:
    listens_long = Environment(timeout=10, no_signals=2)  # the late thread may have to wait for its turn

    assert failure(verification(CompletesLongAfterCancel, environment=listens_long), SPEC307).rule == "3.7"


# ---------------------------------------------------------------- optional and required


def test_what_should_be_done_and_is_not_is_a_skip() -> None:
    with pytest.raises(OptionalNotMet, match=r"optional: §3\.9 violated: the message is"):
        getattr(verification(BadRequestPoorMessage)(), SPEC309_MESSAGE)()


def test_a_must_that_an_optional_test_comes_upon_is_a_failure() -> None:
    kind = verification(SecondSubscriberRaises)

    assert failure(kind, "test_optional_spec111_may_support_multi_subscribe").rule == "1.9"


def test_a_skip_is_expected_if_nothing_can_be_done_about_it() -> None:
    results = {result.test: result for result in run(verification(RangePublisher, profile="sync"))}
    unexpected = {
        name for name, result in results.items() if result.verdict == "skip" and not result.expected
    }

    # Nobody said how to make a failed publisher.
    assert {name.split("_")[2] for name in unexpected} == {"spec104", "spec109"}


def test_a_skip_is_expected_if_the_test_class_says_so() -> None:
    kind = verification(
        RangePublisher, profile="sync", expected_skips=["optional_spec104", "required_spec109_may"]
    )

    assert [result.test for result in run(kind) if result.verdict == "skip" and not result.expected] == []


# ---------------------------------------------------------------- dangers


@pytest.mark.parametrize("publisher", [NeverReturns, NeverStops])
def test_a_subject_that_does_not_come_back_fails_and_does_not_hang(publisher: Any) -> None:
    start = time.monotonic()

    violation = failure(verification(publisher, environment=Environment(timeout=2)), SPEC101)

    assert violation.rules[0] in ("3.16", "1.1")
    assert time.monotonic() - start < 30


def test_a_subject_that_does_not_stop_is_stopped() -> None:
    def of_the_kit() -> set[threading.Thread]:
        # What an earlier test has left behind may start other threads meanwhile.
        return {thread for thread in threading.enumerate() if thread.name.startswith("tck-")}

    before = of_the_kit()

    failure(verification(NeverStops), SPEC101)

    deadline = time.monotonic() + 60
    while (left := of_the_kit() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == set()


def test_a_declared_profile_has_to_be_true() -> None:
    violation = failure(verification(ThreadedPublisher, profile="sync"), SPEC101)

    assert "came on a thread of its own" in str(violation)
    assert 'profile = "threads" or "asyncio"' in str(violation)


def test_an_unknown_profile_is_told() -> None:
    with pytest.raises(ValueError, match="profile must be one of sync, threads, asyncio, not 'fibers'"):
        getattr(verification(RangePublisher, profile="fibers")(), SPEC101)()


def test_an_exception_of_create_publisher_is_the_failure() -> None:
    def no_luck(elements: int) -> Any:
        raise LookupError("no such source")

    violation = failure(verification(no_luck), SPEC101)

    assert violation.headline.startswith(
        "create_publisher(5) raised LookupError: no such source at test_watch"
    )
    assert violation.rule == ""
    assert isinstance(violation.__cause__, LookupError)
    assert "in no_luck" in violation.trace


def test_a_test_class_that_says_nothing_is_told_what_to_say() -> None:
    class Says(PublisherVerification):
        """Nothing."""

    violation = failure(Says, SPEC101)

    assert "Says must say how to create_publisher(elements)" in str(violation)


# ---------------------------------------------------------------- settings


def test_wrong_settings_fail() -> None:
    longest = verification(RangePublisher, max_elements_from_publisher=-1)
    deepest = verification(RangePublisher, bounded_depth_of_on_next_and_request_recursion=0)

    failure(longest, "test_required_validate_max_elements_from_publisher")
    failure(deepest, "test_required_validate_bounded_depth_of_on_next_and_request_recursion")


def test_environment_variables_win() -> None:
    variables = {"PENSTOCK_TCK_TIMEOUT": "7", "PENSTOCK_TCK_NO_SIGNALS": "0.5", "PENSTOCK_TCK_GC": "3"}

    found = Environment(timeout=1).with_variables(variables)

    assert found == Environment(timeout=7, no_signals=0.5, gc=3)
    assert Environment(timeout=1).with_variables({}) == Environment(timeout=1)


def test_the_variables_are_read_for_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TCK_TIMEOUT", "0.1")
    start = time.monotonic()

    failure(verification(NeverReturns, environment=Environment(timeout=60)), SPEC101)

    assert time.monotonic() - start < 20


@pytest.mark.parametrize("wrong", ["soon", "0", "-1"])
def test_a_variable_that_is_no_time_is_told(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"PENSTOCK_TCK_TIMEOUT|Environment\.timeout"):
        Environment().with_variables({"PENSTOCK_TCK_TIMEOUT": wrong})


# ---------------------------------------------------------------- without pytest


def test_it_runs_without_a_test_framework() -> None:
    kind = verification(RangePublisher, profile="sync", subject="numbers")

    results = list(run(kind, lambda name: "_spec101_" in name or "_spec110_" in name))

    assert [(r.subject, r.rule, r.kind, r.verdict) for r in results] == [
        ("numbers", "1.1", "required", "pass"),
        ("numbers", "1.10", "untested", "skip"),
    ]
    assert all(isinstance(result, Result) and result.seconds >= 0 for result in results)


def test_it_runs_under_unittest() -> None:
    class Suite(PublisherVerification, unittest.TestCase):
        profile = "sync"

        def create_publisher(self, elements: int) -> Any:
            return RangePublisher(elements)

        def create_failed_publisher(self) -> Any:
            return FailedPublisher()

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Suite).run(outcome)

    assert outcome.wasSuccessful()
    assert outcome.testsRun > 40
    assert 0 < len(outcome.skipped) < 5


def test_the_bases_are_not_collected_by_pytest() -> None:
    assert not PublisherVerification.__name__.startswith("Test")


# ---------------------------------------------------------------- puppets


class GoesPast:
    """A puppet that calls the Subscription itself, as many are written."""

    def __init__(self, subscription: Any) -> None:
        self.trigger_request = subscription.request
        self.signal_cancel = subscription.cancel


class HandsOverItsSubscription(ReferenceSubscriber):
    def begin(self) -> None:
        self.probe.register_on_subscribe(GoesPast(self.subscription))


def test_a_puppet_that_goes_past_the_subscriber_is_not_asked_after_the_end() -> None:
    def verdicts(**settings: Any) -> list[str]:
        made = {"create_subscriber": lambda self, probe: HandsOverItsSubscription(probe), **settings}
        kind = type("TestSubject", (SubscriberWhiteboxVerification,), {"profile": "sync", **made})
        return [result.verdict for result in run(kind, lambda name: "_spec204_" in name)]

    assert verdicts() == ["fail"]
    assert verdicts(puppet_is_the_subscriber=False) == ["pass"]


def test_what_cannot_be_checked_says_why() -> None:
    name = "test_untested_spec110_reject_a_subscription_request_if_the_same_subscriber_subscribes_twice"
    subject = verification(RangePublisher)()

    with pytest.raises(NotCheckable, match=r"not checked: §1\.10"):
        getattr(subject, name)()
