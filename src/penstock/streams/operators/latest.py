"""Operators that never slow their source down: they keep one element, and elements that came before it go.

:class:`Latest` is what they are made of. It takes everything that its source has, and decides which element
is due. One due element waits for demand; the next one takes its place.
"""

from __future__ import annotations

from _thread import allocate_lock
from abc import abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_error
from penstock.streams.fusion import Op, QueueDrain
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.schedulers import Alarm, Scheduler, Timer
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Source, StageSource

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["Latest", "TimedLatest", "conflated"]

Attached = tuple[tuple[Op, ...], Subscriber[Any], str, Place]
"""What every stage is made with: the operators below, the subscriber, and the operator's name and place."""


class Latest(QueueDrain):
    """Takes every element of its source. The queue has at most one element, which is due.

    The source, a clock and the subscriber may be at work at the same time, so the queue and the element that
    is not due yet are changed with the lock. No signal is sent, and no function of the user called, with it.
    """

    head = Head.POLL  # an element that is due is replaced, so the loop must ask
    __slots__ = ("last", "mutex")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.mutex = allocate_lock()
        self.last: Any = NOTHING
        """The newest element, as long as it is not due."""

    @abstractmethod
    def came(self, element: Any) -> None:
        """The source sent an element. Called by one thread at a time (§1.3)."""

    # ---------------------------------------------------------------- what the source calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for everything: the source must not wait for a clock, nor for the subscriber."""
        first = self.upstream is None
        super().on_subscribe(subscription)
        if first and not self.closed:
            subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        if not (self.closed or self.done or self.error is not None):
            self.came(element)

    def on_complete(self) -> None:
        """What has not been sent yet is due now."""
        with self.mutex:
            if self.done or self.error is not None:
                return
            self.put_last()
            self.done = True
        self.wake()

    def on_error(self, error: BaseException, /) -> None:
        """The error waits for an element that is due; one that is not due is lost."""
        with self.mutex:
            late = self.closed or self.done or self.error is not None
            if not late:
                self.error = error
        if late:
            drop_error(error, f"the source of {self.name}, after its end")
        else:
            self.wake()

    # ---------------------------------------------------------------- what a subclass calls
    def put(self, element: Any) -> None:
        """The element is due; it takes the place of one that still waits. Call this with the lock."""
        self.queue.clear()
        self.queue.append(element)

    def put_last(self) -> None:
        """The newest element is due, if there is one. Call this with the lock."""
        if self.last is not NOTHING:
            last, self.last = self.last, NOTHING
            self.put(last)

    def wake(self) -> None:
        """Something changed: look whether there is work."""
        self.dirty = True
        self.drain()

    def fail(self, error: BaseException) -> None:
        """End with an error that is not the source's."""
        upstream = self.upstream
        if upstream is not None and not self.done:
            upstream.cancel()
        self.on_error(error)

    # ---------------------------------------------------------------- what the drain asks
    def source(self) -> Any:
        return self.poll

    def poll(self) -> Any:
        """The element that is due, or PENDING."""
        with self.mutex:
            return self.queue.popleft() if self.queue else PENDING

    def finished(self) -> bool:
        """The source has completed and nothing waits."""
        return self.done and not self.queue

    def discard(self, left: list[Any]) -> None:
        """After an error also report the element that was not due yet."""
        last, self.last = self.last, NOTHING
        super().discard(left if last is NOTHING else [*left, last])

    def capacity(self) -> int | None:
        return 1


class TimedLatest(Latest):
    """A :class:`Latest` with a clock and one timer."""

    __slots__ = ("_context", "_timer", "scheduler")

    def __init__(self, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(*attached)
        self.scheduler = scheduler
        self._context = copy_context()
        self._timer: Timer | None = None

    @abstractmethod
    def ring(self) -> None:
        """The time is over."""

    def set_timer(self, seconds: float) -> None:
        """Have :meth:`ring` called. Not with the lock: a closed scheduler ends the stream."""
        try:
            self._timer = self.scheduler.submit_after(seconds, Alarm(self._context, self._ring, self.fail))
        except Exception as refused:
            self.fail(refused)
            return
        if self.closed or self.done:
            self._cancel_timer()  # the stream ended meanwhile

    def _ring(self) -> None:
        if not (self.closed or self.done or self.error is not None):
            self.ring()

    def on_complete(self) -> None:
        super().on_complete()
        self._cancel_timer()

    def release(self) -> None:
        super().release()
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        timer = self._timer
        if timer is not None:
            timer.cancel()


def conflated(
    upstream: Stream[Any], seed: Callable[[Any], Any], aggregate: Callable[[Any, Any], Any]
) -> Source:
    """``conflate``: elements that come while the subscriber is busy become one."""
    return StageSource("conflate", upstream, 1, lambda *a: _Conflating(seed, aggregate, *a), seed, aggregate)


class _Conflating(Latest):
    """The element that waits is what the functions have made of all that came since the last one was sent."""

    __slots__ = ("_aggregate", "_seed")

    def __init__(
        self, seed: Callable[[Any], Any], aggregate: Callable[[Any, Any], Any], *attached: Any
    ) -> None:
        super().__init__(*attached)
        self._seed = seed
        self._aggregate = aggregate

    def came(self, element: Any) -> None:
        # The functions run on the thread of the source, so that they are done however long the subscriber
        # takes. Meanwhile nothing is in the queue: what is being added to cannot be sent.
        with self.mutex:
            waiting = self.queue.popleft() if self.queue else NOTHING
        try:
            joined = self._seed(element) if waiting is NOTHING else self._aggregate(waiting, element)
        except BaseException as error:
            with self.mutex:
                if waiting is not NOTHING:
                    self.put(waiting)
            self.fail(error)
            if asks_main_thread_to_stop(error):
                raise
            return
        with self.mutex:
            self.put(joined)
        self.wake()
