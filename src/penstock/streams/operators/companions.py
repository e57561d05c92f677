"""A stream and a companion that has a say in it: when it begins, when it ends, and what goes with it.

The stage passes the elements of its own stream on and asks for exactly what it was asked for. What the
companion decides about single elements is a fused operator at the top of the stage, so an element that is
left out is asked for again by the same rule as one that a ``filter`` drops.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_error
from penstock.streams.fusion import Op, Relay
from penstock.streams.fusion.fragments import KINDS, NOTHING
from penstock.streams.home import Home
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["Companion", "DelaySubscriptionSource", "SkipUntilSource", "TakeUntilSource", "WithLatestSource"]


class _CompanionSource(Source):
    """Subscribes to the companion first, then to the stream itself."""

    frames = 8

    def __init__(self, label: str, upstream: Stream[Any], other: Stream[Any], *shows: Any) -> None:
        super().__init__(label, *(shows or (other,)))
        self._upstream = upstream
        self._other = other

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        companion, own = self.companion()
        stage = _Accompanied(companion, (*own, *ops), downstream, self.label, self.place)
        companion.join(stage)
        stage.introduce()
        if not stage.closed:
            self._other._connect(companion)
        return None if stage.closed or stage.cut_off else (self._upstream, stage)

    def companion(self) -> tuple[Companion, tuple[Op, ...]]:
        """A new companion for a subscriber, and the operators that it governs."""
        raise AssertionError("each operator has its own")

    def own(self, kind: str, function: Callable[..., Any]) -> Op:
        """A fused operator in the name of this one."""
        return Op(KINDS[kind], (function,), self.label, self.place)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream, self._other]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class TakeUntilSource(_CompanionSource):
    """``take_until_other``: complete as soon as the companion has an element, or completes."""

    def companion(self) -> tuple[Companion, tuple[Op, ...]]:
        return _Stop(), ()


class SkipUntilSource(_CompanionSource):
    """``skip_until_other``: leave elements out until the companion has one, or completes."""

    def companion(self) -> tuple[Companion, tuple[Op, ...]]:
        gate = _Gate()
        return gate, (self.own("filter", gate.is_open),)


class DelaySubscriptionSource(_CompanionSource):
    """``delay_subscription``: subscribe when the companion has an element, or completes."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        companion = _Start()
        stage = _Accompanied(companion, ops, downstream, self.label, self.place)
        companion.join(stage)
        companion.begin = lambda: self._upstream._connect(stage)
        stage.introduce()
        if not stage.closed:
            self._other._connect(companion)


class WithLatestSource(_CompanionSource):
    """``with_latest_from``: each element together with the newest one of the companion."""

    def __init__(
        self, upstream: Stream[Any], other: Stream[Any], combinator: Callable[[Any, Any], Any] | None
    ) -> None:
        super().__init__("with_latest_from", upstream, other, *([combinator] if combinator else []))
        self._combinator = combinator

    def companion(self) -> tuple[Companion, tuple[Op, ...]]:
        newest = _Newest(self._combinator)
        return newest, (
            self.own("filter", newest.is_there),
            self.own("map", newest.combined),
        )


class _Accompanied(Relay):
    """A relay that its companion can cut off: no element that comes after the cut goes down."""

    __slots__ = ("_companion", "_door", "cut_off")

    def __init__(
        self,
        companion: Companion,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._companion = companion
        self._door = allocate_lock()
        """Held while the end is decided, so that there is one: the stream's own, or the companion's."""
        self.cut_off = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        if self.cut_off:
            subscription.cancel()  # while we were subscribing

    def on_next(self, element: Any, /) -> None:
        with self._door:
            if self.closed or self.cut_off:
                return  # §2.8
            self.queue.append(element)
        self.dirty = True
        self.drain()

    def on_error(self, error: BaseException, /) -> None:
        self._end(error, f"the source of {self.name}, after its end")

    def on_complete(self) -> None:
        self._end(None, "")

    def cut(self, error: BaseException | None) -> None:
        """The companion ends the stream, with an error or without."""
        self._end(error, f"the companion of {self.name}, after its end", cancels=True)

    def _end(self, error: BaseException | None, where: str, *, cancels: bool = False) -> None:
        """The first end is the one that goes down, after the elements that came before it."""
        with self._door:
            late = self.closed or self.cut_off
            self.cut_off = True
            if not late:
                self.error, self.done = error, error is None
        if late:
            if error is not None:
                drop_error(error, where)
            return
        upstream = self.upstream  # after the cut: on_subscribe looks for the cut after setting this
        if cancels and upstream is not None:
            upstream.cancel()
        self.dirty = True
        self.drain()

    def release(self) -> None:
        super().release()
        self._companion.cancel()

    def upstreams(self) -> list[Any]:
        other = self._companion.subscription
        return [*super().upstreams(), *([] if other is None else [other])]


class Governed(Protocol):
    """A stage with a companion."""

    home: Home
    below: int

    @property
    def name(self) -> str:
        """How messages call it."""

    def cut(self, error: BaseException | None) -> None:
        """End, with an error or without."""


class Companion:
    """Subscribes to the other stream, and governs a stage."""

    __slots__ = ("_cancelled", "_stage", "below", "home", "subscription")
    demand = 1
    """How much to ask of the other stream."""

    def __init__(self) -> None:
        self._cancelled = False
        self.subscription: Subscription | None = None

    def join(self, stage: Governed) -> None:
        """Govern this stage."""
        self._stage = stage
        self.home = stage.home
        self.below = stage.below

    def came(self, element: Any) -> None:
        """The other stream has an element."""
        raise AssertionError("each companion decides")

    def ended(self) -> None:
        """The other stream has completed."""
        raise AssertionError("each companion decides")

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None or self._cancelled:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._cancelled:
            subscription.cancel()  # by another thread meanwhile
            return
        subscription.request(self.demand)

    def on_next(self, element: Any, /) -> None:
        if not self._cancelled:
            self.came(element)

    def on_error(self, error: BaseException, /) -> None:
        self.subscription = None
        if self._cancelled:
            drop_error(error, f"the companion of {self._stage.name}, after its end")
        else:
            self._stage.cut(error)

    def on_complete(self) -> None:
        self.subscription = None
        if not self._cancelled:
            self.ended()

    def cancel(self) -> None:
        """The other stream is not needed any more."""
        self._cancelled = True
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            subscription.cancel()


class _Stop(Companion):
    __slots__ = ()

    def came(self, element: Any) -> None:
        self.cancel()
        self.ended()

    def ended(self) -> None:
        self._stage.cut(None)


class _Start(Companion):
    __slots__ = ("begin",)
    begin: Callable[[], None]
    """Subscribes the stage to its stream."""

    def came(self, element: Any) -> None:
        self.cancel()
        self.ended()

    def ended(self) -> None:
        try:
            self.begin()
        except BaseException as error:
            self._stage.cut(error)
            if asks_main_thread_to_stop(error):
                raise


class _Gate(Companion):
    __slots__ = ("_open",)

    def __init__(self) -> None:
        super().__init__()
        self._open = False

    def is_open(self, element: Any) -> bool:
        return self._open

    def came(self, element: Any) -> None:
        self._open = True
        self.cancel()

    def ended(self) -> None:
        self._open = True


class _Newest(Companion):
    __slots__ = ("_combinator", "_newest")
    demand = UNBOUNDED

    def __init__(self, combinator: Callable[[Any, Any], Any] | None) -> None:
        super().__init__()
        self._combinator = combinator
        self._newest: Any = NOTHING

    def is_there(self, element: Any) -> bool:
        return self._newest is not NOTHING

    def combined(self, element: Any) -> Any:
        newest = self._newest
        return (element, newest) if self._combinator is None else self._combinator(element, newest)

    def came(self, element: Any) -> None:
        self._newest = element

    def ended(self) -> None:
        """Without an element to go with, no element can go down any more."""
        if self._newest is NOTHING:
            self._stage.cut(None)
