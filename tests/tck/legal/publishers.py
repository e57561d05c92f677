"""Publishers that keep every rule: on threads and event loops, and some that look odd and are legal."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, ClassVar

from penstock.spec import Subscriber, none_subscriber
from tests.tck.legal.serving import RangePublisher, SequencePublisher, SequenceSubscription, Signal


class ThreadedPublisher(RangePublisher):
    """Signals on a thread of its own: each burst of demand is served by a new one."""

    class Subscription(SequenceSubscription):
        def run(self) -> None:
            threading.Thread(target=self.emit, name="threaded-publisher", daemon=True).start()


class SubscribesOnAnotherThread(RangePublisher):
    """Calls even on_subscribe on its own thread, so that subscribe has returned before anything happens."""

    _worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="subscribes-elsewhere")

    class Subscription(SequenceSubscription):
        def run(self) -> None:
            SubscribesOnAnotherThread._worker.submit(self.emit)

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        self._worker.submit(super().subscribe, subscriber)


class AsyncioPublisher(RangePublisher):
    """Signals from a task of an event loop that runs on another thread, one turn of the loop each."""

    class Subscription(SequenceSubscription):
        def run(self) -> None:
            asyncio.run_coroutine_threadsafe(self.emit_in_turns(), _event_loop())

        async def emit_in_turns(self) -> None:
            while True:
                with self.lock:
                    signal = self.next_signal()
                    if signal is None:
                        self.draining = False
                        return
                signal()
                del signal  # It knows the Subscriber, who may leave while we wait: §3.13.
                await asyncio.sleep(0)


class AsyncioTaskPublisher(RangePublisher):
    """Signals from a task of the event loop on which it is asked; for those who live on one loop."""

    class Subscription(AsyncioPublisher.Subscription):
        def run(self) -> None:
            self.task = asyncio.get_running_loop().create_task(self.emit_in_turns())


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def turn_round() -> None:
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=turn_round, name="asyncio-publisher", daemon=True)
    thread.start()

    def stop() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1)

    atexit.register(stop)
    return loop


class SharedLog(Sequence[Any]):
    """What was read from an iterator, which is read once however many readers there are."""

    def __init__(self, source: Iterable[Any], length: int) -> None:
        self._source = iter(source)
        self._length = length
        self._read: list[Any] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: Any) -> Any:
        with self._lock:
            while len(self._read) <= position:
                self._read.append(next(self._source))
            return self._read[position]


class MulticastPublisher(SequencePublisher):
    """Reads its source once and gives all Subscribers the same objects in the same order: §1.11, §1.12."""

    def __init__(self, count: int) -> None:
        super().__init__(SharedLog((object() for _ in range(count)), count))


class UnicastPublisher(RangePublisher):
    """Serves its first Subscriber only; others are turned away with on_subscribe and then on_error: §1.9."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._taken = threading.Lock()

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscription = self.Subscription(subscriber, self.elements)
        if not self._taken.acquire(blocking=False):
            subscription.failure = RuntimeError("this publisher has its subscriber already")
        subscriber.on_subscribe(subscription)
        subscription.start()


class MulticastShares(RangePublisher):
    """Gives each element to one of its Subscribers, as workers share a queue: unicast, which §1.11 allows.

    Declared as multicast it would break §1.11 and §1.12.
    """

    class Subscription(SequenceSubscription):
        elements: Any

        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.lock = elements.lock

        def has_next(self) -> bool:
            return bool(self.elements.left)

        def take(self) -> Any:
            return self.elements.take()

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.elements: Any = _WorkQueue(count)


class _WorkQueue:
    """Numbers from 0, each handed out once, to whoever holds the lock."""

    def __init__(self, count: int) -> None:
        self.lock = threading.RLock()
        self.count = self.left = count

    def take(self) -> int:
        self.left -= 1
        return self.count - self.left - 1


class CompletesWithTheLastElement(RangePublisher):
    """Signals on_complete in one go with the last element, before anybody can ask for more or cancel."""

    class Subscription(SequenceSubscription):
        def next_signal(self) -> Signal | None:
            on_next = super().next_signal()
            if on_next is None or self.done or not self.exhausted():
                return on_next
            on_complete = self.end(self.subscriber.on_complete)

            def both() -> None:
                on_next()
                on_complete()

            return both


class CompletesOnlyWithDemand(RangePublisher):
    """Looks whether there is more only when it is asked for more, as a reader finds the end of a file."""

    class Subscription(SequenceSubscription):
        def exhausted(self) -> bool:
            return self.demand > 0 and super().exhausted()


class EmptyNeedsDemand(RangePublisher):
    """An empty stream that ends on the first request, not before; other streams end at once."""

    class Subscription(SequenceSubscription):
        def exhausted(self) -> bool:
            return super().exhausted() and (len(self.elements) > 0 or self.demand > 0)


class RequestWaitsForTheSignal(RangePublisher):
    """A request from another thread waits for a running signal, which is slow but legal; cancel does not."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.signalling = threading.RLock()

        def request(self, n: int, /) -> None:
            with self.signalling:
                super().request(n)

        def deliver(self, signal: Signal) -> None:
            with self.signalling:
                signal()


class SendsItsBatchToTheEnd(RangePublisher):
    """Takes up to four elements that were asked for and sends them, though the Subscriber leaves: §2.8."""

    class Subscription(SequenceSubscription):
        def next_signal(self) -> Signal | None:
            on_next = super().next_signal()
            if on_next is None or self.done:
                return on_next
            batch = [on_next]
            while len(batch) < 4 and self.demand > 0 and self.has_next():
                batch.append(super().next_signal() or on_next)

            def send() -> None:
                for signal in batch:
                    signal()
                batch.clear()

            return send


class StopsWhenOnNextRaises(RangePublisher):
    """Treats a Subscriber that raises as one that has left, and tells the operator of the program: §2.13."""

    told: ClassVar[list[str]] = []

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            try:
                signal()
            except Exception as error:
                StopsWhenOnNextRaises.told.append(repr(error))
                self.cancel()


class WrapsWhatOnNextRaises(RangePublisher):
    """Stops, and lets its caller know by an exception of its own: §2.13 leaves open how."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            try:
                signal()
            except Exception as error:
                raise RuntimeError("the subscriber failed") from error


class RefusesAfterTheEnd(RangePublisher):
    """Can be read once: who comes when the stream is over is refused, as §1.9 has it."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.read = False

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        if subscriber is None:
            raise none_subscriber()
        subscription = self.Subscription(subscriber, self.elements)
        if self.read:
            subscription.failure = RuntimeError("this has been read")
        self.read = True
        subscriber.on_subscribe(subscription)
        subscription.start()


class WorksOnEachElement(RangePublisher):
    """Takes 30 milliseconds for an element; one that is being worked on when the Subscriber leaves comes."""

    work = 0.03

    class Subscription(ThreadedPublisher.Subscription):
        def deliver(self, signal: Signal) -> None:
            time.sleep(WorksOnEachElement.work)
            signal()


class FalsyElements(SequencePublisher):
    """All its elements are false: 0, "", [], False, 0.0, b"", {} and so on."""

    def __init__(self, count: int) -> None:
        super().__init__(_Cycle((0, "", [], False, 0.0, b"", {}), count))


class EqualElements(SequencePublisher):
    """Its elements say that they equal everything, ``None`` and every sentinel included."""

    class Agreeable:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = object.__hash__

    def __init__(self, count: int) -> None:
        super().__init__(_Cycle(tuple(self.Agreeable() for _ in range(7)), count))


class ElementsWithoutTruth(SequencePublisher):
    """Its elements cannot be asked whether they are equal or true, like arrays and data frames."""

    class Array:
        def __eq__(self, other: object) -> Any:
            return self

        def __ne__(self, other: object) -> Any:
            return self

        def __bool__(self) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

        def __len__(self) -> int:
            raise TypeError("an array of no dimensions has no length")

        __hash__ = None  # type: ignore[assignment]

    def __init__(self, count: int) -> None:
        super().__init__(_Cycle(tuple(self.Array() for _ in range(7)), count))


class ElementsThatAreErrors(SequencePublisher):
    """Its elements are exceptions, which are ordinary elements as long as they come by on_next."""

    def __init__(self, count: int) -> None:
        super().__init__(_Cycle((OSError("an element"), StopIteration("an element")), count))


class _Cycle(Sequence[Any]):
    """A few elements over and over, ``length`` altogether."""

    def __init__(self, elements: tuple[Any, ...], length: int) -> None:
        self._elements = elements
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: Any) -> Any:
        return self._elements[position % len(self._elements)]


class SlowPublisher(RangePublisher):
    """Takes a few milliseconds for each element, on a thread of its own so that request does not wait."""

    class Subscription(ThreadedPublisher.Subscription):
        def deliver(self, signal: Signal) -> None:
            time.sleep(0.003)
            signal()
