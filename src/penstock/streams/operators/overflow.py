"""Sources that cannot be slowed down, and what happens to elements without demand.

A clock ticks and a mouse moves whether there is demand or not. The user has to say which elements to drop.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.arguments import describe, whole
from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_error
from penstock.streams.fusion import Op, QueueDrain, relay_for
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BackpressureSource", "BufferOverflow", "Overflow", "Overflowing", "a_policy"]


class Overflow(Enum):
    """What to do with an element when there is no demand for it and the buffer is full."""

    ERROR = "error"
    """End the stream with :class:`BufferOverflow`."""
    DROP_NEWEST = "drop newest"
    """Drop the element that just came."""
    DROP_OLDEST = "drop oldest"
    """Drop the element that has waited longest."""


def a_policy(overflow: Any, operator: str) -> Overflow:
    """An Overflow, or a TypeError that names the choices."""
    if not isinstance(overflow, Overflow):
        choices = ", ".join(str(each) for each in Overflow)
        raise TypeError(f"{operator}() needs one of {choices} for overflow, not {describe(overflow)}")
    return overflow


class BufferOverflow(RuntimeError):
    """More elements came than there was demand for, and the buffer is full."""


class Overflowing(QueueDrain):
    """Takes every element of its source, keeps ``size`` of them beyond the demand, and drops the rest."""

    can_flow = True
    __slots__ = (
        "_accepted",
        "_counting",
        "_overflowed",
        "_policy",
        "_requested",
        "_size",
        "_when_dropped",
        "boundless",
    )

    def __init__(
        self,
        size: int,
        policy: Overflow,
        when_dropped: Callable[[Any], object] | None,
        downstream: Subscriber[Any],
        name: str,
        place: Place | None,
    ) -> None:
        super().__init__((), downstream, name, place)
        self._size = size
        self._policy = policy
        self._when_dropped = when_dropped
        self._accepted = 0
        self._overflowed = False
        self._requested = 0
        self.boundless = False
        """Whether everything was requested, so that nothing need be counted."""
        self._counting = allocate_lock()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The source cannot be slowed down: ask for everything."""
        first = self.upstream is None
        super().on_subscribe(subscription)
        if first and not self.closed:
            subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        """Take it, or drop it or an older one. Several threads may call this at once."""
        if self.boundless and self.flowing and self.push(element):
            return
        with self._counting:
            if self.closed or self.done or self.error is not None or self._overflowed:
                return
            dropped: Any = element
            first = False
            if self._accepted < self._size + self._requested:
                self._accepted += 1
                dropped = None
                first = self.flowing and not self.queue
                if not first:
                    self.queue.append(element)
            elif self._policy is Overflow.DROP_OLDEST and self.queue:
                dropped = self._exchange_oldest(element)
            # Of several threads that find the buffer full, one reports it.
            self._overflowed = dropped is not None and self._policy is Overflow.ERROR
        if dropped is not None:
            if self._policy is Overflow.ERROR:
                self._overflow()
                return
            self._dropped(dropped)
        if first:
            if self.push(element):
                return
            self.queue.append(element)
        self.dirty = True
        self.drain()

    def _exchange_oldest(self, element: Any) -> Any:
        """Queue the element in place of the oldest one, which is returned; None if the loop has taken all."""
        self.queue.append(element)
        try:
            return self.queue.popleft()
        except IndexError:
            self._accepted += 1
            return None

    def request(self, n: int, /) -> None:
        """Count demand at once: the source, perhaps on another thread, has to see it."""
        number = whole(n)
        if number is not None and number > 0:
            with self._counting:
                self._requested += number
                self.boundless = self._requested >= UNBOUNDED
        super().request(n)

    def open_demand(self) -> int:
        """Demand that was not met yet."""
        return max(0, self._requested - self._accepted)

    def _overflow(self) -> None:
        upstream = self.upstream
        if upstream is not None:
            upstream.cancel()
        self.on_error(
            BufferOverflow(
                f"{self.name}: an element came without demand, and the buffer of {self._size} is full; "
                "let the subscriber request more, or choose what to drop: "
                "on_backpressure_buffer(size, Overflow.DROP_OLDEST), on_backpressure_drop() or _latest()"
            )
        )

    def _dropped(self, element: Any) -> None:
        if self._when_dropped is not None:
            try:
                self._when_dropped(element)
            except BaseException as error:
                drop_error(error, f"the function given to {self.name} for dropped elements")
                if asks_main_thread_to_stop(error):
                    raise

    def capacity(self) -> int | None:
        return self._size


class BackpressureSource(Source):
    """The ``on_backpressure_…`` operators."""

    frames = 8

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        size: int,
        policy: Overflow,
        when_dropped: Callable[[Any], object] | None,
        *shows: Any,
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self._size = size
        self._policy = policy
        self._when_dropped = when_dropped
        self.boundary = size

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Operators below go into a relay, so that this stage sees the demand that they pass on."""
        target = relay_for(ops, downstream, self.label, self.place)
        stage = Overflowing(self._size, self._policy, self._when_dropped, target, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()
