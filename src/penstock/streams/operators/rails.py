"""``parallel``: elements are dealt out to rails, and what the rails make of them is gathered again.

A :class:`_Dealer` subscribes to the source and gives each element to the next rail that has demand. It keeps
no queue: the source is asked for what all rails together have asked for. So the rails themselves bound what
waits, and a rail that is slow is left out until it asks again. A queue below a rail pauses it while too many
bytes wait there; an element that no rail takes then stays with the dealer, which pauses the source.

Errors of one rail end all of them at once. An error of the source goes down every rail, behind the elements
that are on it, and ends the stream when it has come out of all: so no element that was dealt is lost to it.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.fusion import Op, Pausable, announce_large
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.queue_drain import relay_for
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.branch import Branch, BranchSource
from penstock.streams.operators.flat_map import Inner
from penstock.streams.operators.ordered_merge import InOrder
from penstock.streams.operators.sources import FailedSource
from penstock.streams.operators.splitter import Splitter
from penstock.streams.schedulers import SchedulerClosed, shared_pool
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source
from penstock.streams.stream import flux_of

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["GatherSource", "ParallelSource"]

Chain = Callable[["Stream[Any]"], "Stream[Any]"]
"""Puts the operators of the rails below one of them."""


class ParallelSource(Source):
    """``parallel``: stands for any one of the rails while operators are put below it."""

    def __init__(self, upstream: Stream[Any], rails: int) -> None:
        super().__init__("parallel", rails)
        self.upstream = upstream
        self.rails = rails

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        error = RuntimeError(
            f"a rail of {self.label} has no elements before the rails are joined; "
            "call sequential() or ordered() and subscribe to that"
        )
        FailedSource(error, self.label).attach(ops, downstream)

    def upstreams(self) -> list[Stream[Any]]:
        return [self.upstream]

    def runs_on(self) -> str:
        return self.upstream._source.runs_on()


class GatherSource(Source):
    """``sequential`` and ``ordered``: the elements of all rails in one stream."""

    frames = 12

    def __init__(
        self,
        label: str,
        parallel: ParallelSource,
        chain: Chain,
        rail: Stream[Any],
        prefetch: int,
        *shows: Any,
        key: Callable[[Any], Any] | None = None,
        in_order: bool = False,
    ) -> None:
        super().__init__(label, *shows)
        self._parallel = parallel
        self._chain = chain
        self._rail = rail
        self._key = key
        self._stage_type = _Gathering if in_order else _AsTheyCome
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe to the rails first, so that they are there when the first element comes."""
        assert self.boundary is not None
        stage = self._stage_type(self._key, ops, downstream, self.label, self.place)
        stage.expect(self._parallel.rails, self.boundary)
        stage.introduce()
        if stage.closed:
            return None
        dealer = _Dealer(self._parallel, stage)
        for inner, rail in zip(stage.inners, dealer.rails, strict=True):
            if stage.closed:
                rail.abandon()
                continue
            try:
                stream = self._chain(flux_of(_RailSource(rail, dealer, self._parallel.upstream)))
            except BaseException as error:  # of a function of transform_rails()
                rail.abandon()
                stage.fail(error)
                if asks_main_thread_to_stop(error):
                    raise
            else:
                inner.subscribe_to(stream)
        stage.begin()
        return self._parallel.upstream, dealer

    def upstreams(self) -> list[Stream[Any]]:
        return [self._rail]

    def queue(self) -> str:
        return f"{self._parallel.rails}×{self.boundary}"

    def runs_on(self) -> str:
        return "rails"


# -------------------------------------------------------------------- from the source to the rails
class _Rail(Branch, Pausable):
    """One rail, and the Subscription of the stage at its top. It has demand instead of a queue."""

    __slots__ = ("demand", "paused")
    _splitter: _Dealer

    def __init__(self, dealer: _Dealer, label: str) -> None:
        super().__init__(dealer, label)
        self.demand = 0
        """Only the dealer's owner counts."""
        self.paused = False
        """It gets no element until it goes on; the other rails may."""

    def request(self, n: int, /) -> None:
        self._splitter.post(self._splitter.asked, self, n)

    def can_pause(self) -> bool:
        """If the source can: what no rail takes has to wait there."""
        return self._splitter.can_hold()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._splitter.wake()

    def abandon(self) -> None:
        """There will be no subscriber."""
        if self.claim():
            self._splitter.post(self._splitter.left, self)

    def upstreams(self) -> list[Any]:
        """The source, for ``scan()``."""
        upstream = self._splitter.upstream
        return [] if upstream is None else [upstream]


class _RailSource(BranchSource):
    """A rail as a stream. It asks for what is asked of it, and no more."""

    def __init__(self, rail: _Rail, dealer: _Dealer, upstream: Stream[Any]) -> None:
        super().__init__(rail, dealer.place)
        self._dealer = dealer
        self._upstream = upstream

    def begin(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        reader = relay_for(ops, downstream, self.label, self.place)
        self._dealer.below = max(self._dealer.below, getattr(reader, "below", 0))
        self._branch.join(reader)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]


class _Dealer(Splitter):
    """Gives each element to the next rail that has demand."""

    waits_for_readers = False
    bounds_bytes = False  # nothing waits here

    def __init__(self, source: ParallelSource, stage: _Gathering) -> None:
        super().__init__(source.label, source.place, stage.home, 0, 0, None)
        self._stage = stage
        self.rails = [_Rail(self, f"rail {number} of {self.name}") for number in range(1, source.rails + 1)]
        self.branches = dict.fromkeys(self.rails)
        self._number = -1
        self._granted = 0
        """The demand of all rails so far, less what those that have left did not get."""
        self._dealt = 0
        self._holding = allocate_lock()
        self._held = False
        """The source is paused, because an element has come that no rail takes now."""

    # ---------------------------------------------------------------- bytes
    def expect_large(self, step: int) -> bool:
        """Have the queues below the rails count bytes; they pause their rails, and all rails the source."""
        self.large = step
        told = [announce_large(rail.reader, step) for rail in self.rails if rail.reader is not None]
        return any(told)

    def can_hold(self) -> bool:
        """Whether the source can be paused."""
        upstream = self.upstream
        return isinstance(upstream, Pausable) and upstream.can_pause()

    def on_next(self, element: Any, /) -> None:
        super().on_next(element)
        if not self.inbox or not any(rail.paused for rail in self.rails):
            return
        upstream = self.upstream
        if isinstance(upstream, Pausable):
            with self._holding:
                upstream.pause()
                self._held = True
            self.wake()  # a rail may have taken it before it could see that the source is held

    def wake(self, ask: Callable[[Subscription, int], None] | None = None) -> None:
        super().wake(ask)
        if not self._held or self.inbox or self._token.locked():
            return  # who has the token comes here afterwards
        with self._holding:
            goes_on, self._held = self._held, False
        upstream = self.upstream
        if not goes_on or not isinstance(upstream, Pausable):
            return
        if ask is None:
            upstream.resume()
            return
        with suppress(SchedulerClosed):  # the interpreter is exiting, and the source with it
            shared_pool().submit(upstream.resume)

    # ---------------------------------------------------------------- dealing
    def place_one(self, element: Any) -> bool:
        rails = self.rails
        for _ in rails:
            self._number = (self._number + 1) % len(rails)
            rail = rails[self._number]
            if rail.demand and not rail.paused:
                if rail.demand < UNBOUNDED:
                    rail.demand -= 1
                else:
                    self._granted += 1  # what it gets is not taken back when it leaves
                self._dealt += 1
                rail.give(element)
                return True
        return False

    def wanted(self, on_the_way: int) -> int:
        """What the rails have asked for, less what the source was asked for.

        Both are totals, which only the owner counts. What is on its way changes while we look. A rail may
        leave that has asked for everything, and the source could not be stopped then: so it is asked for a
        few at a time.
        """
        if self._granted < UNBOUNDED:
            return max(0, self._granted - self._asked)
        wanted = self._dealt + PREFETCH - self._asked
        return wanted if wanted > PREFETCH >> 2 else 0

    def asked(self, rail: _Rail, n: int) -> None:
        """A rail wants ``n`` more elements."""
        if not rail.gone:
            before, rail.demand = rail.demand, min(rail.demand + n, UNBOUNDED)
            self._granted += rail.demand - before

    def forgotten(self, branch: Branch) -> None:
        assert isinstance(branch, _Rail)
        self._granted -= branch.demand
        branch.demand = 0

    def finish(self, error: BaseException | None) -> None:
        self._stage.source_error = error  # before a rail can bring it
        if self._stage.closed:
            self._stage.source_error = None  # §3.13: nobody clears it any more
        super().finish(error)

    def released(self) -> None:
        self.rails = []


# -------------------------------------------------------------------- from the rails to the subscriber
class _Gathering(InOrder):
    """The smallest of what the rails have next; ends when all rails have.

    It ends with the source's error if a rail has brought that.
    """

    __slots__ = ("failed", "source_error")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failed = False
        """Whether a rail has brought the source's error."""
        self.source_error: BaseException | None = None

    def expect(self, streams: int, prefetch: int) -> None:
        self.inners = [_EndOfRail(self, prefetch) for _ in range(streams)]

    def finished(self) -> bool:
        if not super().finished():
            return False
        if self.failed:
            self.error = self.source_error
            self.dirty = True  # so that the drain looks at the error, whoever runs the loop
        return not self.failed

    def release(self) -> None:
        super().release()
        self.source_error = None


class _AsTheyCome(_Gathering):
    """The rails in turn, as far as they have something."""

    __slots__ = ("_number",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._number = -1

    def is_first(self, inner: Inner) -> bool:
        return True

    def poll(self) -> Any:
        if self.halted:
            return PENDING
        inners = self.inners
        for _ in inners:
            self._number = (self._number + 1) % len(inners)
            inner = inners[self._number]
            if inner.queue:
                return inner.take()
        return PENDING


class _EndOfRail(Inner):
    """Subscribes to the lower end of one rail."""

    __slots__ = ()
    _stage: _Gathering

    def on_error(self, error: BaseException, /) -> None:
        if error is not self._stage.source_error:
            super().on_error(error)
            return
        self.subscription = None
        self._stage.failed = True  # before `done`, which may be all that the stage waits for
        self.done = True
        self._stage.wake()
