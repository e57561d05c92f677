"""Sinks: put elements into a stream from outside, from any thread or task.

>>> sink = Sinks.multicast()
>>> seen = []
>>> running = sink.flux().subscribe(seen.append)
>>> sink.try_emit("hello")
<EmitResult.OK: 'ok'>
>>> seen
['hello']

A sink is bounded. ``try_emit`` never waits, and its result says what became of the element;
``await sink.emit(x)`` and ``sink.emit_blocking(x)`` wait for the slowest subscriber while the sink is full.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.arguments import a_count, a_function, patience
from penstock.spec import none_element, none_error
from penstock.streams.best_effort import BestEffortSink
from penstock.streams.flux import Flux
from penstock.streams.home import loop_here
from penstock.streams.mono import Mono
from penstock.streams.operators.live_buffer import LiveBuffer
from penstock.streams.operators.overflow import Overflow, a_policy
from penstock.streams.operators.replay_buffer import EmitResult, ReplayBuffer
from penstock.streams.operators.share import ReplaySource
from penstock.streams.terminal.readers import refuse_to_block

__all__ = ["EmissionFailed", "EmitResult", "Sink", "SinkOne", "Sinks"]

T = TypeVar("T")


class EmissionFailed(RuntimeError):
    """An element was offered to a sink that has ended, or has lost its only subscriber."""

    def __init__(self, result: EmitResult) -> None:
        super().__init__(f"the sink did not take the element: it is {result.value}")
        self.result = result

    def __reduce__(self) -> tuple[type[EmissionFailed], tuple[EmitResult]]:
        # The inherited way would build the copy from the message instead of the result.
        return type(self), (self.result,)


class Sink(Generic[T]):
    """Elements go in here and come out of :meth:`flux`."""

    def __init__(self, buffer: ReplayBuffer, name: str) -> None:
        """Made by :class:`Sinks`."""
        self._buffer = buffer
        self._name = name

    def flux(self) -> Flux[T]:
        """The stream of what is emitted here."""
        return Flux._of(ReplaySource(self._name, self._buffer))

    def try_emit(self, element: T) -> EmitResult:
        """Offer an element; never waits."""
        if element is None:
            raise none_element(f"{self._name}.try_emit")
        return self._buffer.append(element)

    def try_complete(self) -> EmitResult:
        """Complete the stream; elements emitted before still reach every subscriber."""
        return self._buffer.end(None)

    def try_error(self, error: BaseException) -> EmitResult:
        """Fail the stream; elements emitted before still reach every subscriber."""
        if error is None:
            raise none_error()
        return self._buffer.end(error)

    async def emit(self, element: T) -> None:
        """Emit an element; waits while the sink is full.

        Raises EmissionFailed if the sink has ended or its only subscriber has left.
        """
        result = self.try_emit(element)
        if result is EmitResult.OVERFLOW:
            loop = loop_here()
            freed: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                try:
                    loop.call_soon_threadsafe(_settle, freed)
                except RuntimeError:
                    self._buffer.withdraw(ticket)  # the loop is closed: nobody waits any more

            ticket = self._buffer.wait(wake)
            try:
                await freed
                result = self._buffer.append(element, ticket)
            finally:
                self._buffer.withdraw(ticket)
        if result is not EmitResult.OK:
            raise EmissionFailed(result)

    def emit_blocking(self, element: T, timeout: float | None = None) -> None:
        """Emit an element from a plain thread; waits while the sink is full.

        Raises EmissionFailed if the sink has ended or its only subscriber has left, and TimeoutError after
        ``timeout`` seconds. On the thread of an event loop, where waiting would block the loop, it raises
        RuntimeError instead: use ``await sink.emit(x)`` there.
        """
        limit = patience(timeout, "emit_blocking()")
        result = self.try_emit(element)
        if result is EmitResult.OVERFLOW:
            if limit != 0:
                refuse_to_block("emit_blocking()", "await sink.emit(x)")
            freed = threading.Event()
            ticket = self._buffer.wait(freed.set)
            try:
                if not freed.wait(limit):
                    raise TimeoutError(
                        f"{self._name} was full for {timeout} s: its slowest subscriber does not request more"
                    )
                result = self._buffer.append(element, ticket)
            finally:
                self._buffer.withdraw(ticket)
        if result is not EmitResult.OK:
            raise EmissionFailed(result)

    def subscriber_count(self) -> int:
        """How many subscribers there are now."""
        return self._buffer.subscriber_count()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SinkOne(Generic[T]):
    """A sink for one value, an error, or an empty completion. Made by :meth:`Sinks.one`."""

    def __init__(self) -> None:
        self._buffer = ReplayBuffer(capacity=1, history=1)

    def mono(self) -> Mono[T]:
        """The stream of the value, also for late subscribers."""
        return Mono._of(ReplaySource("one", self._buffer))

    def try_value(self, value: T) -> EmitResult:
        """Set the value and complete."""
        if value is None:
            raise none_element("one.try_value")
        return self._buffer.settle(value)

    def try_empty(self) -> EmitResult:
        """Complete without a value."""
        return self._buffer.end(None)

    def try_error(self, error: BaseException) -> EmitResult:
        """Fail."""
        if error is None:
            raise none_error()
        return self._buffer.end(error)


class Sinks:
    """Makes sinks.

    A type checker cannot know what you will emit, so say it: ``sink: Sink[str] = Sinks.multicast()``.
    """

    @staticmethod
    def one() -> SinkOne[T]:
        """A sink for at most one value, which every subscriber receives, however late."""
        return SinkOne()

    @staticmethod
    def unicast(capacity: int = 256) -> Sink[T]:
        """A sink for one subscriber; up to ``capacity`` elements wait for it."""
        return Sink(LiveBuffer(a_count(capacity, "unicast()"), single=True), "unicast")

    @staticmethod
    def multicast(capacity: int = 256) -> Sink[T]:
        """A sink for any number of subscribers, which all receive the same elements.

        A subscriber starts with the oldest element that is still there. Up to ``capacity`` elements wait for
        the slowest subscriber or, while there is none, for the first one.
        """
        return Sink(LiveBuffer(a_count(capacity, "multicast()")), "multicast")

    @staticmethod
    def best_effort(
        capacity: int = 256,
        overflow: Overflow = Overflow.DROP_OLDEST,
        on_dropped: Callable[[T], object] | None = None,
    ) -> BestEffortSink[T]:
        """A sink that never waits, for any number of subscribers: a slow one misses elements.

        Up to ``capacity`` elements wait for each subscriber. If more come, that subscriber misses the oldest
        or the newest, or fails, as ``overflow`` says; ``on_dropped(element)`` is called for each one missed.

        >>> sink = Sinks.best_effort(capacity=2)
        >>> [sink.try_emit(n).name for n in range(3)]
        ['OK', 'OK', 'OK']
        """
        if on_dropped is not None:
            a_function(on_dropped, "best_effort(on_dropped=…)")
        least = a_count(capacity, "best_effort()", least=0)
        return BestEffortSink(least, a_policy(overflow, "best_effort"), on_dropped)

    @staticmethod
    def replay(history: int) -> Sink[T]:
        """A sink that sends its last ``history`` elements to every new subscriber first."""
        kept = a_count(history, "replay()")
        return Sink(ReplayBuffer(kept, history=kept), "replay")
