"""Fewer elements, chosen by time: ``sample``, ``throttle_first``, ``throttle_last``, ``debounce``."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.fusion import Op
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.operators.companions import Companion
from penstock.streams.operators.latest import Latest, TimedLatest
from penstock.streams.operators.timing import MOMENT
from penstock.streams.schedulers import Scheduler
from penstock.streams.source import Next, Source, StageSource

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["debounced", "sampled", "sampled_by", "throttled_to_first", "throttled_to_last"]


def debounced(upstream: Stream[Any], pause: float, scheduler: Scheduler) -> Source:
    """``debounce``: an element is due when none has come for a while."""
    return StageSource("debounce", upstream, 1, lambda *a: _Debouncing(pause, scheduler, *a), pause)


def throttled_to_first(upstream: Stream[Any], window: float, scheduler: Scheduler) -> Source:
    """``throttle_first``: the element that opens a window is due, the others in it are dropped."""
    return StageSource(
        "throttle_first", upstream, 1, lambda *a: _FirstOfWindow(window, scheduler, *a), window
    )


def throttled_to_last(upstream: Stream[Any], window: float, scheduler: Scheduler) -> Source:
    """``throttle_last``: an element opens a window, and the last in it is due when the window closes."""
    return StageSource("throttle_last", upstream, 1, lambda *a: _LastOfWindow(window, scheduler, *a), window)


def sampled(upstream: Stream[Any], period: float, scheduler: Scheduler) -> Source:
    """``sample`` by a clock: at each tick, the newest element is due."""
    return StageSource("sample", upstream, 1, lambda *a: _SampledByClock(period, scheduler, *a), period)


def sampled_by(upstream: Stream[Any], sampler: Stream[Any]) -> Source:
    """``sample`` by another stream: at each of its elements, the newest element is due."""
    return _SampleSource(upstream, sampler)


class _Debouncing(TimedLatest):
    """One timer at a time: when it rings too early, because elements came meanwhile, it is set again."""

    __slots__ = ("_due", "_pause", "_waits")

    def __init__(self, pause: float, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(scheduler, *attached)
        self._pause = pause
        self._due = inf
        self._waits = False
        """A timer is set."""

    def came(self, element: Any) -> None:
        due = self.scheduler.now() + self._pause
        with self.mutex:
            self.last = element
            self._due = due
            begin, self._waits = not self._waits, True
        if begin:
            self.set_timer(self._pause)

    def ring(self) -> None:
        now = self.scheduler.now()
        with self.mutex:
            early = self._due - now
            self._waits = early > MOMENT
            if not self._waits:
                self.put_last()
        if early > MOMENT:
            self.set_timer(early)
        else:
            self.wake()


class _FirstOfWindow(Latest):
    """Needs no timer: whether a window is open is known when the next element comes."""

    __slots__ = ("_closes", "_scheduler", "_window")

    def __init__(self, window: float, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(*attached)
        self._scheduler = scheduler
        self._window = window
        self._closes = -inf

    def came(self, element: Any) -> None:
        now = self._scheduler.now()
        if now < self._closes - MOMENT:
            return
        self._closes = now + self._window
        with self.mutex:
            self.put(element)
        self.wake()


class _LastOfWindow(TimedLatest):
    __slots__ = ("_open", "_window")

    def __init__(self, window: float, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(scheduler, *attached)
        self._window = window
        self._open = False

    def came(self, element: Any) -> None:
        with self.mutex:
            self.last = element
            opens, self._open = not self._open, True
        if opens:
            self.set_timer(self._window)

    def ring(self) -> None:
        with self.mutex:
            self._open = False
            self.put_last()
        self.wake()


class _SampledByClock(TimedLatest):
    """Each tick sets the timer of the next one, measured from the first, so that delays do not add up."""

    __slots__ = ("_begin", "_period", "_ticks")

    def __init__(self, period: float, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(scheduler, *attached)
        self._period = period
        self._begin = scheduler.now()
        self._ticks = 0

    def on_subscribe(self, subscription: Subscription, /) -> None:
        first = self.upstream is None
        super().on_subscribe(subscription)
        if first and not self.closed and not self.done:
            self._set_next()  # after the source, so that an element at the time of a tick is sampled

    def came(self, element: Any) -> None:
        with self.mutex:
            self.last = element

    def ring(self) -> None:
        with self.mutex:
            self.put_last()
        self.wake()
        if not self.closed:
            self._set_next()

    def _set_next(self) -> None:
        """Set the timer for the next tick that is not over yet."""
        now = self.scheduler.now()
        over = int((now - self._begin + MOMENT) / self._period) if self._period < inf else 0
        self._ticks = max(self._ticks, over) + 1
        self.set_timer(max(0.0, self._begin + self._ticks * self._period - now))


class _SampleSource(Source):
    """``sample(other)``."""

    frames = 8

    def __init__(self, upstream: Stream[Any], sampler: Stream[Any]) -> None:
        super().__init__("sample", sampler)
        self._upstream = upstream
        self._sampler = sampler
        self.boundary = 1

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe to the sampler after the source, so that an element of both is sampled at once."""
        stage = _SampledByOther(self._sampler, ops, downstream, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream, self._sampler]

    def runs_on(self) -> str:
        return "sources"


class _SampledByOther(Latest):
    __slots__ = ("_companion", "_sampler")

    def __init__(self, sampler: Stream[Any], *attached: Any) -> None:
        super().__init__(*attached)
        self._sampler = sampler
        self._companion = _Sampler(self)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        first = self.upstream is None
        super().on_subscribe(subscription)
        if first and not self.closed and not self.done:
            self._sampler._connect(self._companion)

    def came(self, element: Any) -> None:
        with self.mutex:
            self.last = element

    def sample(self) -> None:
        with self.mutex:
            if self.done or self.error is not None or self.last is NOTHING:
                return
            self.put_last()
        self.wake()

    def cut(self, error: BaseException | None) -> None:
        """The sampler has ended, so nothing more can be sampled: send the last element, and complete."""
        if error is not None:
            self.fail(error)
            return
        upstream, ended = self.upstream, self.done
        if upstream is not None and not ended:
            upstream.cancel()
        self.on_complete()

    def on_complete(self) -> None:
        super().on_complete()
        self._companion.cancel()

    def release(self) -> None:
        super().release()
        self._companion.cancel()

    def upstreams(self) -> list[Any]:
        sampler = self._companion.subscription
        return [*super().upstreams(), *([] if sampler is None else [sampler])]


class _Sampler(Companion):
    """Says when."""

    __slots__ = ("_sampled",)
    demand = UNBOUNDED

    def __init__(self, stage: _SampledByOther) -> None:
        super().__init__()
        self.join(stage)
        self._sampled = stage

    def came(self, element: Any) -> None:
        self._sampled.sample()

    def ended(self) -> None:
        self._sampled.cut(None)
