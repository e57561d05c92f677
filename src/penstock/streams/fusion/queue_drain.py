"""Streams over a queue: the source appends, the loop takes.

:class:`QueueDrain` is what every asynchronous operator is made of: a Subscriber towards its source, a
Subscription towards its subscriber, a deque between them, and the compiled loop of the operators below.
:class:`Relay` is one that never asks its source for more than it was asked for, so its queue is empty except
while an element passes through.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_elements, drop_error
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.drain import Drain
from penstock.streams.fusion.link import Pausable
from penstock.streams.fusion.op import Op

__all__ = ["QueueDrain", "Relay", "needed_above", "relay_for"]


class QueueDrain(Drain):
    """A bounded queue between a source and the operators below; the bound is what we request."""

    head = Head.QUEUE
    __slots__ = ("done", "error", "queue", "upstream")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.dirty = False
        self.queue: deque[Any] = deque()
        self.upstream: Subscription | None = None
        self.done = False
        self.error: BaseException | None = None

    # ---------------------------------------------------------------- what the source calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Keep the first subscription; a second one is cancelled (§2.5)."""
        if self.upstream is not None or self.closed:
            subscription.cancel()
            return
        self.upstream = subscription
        self.dirty = True
        if self.closed:
            subscription.cancel()  # cancelled by another thread meanwhile
            return
        self.drain()

    def on_next(self, element: Any, /) -> None:
        """Queue an element and, unless another thread is at work, send it on."""
        if self.flowing and self.push(element):
            return
        if self.closed:
            return  # §2.8: may still come after a cancel
        self.queue.append(element)
        self.dirty = True
        self.drain()

    def on_error(self, error: BaseException, /) -> None:
        """Remember the error; it goes down after what is queued."""
        if self.closed or self.done:
            drop_error(error, f"the source of {self.name}, after its end")
            return
        self.error = error
        self.dirty = True
        self.drain()

    def on_complete(self) -> None:
        self.done = True
        self.dirty = True
        self.drain()

    # ---------------------------------------------------------------- what the subscriber calls
    def cancel(self) -> None:
        """Stop. If another thread is at work, cancel the source now, without waiting for that thread."""
        super().cancel()
        if not self.closed:
            upstream, self.upstream = self.upstream, None
            if upstream is not None and not self.done and self.error is None:
                upstream.cancel()

    # ---------------------------------------------------------------- what the drain asks
    def source(self) -> deque[Any]:
        return self.queue

    def due_error(self) -> BaseException | None:
        """Upstream's error, once the queue is empty and the loop waits at its top."""
        return self.error if self.error is not None and self._starved and not self.queue else None

    def ask(self, n: int) -> None:
        upstream = self.upstream  # cancel() on another thread may take it away between two looks
        if upstream is not None:
            upstream.request(n)

    def release(self) -> None:
        """Cancel upstream unless it ended by itself, and discard the queue."""
        upstream, self.upstream = self.upstream, None
        left = list(self.queue)
        self.queue.clear()
        if upstream is not None and not self.done and self.error is None:
            upstream.cancel()
        self.discard(left)
        # Its traceback refers to the subscriber, which may keep this subscription for long (§3.13).
        self.error = None

    def discard(self, left: list[Any]) -> None:
        """Elements nobody wants any more: report them after an error, but not after a cancel."""
        if self.error is not None:
            drop_elements(left, self.name)

    def size_of_one(self) -> int | None:
        upstream = self.upstream
        return upstream.size_of_one() if isinstance(upstream, Pausable) else None

    def queued(self) -> int:
        return len(self.queue)

    def upstreams(self) -> list[Any]:
        upstream = self.upstream
        return [upstream] if upstream is not None else []


class Relay(QueueDrain):
    """Asks upstream for exactly what the operators below need to meet the open demand.

    The formula uses totals, not single requests, so it always holds: elements that a filter drops are asked
    for again, ``take(n)`` asks for n in all, a fold asks for everything, and when the upstream is exchanged
    (``concat``, ``retry``), the new one is asked for what the old one still owed.
    """

    passes_demand = True
    can_flow = True
    __slots__ = ("_asker", "_owed", "asked", "most")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.asked = 0
        """What we have asked of upstream, counted like ``taken``."""
        self.most = UNBOUNDED
        """How many elements may be on their way at once."""
        self._owed: deque[tuple[Subscription, int]] = deque()
        self._asker = allocate_lock()

    def wanted(self) -> int:
        """What the open demand needs, less what is on its way or in the queue."""
        upstream = self.upstream
        if self.paused or upstream is None or self.asked >= UNBOUNDED or self.done or self.error is not None:
            return 0
        need = UNBOUNDED if self.demand >= UNBOUNDED else self.demand - self.emitted
        for op, state in zip(reversed(self.ops), reversed(self.states), strict=True):
            need = op.kind.demand(need, op.args, state)
        if need > self.most:
            if self._may_ask_for_all():
                self.most = UNBOUNDED
            else:
                need = self.most
        n = UNBOUNDED if need >= UNBOUNDED else need - (self.asked - self.taken)
        if n <= 0:
            return 0
        self.asked = self.refill_at = UNBOUNDED if n == UNBOUNDED else self.asked + n
        self._owed.append((upstream, n))
        return n

    def refill(self) -> None:
        """Everything that was asked for has come. If operators have dropped some of it, ask for as many."""
        self.dirty = True

    def ask(self, n: int) -> None:
        """Pass demand on, one request after the other.

        A synchronous upstream may end inside ``request``, and the next one be subscribed there. The next
        request waits until this one has returned, so a thousand sources in a row need no deeper stack
        than two.
        """
        while self._owed:
            if not self._asker.acquire(False):
                return
            try:
                upstream, n = self._owed.popleft()
                upstream.request(n)
            except IndexError:
                return  # another thread took it
            finally:
                self._asker.release()

    def expect_large(self, step: int) -> bool:
        """If the queue below relies on a pause, ask for a few at a time until the upstream can be paused."""
        before = self.most
        is_next = self.upstream is None  # so it is our own upstream that says so
        if is_next:
            self.most = min(step, before)
        is_relied_on = super().expect_large(step)
        if is_next and not is_relied_on:
            self.most = before
        return is_relied_on

    def _may_ask_for_all(self) -> bool:
        """Whether the upstream stops when it is told to, however much it was asked for."""
        upstream = self.upstream
        return isinstance(upstream, Pausable) and upstream.can_pause()

    def can_pause(self) -> bool:
        """If the upstream can, or was asked for a few elements only: our own queue is empty."""
        return self.most < UNBOUNDED or self._may_ask_for_all()

    def pause(self) -> None:
        """Pause the upstream, too: it was asked for as much as we were."""
        super().pause()
        upstream = self.upstream
        if isinstance(upstream, Pausable):
            upstream.pause()

    def resume(self) -> None:
        """Let the upstream go on, too, unless the first element that came out has paused us again."""
        super().resume()
        upstream = self.upstream
        if not self.paused and isinstance(upstream, Pausable):
            upstream.resume()

    def exchange(self) -> None:
        """Forget the present upstream, which has ended; the next one takes its place.

        Only the owner may call this, after it has received everything from the old one.
        """
        self.upstream = None
        self.done = False
        self.error = None
        self.most = UNBOUNDED
        self.asked = self.taken + len(self.queue)


def needed_above(drain: Drain) -> int:
    """How many elements the operators of a drain need to meet its open demand. Only its owner may ask.

    A :class:`Relay` has these lines in its ``wanted``, because it asks for each request.
    """
    need = UNBOUNDED if drain.demand >= UNBOUNDED else drain.demand - drain.emitted
    for op, state in zip(reversed(drain.ops), reversed(drain.states), strict=True):
        need = op.kind.demand(need, op.args, state)
    return need


def relay_for(ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place) -> Subscriber[Any]:
    """The subscriber for a source that cannot run the operators below it in its own loop."""
    if not ops:
        return downstream
    return _Awaiting(ops, downstream, name, place)


class _Awaiting(Relay):
    """A relay that calls ``on_subscribe`` below only when it is subscribed itself."""

    __slots__ = ()

    def on_subscribe(self, subscription: Any, /) -> None:
        """First tell the subscriber, then use the subscription."""
        if self.upstream is None and not self.closed:
            self.introduce()
        super().on_subscribe(subscription)
