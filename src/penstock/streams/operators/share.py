"""Streams with several subscribers: sinks, ``cache``, ``share``."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import drop_error
from penstock.streams.fusion import Op
from penstock.streams.home import NOWHERE, Home, home_of
from penstock.streams.operators.boundaries import replenish_at
from penstock.streams.operators.live_buffer import LiveBuffer
from penstock.streams.operators.replay_buffer import EmitResult, ReplayBuffer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["CacheSource", "Feeder", "ReplaySource"]


class ReplaySource(Source):
    """A stream over a buffer that a sink writes."""

    def __init__(self, label: str, buffer: ReplayBuffer) -> None:
        super().__init__(label)
        self.buffer = buffer

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Take a place in the buffer, if there is one."""
        cursor = self.buffer.new_cursor(ops, downstream, self.label, self.place)
        joined = self.buffer.join(cursor)
        if not joined:
            cursor.violation = RuntimeError(
                "a unicast sink can have one subscriber, and has had it; use Sinks.multicast() for several"
            )
            cursor.halted = True
        cursor.introduce()

    def runs_on(self) -> str:
        return "emitter"


class CacheSource(Source):
    """``cache``, ``share``: one subscription to the stream above serves all subscribers below."""

    frames = 8

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        capacity: int,
        history: int,
        *,
        lasting: bool,
        ahead: int = UNBOUNDED,
        urgent_errors: bool = False,
    ) -> None:
        super().__init__(label)
        self._upstream = upstream
        self._capacity = capacity
        self._history = history
        self._lasting = lasting
        """Whether the run goes on without subscribers; otherwise the next subscriber starts a new one."""
        self._ahead = ahead
        """How many elements may be on their way at once."""
        self._urgent_errors = urgent_errors
        """Whether an error passes the elements that wait for slow subscribers."""
        self._mutex = allocate_lock()
        self._feeder: Feeder | None = None

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        with self._mutex:
            if self._feeder is not None and self._feeder.done and not self._lasting:
                self._feeder = None
            connect = self._feeder is None
            feeder = self._feeder = self._feeder or self._new_feeder(home_of(downstream))
            cursor = feeder.buffer.new_cursor(ops, downstream, self.label, self.place)
            feeder.buffer.join(cursor)
        cursor.introduce()
        return (self._upstream, feeder) if connect else None

    def _new_feeder(self, home: Home) -> Feeder:
        deserted = None if self._lasting else self._deserted
        if self._history:
            buffer = ReplayBuffer(
                self._capacity, self._history, urgent_errors=self._urgent_errors, when_deserted=deserted
            )
        else:
            buffer = LiveBuffer(self._capacity, urgent_errors=self._urgent_errors, when_deserted=deserted)
        return Feeder(buffer, self._ahead, home.apart())

    def _deserted(self) -> None:
        with self._mutex:
            feeder = self._feeder
            if feeder is None or feeder.buffer.subscriber_count():
                return  # a subscriber came back meanwhile
            self._feeder = None
        feeder.cancel()

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class Feeder:
    """Writes a stream into a buffer, asking for no more than the readers want and the buffer can hold.

    A buffer without a bound could ask for everything at once. But demand cannot be taken back, and an endless
    source that works inside ``request`` would go on after all readers have left. So no more than ``ahead``
    elements are on their way, and the next ones are asked for as these come in.
    """

    __slots__ = (
        "_ahead",
        "_asked",
        "_asking",
        "_look_at",
        "_received",
        "_refill_at",
        "_subscription",
        "buffer",
        "cancelled",
        "done",
        "home",
    )

    def __init__(self, buffer: ReplayBuffer, ahead: int = UNBOUNDED, home: Home = NOWHERE) -> None:
        self.buffer = buffer
        self.home = home
        self._ahead = ahead
        self._refill_at = ahead - replenish_at(ahead) if ahead < UNBOUNDED else -1
        """Ask for the next when no more than this many are on their way."""
        self._look_at = self._refill_at
        """The same for the present demand: a small one can be met as soon as there is room for it."""
        self._subscription: Subscription | None = None
        self._asked = 0
        self._received = 0
        self._asking = allocate_lock()
        self.done = self.cancelled = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._subscription is not None or self.cancelled:
            subscription.cancel()
            return
        self._subscription = self.buffer.feed = subscription
        self.buffer.on_read = self._look
        if self.cancelled:
            self.cancel()  # by another thread meanwhile
            return
        self._look()

    def is_starving(self) -> bool:
        """Whether one of the readers waits for an element."""
        return self.buffer.is_starving()

    def on_next(self, element: Any, /) -> None:
        self._received += 1
        self.buffer.append_asked(element)
        if self._asked - self._received <= self._look_at:
            self._look()

    def on_error(self, error: BaseException, /) -> None:
        self.done = True
        if self.cancelled or self.buffer.end(error) is not EmitResult.OK:
            drop_error(error, "a shared stream, after its end")

    def on_complete(self) -> None:
        self.done = True
        self.buffer.end(None)

    def _look(self) -> None:
        """Ask for what is wanted now; if another thread is doing that, leave it to that one."""
        while not self.done and not self.cancelled and self._missing() > 0:
            if not self._asking.acquire(False):
                return
            try:
                n = self._missing()
                self._asked += n
            finally:
                self._asking.release()
            if n > 0 and self._subscription is not None:
                self._subscription.request(n)

    def _missing(self) -> int:
        wanted, space = self.buffer.wanted_upto(), self.buffer.space_upto()
        missing = min(wanted, space, UNBOUNDED) - self._asked
        self._look_at = self._refill_at
        if missing <= 0:
            return 0
        on_the_way = self._asked - self._received
        if missing <= self._ahead - on_the_way and (wanted <= space or self._refill_at < 0):
            return missing
        self._look_at = max(self._refill_at, self._ahead - missing)
        # Asking one by one, as elements come in or are taken, would cost a call for each.
        return min(missing, self._ahead - on_the_way) if on_the_way <= max(self._refill_at, 0) else 0

    def cancel(self) -> None:
        self.cancelled = True
        self.buffer.on_read = None
        if self._subscription is not None and not self.done:
            self._subscription.cancel()
