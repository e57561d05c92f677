"""Subscribers that keep every rule, alone (black box) or driven by a probe of the kit (white box)."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.spec import (
    UNBOUNDED,
    Subscription,
    none_element,
    none_error,
    none_subscription,
)


class ReferenceSubscriber:
    """Asks for one element at a time; with a probe it asks when told to, and reports what it hears.

    It is its own puppet: the probe calls ``trigger_request`` and ``signal_cancel``. The broken subscribers
    are derived from it, by overriding one of its methods.
    """

    def __init__(self, probe: Any = None) -> None:
        self.probe = probe
        self.elements: list[Any] = []
        self.error: BaseException | None = None
        self.completed = False
        self.cancelled = False
        self.subscription: Any = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        if self.subscription is not None or self.over():
            subscription.cancel()
            return
        self.subscription = subscription
        self.begin()

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("on_next")
        if self.over():
            return
        self.elements.append(element)
        if self.probe is not None:
            self.probe.register_on_next(element)
        else:
            self.go_on()

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self.error = error
        self.subscription = None
        if self.probe is not None:
            self.probe.register_on_error(error)

    def on_complete(self) -> None:
        self.completed = True
        self.subscription = None
        if self.probe is not None:
            self.probe.register_on_complete()

    def over(self) -> bool:
        return self.cancelled or self.completed or self.error is not None

    def begin(self) -> None:
        """The Subscription is here: hand it to the probe, or ask for the first elements."""
        if self.probe is not None:
            self.probe.register_on_subscribe(self)
        else:
            self.trigger_request(1)

    def go_on(self) -> None:
        """An element has been dealt with: ask for another."""
        self.trigger_request(1)

    def trigger_request(self, n: int, /) -> None:
        if self.subscription is not None:
            self.subscription.request(n)

    def signal_cancel(self) -> None:
        if self.subscription is not None:
            self.cancelled = True
            self.subscription.cancel()


class OneAtATime(ReferenceSubscriber):
    """Asks upstream for one element at a time even when it is told to ask for many: §2.1 allows that."""

    def __init__(self, probe: Any = None) -> None:
        super().__init__(probe)
        self._owed = 0
        self._lock = threading.Lock()

    def trigger_request(self, n: int, /) -> None:
        with self._lock:
            self._owed += n
            asking = self._owed == n
        if asking:
            super().trigger_request(1)

    def on_next(self, element: Any, /) -> None:
        with self._lock:
            self._owed -= 1
            more = self._owed > 0
        super().on_next(element)
        if more:
            super().trigger_request(1)


class AsksForEverything(ReferenceSubscriber):
    """Asks once, for all there is, and never again."""

    def begin(self) -> None:
        if self.probe is not None:
            super().begin()
        else:
            self.trigger_request(UNBOUNDED)

    def go_on(self) -> None:
        pass


class AsksInBatches(ReferenceSubscriber):
    """Asks for four elements, and for four more when these have come."""

    def begin(self) -> None:
        if self.probe is not None:
            super().begin()
        else:
            self.trigger_request(4)

    def go_on(self) -> None:
        if len(self.elements) % 4 == 0:
            self.trigger_request(4)


class TakesThreeAndLeaves(ReferenceSubscriber):
    """Alone, it asks for five, cancels in its third on_next, and puts up with what comes after that."""

    def begin(self) -> None:
        if self.probe is not None:
            super().begin()
        else:
            self.trigger_request(5)

    def go_on(self) -> None:
        if len(self.elements) == 3:
            self.signal_cancel()


class WorksOnAnotherThread(ReferenceSubscriber):
    """Only takes note of a signal and deals with it on a thread of its own: what §2.2 recommends.

    ``None`` is refused on the spot; the other signals are dealt with in order. The thread ends when there is
    nothing to do, and the next signal starts another.
    """

    def __init__(self, probe: Any = None) -> None:
        super().__init__(probe)
        self._signals: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._working = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        self._later(super().on_subscribe, subscription)

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("on_next")
        self._later(super().on_next, element)

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self._later(super().on_error, error)

    def on_complete(self) -> None:
        self._later(super().on_complete)

    def trigger_request(self, n: int, /) -> None:
        self._later(super().trigger_request, n)

    def signal_cancel(self) -> None:
        self._later(super().signal_cancel)

    def _later(self, *call: Any) -> None:
        self._signals.put(call)
        with self._lock:
            if self._working:
                return
            self._working = True
        threading.Thread(target=self._work, name="works-on-another-thread", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._signals.empty():
                    self._working = False
                    return
                method, *arguments = self._signals.get()
            method(*arguments)


class AsksOnItsOwnThread(ReferenceSubscriber):
    """Takes signals where they come, and asks on a thread of its own, one request after the other (§2.7).

    With a probe, it asks for one element less than it was told to; for that one the puppet calls the
    Subscription itself, on the thread of the kit.
    """

    def __init__(self, probe: Any = None) -> None:
        super().__init__(probe)
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="asks-on-its-own-thread")

    def begin(self) -> None:
        if self.probe is not None:
            self.probe.register_on_subscribe(_PastTheSubscriber(self))
        else:
            self.ask(1)

    def go_on(self) -> None:
        self.ask(1)

    def ask(self, n: int) -> None:
        self._asking.submit(self.trigger_request, n)


class _PastTheSubscriber:
    """The puppet of a Subscriber that cannot be told to ask on its own thread."""

    def __init__(self, subscriber: AsksOnItsOwnThread) -> None:
        self._subscriber = subscriber
        self.signal_cancel = subscriber.signal_cancel

    def trigger_request(self, n: int, /) -> None:
        for _ in range(n - 1):
            self._subscriber.ask(1)
        self._subscriber.trigger_request(1)


class CancelsSomethingElse(ReferenceSubscriber):
    """Cancels another Subscription in on_complete and on_error; §2.3 speaks of its own only."""

    class Elsewhere:
        """A Subscription to some other Publisher."""

        cancelled = False

        def request(self, n: int, /) -> None:
            pass

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self, probe: Any = None) -> None:
        super().__init__(probe)
        self.elsewhere = self.Elsewhere()

    def on_complete(self) -> None:
        self.elsewhere.cancel()
        super().on_complete()

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        self.elsewhere.cancel()
