"""When elements come: later, not too fast, and with the time at which they came."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.arguments import a_count, a_function, a_number, seconds
from penstock.spec import Publisher
from penstock.streams.fusion import Op, operator
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.companions import DelaySubscriptionSource
from penstock.streams.operators.delays import delayed_sequence, rate_limited
from penstock.streams.operators.timing import TimerSource
from penstock.streams.schedulers import Scheduler, VirtualTimeScheduler, shared_timer
from penstock.streams.stream import Stream, T, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["FluxTime", "MonoTime"]


class FluxTime(Stream[T]):
    """Operators of a Flux about the time at which its elements come."""

    __slots__ = ()

    def rate_limit(
        self,
        elements: float,
        per: float | timedelta = 1.0,
        burst: int | None = None,
        *,
        weight: Callable[[T], float] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flux[T]:
        """Let ``elements`` elements through per ``per`` seconds; the others wait, and so does the source.

        This is a token bucket: after a rest, up to ``burst`` elements may go at once. By default that is what
        belongs to a hundredth of a second, and at least one, so elements are spread evenly. With ``weight``
        an element counts as ``weight(element)``: ``rate_limit(1_000_000, weight=len)`` is a megabyte per
        second. An element heavier than ``burst`` goes alone, and the next one waits longer.

        >>> Flux.range(5).rate_limit(1000, burst=5).collect_list().block()
        [0, 1, 2, 3, 4]

        Emits when an element is there and the bucket has a token for it.
        Backpressures when its subscriber does, or the bucket is empty; up to ``burst`` elements wait here.
        Completes when the source has completed and the last element was sent.
        Cancels when its subscriber cancels, or ``weight`` raises.

        Marble::

            a: (1234|)
            a.rate_limit(1, per=0.02)
            >  1-2-3-(4|)
            a.rate_limit(1, per=0.02, burst=2)
            >  (12)-3-(4|)
        """
        count = a_number(elements, "rate_limit()", above=0)
        every = a_number(seconds(per, "per of rate_limit()", positive=True), "per of rate_limit()")
        rate = count / every
        most = max(1, int(rate / 100)) if burst is None else a_count(burst, "burst of rate_limit()")
        if weight is not None:
            a_function(weight, "rate_limit()")
        return flux_of(rate_limited(self, rate, most, weight, scheduler or shared_timer(), elements, every))

    def delay_sequence(
        self, duration: float | timedelta, *, prefetch: int = PREFETCH, scheduler: Scheduler | None = None
    ) -> Flux[T]:
        """Let everything happen ``duration`` seconds later: each element, completion, and an error.

        The time between two elements stays what it is. In ``delay_elements``, by contrast, each element waits
        for the one before it. Up to ``prefetch`` elements wait here, and the source is asked for no more, so
        a source that is faster than ``prefetch`` elements per ``duration`` is slowed down.

        >>> Flux.just(1, 2).delay_sequence(0.001).collect_list().block()
        [1, 2]

        Emits when the time of an element has come and there is demand.
        Backpressures when its subscriber does, or ``prefetch`` elements wait.
        Completes when the time of the source's completion has come and all elements were sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 12-3|
            a.delay_sequence(0.02)
            >  --12-3|
        """
        return flux_of(
            delayed_sequence(
                self,
                seconds(duration, "delay_sequence()"),
                a_count(prefetch, "delay_sequence()"),
                scheduler or shared_timer(),
            )
        )

    def delay_subscription(
        self, when: float | timedelta | Publisher[object], scheduler: Scheduler | None = None
    ) -> Flux[T]:
        """Subscribe to the source after so many seconds, or once ``when`` has an element or completes.

        >>> Flux.just(1, 2).delay_subscription(0.001).collect_list().block()
        [1, 2]

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, also while it waits.

        Marble::

            a: 12|
            a.delay_subscription(0.03)
            >  ---12|
        """
        return flux_of(_after(when, scheduler, self))

    def elapsed(self, scheduler: Scheduler | None = None) -> Flux[tuple[float, T]]:
        """Pair each element with the seconds since the one before it; the first, since the subscription.

        >>> [(seconds >= 0, x) for seconds, x in Flux.just("a", "b").elapsed()]
        [(True, 'a'), (True, 'b')]

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: --x-y|
            a.elapsed().map(lambda pair: (round(pair[0], 3), pair[1]))
            >  --A-B|
            where A = (0.02, "x"), B = (0.02, "y")
        """
        return self._with(_elapsed(scheduler))

    def timestamp(self, scheduler: Scheduler | None = None) -> Flux[tuple[float, T]]:
        """Pair each element with the time at which it came, in seconds since 1970 as ``time.time()`` has it.

        With a scheduler of virtual time these are its seconds.

        >>> [(seconds > 1e9, x) for seconds, x in Flux.just("a").timestamp()]
        [(True, 'a')]

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: --x-y|
            a.timestamp().map(lambda pair: pair[1])
            >  --x-y|
        """
        return self._with(_timestamp(scheduler))


class MonoTime(Stream[T]):
    """Operators of a Mono about the time at which its element comes."""

    __slots__ = ()

    def delay_subscription(
        self, when: float | timedelta | Publisher[object], scheduler: Scheduler | None = None
    ) -> Mono[T]:
        """Subscribe to the source after so many seconds, or once ``when`` has an element or completes.

        >>> Mono.just(1).delay_subscription(Flux.just("ready", "steady")).block()
        1

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, also while it waits.

        Marble::

            mono: -(x|)
            mono.delay_subscription(0.03)
            >  ----(x|)
        """
        return mono_of(_after(when, scheduler, self))

    def elapsed(self, scheduler: Scheduler | None = None) -> Mono[tuple[float, T]]:
        """Pair the element with the seconds since the subscription.

        >>> Mono.just("a").elapsed().map(lambda pair: pair[1]).block()
        'a'

        Emits when the element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.elapsed().map(lambda pair: (round(pair[0], 3), pair[1]))
            >  --(A|)
            where A = (0.02, "x")
        """
        return self._with(_elapsed(scheduler))

    def timestamp(self, scheduler: Scheduler | None = None) -> Mono[tuple[float, T]]:
        """Pair the element with the time at which it came, in seconds since 1970.

        With a scheduler of virtual time these are its seconds.

        >>> Mono.just("a").timestamp().map(lambda pair: pair[1]).block()
        'a'

        Emits when the element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.timestamp().map(lambda pair: pair[1])
            >  --(x|)
        """
        return self._with(_timestamp(scheduler))


def _elapsed(scheduler: Scheduler | None) -> Op:
    return operator("elapsed", (scheduler or shared_timer()).now, shows=())


def _timestamp(scheduler: Scheduler | None) -> Op:
    # The clock of a real scheduler has no date: only its differences mean something.
    virtual = isinstance(scheduler, VirtualTimeScheduler)
    return operator("timestamp", scheduler.now if scheduler is not None and virtual else time.time, shows=())


def _after(when: object, scheduler: Scheduler | None, stream: Stream[T]) -> DelaySubscriptionSource:
    """``stream``, when the time has come or the other publisher has sent something."""
    if isinstance(when, Stream) or callable(getattr(when, "subscribe", None)):
        if scheduler is not None:
            raise TypeError("delay_subscription() takes a scheduler for its clock; a publisher has none")
        return DelaySubscriptionSource("delay_subscription", stream, as_stream(when, "delay_subscription()"))
    pause = seconds(when, "delay_subscription()")
    timer = flux_of(TimerSource(pause, scheduler or shared_timer()))
    return DelaySubscriptionSource("delay_subscription", stream, timer, pause)
