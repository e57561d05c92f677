"""One stream after another: relays that switch to the next stream, and ``concat_map``."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_error, set_context
from penstock.streams.events import StageState
from penstock.streams.fusion import Drain, ExpectsLarge, Link, Op, Relay, announce_large
from penstock.streams.operators.at_hand import HandfulSubscription, elements_at_hand
from penstock.streams.operators.read_ahead import step_of
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["ConcatMapSource", "Switching"]


class Switching(Relay):
    """A relay that may go on with another stream when the present one ends.

    Subclasses choose it in :meth:`follow`. The new one is asked for the demand that the old one left open.
    """

    takes_handfuls: bool = False
    """Whether elements may come into the queue without a call of ``on_next`` for each."""
    is_passed: bool = False
    """Whether elements may go past this stage, if there are no operators below it."""
    __slots__ = ("_ended", "_passing", "_received_end")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._received_end = False
        self._ended: BaseException | None = None
        self._passing: Drain | None = None
        """The stage above, if its elements go past us; it has counted them."""

    @abstractmethod
    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        """The stream to go on with, or None to end as the present one did (``error`` is None: complete)."""

    def on_error(self, error: BaseException, /) -> None:
        if self.closed or self._received_end:
            drop_error(error, f"a source of {self.name}, after its end")
            return
        self._end(error)

    def on_complete(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._ended = error
        self._received_end = True
        if self.violation is not None:
            self.halted = True  # see _halt()
        self.dirty = True
        self.drain()

    # ---------------------------------------------------------------- elements that go past us
    def let_pass(self, upstream: Link) -> bool:
        """If there is nothing to do for an element. Each request still comes through here."""
        if self._passing is upstream:
            return True
        if self.ops or self._listener is not None or not self.is_passed:
            return False
        # A stage that switches itself does not count what goes past it before its upstream ends, and may have
        # sent elements here by then: we could not tell which of them were ours.
        if not isinstance(upstream, Drain) or isinstance(upstream, Switching):
            return False
        if not self._owner.acquire(False):
            return False  # the owner may be about to end the stream
        try:
            passes = self.upstream is upstream and not self.halted
            if passes and self.most < UNBOUNDED and upstream.can_pause():
                self.most = UNBOUNDED  # it was asked for a few so far, because it can be paused only now
                self.dirty = True
            if passes and self.most >= UNBOUNDED:
                self._passing = upstream
        finally:
            self._owner.release()
        self.drain()  # who came meanwhile has left it to us
        return self._passing is upstream

    def _count_passed(self) -> None:
        """The stage above has ended. Only the owner may call this: its loop takes over the counts."""
        passing, self._passing = self._passing, None
        if passing is not None:
            self.emitted += passing.emitted
            self.taken += passing.emitted

    def state(self) -> StageState:
        """What went past us was emitted, too."""
        state, passing = super().state(), self._passing
        return state if passing is None else replace(state, emitted=state.emitted + passing.emitted)

    def _halt(self) -> None:
        """An element may be on its way past us just now (§1.3): an error waits for its turn above."""
        self.halted = False  # first: an end, or a cancel, that comes meanwhile sets it again
        error, passing = self.violation, self._passing
        if error is None or passing is None or self.cancelled or self._received_end:
            super()._halt()
        else:
            passing.abort(error)

    # ---------------------------------------------------------------- the next stream
    def switch(self) -> bool:
        """When every element of the old upstream was sent down, go on with the next one."""
        if not self._received_end or not self._starved or self.queue:
            return False
        self._count_passed()  # first: if there is no stack left for this, the end must still be there
        error, self._ended, self._received_end = self._ended, None, False
        following: Stream[Any] | None = None
        try:
            following = self.follow(error)
        except BaseException as fault:
            if fault is not error:
                self._caught(fault)  # the same error was a signal already
                if error is not None:
                    set_context(fault, error)
            error = fault
        self.dirty = True
        if following is None:
            self.done = error is None
            self.error = error
            self.upstream = None
        else:
            self.exchange()
            self.go_on_with(following)
        return True

    def release(self) -> None:
        """Forget the error of a source as well (§3.13)."""
        super().release()
        self._ended = None
        self._passing = None

    def go_on_with(self, stream: Stream[Any]) -> None:
        """Subscribe to the next stream; an exception from that ends this one."""
        try:
            elements = elements_at_hand(stream, self.home) if self.takes_handfuls else None
            if elements is None:
                stream._connect(self)
            else:
                HandfulSubscription(elements, self).begin()
        except BaseException as fault:
            self._caught(fault)
            upstream, self.upstream = self.upstream, None
            self._received_end = False
            self.error = fault
            if upstream is not None:
                upstream.cancel()


class ConcatMapSource(Source):
    """The inner stream gets exactly the open demand; ``prefetch`` elements of the outer one wait."""

    frames = 13

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        to_stream: Callable[[Any], Stream[Any]],
        prefetch: int,
        *shows: Any,
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self._to_stream = to_stream
        self._prefetch = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        # Of a source that is asked for one at a time, the next one is due when this one is done with.
        one_by_one = step_of(self._upstream) == 1
        stage = _ConcatMapping(self._to_stream, ops, downstream, self.label, self.place, one_by_one)
        stage.introduce()
        return None if stage.closed else (self._upstream, _Outer(stage, 1 if one_by_one else self._prefetch))

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return "sources"


class _Outer(ExpectsLarge):
    """Collects the elements that will become streams."""

    __slots__ = ("_prefetch", "_stage", "below", "home")

    def __init__(self, stage: _ConcatMapping, prefetch: int) -> None:
        self._stage = stage
        self._prefetch = prefetch
        self.home = stage.home
        self.below = stage.below

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._stage.outer is not None or self._stage.closed:
            subscription.cancel()
            return
        self._stage.outer = subscription
        if self._stage.closed:
            subscription.cancel()  # cancelled by another thread meanwhile
            return
        subscription.request(self._prefetch)

    def expect_large(self, step: int) -> bool:
        """What is made of them can be large, too; we ask for one at a time."""
        self._stage.announce_outer(step)
        return False

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element, and there is nothing here to make it of."""
        return not self._stage.waiting_elements and self._stage.is_starving()

    def on_next(self, element: Any, /) -> None:
        self._stage.waiting_elements.append(element)
        self._stage.look()

    def on_error(self, error: BaseException, /) -> None:
        if self._stage.closed:
            drop_error(error, f"the source of {self._stage.name}, after its end")
        self._stage.outer_error = error
        self.on_complete()

    def on_complete(self) -> None:
        self._stage.outer_done = True
        self._stage.look()


class _ConcatMapping(Switching):
    """An error of the outer stream waits until the present inner one has ended, so no element is lost."""

    takes_handfuls = True
    is_passed = True
    __slots__ = (
        "_between",
        "_one_by_one",
        "_to_stream",
        "outer",
        "outer_done",
        "outer_error",
        "waiting_elements",
    )

    def __init__(
        self,
        to_stream: Callable[[Any], Stream[Any]],
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
        one_by_one: bool,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._to_stream = to_stream
        self._one_by_one = one_by_one
        self._between = True
        """No inner stream is running."""
        self.outer: Subscription | None = None
        self.outer_done = False
        self.outer_error: BaseException | None = None
        self.waiting_elements: deque[Any] = deque()

    def look(self) -> None:
        self.dirty = True
        self.drain()

    def announce_outer(self, step: int) -> None:
        """The elements that become streams can be large."""
        announce_large(self.downstream, step)

    def switch(self) -> bool:
        if self._received_end and self._starved and not self.queue:
            self._received_end = False
            self._count_passed()
            if self._ended is not None:
                self.error, self._ended = self._ended, None
                self.dirty = True
                return True
            self.exchange()
            self._between = True
            if self._one_by_one:
                self._ask_outer()
        if not self._between or self.error is not None or self.done:
            return False
        if self.waiting_elements:
            self._open(self.waiting_elements.popleft())
        elif self.outer_done and not self.waiting_elements:
            self.error = self.outer_error
            self.done = self.error is None
        else:
            return False
        self.dirty = True
        return True

    def _open(self, element: Any) -> None:
        self._between = False
        if not self._one_by_one:
            self._ask_outer()
        try:
            stream = self._to_stream(element)
        except BaseException as error:
            self._caught(error)
            self.error = error
            return
        self.go_on_with(stream)

    def _ask_outer(self) -> None:
        if self.outer is not None and not self.outer_done:
            self.outer.request(1)

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        raise AssertionError("concat_map decides in switch()")

    def release(self) -> None:
        super().release()
        outer, self.outer = self.outer, None
        self.waiting_elements.clear()
        if outer is not None and not self.outer_done:
            outer.cancel()
        self.outer_error = None

    def upstreams(self) -> list[Any]:
        return [s for s in (self.outer, self.upstream) if s is not None]
