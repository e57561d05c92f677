"""Publisher tests: what ``cancel`` does."""

from __future__ import annotations

import threading
import time

from penstock.spec import UNBOUNDED
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import MANY, TOO_MANY, PublisherSubject
from penstock.tck.verdicts import NotApplicable, Violation
from penstock.tck.verification import check

_THREADS = 4

_TICKS = 50
_FEWEST_TICKS = 10
_A_MOMENT = 0.2


class CancellingTests(PublisherSubject):
    """§3.5 to §3.7, §3.12, §3.13 and §3.15: leaving works, at once for the caller and for good."""

    @check
    def test_required_spec305_cancel_must_not_synchronously_perform_heavy_computation(self) -> None:
        """The quickest of three cancellations comes back within the budget, inside ``on_next`` too."""
        probes = [self.subscribed(self.publisher_of(3), f"subscriber {n}") for n in range(1, 4)]
        self.expect_quick([probe.cancel for probe in probes], "3.5", "cancel()")
        inside: list[float] = []

        def leave(probe: Probe) -> None:
            start = time.perf_counter()
            probe.cancel()
            inside.append(time.perf_counter() - start)

        for number in range(1, 4):
            name = f"subscriber {number} that leaves in on_next"
            probe = self.subscribed(self.publisher_of(3), name, on_next=leave)
            probe.request(1)
            probe.expect_elements(1, "1.1")
        self.trial.wait_until(lambda: len(inside) == 3)
        self.expect_in_budget(inside, "3.5", "cancel() inside on_next")

    @check
    def test_stochastic_spec305_cancel_must_be_safe_from_any_thread(self) -> None:
        """Four threads cancel at the same time: no exception, and soon no signal any more."""
        self.require_stochastic()
        self.require_any_thread()
        for _ in range(10):
            probe = self.subscribed(self.publisher_of(20))
            probe.request(5)
            self._cancel_together(probe)
            # The five may be on their way (§2.8), but what is asked for now is not served (§3.6).
            probe.request(10)
            self.expect_end_of_signals(probe)
            if probe.ended:
                last = probe.signals[-1]
                raise Violation("3.5", f"{last} came after cancel() on {_THREADS} threads", "silence")

    def _cancel_together(self, probe: Probe) -> None:
        together = threading.Barrier(_THREADS)

        def leave() -> None:
            together.wait()
            probe.cancel()

        threads = [threading.Thread(target=leave, daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.trial.environment.timeout)
            if thread.is_alive():
                raise Violation("3.5", f"cancel() on {_THREADS} threads did not return", "that it returns")

    @check
    def test_required_spec306_after_subscription_is_cancelled_request_must_be_nops(self) -> None:
        """Three requests after a cancellation are answered by nothing, and so are illegal ones."""
        probe = self.subscribed(self.publisher_of(3))
        with probe.silence("3.6", "cancel() and three times request(1)"):
            probe.cancel()
            for _ in range(3):
                probe.request(1)
        probe = self.subscribed(self.publisher_of(3), "subscriber with an illegal request")
        with probe.silence("3.6", "cancel(), request(0) and request(-1)"):
            probe.cancel()
            probe.request(0)
            probe.request(-1)

    @check
    def test_required_spec307_after_subscription_is_cancelled_additional_cancelations_must_be_nops(
        self,
    ) -> None:
        """Three cancellations are as good as one."""
        probe = self.subscribed(self.publisher_of(1))
        with probe.silence("3.7", "cancel(), three times"):
            for _ in range(3):
                probe.cancel()

    @check
    def test_required_spec312_cancel_must_make_the_publisher_to_eventually_stop_signaling(self) -> None:
        """After a cancellation signals cease, and what still comes is not more than was asked for."""
        probe = self.subscribed(self.publisher_of(20))
        probe.request(10)
        probe.request(5)
        probe.expect_elements(1, "1.1")
        probe.cancel()
        self.expect_end_of_signals(probe)
        if probe.ended:
            raise Violation(
                "3.12", f"{probe.signals[-1]} came after cancel() and 15 of 20 elements", "silence"
            )

    @check
    def test_required_spec312_cancel_must_be_heard_when_demand_is_unbounded(self) -> None:
        """A Subscriber with unbounded demand can still cancel at the first element."""

        def leave(probe: Probe) -> None:
            if len(probe.elements) == 1:
                probe.cancel()

        probe = self.subscribed(self.publisher_of(MANY), on_next=leave)
        probe.request(UNBOUNDED)
        probe.expect_elements(1, "3.17")
        self.expect_end_of_signals(probe)
        if len(probe.elements) >= MANY:
            raise Violation(
                "3.12",
                f"all {MANY} elements came: cancel() had no effect after request(2^63-1)",
                "an early stop",
            )

    @check
    def test_required_spec312_cancel_must_stop_a_publisher_with_a_pace_of_its_own(self) -> None:
        """A ticker stops as well: the test learns how long an element takes, and listens for longer."""
        count = min(_TICKS, self.max_elements_from_publisher)
        if count < _FEWEST_TICKS:
            raise NotApplicable(f"needs {_FEWEST_TICKS} elements; max_elements_from_publisher is {count}")
        probe = self.subscribed(self.publisher_of(count))
        probe.request(count)
        probe.expect_elements(2, "1.1")
        probe.cancel()
        before, left_at = len(probe.elements), time.monotonic()
        self.expect_end_of_signals(probe, before + TOO_MANY)
        late, took = len(probe.elements) - before, time.monotonic() - left_at
        # What a quick Publisher sends in a moment may have been on its way.
        if took > _A_MOMENT and late >= min(TOO_MANY, count - before) > 0:
            raise Violation(
                "3.12", f"{late} elements came after cancel(), in {took:.1f} s", "that signals cease"
            )

    @check
    def test_required_spec313_cancel_must_make_the_publisher_eventually_drop_all_references_to_the_subscriber(
        self,
    ) -> None:
        """After a cancellation the Subscriber can be collected, though Publisher and Subscription live."""
        publisher = self.publisher_of(3)
        probe = self.subscribed(publisher)
        probe.request(1)
        probe.expect_elements(1, "1.1")
        probe.cancel()
        self.expect_release(probe, "3.13", "cancel()")
        del publisher

    @check
    def test_required_spec315_cancel_must_return_normally(self) -> None:
        """No cancellation raises: before any demand, with it, inside ``on_next``, repeated, after the end."""
        at_once = self.subscribed(self.publisher_of(3), "subscriber that never asks")
        at_once.cancel()
        probe = self.subscribed(self.publisher_of(3))
        probe.request(1)
        probe.expect_elements(1, "1.1")
        probe.cancel()
        probe.cancel()
        inside = self.subscribed(self.publisher_of(3), "subscriber that leaves", on_next=Probe.cancel)
        inside.request(1)
        inside.expect_elements(1, "1.1")
        failed = self.subscribed(self.publisher_of(3), "subscriber with an illegal request")
        failed.request(-1)
        failed.cancel()
