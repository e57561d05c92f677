"""Publisher tests: ``request`` and the elements that answer it, and the settings of the test class."""

from __future__ import annotations

import random
import sys
import time
from functools import partial
from typing import Any

from penstock.spec import UNBOUNDED
from penstock.tck.evidence import shown
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import MANY, PublisherSubject
from penstock.tck.verdicts import Violation
from penstock.tck.verification import check


class FlowingTests(PublisherSubject):
    """Set-up, and §1.1 to §1.3: the right number of elements, one after the other."""

    @check
    def test_required_create_publisher1_must_produce_a_stream_of_exactly1_element(self) -> None:
        """``create_publisher(1)`` gives one element and then the end."""
        self._produces_exactly(1)

    @check
    def test_required_create_publisher3_must_produce_a_stream_of_exactly3_elements(self) -> None:
        """``create_publisher(3)`` gives three elements, one by one, and then the end."""
        self._produces_exactly(3)

    def _produces_exactly(self, count: int) -> None:
        probe = self.subscribed(self.publisher_of(count, completes=True))
        for number in range(1, count + 1):
            probe.request(1)
            probe.expect_elements(number, "1.1")
        probe.request(1)
        probe.expect_complete("1.5", elements=count)

    @check
    def test_required_validate_max_elements_from_publisher(self) -> None:
        """The declared length is a number from 0 to ``UNBOUNDED``."""
        if not 0 <= self.max_elements_from_publisher <= UNBOUNDED:
            raise Violation(
                "", f"max_elements_from_publisher is {self.max_elements_from_publisher}", "0 or more"
            )

    @check
    def test_required_validate_bounded_depth_of_on_next_and_request_recursion(self) -> None:
        """The declared depth is at least 1: ``on_next`` itself."""
        depth = self.bounded_depth_of_on_next_and_request_recursion
        if depth < 1:
            raise Violation(
                "", f"bounded_depth_of_on_next_and_request_recursion is {depth}", "at least 1: on_next itself"
            )

    @check
    def test_required_spec101_subscription_request_must_result_in_the_correct_number_of_produced_elements(
        self,
    ) -> None:
        """Nothing before the first request; then 1, 1 and 2 elements for requests of 1, 1 and 2."""
        publisher = self.publisher_of(5)
        probe = Probe(self.trial)
        probe.subscribe_to(publisher)
        probe.expect_subscription()
        self._expect_just(probe, 0)
        probe.request(1)
        self._expect_just(probe, 1)
        probe.request(1)
        probe.request(2)
        self._expect_just(probe, 4)

    def _expect_just(self, probe: Probe, count: int) -> None:
        probe.expect_elements(count, "1.1")
        self.trial.settle()
        probe.expect_exactly(count, "1.1")
        if probe.ended:
            raise Violation(
                "1.1", f"{probe.signals[-1]} came after {count} of 5 elements", "the stream to go on"
            )

    @check
    def test_required_spec102_may_signal_less_than_requested_and_terminate_subscription(self) -> None:
        """A request for ten of three elements gives three, and the end."""
        probe = self.subscribed(self.publisher_of(3, completes=True))
        probe.request(10)
        probe.expect_elements(3, "1.2")
        probe.expect_complete("1.2", elements=3)

    @check
    def test_stochastic_spec103_must_signal_on_methods_sequentially(self) -> None:
        """Many short streams, read slowly while more is asked for: no signal starts before another ends."""
        self.require_stochastic()

        def ask(probe: Probe) -> None:
            probe.request(1)
            # A signal that takes a while is one that another could overlap with.
            time.sleep(0.0002)
            probe.request(1)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for _ in range(30):
                probe = self.subscribed(self.publisher_of(10, completes=True), on_subscribe=ask, on_next=ask)
                probe.expect_complete("1.3", elements=10)
        finally:
            sys.setswitchinterval(interval)


_MESSAGES = ("3.9", "non-positive", "negative subscription request")


class RequestingTests(PublisherSubject):
    """§3.2 to §3.4, §3.8, §3.9, §3.16, §3.17: demand adds up, from anywhere, without limit or recursion."""

    @check
    def test_required_spec302_must_allow_synchronous_request_calls_from_on_next_and_on_subscribe(
        self,
    ) -> None:
        """Requests from inside ``on_subscribe`` and ``on_next``, and every one of them is served."""

        def three_times(probe: Probe) -> None:
            for _ in range(3):
                probe.request(1)

        publisher = self.publisher_of(6)
        probe = self.subscribed(publisher, on_subscribe=three_times, on_next=lambda probe: probe.request(1))
        probe.expect_elements(6, "3.2")

    @check
    def test_required_spec303_must_not_allow_unbounded_recursion(self) -> None:
        """``request`` inside ``on_next`` does not call ``on_next`` deeper than declared."""
        limit = self.bounded_depth_of_on_next_and_request_recursion
        probe = self._one_by_one(limit + 10)
        probe.expect_elements(limit + 10, "3.3")
        self._expect_depth(probe, limit)

    @check
    def test_required_spec303_must_not_run_out_of_stack_in_a_long_stream(self) -> None:
        """The same with more elements than the interpreter has room for calls inside each other."""
        count = min(2 * sys.getrecursionlimit(), MANY)
        probe = self._one_by_one(count)
        probe.expect_elements(count, "3.3")
        self._expect_depth(probe, self.bounded_depth_of_on_next_and_request_recursion)

    def _one_by_one(self, count: int) -> Probe:
        def ask(probe: Probe) -> None:
            probe.request(1)

        return self.subscribed(self.publisher_of(count), on_subscribe=ask, on_next=ask)

    def _expect_depth(self, probe: Probe, limit: int) -> None:
        if probe.deepest > limit:
            raise Violation("3.3", f"on_next was {probe.deepest} levels inside itself", f"at most {limit}")

    @check
    def test_optional_spec304_request_should_not_perform_heavy_computations(self) -> None:
        """The quickest of three first requests comes back within the budget."""
        probes = [self.subscribed(self.publisher_of(3), f"subscriber {n}") for n in range(1, 4)]
        self.expect_quick([partial(probe.request, 1) for probe in probes], "3.4", "request(1)")

    @check
    def test_required_spec308_must_produce_the_sum_of_all_requests(self) -> None:
        """Requests of 2, 3 and 1 are six elements, not the last one's; inside ``on_next`` too."""

        def three_requests(probe: Probe) -> None:
            for n in (2, 3, 1):
                probe.request(n)

        def three_requests_at_first(probe: Probe) -> None:
            if len(probe.elements) == 1:
                three_requests(probe)

        at_start = self.subscribed(self.publisher_of(20), on_subscribe=three_requests)
        at_start.expect_elements(6, "3.8")
        publisher = self.publisher_of(20)
        inside = self.subscribed(publisher, "second subscriber", on_next=three_requests_at_first)
        inside.request(1)
        inside.expect_elements(7, "3.8")
        self.trial.settle()
        at_start.expect_exactly(6, "3.8")
        inside.expect_exactly(7, "3.8")

    @check
    def test_required_spec309_request_zero_must_signal_illegal_argument_exception(self) -> None:
        """``request(0)`` ends in ``on_error`` with ``illegal_request_error_type``."""
        self._expect_refusal(0)

    @check
    def test_required_spec309_request_negative_number_must_signal_illegal_argument_exception(self) -> None:
        """So do negative numbers, small and large."""
        for n in (-1, -random.randint(2, UNBOUNDED), -UNBOUNDED - 1):
            self._expect_refusal(n)

    @check
    def test_required_spec309_request_zero_inside_on_subscribe_must_signal_illegal_argument_exception(
        self,
    ) -> None:
        """An illegal request inside ``on_subscribe`` is answered as well, and by nothing but the error."""
        probe = self.subscribed(self._some(), on_subscribe=lambda probe: probe.request(0))
        self._expect_illegal_argument(probe, "request(0) inside on_subscribe")
        probe.expect_exactly(0, "3.9")

    @check
    def test_required_spec309_request_negative_number_inside_on_next_must_signal_illegal_argument_exception(
        self,
    ) -> None:
        """So is one inside ``on_next``, although elements are left."""
        probe = self.subscribed(self.publisher_of(10), on_next=lambda probe: probe.request(-1))
        probe.request(5)
        self._expect_illegal_argument(probe, "request(-1) inside on_next")

    @check
    def test_required_spec309_request_zero_after_unbounded_demand_must_signal_illegal_argument_exception(
        self,
    ) -> None:
        """So is one after a request for everything, when demand is not counted any more."""

        def ask(probe: Probe) -> None:
            if len(probe.elements) == 1:
                probe.request(UNBOUNDED)
                probe.request(0)

        probe = self.subscribed(
            self.publisher_of(max(2, min(MANY, self.max_elements_from_publisher))), on_next=ask
        )
        probe.request(1)
        self._expect_illegal_argument(probe, "request(0) after request(2^63-1)")

    def _some(self) -> Any:
        return self.publisher_of(10 if self.max_elements_from_publisher >= 10 else 1)

    @check
    def test_optional_spec309_request_negative_number_may_signal_illegal_argument_exception_with_specific_message(  # noqa: E501
        self,
    ) -> None:
        """The message says what was wrong: ``3.9``, or a non-positive or negative subscription request."""
        message = str(self._expect_refusal(-1))
        if not any(part in message for part in _MESSAGES):
            raise Violation("3.9", f"the message is {shown(message)}", f"one of {', '.join(_MESSAGES)} in it")

    def _expect_refusal(self, n: int) -> BaseException:
        probe = self.subscribed(self.publisher_of(10))
        probe.request(n)
        return self._expect_illegal_argument(probe, f"request({n})")

    def _expect_illegal_argument(self, probe: Probe, what: str) -> BaseException:
        error, wanted = probe.expect_error("3.9"), self.illegal_request_error_type
        if not isinstance(error, wanted):
            raise Violation("3.9", f"{what} was answered by {shown(error)}", wanted.__name__)
        return error

    @check
    def test_required_spec316_request_must_return_normally(self) -> None:
        """No request raises: a large one, an illegal one, one after the end, one after a cancellation."""
        probe = self.subscribed(self.publisher_of(10))
        for n in (1, UNBOUNDED, -1, 0, 1):
            probe.request(n)
        left = self.subscribed(self.publisher_of(10), "subscriber that has left")
        left.cancel()
        for n in (1, UNBOUNDED, -1, 0):
            left.request(n)

    @check
    def test_required_spec317_must_support_a_pending_element_count_up_to_long_max_value(self) -> None:
        """A request for 2^63-1 gives all that there is."""
        probe = self.subscribed(self.publisher_of(3, completes=True))
        probe.request(UNBOUNDED)
        probe.expect_elements(3, "3.17")
        probe.expect_complete("3.17", elements=3)

    @check
    def test_required_spec317_must_support_a_cumulative_pending_element_count_up_to_long_max_value(
        self,
    ) -> None:
        """So does the same number in three parts."""

        def in_parts(probe: Probe) -> None:
            for n in (UNBOUNDED // 2, UNBOUNDED // 2, 1):
                probe.request(n)

        probe = self.subscribed(self.publisher_of(3, completes=True), on_subscribe=in_parts)
        probe.expect_elements(3, "3.17")
        probe.expect_complete("3.17", elements=3)

    @check
    def test_required_spec317_must_not_signal_on_error_when_pending_above_long_max_value(self) -> None:
        """Demand beyond 2^63-1 is not an error."""
        probe = self._ask_beyond_all_measure()
        self.trial.settle()
        if probe.error is not None:
            raise Violation("3.17", f"demand beyond 2^63-1 was answered by {shown(probe.error)}", "no error")

    @check
    def test_required_spec317_must_keep_flowing_when_pending_above_long_max_value(self) -> None:
        """Demand beyond 2^63-1 does not wrap around to little or nothing: elements go on coming."""
        probe = self._ask_beyond_all_measure()
        probe.expect_elements(30, "3.17")

    def _ask_beyond_all_measure(self) -> Probe:
        def ask(probe: Probe) -> None:
            if len(probe.elements) <= 10:
                probe.request(UNBOUNDED - 1)
            elif len(probe.elements) == 30:
                probe.cancel()

        probe = self.subscribed(self.publisher_of(1000), on_next=ask)
        probe.request(1)
        probe.expect_elements(10, "3.17")
        return probe

    @check
    def test_optional_spec317_must_take_a_request_above_long_max_value_for_unbounded(self) -> None:
        """In Python a single number can be larger than 2^63-1; it means the same."""
        for n in (UNBOUNDED + 1, 2**64, 2**64 + 1):
            probe = self.subscribed(self.publisher_of(3, completes=True))
            probe.request(n)
            probe.expect_elements(3, "3.17")
            probe.expect_complete("3.17", elements=3)
