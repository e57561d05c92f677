"""Publishers that count demand in other ways than under one lock, and keep every rule."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber
from tests.tck.legal.serving import RangePublisher, SequenceSubscription, Signal


class CountsOnBothSides(RangePublisher):
    """Who asks and who sends each have a number that only they write, so the numbers need no lock."""

    class Subscription(SequenceSubscription):
        asked = sent = 0

        def request(self, n: int, /) -> None:
            if self.done:
                return
            if isinstance(n, int) and n > 0:
                self.asked += n
            else:
                self.refuse(n)
            self.drain()

        def next_signal(self) -> Signal | None:
            self.demand = min(UNBOUNDED, self.asked) - self.sent
            left = self.position
            signal = super().next_signal()
            self.sent += self.position - left
            return signal


class AddsUntilItFits(RangePublisher):
    """Adds without a lock, and does it again if somebody else has changed the demand meanwhile."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            if not isinstance(n, int) or n < 1:
                super().request(n)
                return
            while True:
                before = self.demand
                after = self.add(n)
                with self.lock:
                    if self.demand is before:
                        self.demand = after
                        break
            self.drain()


class PassesRequestsOn(RangePublisher):
    """Leaves a note for whoever sends, who alone adds up."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.notes: deque[Any] = deque()

        def request(self, n: int, /) -> None:
            self.notes.append(n)
            self.drain()

        def next_signal(self) -> Signal | None:
            while self.notes and not self.done:
                n = self.notes.popleft()
                if isinstance(n, int) and n > 0:
                    self.demand = self.add(n)
                else:
                    self.refuse(n)
            return super().next_signal()


class TakesPlainNumbersOnly(RangePublisher):
    """Knows no number but ``int`` itself, which keeps ``True`` out: a class of somebody else is refused."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            super().request(n if type(n) is int else 0)


class RaisesUnlessPlain(RangePublisher):
    """The same, with an exception: for a number that is one, that would not be legal."""

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            if type(n) is not int:
                raise TypeError(f"{type(n).__name__} is not int")
            super().request(n)
