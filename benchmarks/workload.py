"""The work that all alternatives do, and the subscribers at the end of it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic_ns
from typing import Any

from penstock.spec import UNBOUNDED, Subscription
from penstock.streams import Flux

__all__ = [
    "WINDOW",
    "Counting",
    "Unbounded",
    "Windowed",
    "add_one",
    "chain",
    "double",
    "is_even",
    "sum_of_all",
    "sum_of_chain",
]

WINDOW = 256
LONGEST = 60.0
"""Seconds after which a stream on another thread counts as lost."""

# Lambdas, since that is what people write; every alternative calls these three.
add_one: Callable[[int], int] = lambda x: x + 1  # noqa: E731
is_even: Callable[[int], bool] = lambda x: not x & 1  # noqa: E731
double: Callable[[int], int] = lambda x: x * 2  # noqa: E731


def chain(n: int) -> Flux[int]:
    """The chain that is measured most: one in three operators drops half of what comes in."""
    return Flux.range(n).map(add_one).filter(is_even).map(double)


def sum_of_chain(n: int) -> int:
    """The sum of what comes out of the chain: twice the even numbers up to n."""
    half = n // 2
    return 2 * half * (half + 1)


def sum_of_all(n: int) -> int:
    """The sum of what goes in."""
    return n * (n - 1) // 2


class Unbounded:
    """A Subscriber that asks for everything at once."""

    __slots__ = ("elsewhere", "ended", "error", "total")

    def __init__(self, elsewhere: Event | None = None) -> None:
        self.total = 0
        self.error: BaseException | None = None
        self.ended = False
        self.elsewhere = elsewhere
        """Set at the end; for a subscriber that runs on another thread."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """No backpressure."""
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        """The least that a subscriber can do with an element."""
        self.total += element

    def on_error(self, error: BaseException, /) -> None:
        """Kept, to be raised by result()."""
        self.error = error
        self.on_complete()

    def on_complete(self) -> None:
        """The end."""
        self.ended = True
        if self.elsewhere is not None:
            self.elsewhere.set()

    def result(self) -> int:
        """Wait for the end; the sum."""
        if self.elsewhere is not None:
            self.elsewhere.wait(LONGEST)
        if self.error is not None:
            raise self.error
        if not self.ended:
            raise TimeoutError("the stream did not end")
        return self.total


class Windowed(Unbounded):
    """A Subscriber that asks for a window at a time."""

    __slots__ = ("left", "subscription", "window")

    def __init__(self, window: int = WINDOW, elsewhere: Event | None = None) -> None:
        super().__init__(elsewhere)
        self.window = self.left = window

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The first window."""
        self.subscription = subscription
        subscription.request(self.window)

    def on_next(self, element: Any, /) -> None:
        """At the end of a window, the next one."""
        self.total += element
        self.left -= 1
        if not self.left:
            self.left = self.window
            self.subscription.request(self.window)


class Counting:
    """A Subscriber that counts what comes, and knows when it ended."""

    __slots__ = ("count", "ended", "ended_at", "error", "subscription")

    def __init__(self) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self.ended = Event()
        self.ended_at = 0
        """On the machine's monotonic clock, in nanoseconds."""

    def on_subscribe(self, subscription: Any, /) -> None:
        """No backpressure."""
        self.subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        """One more."""
        self.count += 1

    def on_error(self, error: BaseException, /) -> None:
        """Kept."""
        self.error = error
        self.on_complete()

    def on_complete(self) -> None:
        """The end."""
        self.ended_at = monotonic_ns()
        self.ended.set()
