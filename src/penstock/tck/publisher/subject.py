"""What a test class says about its Publisher, and how the tests get hold of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal

from penstock.spec import UNBOUNDED
from penstock.tck.probe import Hook, Probe
from penstock.tck.verdicts import NotApplicable, Violation
from penstock.tck.verification import Verification

MANY: Final[int] = 10_000
"""The most elements that a test of the kit asks for: where the JVM kit takes 2^31, this is enough."""


TOO_MANY: Final[int] = 20
"""If so many elements come after a cancellation, at the subject's own pace, they were not on their way."""
_PACES = 3
"""A subject is silent if it sends nothing in so many times the time that it needs for an element."""


class PublisherSubject(Verification):
    """The hooks of a verification whose subject is a Publisher, with the names of the JVM kit."""

    max_elements_from_publisher: int = UNBOUNDED - 1
    """The longest stream that ``create_publisher`` can make; ``UNBOUNDED`` says that it never completes."""
    bounded_depth_of_on_next_and_request_recursion: int = 1
    """How deep ``on_next`` may be inside itself when it calls ``request`` (§3.3)."""
    skip_stochastic_tests: bool = False
    """Leave out the tests that look for a defect by chance."""
    max_supported_subscribers: int = UNBOUNDED
    """How many Subscribers can be served at the same time; 1 leaves out the tests with several."""
    does_coordinated_emission: bool = False
    """Whether all Subscribers get each element at the same time, so that the slowest sets the pace."""
    fanout: Literal["unicast", "multicast"] | None = None
    """What several Subscribers get (§1.11): each a stream of its own, or all the same one.

    ``None`` promises nothing: the tests with several Subscribers are optional. ``"unicast"`` makes it
    required that each is served; ``"multicast"`` makes it required that all get the same elements, and that
    a late Subscriber gets the rest (§1.12, of the Aquifer document).
    """

    def create_publisher(self, elements: int) -> Any:
        """Return a new Publisher of exactly ``elements`` elements, with which nothing has been done yet."""
        raise NotImplementedError(f"{type(self).__name__} must say how to create_publisher(elements)")

    def create_failed_publisher(self) -> Any:
        """Return a Publisher that fails every Subscriber at once, or ``None`` if it cannot fail that way."""
        return None

    # ---------------------------------------------------------------- for the tests
    def publisher_of(self, elements: int, *, completes: bool = False) -> Any:
        """Make a Publisher, unless the declared ``max_elements_from_publisher`` rules the test out."""
        most = self.max_elements_from_publisher
        if elements > most:
            raise NotApplicable(f"needs {elements} elements; max_elements_from_publisher is {most}")
        if completes and most == UNBOUNDED:
            raise NotApplicable(
                "needs the end of the stream; max_elements_from_publisher says that it has none"
            )
        what = f"create_publisher({elements})"
        return self.spelling.publisher_from(
            self.make(lambda: self.create_publisher(elements), what, "a Publisher")
        )

    def failed_publisher(self) -> Any:
        """Make a failed Publisher, or skip the test."""

        def create() -> tuple[Any]:
            # None is a legal answer of this hook, so it is wrapped.
            return (self.create_failed_publisher(),)

        (made,) = self.trial.make(create, "create_failed_publisher()", "a Publisher that fails at once")
        if made is None:
            raise NotApplicable("create_failed_publisher() gives None")
        return self.spelling.publisher_from(made)

    def subscribed(
        self,
        publisher: Any,
        name: str = "subscriber",
        *,
        on_subscribe: Hook | None = None,
        on_next: Hook | None = None,
    ) -> Probe:
        """Subscribe a new probe and wait for its Subscription."""
        probe = Probe(self.trial, name, on_subscribe=on_subscribe, on_next=on_next)
        probe.subscribe_to(publisher)
        probe.expect_subscription()
        return probe

    def expect_end_of_signals(self, probe: Probe, enough: int = MANY) -> None:
        """Listen until nothing has come for a while, or ``enough`` elements have; what was asked is finite.

        A while is longer than the subject has taken for an element so far, unless it says by itself when it
        has settled.
        """
        learns = self.profile != "sync" and type(self).settle is Verification.settle
        began, before, limit = time.monotonic(), len(probe.elements), self.trial.environment.timeout
        heard = -1
        while heard != len(probe.signals) and len(probe.elements) < enough:
            heard = len(probe.signals)
            self.trial.settle()
            if learns:
                self.trial.wait_briefly(lambda: len(probe.signals) != heard, _PACES * probe.pace)  # noqa: B023
            late = len(probe.elements) - before
            if late >= TOO_MANY and time.monotonic() - began > limit:
                raise Violation(
                    "3.12", f"{late} elements came in {limit:g} s, and more keep coming", "that signals cease"
                )

    def expect_release(self, probe: Probe, rule: str, after: str) -> None:
        """Wait until the Publisher has let go of the Subscriber; its Subscription is still in use."""
        deadline = time.monotonic() + self.trial.environment.gc
        while not probe.is_released:
            if time.monotonic() > deadline:
                raise Violation(
                    rule,
                    f"after {after} the Publisher or its Subscription still refers to the Subscriber",
                    "that the Subscriber can be garbage-collected, §3.13",
                )
            self.trial.use(self.collect_garbage, "collect_garbage()")
            time.sleep(0.005)

    def expect_quick(self, calls: Sequence[Callable[[], object]], rule: str, what: str) -> None:
        """Say that the quickest of some calls took no longer than the budget: a busy machine delays a few."""
        took: list[float] = []

        def timed(call: Callable[[], object]) -> None:
            start = time.perf_counter()
            call()
            took.append(time.perf_counter() - start)

        for call in calls:
            self.trial.perform(partial(timed, call), what, rule)
        self.expect_in_budget(took, rule, what)

    def expect_in_budget(self, took: Sequence[float], rule: str, what: str) -> None:
        """Say that the shortest of these times is within the budget."""
        budget = self.trial.environment.budget
        if took and min(took) > budget:
            raise Violation(rule, f"{what} took {min(took):.2f} s at best", f"at most {budget:g} s")

    def require_stochastic(self) -> None:
        """Skip the test if the class wants no test that depends on chance."""
        if self.skip_stochastic_tests:
            raise NotApplicable("skip_stochastic_tests is set")
