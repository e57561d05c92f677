"""Where two parts of a stream meet: threads, queues, clocks, and several subscribers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.arguments import a_count, a_function, seconds
from penstock.spec import UNBOUNDED
from penstock.streams.fusion import operator
from penstock.streams.operators.boundaries import (
    PREFETCH,
    LimitRateSource,
    PublishOnSource,
    SubscribeOnSource,
    replenish_at,
)
from penstock.streams.operators.concat import ConcatMapSource
from penstock.streams.operators.connectable import AutoConnectSource, Broadcast
from penstock.streams.operators.expiry import ExpiringMono
from penstock.streams.operators.overflow import BackpressureSource, Overflow, a_policy
from penstock.streams.operators.share import CacheSource
from penstock.streams.operators.sources import DeferSource
from penstock.streams.operators.timing import TimeoutSource, TimerSource
from penstock.streams.schedulers import Scheduler, shared_timer
from penstock.streams.stream import Stream, T, as_mono, as_same_kind, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = [
    "PREFETCH",
    "FluxBoundaries",
    "FluxSharing",
    "FluxTiming",
    "MonoBoundaries",
    "MonoSharing",
    "MonoTiming",
]

R = TypeVar("R")


def a_scheduler(scheduler: Any, operator: str) -> Scheduler:
    """A scheduler, or a TypeError that names one."""
    if not isinstance(scheduler, Scheduler):
        raise TypeError(
            f"{operator}() needs a scheduler, for example schedulers.shared_pool(), not {scheduler!r}"
        )
    return scheduler


class FluxBoundaries(Stream[T]):
    """Operators of a Flux about threads, queues and demand."""

    __slots__ = ()

    def publish_on(self, scheduler: Scheduler, *, prefetch: int = PREFETCH) -> Flux[T]:
        """Run everything below on ``scheduler``; up to ``prefetch`` elements wait in between.

        The source is asked for ``prefetch`` elements and, whenever three quarters of them are gone, for as
        many again. An error waits until the elements before it have been sent.

        >>> Flux.range(3).publish_on(schedulers.shared_pool()).map(lambda x: x + 1).collect_list().block()
        [1, 2, 3]

        Emits when the scheduler gets to it and there is demand.
        Backpressures when its queue is full.
        Completes when the source has completed and the queue is empty.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.publish_on(schedulers.shared_pool())
            >  1-2-|
        """
        return flux_of(
            PublishOnSource(self, a_scheduler(scheduler, "publish_on"), a_count(prefetch, "publish_on()"))
        )

    def subscribe_on(self, scheduler: Scheduler) -> Flux[T]:
        """Subscribe to the source, and let it work, on ``scheduler``.

        Everything down to the next ``publish_on`` runs there, too. Put it above the first ``publish_on``:
        below one, the source is asked for more by the scheduler of that ``publish_on``.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.subscribe_on(schedulers.shared_pool())
            >  1-2-|
        """
        return flux_of(SubscribeOnSource(self, a_scheduler(scheduler, "subscribe_on")))

    def limit_rate(self, high: int, low: int | None = None) -> Flux[T]:
        """Never have more than ``high`` elements requested of the source, whatever the subscriber asks for.

        When ``low`` elements have been sent (by default three quarters of ``high``), as many are requested.

        Emits when the source does and there is demand.
        Backpressures when ``high`` elements wait.
        Completes when the source has completed and nothing waits.
        Cancels when its subscriber cancels.

        Marble::

            a: (1234)-|
            a.limit_rate(2)
            >  (1234)-|
        """
        high = a_count(high, "limit_rate()")
        low = replenish_at(high) if low is None else a_count(low, "limit_rate()")
        if low > high:
            raise ValueError(f"limit_rate() needs low <= high, not {low} > {high}")
        return flux_of(LimitRateSource(self, high, low))

    def on_backpressure_buffer(
        self,
        size: int = PREFETCH,
        overflow: Overflow = Overflow.ERROR,
        on_dropped: Callable[[T], object] | None = None,
    ) -> Flux[T]:
        """For a source that cannot be slowed down: keep up to ``size`` elements until there is demand.

        When there are more, ``overflow`` says what to drop: an element, which goes to ``on_dropped``, or the
        whole stream, which then fails.

        Emits when there is demand and an element.
        Never backpressures: the source is asked for everything.
        Completes when the source has completed and the buffer is empty.
        Cancels when its subscriber cancels, or the buffer overflows and nothing may be dropped.

        Marble::

            a: 123------|
            a.on_backpressure_buffer(5).delay_elements(0.02)
            >  --1-2-3--|
        """
        size = a_count(size, "on_backpressure_buffer()")
        policy = a_policy(overflow, "on_backpressure_buffer()")
        return self._overflowing("on_backpressure_buffer", size, policy, on_dropped, size)

    def on_backpressure_drop(self, on_dropped: Callable[[T], object] | None = None) -> Flux[T]:
        """For a source that cannot be slowed down: drop each element that comes without demand.

        Emits when an element comes and there is demand.
        Never backpressures: the source is asked for everything.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 12345----|
            a.on_backpressure_drop().delay_elements(0.03)
            >  ---1--2--(5|)
        """
        return self._overflowing("on_backpressure_drop", 0, Overflow.DROP_NEWEST, on_dropped)

    def on_backpressure_latest(self, on_dropped: Callable[[T], object] | None = None) -> Flux[T]:
        """For a source that cannot be slowed down: keep only the newest element until it is asked for.

        Emits when there is demand and an element.
        Never backpressures: the source is asked for everything.
        Completes when the source has completed and its last element was sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 12345----|
            a.on_backpressure_latest().delay_elements(0.03)
            >  ---1--2--4--(5|)
        """
        return self._overflowing("on_backpressure_latest", 1, Overflow.DROP_OLDEST, on_dropped)

    def on_backpressure_error(self) -> Flux[T]:
        """For a source that cannot be slowed down: fail as soon as an element comes without demand.

        Emits when an element comes and there is demand.
        Never backpressures: the source is asked for everything.
        Completes when the source completes.
        Cancels when its subscriber cancels, or demand falls short.

        Marble::

            a: 12345----|
            a.on_backpressure_error().delay_elements(0.03)
            >  ---1--(2#)
            where # = BufferOverflow
        """
        return self._overflowing("on_backpressure_error", 0, Overflow.ERROR, None)

    def _overflowing(
        self, label: str, size: int, overflow: Overflow, on_dropped: Any, *shows: Any
    ) -> Flux[T]:
        if on_dropped is not None:
            a_function(on_dropped, f"{label}()")
        return flux_of(BackpressureSource(label, self, size, overflow, on_dropped, *shows))


class MonoBoundaries(Stream[T]):
    """Operators of a Mono about threads."""

    __slots__ = ()

    def publish_on(self, scheduler: Scheduler) -> Mono[T]:
        """Run everything below on ``scheduler``.

        Emits when the scheduler gets to it and there is demand.
        Backpressures when its subscriber does; the element waits.
        Completes when the element has been sent, or the source is empty.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.publish_on(schedulers.shared_pool())
            >     --(x|)
        """
        return mono_of(PublishOnSource(self, a_scheduler(scheduler, "publish_on"), 1))

    def subscribe_on(self, scheduler: Scheduler) -> Mono[T]:
        """Subscribe to the source, and let it work, on ``scheduler``.

        >>> where = Mono.from_callable(threading.get_ident).subscribe_on(schedulers.shared_pool()).block()
        >>> where == threading.get_ident()
        False

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.subscribe_on(schedulers.shared_pool())
            >     --(x|)
        """
        return mono_of(SubscribeOnSource(self, a_scheduler(scheduler, "subscribe_on")))


class FluxSharing(Stream[T]):
    """Operators of a Flux about having several subscribers."""

    __slots__ = ()

    def cache(
        self,
        history: int | None = None,
        ttl: float | timedelta | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flux[T]:
        """Run the source once and keep its last ``history`` elements for later subscribers; by default all.

        The first subscriber starts the source, which then runs as fast as the quickest subscriber asks. With
        a bounded history it is never more than ``history`` elements ahead of the slowest. It is not cancelled
        when all subscribers have left: elements requested by then are kept (256 at most), and the source
        waits until another subscriber asks for more.

        With ``ttl`` a new subscriber receives no element that is older than so many seconds, by the clock of
        ``scheduler``; the source still runs only once.

        >>> calls = []
        >>> numbers = Flux.range(2).do_on_next(calls.append).cache()
        >>> numbers.collect_list().block(), numbers.collect_list().block(), calls
        ([0, 1], [0, 1], [0, 1])

        Emits when the source has emitted, or had before.
        Backpressures when its subscriber does; the source, when no subscriber asks for more.
        Completes when the source has completed and all of it has been sent.
        Never cancels: the source belongs to all.

        Marble::

            a: 1-2-|
            a.cache().transform(lambda cached: cached.concat_with(cached))
            >  1-2-(12|)
        """
        kept = UNBOUNDED if history is None else a_count(history, "cache()")
        if ttl is not None:
            lives = seconds(ttl, "cache(ttl=…)", positive=True)
            return flux_of(AutoConnectSource("cache", Broadcast(self, kept, kept, lives, scheduler), 1))
        return flux_of(CacheSource("cache", self, kept, kept, lasting=True, ahead=PREFETCH))

    def share(self, *, prefetch: int = PREFETCH) -> Flux[T]:
        """Run the source once for all subscribers that are there at the same time.

        A new subscriber starts with the oldest element that the slowest one has not taken yet. The source is
        cancelled when the last subscriber leaves, and started anew by the next one.

        Emits when the source has emitted.
        Backpressures when its subscriber does; the source, when the slowest is ``prefetch`` elements behind.
        Completes when the source has completed and all of it has been sent.
        Cancels when the last subscriber cancels.

        Marble::

            a: 1-2-|
            a.share().transform(lambda shared: shared.merge_with(shared))
            >  (11)-(22)-|
        """
        capacity = a_count(prefetch, "share()")
        return flux_of(CacheSource("share", self, capacity, 0, lasting=False, ahead=capacity))


class MonoSharing(Stream[T]):
    """Operators of a Mono about having several subscribers."""

    __slots__ = ()

    def cache(self, ttl: float | timedelta | None = None, scheduler: Scheduler | None = None) -> Mono[T]:
        """Run the source once and give its element, or its error, to every subscriber.

        With ``ttl`` the result is kept for so many seconds, by the clock of ``scheduler``; the first
        subscriber after that runs the source again.

        >>> calls = []
        >>> value = Mono.from_callable(lambda: calls.append(1) or len(calls)).cache(ttl=60)
        >>> value.block(), value.block()
        (1, 1)

        Emits when the source has emitted, or had before.
        Backpressures when its subscriber does.
        Completes when the element has been sent.
        Never cancels: the source belongs to all.

        Marble::

            mono: --(x|)
            mono.cache().transform(lambda cached: cached.concat_with(cached))
            >     --(xx|)
        """
        if ttl is not None:
            clock = scheduler or shared_timer()
            kept = ExpiringMono(self, seconds(ttl, "cache(ttl=…)", positive=True), clock.now)
            return mono_of(DeferSource("cache", kept.present, as_mono))
        return mono_of(CacheSource("cache", self, UNBOUNDED, UNBOUNDED, lasting=True))


class FluxTiming(Stream[T]):
    """Operators of a Flux that use a clock."""

    __slots__ = ()

    @overload
    def timeout(
        self, duration: float | timedelta, fallback: None = None, scheduler: Scheduler | None = None
    ) -> Flux[T]: ...
    @overload
    def timeout(
        self, duration: float | timedelta, fallback: Streamable[R], scheduler: Scheduler | None = None
    ) -> Flux[T | R]: ...
    def timeout(
        self,
        duration: float | timedelta,
        fallback: Streamable[Any] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flux[Any]:
        """Fail with TimeoutError, or go on with ``fallback``, if an element takes longer than ``duration``.

        The clock starts when an element is requested, so a slow subscriber does not make the source late.

        Emits when the present stream does.
        Backpressures when its subscriber does.
        Completes when the present stream does.
        Cancels when its subscriber cancels; the source also when it is late.

        Marble::

            a: 1-2------3|
            a.timeout(0.03)
            >  1-2--#
            where # = TimeoutError

            a.timeout(0.03, Flux.just(9))
            >  1-2--(9|)
        """
        return flux_of(_timeout(self, duration, fallback, scheduler))

    def delay_elements(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Flux[T]:
        """Hold each element back for ``duration`` seconds.

        Emits when the delay of the present element is over.
        Backpressures when its subscriber does; one element waits here.
        Completes when the last element has been sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 1---2---|
            a.delay_elements(0.02)
            >  --1---2-|
        """
        pause, where = seconds(duration, "delay_elements()"), scheduler or shared_timer()

        def later(element: Any) -> Stream[Any]:
            return flux_of(TimerSource(pause, where), operator("map", lambda _: element))

        return flux_of(ConcatMapSource("delay_elements", self, later, 1, pause))


class MonoTiming(Stream[T]):
    """Operators of a Mono that use a clock."""

    __slots__ = ()

    @overload
    def timeout(
        self, duration: float | timedelta, fallback: None = None, scheduler: Scheduler | None = None
    ) -> Mono[T]: ...
    @overload
    def timeout(
        self, duration: float | timedelta, fallback: Streamable[R], scheduler: Scheduler | None = None
    ) -> Mono[T | R]: ...
    def timeout(
        self,
        duration: float | timedelta,
        fallback: Streamable[Any] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Mono[Any]:
        """Fail with TimeoutError, or go on with ``fallback``, if the element takes longer than ``duration``.

        >>> Mono.never().timeout(0.001, Mono.just("too late")).block()
        'too late'

        Emits when the present Mono does.
        Backpressures when its subscriber does.
        Completes when the present Mono does.
        Cancels when its subscriber cancels; the source also when it is late.

        Marble::

            mono: -----(1|)
            mono.timeout(0.03)
            >     ---#
            where # = TimeoutError
        """
        return mono_of(_timeout(self, duration, fallback, scheduler))

    def delay_element(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Mono[T]:
        """Hold the element back for ``duration`` seconds.

        Emits when the delay is over.
        Backpressures when its subscriber does.
        Completes when the element has been sent, or the source is empty.
        Cancels when its subscriber cancels.

        Marble::

            mono: -(1|)
            mono.delay_element(0.02)
            >     ---(1|)
        """
        flux = self._as_flux().delay_elements(duration, scheduler)
        return mono_of(flux._source)


def _timeout(
    stream: Stream[Any],
    duration: float | timedelta,
    fallback: Streamable[Any] | None,
    scheduler: Scheduler | None,
) -> TimeoutSource:
    other = None if fallback is None else as_same_kind(stream, fallback, "timeout()")
    return TimeoutSource(stream, seconds(duration, "timeout()"), other, scheduler or shared_timer())
