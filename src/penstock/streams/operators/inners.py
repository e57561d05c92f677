"""What flat_map, merge, zip and map_async have in common: several sources, one loop.

The stage subscribes an :class:`Inner` to each source. Inners queue what arrives and wake the stage; the
stage's loop polls for the next element that may go down. Each inner keeps its own bounded queue filled, so
the stage holds at most ``sources × prefetch`` elements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, Subscription
from penstock.streams.assembly import Place
from penstock.streams.dropped import drop_elements, drop_error
from penstock.streams.fusion import Drain, Op
from penstock.streams.fusion.codegen import Head
from penstock.streams.operators.boundaries import replenish_at
from penstock.streams.operators.read_ahead import ReadAhead, step_of
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["INNER_PREFETCH", "Inner", "ManySources", "Outer"]

INNER_PREFETCH = 32
"""How many elements of each source may wait by default."""


class ManySources(Drain):
    """A stage that composes its elements from several sources."""

    head = Head.POLL
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
        above = [source.subscription for source in tuple(self.sources)]
        sizes = [one.size_of_one() for one in above if isinstance(one, Drain)]
        return max([size for size in sizes if size is not None], default=None)

    @abstractmethod
    def poll(self) -> Any:
        """The next element that may go down, or PENDING. Only the owner of the drain calls this."""

    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing can come any more. Only the owner of the drain calls this."""

    def source(self) -> Callable[[], Any]:
        return self.poll

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
            return
        self.error = error
        self.wake()

    def can_run(self) -> bool:
        """An error goes before whatever is queued."""
        return self.dirty and self.error is None

    def add(self, source: Inner | Outer) -> None:
        """Remember a source, or cancel it if this stage is closed already."""
        self.sources.add(source)
        if self.closed:
            source.cancel()

    def release(self) -> None:
        """Cancel all sources that still run. After an error, elements that waited are reported as dropped."""
        if self.error is not None:
            drop_elements(self.waiting(), self.name)
        for source in tuple(self.sources):  # one may leave by itself meanwhile
            source.cancel()
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


class Outer:
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
                self.cancel()
                self._stage.fail(error)
            if goes_up:
                raise

    def on_error(self, error: BaseException, /) -> None:
        # Not `done`: the stage, at work on another thread, would take that for completion and lose the error.
        self.subscription = None
        self._stage.fail(error)

    def on_complete(self) -> None:
        self.done = True
        self._stage.wake()

    def more(self, n: int = 1) -> None:
        """Ask for ``n`` more sources."""
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.request(n)

    def cancel(self) -> None:
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.cancel()


class Inner:
    """Subscribes to one source and keeps a bounded queue of its elements filled."""

    __slots__ = (
        "_ahead",
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
        self.home = stage.home
        self.below = stage.below
        self.queue: deque[Any] = deque()
        self.subscription: Subscription | None = None
        self.done = False

    def subscribe_to(self, stream: Stream[Any]) -> None:
        """Become a source of the stage."""
        # A number that the user gives counts elements, however large they are.
        step = step_of(stream) if self._prefetch == INNER_PREFETCH else None
        if step is not None:
            self._ahead = ReadAhead(step, self._prefetch, self._waiting)
        self._stage.add(self)
        stream._connect(self)

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
        self.queue.append(element)
        self._stage.wake()
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
