"""Publishers that count wrongly, send wrongly, or cannot be asked from inside a signal."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber
from tests.tck.legal.serving import RangePublisher, SequenceSubscription, Signal

LIMIT = 100_000
"""No broken publisher sends more than this, so that one which cannot be stopped comes to an end by itself."""


class BrokenPublisher(RangePublisher):
    """The reference with a limit; each subclass breaks one thing, mostly in its Subscription."""

    def __init__(self, count: int) -> None:
        super().__init__(min(count, LIMIT))


class IgnoresDemand(BrokenPublisher):
    """Breaks §1.1: sends everything as soon as somebody subscribes."""

    class Subscription(SequenceSubscription):
        def start(self) -> None:
            self.demand = UNBOUNDED
            super().start()


class OneExtra(BrokenPublisher):
    """Breaks §1.1: answers every request with one element too many."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            return super().add(n + 1)


class ShortByOne(BrokenPublisher):
    """Completes one element early: §1.2 allows fewer elements than requested, not fewer than there are."""

    def __init__(self, count: int) -> None:
        super().__init__(max(0, count - 1))


class DuplicateFirst(BrokenPublisher):
    """Sends its first element twice, so that the end comes one element late: §1.5."""

    class Subscription(SequenceSubscription):
        repeated = False

        def take(self) -> Any:
            if self.position == 0 and not self.repeated:
                self.repeated = True
                return self.elements[0]
            return super().take()


class EmitsNone(BrokenPublisher):
    """Breaks §2.13: its first element is None."""

    class Subscription(SequenceSubscription):
        def take(self) -> Any:
            element = super().take()
            return None if self.position == 1 else element


class DemandReplaced(BrokenPublisher):
    """Breaks §3.8: a request replaces the demand that is left over instead of adding to it."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            return n


class OverflowIsError(BrokenPublisher):
    """Breaks §3.17: a demand of more than 2**63-1 is answered with on_error."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            if self.demand + n > UNBOUNDED:
                self.failure = OverflowError("too much demand")
            return super().add(n)


class WrapsDemand(BrokenPublisher):
    """Breaks §3.17: demand beyond 2**63-1 starts again at nothing, and the stream stalls."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            wanted = self.demand + n
            return wanted if wanted <= UNBOUNDED else 0


class WrapsAt64(BrokenPublisher):
    """Breaks §3.17: demand is a signed number of 64 bits that becomes negative when it is too large."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            return (self.demand + n + 2**63) % 2**64 - 2**63


class CountsInInt64(BrokenPublisher):
    """Breaks §3.17 and §3.16: a request that does not fit into 64 bits raises OverflowError at the caller."""

    class Subscription(SequenceSubscription):
        def add(self, n: int) -> int:
            return super().add(array("q", [n])[0])


class RequestInOnSubscribeLost(BrokenPublisher):
    """Breaks §3.2: what is requested inside on_subscribe is forgotten."""

    class Subscription(SequenceSubscription):
        def start(self) -> None:
            self.demand = 0
            super().start()


class RequestInOnNextLost(BrokenPublisher):
    """Breaks §3.2: what is requested while a signal is running is forgotten."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            demand = self.demand
            signal()
            self.demand = demand


class GeneratorReentered(BrokenPublisher):
    """Breaks §3.16 and §3.2: a generator does the sending; asked inside on_next, it is running already."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.generator = self.send()

        def send(self) -> Iterator[None]:
            while True:
                while (signal := self.next_signal()) is not None:
                    signal()
                    del signal
                yield

        def start(self) -> None:
            self.draining = False
            self.drain()

        def drain(self) -> None:
            if not self.draining:
                next(self.generator)


class Recursive(BrokenPublisher):
    """Breaks §3.3: a request inside on_next is answered there and then, one level deeper each time."""

    class Subscription(SequenceSubscription):
        def drain(self) -> None:
            self.emit()


class Concurrent(BrokenPublisher):
    """Breaks §1.3: every signal has a thread of its own, and none waits for the one before.

    A request from inside a signal stays until the next signal has begun, so the signals overlap even if they
    are asked for one by one on a busy machine. Not more than eight threads run at a time.
    """

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.permits = threading.Semaphore(8)
            self.mine = threading.local()
            self.begun = 0
            self.another = threading.Condition()

        def request(self, n: int, /) -> None:
            super().request(n)
            if getattr(self.mine, "signalling", False):
                with self.another:
                    self.another.wait_for(lambda: self.begun > self.mine.number, 0.1)
                time.sleep(0.005)

        def deliver(self, signal: Signal) -> None:
            self.permits.acquire(timeout=1)
            threading.Thread(target=self.call, args=(signal,), daemon=True).start()

        def call(self, signal: Signal) -> None:
            with self.another:
                self.begun += 1
                self.mine.number = self.begun
                self.another.notify_all()
            self.mine.signalling = True
            try:
                signal()
            finally:
                self.permits.release()


class CompletesDuringOnNext(BrokenPublisher):
    """Breaks §1.3: asked for more from inside the last on_next, it completes at once on another thread."""

    class Subscription(SequenceSubscription):
        signalling = False

        def request(self, n: int, /) -> None:
            super().request(n)
            if self.signalling and self.exhausted() and not self.done:
                self.draining = False
                other = threading.Thread(target=self.drain, daemon=True)
                other.start()
                other.join(1)

        def deliver(self, signal: Signal) -> None:
            self.signalling = True
            signal()
            self.signalling = False


class SlowRequest(BrokenPublisher):
    """Breaks §3.4: the first request of each Subscription takes 150 milliseconds."""

    class Subscription(SequenceSubscription):
        slow = True

        def request(self, n: int, /) -> None:
            if self.slow:
                self.slow = False
                time.sleep(0.15)
            super().request(n)


class MulticastReorders(BrokenPublisher):
    """Breaks §1.11 and §1.12: those who subscribe later get the same elements in the opposite order."""

    first = True

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        super().subscribe(subscriber)
        if self.first:
            self.first = False
            self.elements = self.elements[::-1]


class MulticastSkips(BrokenPublisher):
    """Breaks §1.11 and §1.12: those who subscribe later get every second element only."""

    first = True

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        super().subscribe(subscriber)
        if self.first:
            self.first = False
            self.elements = self.elements[1::2]
