"""A Publisher and a Subscriber that do as the test tells them, right or wrong, and write everything down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.spec import RuleViolation, Subscriber, Subscription, strict


class Wire:
    """A Subscription that writes down what it is asked, and answers as it is told."""

    def __init__(
        self,
        on_request: Callable[[int], None] = lambda n: None,
        on_cancel: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests: list[Any] = []
        self.cancels = 0
        self._on_request = on_request
        self._on_cancel = on_cancel

    def request(self, n: int, /) -> None:
        self.requests.append(n)
        self._on_request(n)

    def cancel(self) -> None:
        self.cancels += 1
        self._on_cancel()


class Puppet:
    """A Publisher whose Subscriber the test signals by hand, through ``to``."""

    def __init__(self, wire: Wire | None = None, *, greets: bool = True) -> None:
        self.wire = wire or Wire()
        self.to: Any = None
        self._greets = greets

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self.to = subscriber
        if self._greets:
            subscriber.on_subscribe(self.wire)


class Probe:
    """A Subscriber that writes down its signals, and calls ``then`` inside each of them."""

    def __init__(
        self, request: int = 0, then: Callable[[Probe, str], None] = lambda probe, signal: None
    ) -> None:
        self.signals: list[Any] = []
        self.subscription: Any = None
        self._request = request
        self.then = then

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.signals.append("subscribe")
        self.subscription = subscription
        if self._request:
            subscription.request(self._request)
        self.then(self, "subscribe")

    def on_next(self, element: Any, /) -> None:
        self.signals.append(element)
        self.then(self, "next")

    def on_error(self, error: BaseException, /) -> None:
        self.signals.append(error)
        self.then(self, "error")

    def on_complete(self) -> None:
        self.signals.append("complete")
        self.then(self, "complete")

    @property
    def shape(self) -> list[Any]:
        """The signals, with a violation shown by its rule."""
        return [f"§{s.rule}" if isinstance(s, RuleViolation) else s for s in self.signals]


class Case:
    """A Puppet and a Probe with a guard between them, around the one or around the other."""

    def __init__(self, puppet: Puppet, probe: Probe, *, around: str) -> None:
        self.violations: list[RuleViolation] = []
        self.puppet = puppet
        self.probe = probe
        self.wire = puppet.wire
        if around == "publisher":
            strict(puppet, self.violations.append).subscribe(probe)
        else:
            puppet.subscribe(strict(probe, self.violations.append))

    @property
    def to(self) -> Any:
        """The guard, as the Publisher sees it."""
        return self.puppet.to

    @property
    def rules(self) -> list[str]:
        """The rules that were reported, in order."""
        return [violation.rule for violation in self.violations]


def raising(error: BaseException) -> Callable[..., None]:
    """Return a function that raises ``error`` whatever it is called with."""

    def function(*arguments: object) -> None:
        raise error

    return function
