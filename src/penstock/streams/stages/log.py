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
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.assembly import Place
from penstock.streams.segment import Drain, Op
from penstock.streams.segment.compiling import PENDING
from penstock.streams.segment.writing import Head

__all__ = ["Cursor", "EmitResult", "Log"]


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

    def __init__(
        self,
        capacity: int,
        history: int,
        *,
        single: bool = False,
        urgent_errors: bool = False,
        when_deserted: Callable[[], None] | None = None,
    ) -> None:
        self._capacity = capacity
        self._history = history
        """How many elements stay after everybody has read them."""
        self._single = single
        """Whether one subscriber is all there can ever be."""
        self.urgent_errors = urgent_errors
        """Whether an error passes the elements that were written before it."""
        self._when_deserted = when_deserted
        """Called when the last cursor has left."""
        self._elements: list[Any] = []
        self._first = 0
        """The offset of the oldest element still here."""
        self._cursors: list[Cursor] = []
        self._had_cursor = False
        self._mutex = allocate_lock()
        self._waiters: deque[Callable[[], None]] = deque()
        self.done = False
        self.error: BaseException | None = None
        self.feed: Subscription | None = None
        """What the log is written from, for ``scan()``; a sink has none."""
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

    def append_asked(self, element: Any) -> EmitResult:
        """Add an element that there was room for when it was asked for.

        A reader that joined since then, and starts further back, must not cost the others an element.
        """
        with self._mutex:
            refusal = self._refusal()
            if refusal is not None and refusal is not EmitResult.OVERFLOW:
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

    def settle(self, element: Any) -> EmitResult:
        """Add the only element and the end, in one step."""
        with self._mutex:
            if self.done or self.error is not None:
                return EmitResult.TERMINATED
            self._elements.append(element)
            self.done = True
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
        read = self._read_by_all()
        spare = read - self._history
        # With history alone to keep, the oldest of it makes room for the newest element.
        if self._history and not spare > 0 and read > 0:
            spare = min(len(self._elements) - self._capacity + 1, read)
        self._forget(spare)

    def _read_by_all(self) -> int:
        """How many of the elements here everybody has read.

        Without subscribers a replaying log keeps its last elements, any other all, for the first one.
        """
        nobody = self._first + (len(self._elements) if self._history else 0)
        return min((cursor.at for cursor in self._cursors), default=nobody) - self._first

    def _forget(self, oldest: int) -> None:
        if oldest > 0:
            del self._elements[:oldest]
            self._first += oldest

    # ---------------------------------------------------------------- reading
    def join(self, cursor: Cursor) -> bool:
        """Start at the oldest element; False if somebody has that place already."""
        with self._mutex:
            if self._single and self._had_cursor:
                return False
            self._had_cursor = True
            self._forget(self._read_by_all() - self._history)
            cursor.at = self._first
            self._cursors.append(cursor)
            return True

    def leave(self, cursor: Cursor) -> None:
        """Remove a cursor."""
        with self._mutex:
            if cursor not in self._cursors:
                return
            self._forget(self._read_by_all() - self._history)
            self._cursors.remove(cursor)
            deserted = not self._cursors
        if deserted and self._when_deserted is not None:
            self._when_deserted()
        self.notify()

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
    __slots__ = ("_log", "at", "wants_upto")

    def __init__(
        self,
        log: Log,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._log = log
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
        """The log's error, after everything before it unless it is urgent."""
        log = self._log
        if log.error is None or log.urgent_errors:
            return log.error
        return log.error if self._starved and log.at_end(self) else None

    def can_run(self) -> bool:
        """An urgent error goes first."""
        return self.dirty and not (self._log.urgent_errors and self._log.error is not None)

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
        self._log.leave(self)

    def queued(self) -> int:
        """How far we are behind."""
        return self._log.unread(self)

    def upstreams(self) -> list[Any]:
        """What the log is written from."""
        return [self._log.feed] if self._log.feed is not None else []
