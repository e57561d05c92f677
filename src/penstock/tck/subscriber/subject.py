"""What the two verifications of a Subscriber have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from penstock.tck.upstream import Upstream
from penstock.tck.verdicts import NotPromised, Violation
from penstock.tck.verification import Verification


class SubscriberSubject(Verification):
    """The hooks of a verification whose subject is a Subscriber."""

    def create_element(self, element: int) -> Any:
        """Return an element that the Subscriber understands; a different one for each number."""
        return element

    _rule_of_failure: ClassVar[str] = "2.13"

    # ---------------------------------------------------------------- for the tests
    def element(self, number: int) -> Any:
        """Have the hook make an element."""
        what = f"create_element({number})"
        return self.trial.ask(lambda: self.create_element(number), what, "an element")

    def send(self, upstream: Upstream, count: int, rule: str, first: int = 1) -> list[Any]:
        """Send elements, each as soon as there is demand for it, and return them."""
        elements = [self.element(number) for number in range(first, first + count)]
        for element in elements:
            upstream.expect_demand(1, rule)
            upstream.send(element)
        return elements

    def expect_none_error(self, action: Callable[[], object], what: str) -> None:
        """Expect that a signal with ``None`` raises ``none_error_type`` at the caller."""
        self.expect_raised(action, what, "2.13", self.none_error_type)

    def expect_second_cancelled(self, subscriber: Any) -> None:
        """Hand over a second Subscription, which has to be cancelled and not to be used (§2.5)."""
        second = Upstream(self.trial, subscriber, "second upstream")
        second.subscribe()
        second.expect_cancel("2.5")
        self.trial.settle()
        if used := [call for call in second.calls if call.startswith("request")]:
            raise Violation("2.5", f"{used[0]} was called on the second Subscription", "cancel only")

    def require_any_thread(self) -> None:
        """Skip the test if the Subscriber lives on an event loop, where alone it may be called."""
        if self.profile == "asyncio":
            raise NotPromised("a subject of the asyncio profile is only called on its event loop")

    def not_of_the_subscriber(self, rule: str) -> None:
        """Skip a test whose rule binds the other side."""
        self.not_checkable(
            f"§{rule} binds the Subscription, which is the kit's own here; PublisherVerification checks it"
        )
