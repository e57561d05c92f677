"""Publisher tests: a second thread, and a Subscriber that raises."""

from __future__ import annotations

from concurrent.futures import Future

from penstock.tck.caller import CallOutcome
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
from penstock.tck.verdicts import NotApplicable, Rejected, Violation
from penstock.tck.verification import check

_BESIDE = 0.1
"""How many seconds a signal waits for a request on another thread; the Publisher may delay that request."""
_MANY_ENOUGH = 1000
_FEWEST = 10


class InterferingTests(PublisherSubject):
    """§1.3, §2.13 and §3.5, provoked: what a Publisher does while somebody else is busy, or has given up."""

    @check
    def test_required_spec103_must_signal_serially_when_another_thread_requests_while_on_next_runs(
        self,
    ) -> None:
        """A request from another thread is served after the running ``on_next``, not beside it."""
        self.require_any_thread()
        asked: list[Future[CallOutcome]] = []

        def ask_elsewhere(probe: Probe) -> None:
            if not asked:
                asked.append(probe.trial.elsewhere(lambda: probe.request(2)))
                # If the Publisher serves it at once, the elements come now.
                probe.trial.wait_briefly(asked[0].done, _BESIDE)

        probe = self.subscribed(self.publisher_of(10), on_next=ask_elsewhere)
        probe.request(1)
        probe.expect_elements(3, "3.8")
        self.trial.awaited(asked[0], "request(2) on another thread", "3.16")
        self.trial.settle()
        probe.expect_exactly(3, "1.1")

    @check
    def test_required_spec305_cancel_must_return_while_on_next_runs_on_another_thread(self) -> None:
        """``cancel`` does not wait until a running ``on_next`` has returned."""
        self.require_any_thread()
        limit = self.trial.environment.timeout

        def leave_elsewhere(probe: Probe) -> None:
            if len(probe.elements) > 1:
                return
            left = probe.trial.elsewhere(probe.cancel)
            probe.trial.wait_briefly(left.done, limit)
            if not left.done():
                probe.trial.flaw(
                    "3.5",
                    f"cancel() on another thread had not returned after {limit:g} s, because of on_next",
                    "that it does not wait for a signal",
                )

        probe = self.subscribed(self.publisher_of(10), on_next=leave_elsewhere)
        probe.request(1)
        probe.expect_elements(1, "1.1")
        self.expect_end_of_signals(probe)

    @check
    def test_required_spec213_must_consider_the_subscription_cancelled_if_on_next_raises(self) -> None:
        """A Subscriber that breaks §2.13 hears nothing more; where its exception goes is left open."""
        count = min(_MANY_ENOUGH, self.max_elements_from_publisher)
        if count < _FEWEST:
            raise NotApplicable(f"needs {_FEWEST} elements; max_elements_from_publisher is {count}")
        self.trial.ignore_rejections()

        def reject(probe: Probe) -> None:
            if len(probe.elements) == 1:
                raise Rejected("the Subscriber raises, as the test says")

        probe = self.subscribed(self.publisher_of(count), on_next=reject)
        probe.request(count - 1)
        probe.expect_elements(1, "1.1")
        self.expect_end_of_signals(probe)
        if probe.ended:
            raise Violation("2.13", f"{probe.signals[-1]} came after on_next had raised", "no signal")
        if len(probe.elements) >= count - 1:
            raise Violation(
                "2.13",
                f"all {len(probe.elements)} elements came although the first on_next raised",
                "that the Subscription counts as cancelled",
            )
