"""One log, many cursors: what every stream with several subscribers is made of.

Elements go into a log. Each subscriber reads it at its own pace from the oldest element still there, so all
of them see the same sequence (rule 1.12). The log is bounded: it keeps what the slowest subscriber has not
read yet, and as much history behind that as was asked for; beyond its capacity it refuses new elements.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.assembly import Place
from penstock.streams.dropped import drop_error
from penstock.streams.segment import Drain, Op
from penstock.streams.segment.compiling import PENDING, Head
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["CacheSource", "Cursor", "EmitResult", "Log", "LogSource"]


class EmitResult(Enum):
    """What became of an element that was offered to a sink."""

    OK = "ok"
    """It will reach every subscriber."""
    OVERFLOW = "overflow"
    """There is no room until the slowest subscriber reads on: offer it again later, or wait with emit()."""
    TERMINATED = "terminated"
    """The sink was completed, or failed, before."""
    CANCELLED = "cancelled"
    """The only subscriber that this sink can have has left."""


class Log:
    """A bounded sequence of elements and the cursors that read it. Safe from many threads."""

    def __init__(self, capacity: int, history: int, *, single: bool = False) -> None:
        self._capacity = capacity
        self._history = history
        """How many elements stay after everybody has read them."""
        self._single = single
        self._elements: list[Any] = []
        self._first = 0
        """The offset of the oldest element still here."""
        self._cursors: list[Cursor] = []
        self._had_cursor = False
        self._mutex = allocate_lock()
        self._waiters: deque[Callable[[], None]] = deque()
        self.done = False
        self.error: BaseException | None = None
        self.on_read: Callable[[], None] | None = None
        """Called when a cursor moved or came or went: the feeder may ask for more."""

    # ---------------------------------------------------------------- writing
    def append(self, element: Any) -> EmitResult:
        """Add an element unless there is no room for it."""
        with self._mutex:
            refusal = self._refusal()
            if refusal is not None:
                return refusal
            self._elements.append(element)
        self._wake_cursors()
        return EmitResult.OK

    def end(self, error: BaseException | None) -> EmitResult:
        """No more elements."""
        with self._mutex:
            if self.done or self.error is not None:
                return EmitResult.TERMINATED
            self.error = error
            self.done = error is None
        self._wake_cursors()
        self.notify()
        return EmitResult.OK

    def _refusal(self) -> EmitResult | None:
        if self.done or self.error is not None:
            return EmitResult.TERMINATED
        if self._single and self._had_cursor and not self._cursors:
            return EmitResult.CANCELLED
        if len(self._elements) >= self._capacity:
            self._trim()
            if len(self._elements) >= self._capacity:
                return EmitResult.OVERFLOW
        return None

    def _trim(self) -> None:
        end = self._first + len(self._elements)
        read_by_all = min((cursor.at for cursor in self._cursors), default=self._unread_floor(end))
        spare = read_by_all - self._history - self._first
        # With history alone to keep, the oldest of it makes room for the newest element.
        if self._history and not spare > 0 and read_by_all > self._first:
            spare = len(self._elements) - self._capacity + 1
        if spare > 0:
            del self._elements[:spare]
            self._first += spare

    def _unread_floor(self, end: int) -> int:
        """Without subscribers a replaying log keeps its last elements, any other all, for the first one."""
        return end if self._history else self._first

    # ---------------------------------------------------------------- reading
    def join(self, cursor: Cursor) -> bool:
        """Start at the oldest element; False if somebody has that place already."""
        with self._mutex:
            if self._single and self._had_cursor:
                return False
            self._had_cursor = True
            cursor.at = self._first
            self._cursors.append(cursor)
            return True

    def leave(self, cursor: Cursor) -> int:
        """Remove a cursor; returns how many are left."""
        with self._mutex:
            if cursor in self._cursors:
                self._cursors.remove(cursor)
            left = len(self._cursors)
        self.notify()
        return left

    def read(self, cursor: Cursor) -> Any:
        """The cursor's next element, or PENDING."""
        with self._mutex:
            index = cursor.at - self._first
            if index >= len(self._elements):
                return PENDING
            element = self._elements[index]
            cursor.at += 1
            if not self._history and index > 512:
                self._trim()
        if self._waiters or self.on_read is not None:
            self.notify()
        return element

    def at_end(self, cursor: Cursor) -> bool:
        """Whether the cursor has read everything there is."""
        with self._mutex:
            return cursor.at - self._first >= len(self._elements)

    def unread(self, cursor: Cursor) -> int:
        """How far the cursor is behind."""
        with self._mutex:
            return self._first + len(self._elements) - cursor.at

    def room_upto(self) -> int:
        """The offset up to which elements may be taken in, as far as the slowest cursor allows."""
        with self._mutex:
            end = self._first + len(self._elements)
            return min((cursor.at for cursor in self._cursors), default=end) + self._capacity

    def wanted_upto(self) -> int:
        """The offset up to which somebody wants elements."""
        with self._mutex:
            return max((cursor.wants_upto for cursor in self._cursors), default=0)

    def subscriber_count(self) -> int:
        """How many cursors there are."""
        return len(self._cursors)

    # ---------------------------------------------------------------- waiting for room
    def wait(self, waiter: Callable[[], None]) -> None:
        """Call ``waiter`` once, when something changed that may have made room."""
        self._waiters.append(waiter)
        with self._mutex:
            hopeless = self._refusal() is EmitResult.OVERFLOW
        if not hopeless:
            self.notify()

    def notify(self) -> None:
        """Something was read, or somebody came or went."""
        while self._waiters:
            try:
                self._waiters.popleft()()
            except IndexError:
                break
        if self.on_read is not None:
            self.on_read()

    def _wake_cursors(self) -> None:
        for cursor in tuple(self._cursors):
            cursor.wake()


class Cursor(Drain):
    """One subscriber's place in the log."""

    head = Head.POLL
    __slots__ = ("_log", "_when_left", "at", "wants_upto")

    def __init__(
        self,
        log: Log,
        when_left: Callable[[int], None] | None,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._log = log
        self._when_left = when_left
        self.at = 0
        self.wants_upto = 0
        self.context = copy_context()

    def source(self) -> Callable[[], Any]:
        """The loop reads the log."""
        return lambda: self._log.read(self)

    def wake(self) -> None:
        """There may be something to read."""
        self.dirty = True
        self.drain()

    def finished(self) -> bool:
        """The log has ended and we have read all of it."""
        return self._log.done and self._log.at_end(self)

    def due_error(self) -> BaseException | None:
        """The log's error, after everything before it."""
        error = self._log.error
        return error if error is not None and self._log.at_end(self) else None

    def wanted(self) -> int:
        """Tell the feeder, if there is one, how far we want to read."""
        need = UNBOUNDED if self.demand >= UNBOUNDED else self.demand - self.emitted
        for op, state in zip(reversed(self.ops), reversed(self.states), strict=True):
            need = op.kind.demand(need, op.args, state)
        self.wants_upto = max(self.wants_upto, self.at + need)
        return 1 if self._log.on_read is not None else 0

    def ask(self, n: int) -> None:
        """Let the feeder look."""
        self._log.notify()

    def release(self) -> None:
        """Give up the place."""
        left = self._log.leave(self)
        if self._when_left is not None:
            self._when_left(left)

    def queued(self) -> int:
        """How far we are behind."""
        return self._log.unread(self)


class LogSource(Source):
    """A stream over a log that a sink writes."""

    def __init__(self, label: str, log: Log) -> None:
        super().__init__(label)
        self.log = log

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Take a place in the log, if there is one."""
        cursor = Cursor(self.log, None, ops, downstream, self.label, self.place)
        joined = self.log.join(cursor)
        if not joined:
            cursor.violation = RuntimeError(
                "a unicast sink can have one subscriber, and has had it; use Sinks.multicast() for several"
            )
            cursor.halted = True
        cursor.introduce()
        cursor.drain()

    def runs_on(self) -> str:
        """Whoever emits."""
        return "emitter"


class CacheSource(Source):
    """``cache``, ``share``: one subscription to the stream above serves all subscribers below."""

    def __init__(
        self, label: str, upstream: Stream[Any], log: Callable[[], Log], *, reconnects: bool
    ) -> None:
        super().__init__(label)
        self._upstream = upstream
        self._new_log = log
        self._reconnects = reconnects
        self._mutex = allocate_lock()
        self._log: Log | None = None
        self._feeder: _Feeder | None = None

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """The first subscriber connects."""
        with self._mutex:
            if self._log is None or (self._reconnects and self._log.done | (self._log.error is not None)):
                self._log, self._feeder = self._new_log(), None
            log = self._log
            connect = self._feeder is None
            if self._feeder is None:
                self._feeder = _Feeder(log)
            feeder = self._feeder
            cursor = Cursor(log, self._when_left(log), ops, downstream, self.label, self.place)
            log.join(cursor)
        cursor.introduce()
        cursor.drain()
        return (self._upstream, feeder) if connect else None

    def _when_left(self, log: Log) -> Callable[[int], None] | None:
        if not self._reconnects:
            return None

        def left(remaining: int) -> None:
            with self._mutex:
                if remaining or self._log is not log:
                    return
                feeder, self._feeder, self._log = self._feeder, None, None
            if feeder is not None:
                feeder.cancel()

        return left

    def upstreams(self) -> list[Stream[Any]]:
        """The stream that is shared."""
        return [self._upstream]

    def runs_on(self) -> str:
        """Wherever the stream above runs."""
        return self._upstream._source.runs_on()


class _Feeder:
    """Writes a stream into a log, asking for no more than the readers want and the log can hold."""

    __slots__ = ("_asked", "_asking", "_done", "_log", "_subscription", "cancelled")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._subscription: Subscription | None = None
        self._asked = 0
        self._asking = allocate_lock()
        self._done = self.cancelled = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._subscription is not None or self.cancelled:
            subscription.cancel()
            return
        self._subscription = subscription
        self._log.on_read = self._look
        self._look()

    def on_next(self, element: Any, /) -> None:
        self._log.append(element)

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        if self._log.end(error) is not EmitResult.OK:
            drop_error(error, "a shared stream, after its end")

    def on_complete(self) -> None:
        self._done = True
        self._log.end(None)

    def _look(self) -> None:
        """Ask for what is wanted now. Whoever comes second finds the first one still at it and leaves."""
        while not self._done and not self.cancelled and self._missing() > 0:
            if not self._asking.acquire(False):
                return
            try:
                n = self._missing()
                self._asked += max(0, n)
            finally:
                self._asking.release()
            if n > 0 and self._subscription is not None:
                self._subscription.request(n)

    def _missing(self) -> int:
        return min(self._log.wanted_upto(), self._log.room_upto(), UNBOUNDED) - self._asked

    def cancel(self) -> None:
        self.cancelled = True
        self._log.on_read = None
        if self._subscription is not None and not self._done:
            self._subscription.cancel()
