"""What a Subscriber that helps with its own test talks to."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.tck.evidence import same, shown
from penstock.tck.trial import Trial
from penstock.tck.verdicts import Violation


class SubscriberPuppet(Protocol):
    """How the kit pulls the strings of a Subscriber; the Subscriber hands it over itself."""

    def trigger_request(self, n: int, /) -> None:
        """Ask upstream for ``n`` elements, at once or bit by bit."""
        ...

    def signal_cancel(self) -> None:
        """Cancel the Subscription."""
        ...


class WhiteboxSubscriberProbe:
    """Given to ``create_subscriber``: the Subscriber tells it what it has received.

    It calls ``register_on_subscribe`` with a puppet when it has a Subscription, and the other methods when it
    has dealt with a signal; on which thread does not matter.
    """

    def __init__(self, trial: Trial) -> None:
        """Belong to ``trial``."""
        self.puppet: SubscriberPuppet | None = None
        self.elements: list[Any] = []
        self.error: BaseException | None = None
        self.completed = False
        self._trial = trial
        self._checked = 0

    # ---------------------------------------------------------------- what the subscriber says
    def register_on_subscribe(self, puppet: SubscriberPuppet) -> None:
        """There is a Subscription; ``puppet`` acts on it."""
        with self._trial.condition:
            self._trial.log.add("← probe: register_on_subscribe")
            if self.puppet is not None:
                self._trial.flaw(
                    "2.5", "a second Subscription was registered", "that the Subscriber keeps its first one"
                )
            self.puppet = puppet
            self._trial.condition.notify_all()

    def register_on_next(self, element: Any) -> None:
        """An element was received."""
        with self._trial.condition:
            self._trial.log.add(f"← probe: register_on_next({shown(element)})")
            self.elements.append(element)
            self._trial.condition.notify_all()

    def register_on_error(self, error: BaseException) -> None:
        """The failure was received."""
        with self._trial.condition:
            self._trial.log.add(f"← probe: register_on_error({shown(error)})")
            self.error = error
            self._trial.condition.notify_all()

    def register_on_complete(self) -> None:
        """The end was received."""
        with self._trial.condition:
            self._trial.log.add("← probe: register_on_complete()")
            self.completed = True
            self._trial.condition.notify_all()

    # ---------------------------------------------------------------- what a test expects
    def expect_puppet(self) -> SubscriberPuppet:
        """Wait for the puppet."""
        if not self._trial.wait_until(lambda: self.puppet is not None):
            raise Violation(
                "2.1",
                "the Subscriber did not call probe.register_on_subscribe(puppet) in on_subscribe",
                "a puppet, without which nothing can be checked",
            )
        assert self.puppet is not None
        return self.puppet

    def expect_next(self, element: Any, rule: str) -> None:
        """Wait for the next element, which has to be this one."""
        index = self._checked
        if not self._trial.wait_until(lambda: len(self.elements) > index):
            raise Violation(rule, f"{shown(element)} was not registered", "register_on_next")
        self._checked += 1
        if not same(self.elements[index], element):
            raise Violation(rule, f"{shown(self.elements[index])} was registered", shown(element))

    def expect_error(self, error: BaseException, rule: str) -> None:
        """Wait for the failure, which has to be the same object."""
        if not self._trial.wait_until(lambda: self.error is not None):
            raise Violation(rule, f"{shown(error)} was not registered", "register_on_error")
        if self.error is not error:
            raise Violation(rule, f"{shown(self.error)} was registered", f"the same object, {shown(error)}")

    def expect_complete(self, rule: str) -> None:
        """Wait for the end."""
        if not self._trial.wait_until(lambda: self.completed):
            raise Violation(rule, "the end was not registered", "register_on_complete")


class Probed:
    """Any Subscriber, with a probe beside it: forwards each signal and then tells the probe.

    For a Subscriber that was written without the kit in mind::

        def create_subscriber(self, probe):
            return Probed(MySubscriber(), probe)

    What a method returns is returned as well: a coroutine shows that nothing has been done.
    """

    def __init__(self, subscriber: Any, probe: WhiteboxSubscriberProbe) -> None:
        """Put ``probe`` beside ``subscriber``."""
        self._subscriber = subscriber
        self._probe = probe
        self._subscription: Any = None

    def on_subscribe(self, subscription: Any, /) -> Any:
        """Forward it, and register as the puppet of the first Subscription."""
        first = self._subscription is None
        if first:
            # Before it is forwarded: a Subscriber that asks in there may hear of the end in there (§3.11).
            self._subscription = subscription
        made = self._subscriber.on_subscribe(subscription)
        if first:
            self._probe.register_on_subscribe(self)
        return made

    def on_next(self, element: Any, /) -> Any:
        """Forward and register."""
        made = self._subscriber.on_next(element)
        self._probe.register_on_next(element)
        return made

    def on_error(self, error: Any, /) -> Any:
        """Forward and register."""
        made = self._subscriber.on_error(error)
        self._over()
        self._probe.register_on_error(error)
        return made

    def on_complete(self) -> Any:
        """Forward and register."""
        made = self._subscriber.on_complete()
        self._over()
        self._probe.register_on_complete()
        return made

    def trigger_request(self, n: int, /) -> None:
        """Ask in the Subscriber's place."""
        self._subscription.request(n)

    def signal_cancel(self) -> None:
        """Cancel in the Subscriber's place."""
        self._subscription.cancel()

    def _over(self) -> None:
        # After the end the Subscription counts as cancelled, for the puppet too (§2.4).
        self._subscription = _Over()


class _Over:
    def request(self, n: int, /) -> None:
        """Nobody is there to ask."""

    def cancel(self) -> None:
        """Nothing is left to cancel."""
