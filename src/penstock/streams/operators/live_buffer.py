"""A buffer without history: each subscriber has a queue of its own, and an element goes into all of them.

It behaves like a :class:`ReplayBuffer` with a history of 0, and is quicker: a subscriber that keeps up takes
its elements without a lock, and nothing has to be counted for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber
from penstock.streams.errors import KeptError, Place
from penstock.streams.fusion import Op, QueueDrain
from penstock.streams.fusion.queue_drain import needed_above
from penstock.streams.operators.boundaries import replenish_at
from penstock.streams.operators.replay_buffer import EmitResult, ReplayBuffer, Ticket

__all__ = ["LiveBuffer", "LiveCursor"]


class LiveBuffer(ReplayBuffer):
    """Elements on their way to several subscribers. Safe from many threads."""

    _cursors: list[LiveCursor]  # type: ignore[assignment]
    _readers: tuple[LiveCursor, ...]  # type: ignore[assignment]

    def __init__(
        self,
        capacity: int,
        *,
        single: bool = False,
        urgent_errors: bool = False,
        when_deserted: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(capacity, 0, single=single, urgent_errors=urgent_errors, when_deserted=when_deserted)
        self._waiting: deque[Any] = deque()
        """What the next subscriber receives, while there is none."""
        self._queues: tuple[deque[Any], ...] = (self._waiting,)
        self._only: LiveCursor | None = None
        """The only subscriber, if an element may go to it past the queue."""
        self.batch = replenish_at(capacity)
        """After how many elements a cursor tells the feeder that there is space."""
        self._fits = 0
        """How many more elements fit for sure; 0 means that one has to look."""

    # ---------------------------------------------------------------- writing
    def append(self, element: Any, ticket: Ticket | None = None) -> EmitResult:
        """Add an element unless a queue is full; a ticket that holds a place uses it."""
        only = self._only
        if only is not None and only.flowing and ticket is None and only.push(element):
            return EmitResult.OK
        with self._mutex:
            if ticket is not None and ticket.holds_a_place:
                ticket.holds_a_place = False
                self._reserved -= 1
                self._fits = 0
            if self._fits <= 0:
                refusal = self._refusal()
                if refusal is not None:
                    return refusal
                self._fits = self._capacity - self._taken()
            self._fits -= 1
            self._written += 1
            for queue in self._queues:
                queue.append(element)
            readers = self._readers
        for reader in readers:
            if reader.flowing:
                reader.flow()
            else:
                reader.wake()
        return EmitResult.OK

    def append_asked(self, element: Any) -> EmitResult:
        """Add an element that was requested when there was space for it."""
        with self._mutex:
            if self.done or self.error is not None:
                return EmitResult.TERMINATED
            self._fits = 0
            self._written += 1
            readers = self._readers
            # Past the queue only if that is empty: a reader that joins now copies the queue and would have
            # what waits there, and what comes next, but not this element.
            only = readers[0] if len(readers) == 1 and readers[0].flowing and not readers[0].queue else None
            if only is None:
                for queue in self._queues:
                    queue.append(element)
        if only is not None:
            if only.push(element):
                return EmitResult.OK
            only.queue.append(element)
        for reader in readers:
            if reader.flowing:
                reader.flow()
            else:
                reader.wake()
        return EmitResult.OK

    def end(self, error: BaseException | None) -> EmitResult:
        """No more elements."""
        with self._mutex:
            if self.done or self.error is not None:
                return EmitResult.TERMINATED
            self._fits = 0
            self.kept = None if error is None else KeptError(error)
            self.error = error
            self.done = error is None
            self._only = None
            for reader in self._readers:
                reader.done = self.done
                reader.flowing = False
        self._wake_cursors()
        self.notify()
        return EmitResult.OK

    def settle(self, element: Any) -> EmitResult:
        """Not for this buffer: a late subscriber of a single value needs history."""
        raise AssertionError("only a sink for one value settles")

    def _refusal(self) -> EmitResult | None:
        if self.done or self.error is not None:
            return EmitResult.TERMINATED
        if self._single and self._had_cursor and not self._cursors:
            return EmitResult.CANCELLED
        return EmitResult.OVERFLOW if self._taken() >= self._capacity else None

    def _taken(self) -> int:
        return max(map(len, self._queues)) + self._reserved

    # ---------------------------------------------------------------- reading
    def new_cursor(self, *arguments: Any) -> LiveCursor:  # type: ignore[override]
        """A cursor for one more subscriber, which has not joined yet."""
        return LiveCursor(self, *arguments)

    def join(self, cursor: LiveCursor) -> bool:  # type: ignore[override]
        """Start with the oldest element that some subscriber has not taken; False if there is no place."""
        with self._mutex:
            if self._single and self._had_cursor:
                return False
            self._had_cursor = True
            for reader in self._readers:
                reader.lone = False  # before the copy: what is pushed from now on would be missing in it
            cursor.queue.extend(max(self._queues, key=len).copy())
            cursor.start = self._written - len(cursor.queue)
            cursor.done = self.done
            self._waiting.clear()
            self._cursors.append(cursor)
            self._arrange()
            return True

    def leave(self, cursor: LiveCursor) -> None:  # type: ignore[override]
        """Remove a cursor; if it was the last, what it has not taken waits for the next one."""
        with self._mutex:
            if cursor.left or cursor not in self._cursors:
                return
            cursor.left = True
            cursor.done = False  # an empty queue is not its end any more
            self._cursors.remove(cursor)
            deserted = not self._cursors
            if deserted and not self._single:
                self._take_over(cursor.queue)
            self._arrange()
        if deserted and self._when_deserted is not None:
            self._when_deserted()
        self.notify()

    def _take_over(self, queue: deque[Any]) -> None:
        # One by one: the cursor's own loop, on another thread, may just be taking an element.
        while queue:
            try:
                self._waiting.append(queue.popleft())
            except IndexError:
                return

    def _arrange(self) -> None:
        self._fits = 0
        self._readers = tuple(self._cursors)
        alone = len(self._readers) == 1 and not self.done and self.error is None
        self._only = self._readers[0] if alone and self.on_read is None else None
        for reader in self._readers:
            reader.lone = len(self._readers) == 1
        self._queues = tuple([reader.queue for reader in self._readers]) or (self._waiting,)
        self._watch_reads()

    def at_end(self, cursor: LiveCursor) -> bool:  # type: ignore[override]
        """Whether the cursor has taken everything there is."""
        return not cursor.queue and not cursor.left

    def unread(self, cursor: LiveCursor) -> int:  # type: ignore[override]
        """How far the cursor is behind."""
        return 0 if cursor.left else len(cursor.queue)

    # ---------------------------------------------------------------- waiting for a place
    def _next_in_line(self) -> list[Ticket]:
        self._fits = 0
        self._watch_reads()  # first: an element that is taken after the look must not go unnoticed
        return super()._next_in_line()

    def _watch_reads(self) -> None:
        """While a writer waits, the loop of each cursor tells of every element that it takes."""
        if self._waiters:
            for reader in self._readers:
                reader.refill_at = 0


class LiveCursor(QueueDrain):
    """One subscriber with its queue."""

    can_flow = True
    __slots__ = ("_buffer", "left", "lone", "start", "wants_upto")

    def __init__(
        self,
        buffer: LiveBuffer,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.dirty = True
        self._buffer = buffer
        self.start = 0
        """The offset of the first element that was for us."""
        self.left = False
        self.lone = True
        self.wants_upto = 0
        self.context = copy_context()

    @property
    def at(self) -> int:
        """The offset of the next element."""
        return self.start + self.taken

    def wake(self) -> None:
        """There may be something to read."""
        self.dirty = True
        self.drain()

    def cancel(self) -> None:
        """Leave at once: a subscriber that comes next, even inside of ``on_next``, must not find us there."""
        if not self.closed:
            self._buffer.leave(self)
        super().cancel()

    def due_error(self) -> BaseException | None:
        """The buffer's error, after everything before it unless it is urgent."""
        buffer = self._buffer
        if buffer.kept is None or not (buffer.urgent_errors or (self._starved and not self.queue)):
            return None
        return buffer.kept.give()

    def can_run(self) -> bool:
        """An urgent error goes first, but after what ``start_with`` puts before all elements."""
        is_urgent = self._buffer.urgent_errors and self._buffer.error is not None
        return self.dirty and (self._leading or not is_urgent)

    def wanted(self) -> int:
        """Tell the feeder, now or when it comes, how far we want to read."""
        self.wants_upto = max(self.wants_upto, self.at + needed_above(self))
        with self._buffer._mutex:
            self._set_refill()
        return 1 if self._buffer.on_read is not None else 0

    def _set_refill(self) -> None:
        """The loop calls refill() at once if a writer waits, and otherwise in time for the feeder."""
        buffer = self._buffer
        upto = min(self.taken + buffer.batch, self.wants_upto - self.start)
        self.refill_at = 0 if buffer._waiters else upto if upto > self.taken else UNBOUNDED

    def ask(self, n: int) -> None:
        self._buffer.notify()

    def refill(self) -> None:
        """The feeder, or a writer that waits, hears what we have taken."""
        buffer = self._buffer
        with buffer._mutex:
            self._set_refill()
        if self.at >= self.wants_upto:
            self.dirty = True  # operators may have dropped some of what we wanted
        buffer.notify()

    def release(self) -> None:
        self._buffer.leave(self)
        super().release()
        self._buffer = _NONE  # see BufferCursor.release()

    def upstreams(self) -> list[Any]:
        return [self._buffer.feed] if self._buffer.feed is not None else []


_NONE = LiveBuffer(1)
"""The buffer of a cursor that has left."""
