"""Asynchronous boundaries: a bounded queue between two resources.

The stage asks its source for ``prefetch`` elements and, each time three quarters of them have been taken, for
as many again. So no more than ``prefetch`` elements ever wait, and the user sets that number.
"""

from __future__ import annotations

from _thread import get_ident, start_new_thread
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from penstock.arguments import whole
from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place
from penstock.streams.fusion import (
    GONE,
    Drain,
    ExpectsLarge,
    Op,
    Pausable,
    QueueDrain,
    announce_large,
    is_starving,
)
from penstock.streams.home import Home, home_of
from penstock.streams.operators.read_ahead import ReadAhead, read_ahead_of, step_of
from penstock.streams.operators.sources import FailedSource
from penstock.streams.schedulers import LoopScheduler, Scheduler
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = [
    "PREFETCH",
    "LimitRateSource",
    "Prefetching",
    "PublishOnSource",
    "SubscribeOnSource",
    "replenish_at",
]

PREFETCH = 256
"""How many elements may wait at an asynchronous boundary by default."""
FAIR_SLICE = 1024
"""A stage on a shared scheduler lets others run after this many elements."""


def replenish_at(prefetch: int) -> int:
    """After how many elements to ask for as many more: at three quarters, so that the source keeps busy."""
    return max(1, prefetch - (prefetch >> 2))


class Prefetching(QueueDrain):
    """Keeps a queue of ``prefetch`` elements filled ahead of demand."""

    can_flow = True
    __slots__ = ("batch", "prefetch")

    def __init__(
        self,
        prefetch: int,
        batch: int,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place | None,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.prefetch = prefetch
        self.batch = batch
        self.refill_at = self.batch

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Fill the queue at once, before there is any demand."""
        first = self.upstream is None
        super().on_subscribe(subscription)
        if first and not self.closed:
            self.request_first(subscription)

    def request_first(self, subscription: Subscription) -> None:
        """Ask for as many elements as the queue may hold."""
        subscription.request(self.prefetch)

    def refill(self) -> None:
        self.refill_at += self.batch
        self.ask(self.batch)

    def can_pause(self) -> bool:
        return True

    def expect_large(self, step: int) -> bool:
        """The queue below relies on us; our own counts elements."""
        super().expect_large(step)
        return False

    def capacity(self) -> int | None:
        return self.prefetch


class LimitRateSource(Source):
    """``limit_rate``: a queue, but no other thread."""

    def __init__(self, upstream: Stream[Any], high: int, low: int) -> None:
        super().__init__("limit_rate", high)
        self._upstream = upstream
        self.boundary = high
        self.low = low

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        assert self.boundary is not None
        stage = Prefetching(self.boundary, self.low, ops, downstream, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def queue(self) -> str:
        """The size of the queue, and after how many elements it is refilled."""
        return f"{self.boundary}/{self.low}"

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class PublishOnSource(Source):
    """``publish_on``: everything below runs on another scheduler."""

    def __init__(self, upstream: Stream[Any], scheduler: Scheduler, prefetch: int) -> None:
        super().__init__("publish_on", scheduler.name)
        self._upstream = upstream
        self._scheduler = scheduler
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        assert self.boundary is not None
        stage = _PublishOn(self._scheduler, self.boundary, ops, downstream, self.label, self.place)
        step = step_of(self._upstream)
        if step is not None:
            stage.expect_large(step)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def frames_on_top_of(self, above: int) -> int:
        """Another thread has a stack of its own."""
        return above + self.frames if self._scheduler.runs_inline else self.frames

    def queue(self) -> str:
        """The size of the queue, and after how many elements it is refilled."""
        assert self.boundary is not None
        return f"{self.boundary}/{replenish_at(self.boundary)}"

    def runs_on(self) -> str:
        return self._scheduler.name


class _PublishOn(Prefetching):
    """Hands the ownership of its drain to the scheduler instead of working on the caller's thread.

    ``idle`` is a plain flag, so an element from the source costs an append and one look; the source tries the
    token only if the flag says that nobody works. The order matters: the source appends and then looks at
    the flag, the worker sets the flag and then looks at the queue, so one of them sees the other.
    """

    __slots__ = ("_ahead", "_aheads", "_context", "_due", "_scheduler", "_slice_end", "idle")

    def __init__(
        self,
        scheduler: Scheduler,
        prefetch: int,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(prefetch, replenish_at(prefetch), ops, downstream, name, place)
        self._scheduler = scheduler
        self._context: Context = copy_context()
        if not scheduler.runs_inline:
            self.below = 0  # elements from above are queued, and go on from another stack
        self._slice_end = 0
        """Where this turn on the scheduler ends, however often the subscriber asks for more."""
        self.idle = True
        self._ahead: ReadAhead | None = None
        """Bounds the queue in bytes, if elements can be large."""
        self._aheads: list[ReadAhead] = []
        self._due = self.batch
        """After how many elements to ask for as many more."""

    def on_next(self, element: Any, /) -> None:
        self.queue.append(element)
        self.dirty = True
        if self.idle:
            self.drain()
        ahead = self._ahead
        if ahead is not None and (type(element) is not bytes or len(element) >= ahead.small):
            ahead.came(element)

    # ---------------------------------------------------------------- elements that can be large
    def expect_large(self, step: int) -> bool:
        """Measure what comes. But a number that the user gives counts elements, however large they are."""
        super().expect_large(step)
        if self._ahead is None and self.prefetch == PREFETCH:
            ahead = read_ahead_of(
                self._aheads, self.upstream, step, PREFETCH, self._waiting, self._stall, self._count
            )
            if ahead is not None:
                self._ahead = ahead
            if self.upstream is None:
                self.refill_at = self._due = UNBOUNDED  # as long as it asks for a few at a time
        return self._ahead is not None and self._ahead.holds

    def request_first(self, subscription: Subscription) -> None:
        if self._ahead is None:
            super().request_first(subscription)
        else:
            self._ahead.begin(subscription)

    def refill(self) -> None:
        if self.taken >= self._due:
            self._due += self.batch
            self.ask(self.batch)
        self.refill_at = self._due
        ahead = self._ahead
        if ahead is not None and self.upstream is not None and not self.done and ahead.stalled:
            ahead.took()
            if ahead.stalled:
                self.refill_at = 0

    def _waiting(self) -> list[Any]:
        return list(self.queue)

    def _count(self) -> None:
        if self._due == UNBOUNDED:
            self.refill_at = self._due = self.batch

    def _stall(self) -> None:
        self.refill_at = 0  # the loop calls refill() after the next element that it takes

    # ---------------------------------------------------------------- turns on the scheduler

    def drain(self) -> None:
        something = self.mailbox or self.dirty or self.halted
        if something and not self.closed and self._owner.acquire(False):
            self.idle = False
            self._hand_over()

    def _hand_over(self) -> None:
        try:
            self._scheduler.submit(self._work)
        except Exception as refused:
            # The scheduler is closed, so the error goes down from here.
            if not self.cancelled:
                self._fail(refused, -1)
            else:
                self._halt()
            self._owner.release()

    def _work(self) -> None:
        # A copy: the next task may begin on another thread of a pool before this one has left its context.
        self._context.copy().run(self._own)

    def _own(self) -> None:
        self._slice_end = self.emitted + FAIR_SLICE
        if self.stop_at >= 0:
            self.set_stop()
        while True:
            try:
                try:
                    self.turn()
                    # A pause stops the loop as the end of a slice does, but resume() looks again.
                    again = not (self.closed or self.paused) and self.demand > self.emitted >= self.stop_at
                    if again:
                        self.dirty = True
                finally:
                    self.idle = True
                    self._owner.release()
            except RecursionError as error:
                start_new_thread(self._rescue, (error,))  # see Drain.drain()
                return
            if self.closed or not (self.mailbox or self.dirty or self.halted):
                return
            if not self._owner.acquire(False):
                return
            self.idle = False
            if again:
                self._hand_over()
                return

    def next_stop(self) -> int:
        if self._scheduler.runs_inline:
            return self.demand  # nobody else waits for this thread
        return min(self.demand, self._slice_end)

    def runs_on(self) -> str:
        return self._scheduler.name


class SubscribeOnSource(Source):
    """``subscribe_on``: everything above, and the demand that drives it, runs on a scheduler.

    The operators below run there anyway, so they become part of the source's own loop.
    """

    def __init__(self, upstream: Stream[Any], scheduler: Scheduler) -> None:
        super().__init__("subscribe_on", scheduler.name)
        self._upstream = upstream
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        stream = self._upstream._of(self._upstream._source, (*self._upstream._ops, *ops))
        remote = _Remote(downstream, self._scheduler)
        try:
            self._scheduler.submit(lambda: remote.context.run(stream._connect, remote))
        except Exception as refused:
            FailedSource(refused, self.label).attach(ops, downstream)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._scheduler.name


class _Remote(Pausable, ExpectsLarge):
    """Between a subscriber and a source on another scheduler: only requests have to change the thread."""

    __slots__ = ("_connecting", "_downstream", "_scheduler", "_upstream", "context", "home", "on_next")

    def __init__(self, downstream: Subscriber[Any], scheduler: Scheduler) -> None:
        self._downstream = downstream
        self._scheduler = scheduler
        self._upstream: Subscription | None = None
        self._connecting: int | None = None
        """The thread on which the subscriber is just being told of its subscription."""
        self.context = copy_context()
        # Everything above subscribe_on(loop) runs on that loop; otherwise the subscriber's loop counts.
        self.home = Home(scheduler.loop) if isinstance(scheduler, LoopScheduler) else home_of(downstream)
        self.on_next = downstream.on_next

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._upstream = subscription
        self._connecting = get_ident()
        try:
            self._downstream.on_subscribe(self)
        finally:
            self._connecting = None

    def expect_large(self, step: int) -> bool:
        """What comes from above goes straight down."""
        return announce_large(self._downstream, step)

    def can_pause(self) -> bool:
        """If the source can: nothing waits here."""
        upstream = self._upstream
        return isinstance(upstream, Pausable) and upstream.can_pause()

    def pause(self) -> None:
        upstream = self._upstream
        if isinstance(upstream, Pausable):
            upstream.pause()

    def resume(self) -> None:
        """As with a request, the source goes on where it runs."""
        upstream = self._upstream
        if not isinstance(upstream, Pausable):
            return
        try:
            self._scheduler.submit(lambda: self.context.copy().run(upstream.resume))
        except Exception as refused:
            self._fail(refused)

    def size_of_one(self) -> int | None:
        upstream = self._upstream
        return upstream.size_of_one() if isinstance(upstream, Pausable) else None

    def is_starving(self) -> bool:
        """Whether the subscriber waits for an element."""
        return is_starving(self._downstream)

    def on_error(self, error: BaseException, /) -> None:
        self._forget().on_error(error)

    def on_complete(self) -> None:
        # A request after the end must not fail because the scheduler has been closed by then.
        self._forget().on_complete()

    def request(self, n: int, /) -> None:
        upstream = self._upstream
        if upstream is None:
            return
        if (number := whole(n)) is None or number <= 0:
            upstream.request(n)  # §3.9 is answered at once, not when the scheduler gets to it
            return
        if self._connecting == get_ident():
            # on_subscribe came from where the source runs. A source that cannot wait begins as soon as it
            # returns: what it sends before the demand has come would be dropped.
            upstream.request(number)
            return
        try:
            # A copy, because a context can be entered by one thread at a time and a pool has many.
            self._scheduler.submit(lambda: self.context.copy().run(upstream.request, number))
        except Exception as refused:
            self._fail(refused)

    def _fail(self, refused: Exception) -> None:
        upstream = self._upstream
        if isinstance(upstream, Drain):
            upstream.abort(refused)  # in turn with what it may still be sending (§1.3)
        elif upstream is not None:
            upstream.cancel()
            self.on_error(refused)

    def cancel(self) -> None:
        upstream = self._upstream
        self._forget()
        if upstream is not None:
            upstream.cancel()

    def _forget(self) -> Subscriber[Any]:
        """Let go of both sides (§3.13; the bound method holds the subscriber, too)."""
        downstream, self._downstream = self._downstream, GONE
        self._upstream = None
        self.on_next = GONE.on_next
        return downstream

    def upstreams(self) -> list[Any]:
        return [self._upstream] if self._upstream is not None else []
