"""One buffer, many cursors: what every stream with several subscribers is made of.

Elements go into a buffer. Each subscriber reads it at its own pace, from the oldest element still there, so
all of them see the same sequence (rule 1.12). The buffer is bounded: it keeps what the slowest subscriber has
not read yet, and as much history behind that as was asked for. Beyond its capacity it refuses new elements.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import OrderedDict
from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import KeptError, Place
from penstock.streams.fusion import Drain, Op
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.queue_drain import needed_above

__all__ = ["BufferCursor", "EmitResult", "ReplayBuffer", "Ticket"]

FEW = 512
"""Forgotten places at the front of the buffer that are not worth moving the rest for."""


class EmitResult(Enum):
    """What became of an element that was offered to a sink."""

    OK = "ok"
    """It will reach every subscriber."""
    OVERFLOW = "overflow"
    """The sink is full until the slowest subscriber reads on: offer it again later, or wait with emit()."""
    TERMINATED = "terminated"
    """The sink was completed, or failed, before."""
    CANCELLED = "cancelled"
    """This sink can have one subscriber, and that one has left."""


class Ticket:
    """A writer's place in the line before a full buffer; each free place goes to one of them."""

    __slots__ = ("holds_a_place", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        """Called once when it is this one's turn, on the thread that freed the place."""
        self.holds_a_place = False


class ReplayBuffer:
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
        """How many elements stay after every subscriber has read them."""
        self._single = single
        """Whether it can have one subscriber only."""
        self.urgent_errors = urgent_errors
        """Whether an error passes the elements that were written before it."""
        self._when_deserted = when_deserted
        """Called when the last cursor has left."""
        self._elements: list[Any] = []
        self._forgotten = 0
        """Empty places at the front of the list: moving all the others each time would take long."""
        self._first = 0
        """The offset of the oldest element still here."""
        self._written = 0
        """The offset of the next element to come; a cursor that stands here need not take the lock."""
        self._cursors: list[BufferCursor] = []
        self._readers: tuple[BufferCursor, ...] = ()
        """The same, for those who go through them without the lock."""
        self._at_first = 0
        """How many cursors have yet to read that element; not counted where there is history to keep."""
        self._had_cursor = False
        self._mutex = allocate_lock()
        self._waiters: OrderedDict[Ticket, None] = OrderedDict()
        self._reserved = 0
        """Places given to waiting writers that have not used them yet."""
        self.done = False
        self.error: BaseException | None = None
        self.kept: KeptError | None = None
        """The same, for each of the subscribers."""
        self.feed: Subscription | None = None
        """What the buffer is written from, for ``scan()``; a sink has none."""
        self.on_read: Callable[[], None] | None = None
        """Called when a cursor moved, came or left: the feeder may ask for more."""

    # ---------------------------------------------------------------- writing
    def append(self, element: Any, ticket: Ticket | None = None) -> EmitResult:
        """Add an element unless the buffer is full; a ticket that holds a place uses it."""
        with self._mutex:
            if ticket is not None and ticket.holds_a_place:
                ticket.holds_a_place = False
                self._reserved -= 1
            refusal = self._refusal()
            if refusal is not None:
                return refusal
            self._elements.append(element)
            self._written += 1
            cursors = self._readers
        for cursor in cursors:
            if cursor.flowing:
                cursor.flow()
            else:
                cursor.wake()
        return EmitResult.OK

    def append_asked(self, element: Any) -> EmitResult:
        """Add an element that was requested when there was space for it.

        A reader may have joined since then and start further back; the others must not lose an element by it.
        """
        with self._mutex:
            refusal = self._refusal()
            if refusal is not None and refusal is not EmitResult.OVERFLOW:
                return refusal
            self._elements.append(element)
            self._written += 1
            cursors = self._readers
        for cursor in cursors:
            if cursor.flowing:
                cursor.flow()
            else:
                cursor.wake()
        return EmitResult.OK

    def end(self, error: BaseException | None) -> EmitResult:
        """No more elements."""
        with self._mutex:
            if self.done or self.error is not None:
                return EmitResult.TERMINATED
            self.kept = None if error is None else KeptError(error)
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
            self._written += 1
            self.done = True
        self._wake_cursors()
        self.notify()
        return EmitResult.OK

    def _refusal(self) -> EmitResult | None:
        if self.done or self.error is not None:
            return EmitResult.TERMINATED
        if self._single and self._had_cursor and not self._cursors:
            return EmitResult.CANCELLED
        if len(self._elements) - self._forgotten + self._reserved >= self._capacity:
            if self._history:
                self._trim()
            if self._taken() >= self._capacity:
                return EmitResult.OVERFLOW
        return None

    def _taken(self) -> int:
        """The places that are not free."""
        return len(self._elements) - self._forgotten + self._reserved

    def _trim(self) -> None:
        read = self._read_by_all()
        spare = read - self._history
        # If all that is kept is history, its oldest element makes way for the newest.
        if not spare > 0 and read > 0:
            spare = min(self._taken() - self._capacity + 1, read)
        self._forget(spare)

    def _read_by_all(self) -> int:
        """How many of the elements here every subscriber has read.

        Without subscribers, a buffer with history keeps its last elements; any other keeps all of them for
        the first subscriber.
        """
        nobody = self._written if self._history else self._first
        return min((cursor.at for cursor in self._cursors), default=nobody) - self._first

    def _forget(self, oldest: int) -> None:
        if oldest <= 0:
            return
        elements, start = self._elements, self._forgotten
        end = start + oldest
        if end == len(elements):
            elements.clear()
            end = 0
        elif end > FEW and end * 2 > len(elements):
            del elements[:end]
            end = 0
        else:
            elements[start:end] = [None] * oldest
        self._forgotten = end
        self._first += oldest

    def _forget_what_all_have_read(self) -> None:
        """No cursor stands at the first element any more: forget it, and all that every cursor has passed."""
        cursors = self._cursors
        if len(cursors) == 1:
            self._forget(cursors[0].at - self._first)
            self._at_first = 1
            return
        self._forget(self._read_by_all())
        first = self._first
        self._at_first = sum(cursor.at == first for cursor in cursors)

    # ---------------------------------------------------------------- reading
    def new_cursor(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place
    ) -> BufferCursor:
        """A cursor for one more subscriber, which has not joined yet."""
        return BufferCursor(self, ops, downstream, name, place)

    def join(self, cursor: BufferCursor) -> bool:
        """Start at the oldest element; False if this buffer has had its only subscriber."""
        with self._mutex:
            if self._single and self._had_cursor:
                return False
            self._had_cursor = True
            self._forget(self._read_by_all() - self._history)
            cursor.at = self._first
            self._cursors.append(cursor)
            self._readers = tuple(self._cursors)
            self._at_first += 1
            return True

    def leave(self, cursor: BufferCursor) -> None:
        """Remove a cursor; from now on it holds back nobody."""
        with self._mutex:
            if cursor.left or cursor not in self._cursors:
                return
            cursor.left = True
            if self._history:
                self._forget(self._read_by_all() - self._history)
            self._cursors.remove(cursor)
            self._readers = tuple(self._cursors)
            if cursor.at == self._first:
                self._at_first -= 1
            deserted = not self._cursors
            if not self._history and not self._at_first and not deserted:
                self._forget_what_all_have_read()
        if deserted and self._when_deserted is not None:
            self._when_deserted()
        self.notify()

    def read(self, cursor: BufferCursor) -> Any:
        """The cursor's next element, or PENDING."""
        if cursor.at >= self._written:
            return PENDING
        with self._mutex:
            index = cursor.at - self._first
            place = index + self._forgotten
            if cursor.left:
                return PENDING
            element = self._elements[place]
            cursor.at += 1
            if cursor.at >= cursor.wants_upto:
                cursor.dirty = True  # operators may have dropped some of what we wanted
            if not index and not self._history:
                self._at_first -= 1
                if self._at_first:
                    pass
                elif place + 1 == len(self._elements) and len(self._cursors) == 1:
                    # The usual case, written out: the only subscriber keeps up.
                    self._elements.clear()
                    self._forgotten = 0
                    self._first += 1
                    self._at_first = 1
                else:
                    self._forget_what_all_have_read()
        if self._waiters or (self.on_read is not None and self._capacity < UNBOUNDED):
            self.notify()  # there is space
        return element

    def at_end(self, cursor: BufferCursor) -> bool:
        """Whether the cursor has read everything there is."""
        return cursor.at >= self._written and not cursor.left

    def unread(self, cursor: BufferCursor) -> int:
        """How far the cursor is behind."""
        with self._mutex:
            return 0 if cursor.left else self._written - cursor.at

    def space_upto(self) -> int:
        """The offset up to which elements fit, as far as the slowest cursor has read."""
        with self._mutex:
            return min((cursor.at for cursor in self._cursors), default=self._written) + self._capacity

    def wanted_upto(self) -> int:
        """The offset up to which a cursor has demand."""
        with self._mutex:
            return max((cursor.wants_upto for cursor in self._cursors), default=0)

    def is_starving(self) -> bool:
        """Whether one of the readers waits for an element."""
        return any(cursor.is_starving() for cursor in self._readers)

    def subscriber_count(self) -> int:
        """How many cursors there are."""
        return len(self._cursors)

    # ---------------------------------------------------------------- waiting for a place
    def wait(self, wake: Callable[[], None]) -> Ticket:
        """Get in line for a place. The ticket must be used in ``append`` or given back with ``withdraw``."""
        ticket = Ticket(wake)
        with self._mutex:
            self._waiters[ticket] = None
            called = self._next_in_line()
        _call(called)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the line; a place that the ticket holds goes to the next one."""
        with self._mutex:
            self._waiters.pop(ticket, None)
            if not ticket.holds_a_place:
                return
            ticket.holds_a_place = False
            self._reserved -= 1
            called = self._next_in_line()
        _call(called)

    def _next_in_line(self) -> list[Ticket]:
        """Give each free place to whoever has waited longest; once the buffer has ended, call all of them."""
        called: list[Ticket] = []
        while self._waiters and (refusal := self._refusal()) is not EmitResult.OVERFLOW:
            ticket, _ = self._waiters.popitem(last=False)
            if refusal is None:
                ticket.holds_a_place = True
                self._reserved += 1
            called.append(ticket)
        return called

    def notify(self) -> None:
        """A cursor has moved, come or left."""
        if self._waiters:
            with self._mutex:
                called = self._next_in_line()
            _call(called)
        if self.on_read is not None:
            self.on_read()

    def _wake_cursors(self) -> None:
        for cursor in self._readers:
            cursor.wake()


def _call(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.wake()


class BufferCursor(Drain):
    """One subscriber's place in the buffer."""

    head = Head.POLL
    can_flow = True
    __slots__ = ("_buffer", "at", "left", "wants_upto")

    def __init__(
        self,
        buffer: ReplayBuffer,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._buffer = buffer
        self.at = 0
        self.left = False
        self.wants_upto = 0
        self.context = copy_context()

    def source(self) -> Callable[[], Any]:
        return lambda: self._buffer.read(self)

    def cancel(self) -> None:
        """Leave at once: a subscriber that comes next, even inside of ``on_next``, must not find us there."""
        if not self.closed:
            self._buffer.leave(self)
        super().cancel()

    def wake(self) -> None:
        """There may be something to read."""
        self.dirty = True
        self.drain()

    def finished(self) -> bool:
        """The buffer has ended and we have read all of it."""
        return self._buffer.done and self._buffer.at_end(self)

    def due_error(self) -> BaseException | None:
        """The buffer's error, after everything before it unless it is urgent."""
        buffer = self._buffer
        if buffer.kept is None or not (buffer.urgent_errors or (self._starved and buffer.at_end(self))):
            return None
        return buffer.kept.give()

    def can_run(self) -> bool:
        """An urgent error goes first, but after what ``start_with`` puts before all elements."""
        is_urgent = self._buffer.urgent_errors and self._buffer.error is not None
        return self.dirty and (self._leading or not is_urgent)

    def wanted(self) -> int:
        """Tell the feeder, if there is one, how far we want to read."""
        self.wants_upto = max(self.wants_upto, self.at + needed_above(self))
        return 1 if self._buffer.on_read is not None else 0

    def ask(self, n: int) -> None:
        self._buffer.notify()

    def release(self) -> None:
        self._buffer.leave(self)
        # The traceback of its error refers to the subscriber, which may keep this subscription (§3.13).
        self._buffer = _NONE

    def queued(self) -> int:
        """How far we are behind."""
        return self._buffer.unread(self)

    def upstreams(self) -> list[Any]:
        return [self._buffer.feed] if self._buffer.feed is not None else []


_NONE = ReplayBuffer(1, 0)
"""The buffer of a cursor that has left."""
