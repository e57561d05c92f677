"""The verification of a Subscriber that helps: it says what it receives, and lets its strings be pulled."""

from __future__ import annotations

from typing import Any

from penstock.tck.subscriber.subject import HOLD, End, ScriptedError, ScriptedPublisher, SubscriberSubject
from penstock.tck.subscriber.whitebox_probe import WhiteboxSubscriberProbe
from penstock.tck.verification import check


class _Stage:
    """A Subscriber that is subscribed to an upstream of the kit, and its probe."""

    def __init__(
        self,
        verification: SubscriberWhiteboxVerification,
        supply: list[Any] | None = None,
        end: End | None = None,
    ) -> None:
        trial = self._trial = verification.trial
        self.probe = WhiteboxSubscriberProbe(trial)
        create = verification.create_subscriber
        made = verification.make(lambda: create(self.probe), "create_subscriber(probe)", "a Subscriber")
        self.subscriber = verification.spelling.subscriber_from(made)
        self.upstream = ScriptedPublisher(trial, self.subscriber)
        if supply is not None:
            self.upstream.answer_at_once(supply, end)
        self.upstream.subscribe()
        self._puppet = self.probe.expect_puppet()

    def trigger_request(self, n: int, rule: str = "2.1") -> None:
        self._trial.log.add(f"→ puppet: trigger_request({n})")
        pull = self.upstream.pulled
        self._trial.perform(
            lambda: pull(lambda: self._puppet.trigger_request(n)), f"trigger_request({n})", rule
        )

    def signal_cancel(self) -> None:
        self._trial.log.add("→ puppet: signal_cancel()")
        pull = self.upstream.pulled
        self._trial.perform(lambda: pull(self._puppet.signal_cancel), "signal_cancel()", "2.6")


class SubscriberWhiteboxVerification(SubscriberSubject):
    """Verifies a Subscriber that was prepared for it: the thorough verification.

    The Subscriber that ``create_subscriber`` returns tells the probe what it receives, and gives it a puppet
    through which the kit has it ask and cancel::

        class TestMySubscriber(SubscriberWhiteboxVerification):
            def create_subscriber(self, probe):
                return MySubscriberWith(probe)

    For a Subscriber that knows nothing of probes there is :class:`penstock.tck.Probed`.
    """

    puppet_is_the_subscriber: bool = True
    """Whether the puppet asks the Subscriber to ask; set to false if it calls the Subscription by itself.

    A puppet that goes past the Subscriber does not show whether the Subscriber knows that the stream is over
    (§2.4), so it is not used after the end.
    """

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        """Return a new Subscriber that tells ``probe`` what it receives."""
        raise NotImplementedError(f"{type(self).__name__} must say how to create_subscriber(probe)")

    def _stage(self) -> _Stage:
        return _Stage(self)

    @check
    def test_required_exercise_whitebox_happy_path(self) -> None:
        """Ask, receive, ask, receive, leave: if this fails, the test class is not set up well."""
        stage = self._stage()
        stage.trigger_request(1)
        stage.trigger_request(1)
        for number in (1, 2):
            (element,) = self.send(stage.upstream, 1, "2.1", first=number)
            stage.probe.expect_next(element, "2.1")
        stage.trigger_request(1)
        (element,) = self.send(stage.upstream, 1, "2.1", first=3)
        stage.probe.expect_next(element, "2.1")
        stage.signal_cancel()
        stage.upstream.expect_cancel("2.6")

    @check
    def test_required_spec201_must_signal_demand_via_subscription_request(self) -> None:
        """Told to ask, the Subscriber calls ``request``, and takes what comes."""
        stage = self._stage()
        stage.trigger_request(1)
        stage.upstream.expect_request("2.1")
        (element,) = self.send(stage.upstream, 1, "2.1")
        stage.probe.expect_next(element, "2.1")

    @check
    def test_untested_spec202_should_asynchronously_dispatch(self) -> None:
        """How long a Subscriber may keep its Publisher busy depends on the Publisher."""
        self.not_checkable("§2.2 is advice: how slow is too slow depends on the Publisher")

    @check
    def test_required_spec203_must_not_call_methods_on_subscription_or_publisher_in_on_complete(self) -> None:
        """Inside ``on_complete`` neither ``request`` nor ``cancel`` is called."""
        stage = self._stage()
        stage.upstream.complete()
        stage.probe.expect_complete("2.9")

    @check
    def test_required_spec203_must_not_call_methods_on_subscription_or_publisher_in_on_error(self) -> None:
        """Inside ``on_error`` neither ``request`` nor ``cancel`` is called."""
        stage, error = self._stage(), ScriptedError("the stream fails, as the test says")
        stage.upstream.fail(error)
        stage.probe.expect_error(error, "2.10")

    @check
    def test_required_spec204_must_consider_the_subscription_as_cancelled_in_after_recieving_on_complete_or_on_error(  # noqa: E501
        self,
    ) -> None:
        """After the end nothing reaches the Subscription, even if the Subscriber is told to ask."""
        completed = self._stage()
        completed.upstream.complete()
        completed.probe.expect_complete("2.9")
        failed, error = self._stage(), ScriptedError("the stream fails, as the test says")
        failed.upstream.fail(error)
        failed.probe.expect_error(error, "2.10")
        for stage, end in ((completed, "on_complete"), (failed, "on_error")):
            with stage.upstream.silence("2.4", end):
                if self.puppet_is_the_subscriber:
                    stage.trigger_request(1)
                    stage.signal_cancel()

    @check
    def test_required_spec205_must_call_subscription_cancel_if_it_already_has_an_subscription_and_receives_another_on_subscribe_signal(  # noqa: E501
        self,
    ) -> None:
        """A second Subscription is cancelled, and nothing is asked of it."""
        self.expect_second_cancelled(self._stage().subscriber)

    @check
    def test_untested_spec206_must_call_subscription_cancel_if_it_is_no_longer_valid(self) -> None:
        """Only the Subscriber knows when it no longer needs a Subscription."""
        self.not_checkable("§2.6: only the Subscriber knows when it needs no more elements")

    @check
    def test_required_spec207_must_ensure_all_calls_on_its_subscription_take_place_from_the_same_thread_or_take_care_of_synchronization(  # noqa: E501
        self,
    ) -> None:
        """While a request takes a while, neither another one nor ``cancel`` is called."""
        stage = self._stage()
        stage.upstream.hold = HOLD
        for first in (1, 5, 9):
            stage.trigger_request(4)
            for element in self.send(stage.upstream, 4, "2.1", first):
                stage.probe.expect_next(element, "2.1")

    @check
    def test_required_spec208_must_be_prepared_to_receive_on_next_signals_after_having_called_subscription_cancel(  # noqa: E501
        self,
    ) -> None:
        """A Subscriber that has cancelled accepts an element that was on its way."""
        stage = self._stage()
        stage.trigger_request(1)
        stage.upstream.expect_request("2.1")
        stage.signal_cancel()
        stage.upstream.expect_cancel("2.6")
        stage.upstream.send_on_its_way(self.element(1))

    @check
    def test_required_spec209_must_be_prepared_to_receive_an_on_complete_signal_with_preceding_request_call(
        self,
    ) -> None:
        """``on_complete`` arrives after a request."""
        stage = self._stage()
        stage.trigger_request(1)
        stage.upstream.expect_request("2.1")
        stage.upstream.complete(rule="2.9")
        stage.probe.expect_complete("2.9")

    @check
    def test_required_spec209_must_be_prepared_to_receive_an_on_complete_signal_without_preceding_request_call(  # noqa: E501
        self,
    ) -> None:
        """``on_complete`` arrives without any request."""
        stage = self._stage()
        stage.upstream.complete(rule="2.9")
        stage.probe.expect_complete("2.9")

    @check
    def test_required_spec210_must_be_prepared_to_receive_an_on_error_signal_with_preceding_request_call(
        self,
    ) -> None:
        """``on_error`` arrives after a request, with the same error."""
        stage, error = self._stage(), ScriptedError("the stream fails, as the test says")
        stage.trigger_request(1)
        stage.upstream.expect_request("2.1")
        stage.upstream.fail(error, rule="2.10")
        stage.probe.expect_error(error, "2.10")

    @check
    def test_required_spec210_must_be_prepared_to_receive_an_on_error_signal_without_preceding_request_call(
        self,
    ) -> None:
        """``on_error`` arrives without any request, with the same error."""
        stage, error = self._stage(), ScriptedError("the stream fails, as the test says")
        stage.upstream.fail(error, rule="2.10")
        stage.probe.expect_error(error, "2.10")

    @check
    def test_untested_spec211_must_make_sure_that_all_calls_on_its_methods_happen_before_the_processing_of_the_respective_events(  # noqa: E501
        self,
    ) -> None:
        """Memory that is published safely looks like memory that happens to be."""
        self.not_checkable("§2.11: an unsafe hand-over between threads shows only by chance")

    @check
    def test_untested_spec212_must_not_call_on_subscribe_more_than_once_based_on_object_equality_spec_violation(  # noqa: E501
        self,
    ) -> None:
        """The rule binds the sender of ``on_subscribe``."""
        self.not_checkable("§2.12 binds the Publisher; every test of PublisherVerification watches it")

    @check
    def test_required_spec213_failing_on_signal_invocation(self) -> None:
        """No signal raises: a whole stream to its end, and one to its failure."""
        for end in ("complete", "error"):
            stage = self._stage()
            stage.trigger_request(3)
            for element in self.send(stage.upstream, 3, "2.1"):
                stage.probe.expect_next(element, "2.13")
            if end == "complete":
                stage.upstream.complete()
            else:
                stage.upstream.fail(ScriptedError("the stream fails, as the test says"))

    @check
    def test_required_spec213_on_subscribe_must_throw_null_pointer_exception_when_parameters_are_null(
        self,
    ) -> None:
        """``on_subscribe(None)`` raises ``none_error_type``."""
        subscriber = self._stage().subscriber
        self.expect_none_error(lambda: subscriber.on_subscribe(None), "on_subscribe(None)")

    @check
    def test_required_spec213_on_next_must_throw_null_pointer_exception_when_parameters_are_null(
        self,
    ) -> None:
        """``on_next(None)`` raises ``none_error_type``."""
        subscriber = self._stage().subscriber
        self.expect_none_error(lambda: subscriber.on_next(None), "on_next(None)")

    @check
    def test_required_spec213_on_error_must_throw_null_pointer_exception_when_parameters_are_null(
        self,
    ) -> None:
        """``on_error(None)`` raises ``none_error_type``."""
        subscriber = self._stage().subscriber
        self.expect_none_error(lambda: subscriber.on_error(None), "on_error(None)")

    @check
    def test_required_spec213_must_take_an_element_that_is_false(self) -> None:
        """``create_element(0)`` is an element like others: only ``None`` is not one."""
        stage, element = self._stage(), self.element(0)
        stage.trigger_request(1)
        stage.upstream.expect_demand(1, "2.1")
        stage.upstream.send(element)
        stage.probe.expect_next(element, "2.13")

    @check
    def test_required_spec213_must_take_signals_from_any_thread(self) -> None:
        """Elements and the end come from other threads than ``on_subscribe``, one after the other."""
        self.require_any_thread()
        stage = self._stage()
        # One more than there is: a Processor may find the end only when it looks for another element.
        stage.trigger_request(4)
        for number in (1, 2, 3):
            element = self.element(number)
            stage.upstream.expect_demand(1, "2.1")
            stage.upstream.send_elsewhere(element, "2.13")
            stage.probe.expect_next(element, "2.13")
        stage.upstream.complete_elsewhere("2.13")
        stage.probe.expect_complete("2.13")

    @check
    def test_untested_spec301_must_not_be_called_outside_subscriber_context(self) -> None:
        """On whose behalf a request is made cannot be seen."""
        self.not_checkable("§3.1: it cannot be seen on whose behalf a request is made")

    @check
    def test_required_spec308_request_must_register_given_number_elements_to_be_produced(self) -> None:
        """Told to ask for two, the Subscriber gets two, asked for together or one by one."""
        stage = self._stage()
        stage.trigger_request(2)
        for element in self.send(stage.upstream, 2, "3.8"):
            stage.probe.expect_next(element, "3.8")

    @check
    def test_required_spec310_request_may_synchronously_call_on_next_on_subscriber(self) -> None:
        """A Subscriber accepts an element inside ``request``."""
        elements = [self.element(number) for number in (1, 2, 3)]
        stage = _Stage(self, elements)
        stage.trigger_request(3, rule="3.10")
        for element in elements:
            stage.probe.expect_next(element, "3.10")

    @check
    def test_required_spec311_request_may_synchronously_call_on_complete_or_on_error(self) -> None:
        """A Subscriber accepts an end inside ``request``."""
        completing = _Stage(self, [self.element(1)], "complete")
        # One more than there is: a Processor may find the end only when it looks for another element.
        completing.trigger_request(2, rule="3.11")
        completing.probe.expect_complete("3.11")
        failing = _Stage(self, [], "error")
        failing.trigger_request(1, rule="3.11")
        failing.probe.expect_error(failing.upstream.error, "3.11")

    @check
    def test_untested_spec314_cancel_may_cause_the_publisher_to_shutdown_if_no_other_subscription_exists(
        self,
    ) -> None:
        """A permission."""
        self.not_checkable("§3.14 is a permission: a Publisher may also stay open")

    @check
    def test_untested_spec315_cancel_must_not_throw_exception_and_must_signal_on_error(self) -> None:
        """The Subscription is the kit's own here."""
        self.not_of_the_subscriber("3.15")

    @check
    def test_untested_spec316_request_must_not_throw_exception_and_must_on_error_the_subscriber(self) -> None:
        """The Subscription is the kit's own here."""
        self.not_of_the_subscriber("3.16")
