"""A Subscriber for tests: it asks for what the test says, and writes down all that happens, with the time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.spec import UNBOUNDED, Subscription

__all__ = ["SeenSignal", "TestSubscriber"]

T = TypeVar("T")

NEXT, ERROR, COMPLETE = "on_next", "on_error", "on_complete"


class SeenSignal(NamedTuple):
    """A signal that a subscriber received or sent, and when."""

    time: float
    """Seconds since the subscriber was made."""
    name: str
    """``on_subscribe``, ``on_next``, ``on_error`` or ``on_complete``; ``request`` or ``cancel``."""
    value: Any = None
    """The element, the error, or the number that was requested."""

    def __str__(self) -> str:
        said = "" if self.value is None else f"{self.value!r:.200}"
        return f"{self.name}({said})"


class TestSubscriber(Generic[T]):
    """A Subscriber whose demand the test decides.

    >>> from penstock.streams import Flux
    >>> subscriber = TestSubscriber(demand=2)
    >>> Flux.range(1, 5).subscribe(subscriber)
    >>> subscriber.items
    [1, 2]
    >>> subscriber.request(10)
    >>> subscriber.items, subscriber.completed
    ([1, 2, 3, 4, 5], True)

    Its methods may be called from any thread. For a test that follows a stream step by step use ``verify``.
    """

    __test__ = False  # for pytest, which would take the class for a test

    def __init__(self, demand: int = UNBOUNDED, now: Callable[[], float] = monotonic) -> None:
        """Ask for ``demand`` elements at the beginning; 0 waits for :meth:`request`."""
        self._demand = demand
        self._now = now
        self._begin = now()
        self._subscription: Subscription | None = None
        self.log: list[SeenSignal] = []
        """Everything that happened, in order."""
        self.signals: list[SeenSignal] = []
        """What was received: elements and the end."""
        self.changed = threading.Condition()
        """Notified when something was received."""

    @property
    def items(self) -> list[T]:
        """The elements so far."""
        return [seen.value for seen in list(self.signals) if seen.name == NEXT]

    @property
    def error(self) -> BaseException | None:
        """The error that the stream failed with, if it did."""
        return next((seen.value for seen in list(self.signals) if seen.name == ERROR), None)

    @property
    def completed(self) -> bool:
        """Whether the stream completed."""
        return any(seen.name == COMPLETE for seen in list(self.signals))

    @property
    def terminated(self) -> bool:
        """Whether the stream completed or failed."""
        return any(seen.name != NEXT for seen in list(self.signals))

    @property
    def subscribed(self) -> bool:
        """Whether ``on_subscribe`` came."""
        return self._subscription is not None

    def request(self, n: int) -> None:
        """Ask for ``n`` more elements."""
        subscription = self._given()
        self._note("request", n)
        subscription.request(n)

    def cancel(self) -> None:
        """Cancel the subscription."""
        subscription = self._given()
        self._note("cancel")
        subscription.cancel()

    def time(self) -> float:
        """Seconds since the subscriber was made, as the log counts them."""
        return self._now() - self._begin

    def wait(self, timeout: float = 5.0) -> None:
        """Wait until the stream has ended; raises ``TimeoutError`` if that takes longer."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.terminated, timeout):
                raise TimeoutError(f"the stream did not end within {timeout} s\n{self.story()}")

    def story(self) -> str:
        """The log as text, a line for each signal."""
        lines = [f"  {seen.time:9.3f} s  {seen}" for seen in list(self.log)]
        return "\n".join(["signals so far:", *(lines or ["  none"])])

    # ---------------------------------------------------------------- what a publisher calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the demand that the test gave."""
        if self._subscription is not None:
            subscription.cancel()  # §2.5
            return
        self._subscription = subscription
        self._note("on_subscribe")
        if self._demand:
            self.request(self._demand)

    def on_next(self, element: T, /) -> None:
        self._received(NEXT, element)

    def on_error(self, error: BaseException, /) -> None:
        self._received(ERROR, error)

    def on_complete(self) -> None:
        self._received(COMPLETE)

    def _received(self, name: str, value: Any = None) -> None:
        with self.changed:
            self.signals.append(self._note(name, value))
            self.changed.notify_all()

    def _note(self, name: str, value: Any = None) -> SeenSignal:
        seen = SeenSignal(self.time(), name, value)
        self.log.append(seen)
        return seen

    def _given(self) -> Subscription:
        if self._subscription is None:
            raise RuntimeError("on_subscribe has not come yet, so there is nothing to request or cancel")
        return self._subscription
