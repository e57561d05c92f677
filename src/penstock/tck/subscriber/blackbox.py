"""The verification of a Subscriber from outside: by what it asks for, and by how it takes what comes."""

from __future__ import annotations

from typing import Any

from penstock.tck.subscriber.subject import HOLD, ScriptedError, ScriptedPublisher, SubscriberSubject
from penstock.tck.verdicts import NotCheckable
from penstock.tck.verification import check

_MOST = 100
"""As many elements are sent at most, however many the Subscriber asks for."""


class _Stage:
    """A Subscriber that is subscribed to an upstream of the kit."""

    def __init__(self, verification: SubscriberBlackboxVerification) -> None:
        self._verification, self._trial = verification, verification.trial
        self._theirs = verification.make(
            verification.create_subscriber, "create_subscriber()", "a Subscriber"
        )
        self.subscriber = verification.spelling.subscriber_from(self._theirs)
        self.upstream = ScriptedPublisher(self._trial, self.subscriber)

    def trigger_request(self, rule: str = "2.1") -> None:
        self._trial.log.add("→ trigger_request(subscriber)")
        hook = self._verification.trigger_request
        pull = self.upstream.pulled
        self._trial.perform(lambda: pull(lambda: hook(self._theirs)), "trigger_request(subscriber)", rule)


class SubscriberBlackboxVerification(SubscriberSubject):
    """Verifies a Subscriber that knows nothing of the kit: it asks when it likes, and says nothing.

    ::

        class TestPrinter(SubscriberBlackboxVerification):
            def create_subscriber(self):
                return Printer()

    A Subscriber that asks only when something outside happens is helped by ``trigger_request``.
    """

    def create_subscriber(self) -> Any:
        """Return a new Subscriber."""
        raise NotImplementedError(f"{type(self).__name__} must say how to create_subscriber()")

    def trigger_request(self, subscriber: Any) -> None:
        """Bring ``subscriber`` to ask for elements; nothing has to be done if it asks by itself."""

    def _stage(self) -> _Stage:
        stage = _Stage(self)
        stage.upstream.subscribe()
        return stage

    def _asking(self) -> _Stage:
        stage = self._stage()
        stage.trigger_request()
        stage.upstream.expect_request("2.1")
        return stage

    def _send_what_is_wanted(self, upstream: ScriptedPublisher, most: int = _MOST) -> int:
        """Send elements as long as there is demand, and return how many; a Subscriber may leave any time."""
        sent = 0
        while upstream.demand and sent < most:
            sent += 1
            upstream.send(self.element(sent))
        return sent

    @check
    def test_required_spec201_blackbox_must_signal_demand_via_subscription_request(self) -> None:
        """The Subscriber asks, gets what it asked for, and the end."""
        stage = self._asking()
        self._send_what_is_wanted(stage.upstream)
        if not stage.upstream.cancelled:
            stage.upstream.complete()

    @check
    def test_untested_spec202_blackbox_should_asynchronously_dispatch(self) -> None:
        """How long a Subscriber may keep its Publisher busy depends on the Publisher."""
        self.not_checkable("§2.2 is advice: how slow is too slow depends on the Publisher")

    @check
    def test_required_spec203_blackbox_must_not_call_methods_on_subscription_or_publisher_in_on_complete(
        self,
    ) -> None:
        """Inside ``on_complete`` neither ``request`` nor ``cancel`` is called."""
        self._stage().upstream.complete()
        self._asking().upstream.complete()

    @check
    def test_required_spec203_blackbox_must_not_call_methods_on_subscription_or_publisher_in_on_error(
        self,
    ) -> None:
        """Inside ``on_error`` neither ``request`` nor ``cancel`` is called."""
        self._stage().upstream.fail(ScriptedError("the stream fails, as the test says"))
        self._asking().upstream.fail(ScriptedError("the stream fails, as the test says"))

    @check
    def test_required_spec204_blackbox_must_consider_the_subscription_as_cancelled_in_after_recieving_on_complete_or_on_error(  # noqa: E501
        self,
    ) -> None:
        """After the end nothing reaches the Subscription, even if the Subscriber is brought to ask."""
        for end in ("on_complete", "on_error"):
            stage = self._asking()
            # What it still has to say about the beginning is not about the end.
            self.trial.settle()
            with stage.upstream.silence("2.4", end):
                if end == "on_complete":
                    stage.upstream.complete()
                else:
                    stage.upstream.fail(ScriptedError("the stream fails, as the test says"))
                self.trial.settle()
                stage.trigger_request()

    @check
    def test_required_spec205_blackbox_must_call_subscription_cancel_if_it_already_has_an_subscription_and_receives_another_on_subscribe_signal(  # noqa: E501
        self,
    ) -> None:
        """A second Subscription is cancelled, and nothing is asked of it."""
        self.expect_second_cancelled(self._asking().subscriber)

    @check
    def test_untested_spec206_blackbox_must_call_subscription_cancel_if_it_is_no_longer_valid(self) -> None:
        """Only the Subscriber knows when it no longer needs a Subscription."""
        self.not_checkable("§2.6: only the Subscriber knows when it needs no more elements")

    @check
    def test_required_spec207_blackbox_must_ensure_all_calls_on_its_subscription_take_place_from_the_same_thread_or_take_care_of_synchronization(  # noqa: E501
        self,
    ) -> None:
        """While a request takes a while, neither another one nor ``cancel`` is called."""
        stage = _Stage(self)
        stage.upstream.hold = HOLD
        stage.upstream.subscribe()
        stage.trigger_request()
        stage.upstream.expect_request("2.1")
        self._send_what_is_wanted(stage.upstream, 20)

    @check
    def test_required_spec208_blackbox_must_be_prepared_to_receive_on_next_signals_after_having_called_subscription_cancel(  # noqa: E501
        self,
    ) -> None:
        """A Subscriber that cancels by itself accepts an element that was on its way."""
        stage = self._asking()
        sent = self._send_what_is_wanted(stage.upstream)
        if not stage.upstream.cancelled or not stage.upstream.owed:
            raise NotCheckable(
                "not checked: the Subscriber does not leave by itself with elements on their way"
            )
        stage.upstream.send_on_its_way(self.element(sent + 1))

    @check
    def test_required_spec209_blackbox_must_be_prepared_to_receive_an_on_complete_signal_with_preceding_request_call(  # noqa: E501
        self,
    ) -> None:
        """``on_complete`` arrives after a request."""
        self._asking().upstream.complete(rule="2.9")

    @check
    def test_required_spec209_blackbox_must_be_prepared_to_receive_an_on_complete_signal_without_preceding_request_call(  # noqa: E501
        self,
    ) -> None:
        """``on_complete`` arrives right after ``on_subscribe``."""
        self._stage().upstream.complete(rule="2.9")

    @check
    def test_required_spec210_blackbox_must_be_prepared_to_receive_an_on_error_signal_with_preceding_request_call(  # noqa: E501
        self,
    ) -> None:
        """``on_error`` arrives after a request."""
        self._asking().upstream.fail(ScriptedError("the stream fails, as the test says"), rule="2.10")

    @check
    def test_required_spec210_blackbox_must_be_prepared_to_receive_an_on_error_signal_without_preceding_request_call(  # noqa: E501
        self,
    ) -> None:
        """``on_error`` arrives right after ``on_subscribe``."""
        self._stage().upstream.fail(ScriptedError("the stream fails, as the test says"), rule="2.10")

    @check
    def test_untested_spec211_blackbox_must_make_sure_that_all_calls_on_its_methods_happen_before_the_processing_of_the_respective_events(  # noqa: E501
        self,
    ) -> None:
        """Memory that is published safely looks like memory that happens to be."""
        self.not_checkable("§2.11: an unsafe hand-over between threads shows only by chance")

    @check
    def test_untested_spec212_blackbox_must_not_call_on_subscribe_more_than_once_based_on_object_equality(
        self,
    ) -> None:
        """The rule binds the sender of ``on_subscribe``."""
        self.not_checkable("§2.12 binds the Publisher; every test of PublisherVerification watches it")

    @check
    def test_required_spec213_blackbox_failing_on_signal_invocation(self) -> None:
        """No signal raises: elements to the end of the stream, and elements to its failure."""
        for error in (None, ScriptedError("the stream fails, as the test says")):
            stage = self._asking()
            self._send_what_is_wanted(stage.upstream)
            if stage.upstream.cancelled:
                continue
            if error is None:
                stage.upstream.complete()
            else:
                stage.upstream.fail(error)

    @check
    def test_required_spec213_blackbox_on_subscribe_must_throw_null_pointer_exception_when_parameters_are_null(  # noqa: E501
        self,
    ) -> None:
        """``on_subscribe(None)`` raises ``none_error_type``, though there is no Subscription yet."""
        subscriber = _Stage(self).subscriber
        self.expect_none_error(lambda: subscriber.on_subscribe(None), "on_subscribe(None)")

    @check
    def test_required_spec213_blackbox_on_next_must_throw_null_pointer_exception_when_parameters_are_null(
        self,
    ) -> None:
        """``on_next(None)`` raises ``none_error_type``."""
        subscriber = self._stage().subscriber
        self.expect_none_error(lambda: subscriber.on_next(None), "on_next(None)")

    @check
    def test_required_spec213_blackbox_on_error_must_throw_null_pointer_exception_when_parameters_are_null(
        self,
    ) -> None:
        """``on_error(None)`` raises ``none_error_type``."""
        subscriber = self._stage().subscriber
        self.expect_none_error(lambda: subscriber.on_error(None), "on_error(None)")

    @check
    def test_required_spec213_blackbox_must_take_an_element_that_is_false(self) -> None:
        """``create_element(0)`` is an element like others: only ``None`` is not one."""
        self._asking().upstream.send(self.element(0))

    @check
    def test_required_spec213_blackbox_must_take_signals_from_any_thread(self) -> None:
        """Elements and the end come from other threads than ``on_subscribe``, one after the other."""
        self.require_any_thread()
        upstream = self._asking().upstream
        for number in (1, 2, 3):
            if upstream.demand:
                upstream.send_elsewhere(self.element(number), "2.13")
                self.trial.settle()
        if not upstream.cancelled:
            upstream.complete_elsewhere("2.13")

    @check
    def test_untested_spec301_blackbox_must_not_be_called_outside_subscriber_context(self) -> None:
        """On whose behalf a request is made cannot be seen."""
        self.not_checkable("§3.1: it cannot be seen on whose behalf a request is made")

    @check
    def test_required_spec308_blackbox_request_must_register_given_number_elements_to_be_produced(
        self,
    ) -> None:
        """As many elements as the first request asks for are taken, all of them."""
        stage = self._stage()
        stage.trigger_request()
        wanted = min(stage.upstream.expect_request("2.1"), _MOST)
        for number in range(1, wanted + 1):
            if stage.upstream.cancelled:
                break
            stage.upstream.send(self.element(number))

    @check
    def test_required_spec310_blackbox_request_may_synchronously_call_on_next_on_subscriber(self) -> None:
        """A Subscriber accepts an element inside ``request``, even inside ``on_subscribe``."""
        self._answered_at_once(None)

    @check
    def test_required_spec311_blackbox_request_may_synchronously_call_on_complete_or_on_error(self) -> None:
        """A Subscriber accepts an end inside ``request``."""
        self._answered_at_once("complete")
        self._answered_at_once("error")

    def _answered_at_once(self, end: Any) -> None:
        stage = _Stage(self)
        elements = [self.element(number) for number in (1, 2, 3)]
        stage.upstream.answer_at_once(elements if end is None else [], end)
        rule = "3.10" if end is None else "3.11"
        stage.upstream.subscribe(rule)
        stage.trigger_request(rule)
        stage.upstream.expect_request("2.1")

    @check
    def test_untested_spec314_blackbox_cancel_may_cause_the_publisher_to_shutdown_if_no_other_subscription_exists(  # noqa: E501
        self,
    ) -> None:
        """A permission."""
        self.not_checkable("§3.14 is a permission: a Publisher may also stay open")

    @check
    def test_untested_spec315_blackbox_cancel_must_not_throw_exception_and_must_signal_on_error(self) -> None:
        """The Subscription is the kit's own here."""
        self.not_of_the_subscriber("3.15")

    @check
    def test_untested_spec316_blackbox_request_must_not_throw_exception_and_must_on_error_the_subscriber(
        self,
    ) -> None:
        """The Subscription is the kit's own here."""
        self.not_of_the_subscriber("3.16")
