"""Publisher tests: what ``subscribe`` does, how a stream ends, and that nothing follows the end."""

from __future__ import annotations

from typing import Any

from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import MANY, PublisherSubject
from penstock.tck.verdicts import NotApplicable, Violation
from penstock.tck.verification import check


class SubscribingTests(PublisherSubject):
    """§1.9 and §1.10: ``on_subscribe`` first, no exception, and an error for ``None``."""

    @check
    def test_required_spec109_subscribe_throw_npe_on_null_subscriber(self) -> None:
        """``subscribe(None)`` raises ``none_error_type`` at the caller."""
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
        """A Subscriber that comes after the end is served or refused: it gets ``on_subscribe`` and an end."""
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
                "1.9",
                f"a Subscriber that came after {after} got no end; the last signal was {last}",
                "an end",
            )

    @check
    def test_untested_spec110_reject_a_subscription_request_if_the_same_subscriber_subscribes_twice(
        self,
    ) -> None:
        """The rule binds the caller of ``subscribe``, and leaves open what happens if it is broken."""
        self.not_checkable("§1.10 binds the caller of subscribe; the kit never subscribes an object twice")


class EndingTests(PublisherSubject):
    """§1.4 to §1.8: failure, completion, and what a Subscription is worth after them."""

    @check
    def test_optional_spec104_must_signal_on_error_when_fails(self) -> None:
        """A failed Publisher sends ``on_subscribe`` and then one ``on_error``, without being asked."""
        probe = Probe(self.trial)
        probe.subscribe_to(self.failed_publisher())
        probe.expect_error("1.4")
        self.trial.settle()
        if probe.elements:
            raise Violation(
                "1.4", f"{len(probe.elements)} elements came from a failed Publisher", "on_error only"
            )

    @check
    def test_required_spec105_must_signal_on_complete_when_finite_stream_terminates(self) -> None:
        """Three elements, one by one; then ``on_complete``; then nothing."""
        probe = self.subscribed(self.publisher_of(3, completes=True))
        for number in range(1, 4):
            probe.request(1)
            probe.expect_elements(number, "1.5")
        probe.request(1)
        probe.expect_complete("1.5", elements=3)
        with probe.silence("1.7", "on_complete"):
            pass

    @check
    def test_optional_spec105_empty_stream_must_terminate_by_signalling_on_complete(self) -> None:
        """A stream of no elements completes, with or without a request."""
        probe = self.subscribed(self.publisher_of(0, completes=True))
        if not probe.ended:
            probe.request(1)
        probe.expect_complete("1.5", elements=0)

    @check
    def test_required_spec106_must_consider_subscription_cancelled_after_on_error_or_on_complete_has_been_called(  # noqa: E501
        self,
    ) -> None:
        """After the end ``request`` and ``cancel`` do nothing, and return normally."""
        probe = self._completed(1)
        with probe.silence("1.6", "on_complete, request and cancel"):
            self._use_up(probe)
        failed = self._failed_by_request()
        with failed.silence("1.6", "on_error, request and cancel"):
            self._use_up(failed)

    def _use_up(self, probe: Probe) -> None:
        for n in (5, 0, -1):
            probe.request(n)
        probe.cancel()
        probe.request(1)
        probe.cancel()

    @check
    def test_required_spec106_must_drop_the_subscriber_after_on_complete_has_been_called(self) -> None:
        """A completed Subscription counts as cancelled, so the Subscriber is let go of (§3.13)."""
        publisher = self.publisher_of(1, completes=True)
        probe = self.subscribed(publisher)
        probe.request(2)
        probe.expect_complete("1.5", elements=1)
        self.expect_release(probe, "1.6", "on_complete")
        del publisher

    @check
    def test_required_spec106_must_drop_the_subscriber_after_on_error_has_been_called(self) -> None:
        """A failed Subscription counts as cancelled too, so the Subscriber is let go of (§3.13)."""
        publisher = self.publisher_of(10 if self.max_elements_from_publisher >= 10 else 1)
        probe = self.subscribed(publisher, "subscriber with an illegal request")
        probe.request(0)
        probe.expect_error("3.9")
        probe.forget_error()
        self.expect_release(probe, "1.6", "on_error")
        del publisher
        try:
            publisher = self.failed_publisher()
        except NotApplicable:
            return
        refused = Probe(self.trial, "subscriber of the failed publisher")
        refused.subscribe_to(publisher)
        refused.expect_error("1.4")
        refused.forget_error()
        self.expect_release(refused, "1.6", "on_error of a failed Publisher")

    @check
    def test_required_spec107_must_not_emit_further_signals_once_on_complete_has_been_signalled(self) -> None:
        """A request after ``on_complete`` is not answered."""
        probe = self._completed(1)
        with probe.silence("1.7", "on_complete and request(10)"):
            probe.request(10)

    @check
    def test_required_spec107_must_not_emit_further_signals_once_on_error_has_been_signalled(self) -> None:
        """A request after ``on_error`` is not answered, even if elements are left."""
        probe = self._failed_by_request()
        with probe.silence("1.7", "on_error, request(5) and request(-1)"):
            probe.request(5)
            probe.request(-1)
        failed = Probe(self.trial, "subscriber of the failed publisher")
        try:
            failed.subscribe_to(self.failed_publisher())
        except NotApplicable:
            return
        failed.expect_error("1.4")
        with failed.silence("1.7", "on_error and request(1)"):
            failed.request(1)

    @check
    def test_required_spec108_possibly_canceled_subscription_should_not_receive_on_error_or_on_complete_signals(  # noqa: E501
        self,
    ) -> None:
        """A cancellation in the middle of a stream is answered by neither completion nor failure."""
        probe = self.subscribed(self.publisher_of(3))
        with probe.silence("1.8", "cancel() without any demand"):
            probe.cancel()
        probe = self.subscribed(self.publisher_of(3), "second subscriber")
        probe.request(1)
        probe.expect_elements(1, "1.1")
        with probe.silence("1.8", "cancel() after one of three elements"):
            probe.cancel()

    @check
    def test_required_spec108_signals_must_cease_after_cancel_in_on_subscribe(self) -> None:
        """After a cancel inside ``on_subscribe`` there is no end, and no more than was requested before."""

        def ask_and_leave(probe: Probe) -> None:
            probe.request(2)
            probe.cancel()

        at_once = self.subscribed(self.publisher_of(3), on_subscribe=Probe.cancel)
        at_once.request(1)
        self.trial.settle()
        if at_once.signals[1:]:
            raise Violation("1.8", f"{at_once.signals[1]} came after cancel() in on_subscribe", "no signal")
        asking = self.subscribed(self.publisher_of(10), "subscriber that asks", on_subscribe=ask_and_leave)
        asking.request(5)
        self.expect_end_of_signals(asking)
        if asking.ended:
            last = asking.signals[-1]
            raise Violation("1.8", f"{last} came after request(2) and cancel() in on_subscribe", "no end")

    @check
    def test_required_spec108_signals_must_cease_after_cancel_in_on_next(self) -> None:
        """After a request for everything, a cancel at the first element stops the others."""

        def leave(probe: Probe) -> None:
            if len(probe.elements) == 1:
                probe.cancel()

        probe = self.subscribed(self.publisher_of(MANY), on_next=leave)
        probe.request(MANY + 1)
        probe.expect_elements(1, "1.1")
        self.expect_end_of_signals(probe)
        if len(probe.elements) >= MANY:
            raise Violation(
                "1.8",
                f"all {MANY} elements came although the first was answered by cancel()",
                "an early stop",
            )

    def _completed(self, elements: int) -> Probe:
        probe = self.subscribed(self.publisher_of(elements, completes=True))
        probe.request(10)
        probe.expect_complete("1.5", elements=elements)
        return probe

    def _failed_by_request(self) -> Probe:
        # An illegal request is the one failure that every Publisher can be brought to (§3.9).
        probe = self.subscribed(self.publisher_of(10), "subscriber with an illegal request")
        probe.request(0)
        probe.expect_error("3.9")
        return probe

    def counts_as_required(self, test_name: str) -> bool:
        """If the class has a failed Publisher, its test is required."""
        return "_spec104_" in test_name or super().counts_as_required(test_name)
