"""Publisher tests: the test class is set up well, and elements come as they were asked for."""

from __future__ import annotations

import sys
import time

from penstock.spec import UNBOUNDED
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
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
