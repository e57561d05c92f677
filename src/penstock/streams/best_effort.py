"""A sink that never waits: a subscriber that is too slow misses elements, and the others do not notice."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from penstock.spec import Subscriber, none_element, none_error
from penstock.streams.errors import KeptError
from penstock.streams.flux import Flux
from penstock.streams.fusion import Op, relay_for
from penstock.streams.operators.overflow import Overflow, Overflowing
from penstock.streams.operators.replay_buffer import EmitResult
from penstock.streams.source import Source

__all__ = ["BestEffortSink"]

T = TypeVar("T")


class BestEffortSink(Generic[T]):
    """Sends each element to every subscriber that is there. Made by :meth:`Sinks.best_effort`.

    Every subscriber has a queue of its own, so a slow one holds up neither the emitter nor the others. When
    its queue is full, the policy of the sink says which element it misses. Elements that several threads emit
    at the same moment may reach different subscribers in a different order.
    """

    def __init__(
        self, capacity: int, overflow: Overflow, on_dropped: Callable[[T], object] | None = None
    ) -> None:
        """Made by :class:`Sinks`."""
        self._capacity = capacity
        self._overflow = overflow
        self._on_dropped = on_dropped
        self._mutex = allocate_lock()
        self._subscribers: tuple[Overflowing, ...] = ()
        self._ended = False
        self._error: KeptError | None = None

    def flux(self) -> Flux[T]:
        """The stream of what is emitted here from now on; after the end, just the end."""
        return Flux._of(_BestEffortSource(self, self._capacity, self._overflow, self._on_dropped))

    def try_emit(self, element: T) -> EmitResult:
        """Send an element to all subscribers. Never waits, and is never refused before the end."""
        if element is None:
            raise none_element("best_effort.try_emit")
        if self._ended:
            return EmitResult.TERMINATED
        for subscriber in self._subscribers:
            subscriber.on_next(element)
        return EmitResult.OK

    def try_complete(self) -> EmitResult:
        """Complete the stream; what waits for a subscriber still reaches it."""
        return self._end(None)

    def try_error(self, error: BaseException) -> EmitResult:
        """Fail the stream; what waits for a subscriber still reaches it."""
        if error is None:
            raise none_error()
        return self._end(error)

    def subscriber_count(self) -> int:
        """How many subscribers there are now."""
        return len(self._subscribers)

    def _end(self, error: BaseException | None) -> EmitResult:
        with self._mutex:
            if self._ended:
                return EmitResult.TERMINATED
            self._error = None if error is None else KeptError(error)
            self._ended = True
            subscribers, self._subscribers = self._subscribers, ()
        for subscriber in subscribers:
            self._tell_end(subscriber)
        return EmitResult.OK

    def _tell_end(self, subscriber: Overflowing) -> None:
        if self._error is None:
            subscriber.on_complete()
        else:
            subscriber.on_error(self._error.give())

    def _join(self, subscriber: Overflowing) -> None:
        with self._mutex:
            ended = self._ended
            if not ended:
                self._subscribers = (*self._subscribers, subscriber)
        if ended:
            self._tell_end(subscriber)
        elif subscriber.closed:
            self._leave(subscriber)  # cancelled by another thread meanwhile

    def _leave(self, subscriber: Overflowing) -> None:
        with self._mutex:
            self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)


class _BestEffortSource(Source):
    """A queue for each subscriber."""

    frames = 8

    def __init__(
        self,
        sink: BestEffortSink[Any],
        capacity: int,
        overflow: Overflow,
        on_dropped: Callable[[Any], object] | None,
    ) -> None:
        super().__init__("best_effort")
        self._sink = sink
        self._overflow = overflow
        self._on_dropped = on_dropped
        self.boundary = capacity

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Operators below go into a relay, so that the queue sees the demand that they pass on."""
        assert self.boundary is not None
        target = relay_for(ops, downstream, self.label, self.place)
        stage = Overflowing(self.boundary, self._overflow, self._on_dropped, target, self.label, self.place)
        stage.context = copy_context()
        stage.introduce()
        if stage.closed:
            return
        stage.on_subscribe(_Membership(self._sink, stage))
        self._sink._join(stage)

    def runs_on(self) -> str:
        return "emitter"


class _Membership:
    """The subscription of one queue."""

    __slots__ = ("_sink", "_subscriber")

    def __init__(self, sink: BestEffortSink[Any], subscriber: Overflowing) -> None:
        self._sink = sink
        self._subscriber = subscriber

    def request(self, n: int, /) -> None:
        """An emitter that never waits cannot be asked for elements."""

    def cancel(self) -> None:
        self._sink._leave(self._subscriber)
