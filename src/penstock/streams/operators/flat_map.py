"""``flat_map`` and ``merge``: several sources, one loop.

The stage subscribes an :class:`Inner` to each source. Inners queue what arrives and wake the stage; the
stage's loop polls for the next element that may go down. Each inner keeps its own bounded queue filled, so
the stage holds at most ``sources × prefetch`` elements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, Subscription
from penstock.streams.errors import Place, drop_elements, drop_error
from penstock.streams.fusion import Drain, ExpectsLarge, Op, Pausable
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.at_hand import AtHand, elements_at_hand
from penstock.streams.operators.boundaries import replenish_at
from penstock.streams.operators.read_ahead import ReadAhead, read_ahead_of, step_of
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["INNER_PREFETCH", "FlatMapSource", "Inner", "ManySources", "Outer"]

INNER_PREFETCH = 32
"""How many elements of each source may wait by default."""


class ManySources(Drain):
    """A stage that composes its elements from several sources."""

    head = Head.POLL
    can_flow = True
    __slots__ = ("error", "sources")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.sources: set[Inner | Outer] = set()
        """Everything that must be cancelled together with this stage."""
        self.error: BaseException | None = None

    def can_pause(self) -> bool:
        return True

    def size_of_one(self) -> int | None:
        """The largest that a source knows of."""
        above: list[object] = [source.subscription for source in tuple(self.sources)]
        sizes = [one.size_of_one() for one in above if isinstance(one, Pausable)]
        return max([size for size in sizes if size is not None], default=None)

    def is_first(self, inner: Inner) -> bool:
        """Whether an element of this source may go down as soon as it comes."""
        return False

    @abstractmethod
    def poll(self) -> Any:
        """The next element that may go down, or PENDING. Only the owner of the drain calls this."""

    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing can come any more. Only the owner of the drain calls this."""

    def source(self) -> Callable[[], Any]:
        if not self._leading:
            return self.poll
        return lambda: self.poll() if self.error is None else PENDING

    def due_error(self) -> BaseException | None:
        """An error of one source ends the stage at once."""
        return self.error

    def wake(self) -> None:
        """Something changed: look whether there is work."""
        self.dirty = True
        self.drain()

    def fail(self, error: BaseException) -> None:
        """One source failed. The first error goes down, later ones are reported as dropped."""
        if self.closed or self.error is not None:
            drop_error(error, f"a source of {self.name}, after its end")
            if not self.closed:
                self.wake()  # the first one may have been noted where no stack was left to send it on
            return
        self.error = error
        self.wake()

    def can_run(self) -> bool:
        """An error goes before whatever is queued, but after what ``start_with`` puts before all of it."""
        return self.dirty and (self.error is None or self._leading)

    def add(self, source: Inner | Outer) -> None:
        """Remember a source, or cancel it if this stage is closed already."""
        self.sources.add(source)
        if self.closed:
            source.cancel()

    def release(self) -> None:
        """Cancel all sources that still run. After an error, elements that waited are reported as dropped."""
        if self.error is not None:
            drop_elements(self.waiting(), self.name)
        running = tuple(self.sources)  # one may leave by itself meanwhile
        # The stream of sources first. Cancelling one of its parts would make it open another (group_by).
        for outer in running:
            if isinstance(outer, Outer):
                outer.cancel()
        for inner in running:
            if not isinstance(inner, Outer):
                inner.cancel()
        self.sources.clear()
        # Its traceback refers to the subscriber, which may keep this subscription for long (§3.13).
        self.error = None

    def waiting(self) -> list[Any]:
        """The elements that have come in and were not sent down yet."""
        return []

    def queued(self) -> int:
        return len(self.waiting())

    def upstreams(self) -> list[Any]:
        found = [source.subscription for source in tuple(self.sources)]
        return [subscription for subscription in found if subscription is not None]


class Outer(ExpectsLarge):
    """Subscribes to the stream whose elements become sources; asks for a new one only when told to."""

    __slots__ = ("_first", "_on_element", "_stage", "below", "done", "home", "subscription")

    def __init__(self, stage: ManySources, on_element: Callable[[Any], None], first: int) -> None:
        self._stage = stage
        self._on_element = on_element
        self._first = first
        self.home = stage.home
        self.below = stage.below
        self.subscription: Subscription | None = None
        self.done = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None or self._stage.closed:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._stage.closed:
            subscription.cancel()  # cancelled by another thread meanwhile
            return
        subscription.request(self._first)

    def on_next(self, element: Any, /) -> None:
        if self._stage.closed or self._stage.error is not None:
            return
        try:
            self._on_element(element)
        except BaseException as error:
            goes_up = asks_main_thread_to_stop(error)
            if not (goes_up and self._stage.closed):  # then it has ended with that already
                # In this order: without stack for it, the source must still be there to tell of its end.
                self._stage.fail(error)
                self.cancel()
            if goes_up:
                raise

    def on_error(self, error: BaseException, /) -> None:
        # Not `done`: the stage, at work on another thread, would take that for completion and lose the error.
        self.subscription = None
        self._stage.fail(error)

    def on_complete(self) -> None:
        self.done = True
        self._stage.wake()

    def expect_large(self, step: int) -> bool:
        """What is made of them can be large, too; we ask for one at a time."""
        self._stage.expect_large(step)
        return False

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element."""
        return self._stage.is_starving()

    def more(self, n: int = 1) -> None:
        """Ask for ``n`` more sources."""
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.request(n)

    def cancel(self) -> None:
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.cancel()


class Inner(ExpectsLarge):
    """Subscribes to one source and keeps a bounded queue of its elements filled."""

    __slots__ = (
        "_ahead",
        "_aheads",
        "_batch",
        "_prefetch",
        "_stage",
        "_taken",
        "below",
        "done",
        "home",
        "queue",
        "subscription",
    )

    def __init__(self, stage: ManySources, prefetch: int) -> None:
        self._stage = stage
        self._prefetch = prefetch
        self._batch = replenish_at(prefetch)
        self._taken = 0
        self._ahead: ReadAhead | None = None
        """Asks for elements that can be large; None if they are not."""
        self._aheads: list[ReadAhead] = []
        self.home = stage.home
        self.below = stage.below
        self.queue: deque[Any] = deque()
        self.subscription: Subscription | None = None
        self.done = False

    def subscribe_to(self, stream: Stream[Any]) -> None:
        """Become a source of the stage."""
        step = step_of(stream)
        if step is not None:
            self.expect_large(step)
        self._stage.add(self)
        stream._connect(self)

    def expect_large(self, step: int) -> bool:
        """Measure what comes. But a number that the user gives counts elements, however large they are."""
        self._stage.expect_large(step)
        if self._ahead is None and self._prefetch == INNER_PREFETCH:
            ahead = read_ahead_of(self._aheads, self.subscription, step, self._prefetch, self._waiting)
            if ahead is not None:
                self._ahead = ahead
        return self._ahead is not None and self._ahead.holds

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element of this source, or of another one."""
        return not self.queue and self._stage.is_starving()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None or self._stage.closed:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._stage.closed:
            subscription.cancel()  # cancelled by another thread meanwhile
            return
        if self._ahead is None:
            subscription.request(self._prefetch)
        else:
            self._ahead.begin(subscription)

    def on_next(self, element: Any, /) -> None:
        stage = self._stage
        if stage.flowing and self._ahead is None and stage.is_first(self) and stage.push(element):
            self.took_one()
            return
        if stage.closed:
            return  # §2.8: may still come after a cancel
        self.queue.append(element)
        if stage.flowing:
            stage.flow()
        else:
            stage.wake()
        if self._ahead is not None:
            self._ahead.came(element)

    def on_error(self, error: BaseException, /) -> None:
        self.subscription = None  # not done: see Outer
        self._stage.fail(error)

    def on_complete(self) -> None:
        self.done = True
        self._stage.wake()

    def take(self) -> Any:
        """Take the oldest element, and ask for more when it is time."""
        element = self.queue.popleft()
        self.took_one()
        return element

    def took_one(self) -> None:
        """Count one; when three quarters of the queue have been taken, ask for as many again."""
        self._taken += 1
        if self._ahead is not None:
            if self._ahead.stalled and not self.done:
                self._ahead.took()
            if not self._ahead.holds:
                return
        if self._taken == self._batch:
            self._taken = 0
            subscription = self.subscription
            if subscription is not None and not self.done:
                subscription.request(self._batch)

    def _waiting(self) -> list[Any]:
        return list(self.queue)

    def cancel(self) -> None:
        self.queue.clear()
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.cancel()


class FlatMapSource(Source):
    """``flat_map``, ``merge``: up to ``concurrency`` inner streams at once; ``sequential`` keeps order."""

    frames = 16

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        to_stream: Callable[[Any], Stream[Any]],
        concurrency: int,
        prefetch: int,
        *shows: Any,
        sequential: bool = False,
        members: tuple[Stream[Any], ...] | None = None,
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self.members = members
        """The inner streams, if they are known beforehand."""
        self.can_grow = members is not None and not sequential and prefetch == INNER_PREFETCH
        """Another stream that is merged with this one may join its members: nothing tells them apart."""
        self._to_stream = to_stream
        self._concurrency = concurrency
        self._sequential = sequential
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe to the outer stream, whose elements become the inner ones."""
        assert self.boundary is not None
        stage_type = _Sequential if self._sequential else _Merging
        stage = stage_type(ops, downstream, self.label, self.place)
        outer = Outer(
            stage, lambda element: stage.open(self._to_stream(element), self.boundary), self._concurrency
        )
        stage.outer = outer
        stage.sources.add(outer)
        stage.introduce()
        return None if stage.closed else (self._upstream, outer)

    def upstreams(self) -> list[Stream[Any]]:
        """The inner streams if they are known, otherwise the outer one that they come from."""
        return [self._upstream] if self.members is None else list(self.members)

    def queue(self) -> str:
        return f"{self._concurrency}×{self.boundary}"

    def runs_on(self) -> str:
        return "sources"


_END: Any = object()
"""Follows the last element of an inner stream in the common queue."""


class _Merging(ManySources):
    """Elements in the order of their arrival."""

    __slots__ = ("_ready", "outer")
    outer: Outer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ready: deque[tuple[_MergedInner, Any]] = deque()

    def open(self, stream: Stream[Any], prefetch: Any) -> None:
        at_hand = elements_at_hand(stream, self.home)
        if at_hand is None:
            _MergedInner(self, prefetch, self._ready).subscribe_to(stream)
        else:
            _InnerAtHand(self, prefetch, self._ready).begin(at_hand)

    def poll(self) -> Any:
        ready = self._ready
        while ready and not self.halted:
            inner, element = ready.popleft()
            if element is not _END:
                inner.took_one()
                return element
            self._remove(inner)
        return PENDING

    def finished(self) -> bool:
        self._remove_ended()
        # The order of the three looks matters: an inner is a source before the outer stream is done,
        # and its elements are ready before it leaves the sources.
        return self.outer.done and self.sources <= {self.outer} and not self._ready

    def _remove_ended(self) -> None:
        """An inner stream makes way for the next one when it has ended and all of its elements were taken."""
        while self._ready and self._ready[0][1] is _END and not self.halted:
            self._remove(self._ready.popleft()[0])

    def _remove(self, inner: _MergedInner) -> None:
        self.sources.discard(inner)
        self.outer.more()

    def waiting(self) -> list[Any]:
        return [element for _, element in tuple(self._ready) if element is not _END]

    def release(self) -> None:
        super().release()
        self._ready.clear()


class _MergedInner(Inner):
    """Puts its elements into the common queue, in the order of arrival."""

    __slots__ = ("_ready",)
    _stage: _Merging

    def __init__(self, stage: _Merging, prefetch: int, ready: deque[tuple[_MergedInner, Any]]) -> None:
        super().__init__(stage, prefetch)
        self._ready = ready

    def on_next(self, element: Any, /) -> None:
        stage = self._stage
        if stage.flowing and self._ahead is None and stage.push(element):
            self.took_one()
            return
        if stage.closed:
            return  # §2.8
        self._ready.append((self, element))
        if stage.flowing:
            stage.flow()
        else:
            stage.wake()
        if self._ahead is not None:
            self._ahead.came(element)

    def _waiting(self) -> list[Any]:
        return [element for inner, element in list(self._ready) if inner is self and element is not _END]

    def on_complete(self) -> None:
        self.done = True
        self._ready.append((self, _END))
        self._stage.wake()


class _InnerAtHand(_MergedInner):
    """An inner stream whose elements exist already: they go into the common queue without a subscription."""

    __slots__ = ("_elements",)
    _elements: AtHand

    def begin(self, elements: AtHand) -> None:
        """Become a source of the stage."""
        self._elements = elements
        self._stage.add(self)
        self._fill(self._prefetch)
        self._stage.wake()

    def took_one(self) -> None:
        """Count one; when three quarters of those in the queue have been taken, add as many again."""
        self._taken += 1
        if self._taken == self._batch:
            self._taken = 0
            if not self.done:
                self._fill(self._batch)

    def _fill(self, n: int) -> None:
        handful = self._elements.take(n)
        if self._elements.at_end():
            self.done = True
            handful.append(_END)
        # The last step: another thread may take all of them at once, and fill again.
        self._ready.extend(zip(repeat(self), handful))


class _Sequential(ManySources):
    """Elements of the first inner stream, then of the second, and so on, although all of them run."""

    __slots__ = ("_in_order", "outer")
    outer: Outer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._in_order: deque[Inner] = deque()

    def open(self, stream: Stream[Any], prefetch: Any) -> None:
        inner = Inner(self, prefetch)
        self._in_order.append(inner)
        inner.subscribe_to(stream)

    def is_first(self, inner: Inner) -> bool:
        in_order = self._in_order  # a cancel on another thread may put an empty one in its place
        return bool(in_order) and in_order[0] is inner and not inner.queue

    def poll(self) -> Any:
        while self._in_order and not self.halted:
            first = self._in_order[0]
            if first.queue:
                return first.take()
            if not first.done:
                return PENDING
            if first.queue:
                continue  # an element and the end came between the two looks
            self._in_order.popleft()
            self.sources.discard(first)
            self.outer.more()
        return PENDING

    def finished(self) -> bool:
        # Also without demand: an inner stream that has nothing to send makes way for the next one.
        while self._in_order and not self.halted:
            if not self._in_order[0].done or self._in_order[0].queue:
                break
            self.sources.discard(self._in_order.popleft())
            self.outer.more()
        return self.outer.done and not self._in_order

    def waiting(self) -> list[Any]:
        return [element for inner in tuple(self._in_order) for element in tuple(inner.queue)]

    def release(self) -> None:
        super().release()
        self._in_order = deque()
