"""Publisher tests: what ``subscribe`` does."""

from __future__ import annotations

from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
from penstock.tck.signal_log import shown
from penstock.tck.verdicts import NotApplicable, Violation
from penstock.tck.verification import check


class SubscribingTests(PublisherSubject):
    """§1.9 and §1.10: ``on_subscribe`` first, no exception, and an error for ``None``."""

    @check
    def test_required_spec109_subscribe_throw_npe_on_null_subscriber(self) -> None:
        """``subscribe(None)`` raises ``none_error_type`` at the caller: there is nobody else to tell."""
        publisher, wanted = self.publisher_of(0), self.none_error_type
        try:
            self.trial.call(lambda: publisher.subscribe(None), "subscribe(None)", "1.9")
        except wanted:
            return
        except Violation:
            raise
        except Exception as error:
            raise Violation("1.9", f"subscribe(None) raised {shown(error)}", wanted.__name__) from None
        raise Violation("1.9", "subscribe(None) returned normally", wanted.__name__)

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
    def test_untested_spec110_reject_a_subscription_request_if_the_same_subscriber_subscribes_twice(
        self,
    ) -> None:
        """The rule binds whoever calls ``subscribe``, and leaves open what then happens."""
        self.not_checkable("§1.10 binds the caller of subscribe; the kit never subscribes an object twice")
