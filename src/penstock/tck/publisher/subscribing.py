"""Publisher tests: what ``subscribe`` does."""

from __future__ import annotations

from typing import Any

from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
from penstock.tck.verdicts import NotApplicable, Violation
from penstock.tck.verification import check


class SubscribingTests(PublisherSubject):
    """§1.9 and §1.10: ``on_subscribe`` first, no exception, and an error for ``None``."""

    @check
    def test_required_spec109_subscribe_throw_npe_on_null_subscriber(self) -> None:
        """``subscribe(None)`` raises ``none_error_type`` at the caller: there is nobody else to tell."""
        publisher, wanted = self.publisher_of(0), self.none_error_type
        self.expect_raised(lambda: publisher.subscribe(None), "subscribe(None)", "1.9", wanted)

    @check
    def test_required_spec109_must_issue_on_subscribe_for_non_null_subscriber(self) -> None:
        """``on_subscribe`` comes once, before any other signal."""
        probe = self.subscribed(self.publisher_of(0))
        self.trial.settle()
        if not probe.signals[0].startswith("on_subscribe"):
            raise Violation("1.9", f"{probe.signals[0]} came first", "on_subscribe first")

    @check
    def test_required_spec109_may_reject_calls_to_subscribe_if_publisher_is_unable_or_unwilling_to_serve_them_rejection_must_trigger_on_error_after_on_subscribe(  # noqa: E501
        self,
    ) -> None:
        """A refusal is ``on_subscribe`` followed by ``on_error``; ``subscribe`` returns normally."""
        probe = Probe(self.trial)
        probe.subscribe_to(self.failed_publisher())
        probe.expect_error("1.9")
        self.trial.settle()
        if probe.subscription is None:
            raise Violation("1.9", "on_error came without on_subscribe", "on_subscribe before on_error")

    @check
    def test_required_spec109_subscribe_should_not_throw_non_fatal_throwable(self) -> None:
        """``subscribe`` returns normally, whether the Publisher works or has failed."""
        for elements in (1, 0):
            if elements <= self.max_elements_from_publisher:
                Probe(self.trial).subscribe_to(self.publisher_of(elements))
        try:
            failed = self.failed_publisher()
        except NotApplicable:
            return
        Probe(self.trial, "subscriber of the failed publisher").subscribe_to(failed)

    @check
    def test_required_spec109_must_answer_a_subscriber_that_comes_after_the_end(self) -> None:
        """Who comes when a stream is over is served, or refused: with ``on_subscribe`` and an end."""
        publisher = self.publisher_of(1, completes=True)
        first = self.subscribed(publisher, "first subscriber")
        first.request(2)
        first.expect_complete("1.5")
        self._expect_an_end(publisher, "on_complete")
        try:
            failed = self.failed_publisher()
        except NotApplicable:
            return
        refused = Probe(self.trial, "first subscriber of the failed publisher")
        refused.subscribe_to(failed)
        refused.expect_error("1.4")
        self._expect_an_end(failed, "on_error")

    def _expect_an_end(self, publisher: Any, after: str) -> None:
        late = self.subscribed(publisher, f"subscriber after {after}")
        if not late.ended:
            late.request(2)
        if not self.trial.wait_until(lambda: late.ended):
            last = late.signals[-1]
            raise Violation(
                "1.9", f"who subscribed after {after} heard no end; the last signal was {last}", "an end"
            )

    @check
    def test_untested_spec110_reject_a_subscription_request_if_the_same_subscriber_subscribes_twice(
        self,
    ) -> None:
        """The rule binds whoever calls ``subscribe``, and leaves open what then happens."""
        self.not_checkable("§1.10 binds the caller of subscribe; the kit never subscribes an object twice")
