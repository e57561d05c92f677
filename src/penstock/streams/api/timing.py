"""Fail, or wait, by the clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.arguments import seconds
from penstock.spec import Publisher
from penstock.streams.conversion import as_same_kind
from penstock.streams.fusion import operator
from penstock.streams.operators.concat_map import ConcatMapSource
from penstock.streams.operators.timing import TimeoutSource, TimerSource
from penstock.streams.schedulers import Scheduler, shared_timer
from penstock.streams.stream import Stream, T, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["FluxTiming", "MonoTiming"]


class FluxTiming(Stream[T]):
    """Operators of a Flux that use a clock."""

    __slots__ = ()

    def timeout(
        self,
        duration: float | timedelta,
        fallback: Publisher[T] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flux[T]:
        """Fail with TimeoutError, or go on with ``fallback``, if an element takes longer than ``duration``.

        The clock starts when an element is requested, so a slow subscriber does not make the source late.

        Emits when the present stream does.
        Backpressures when its subscriber does.
        Completes when the present stream does.
        Cancels when its subscriber cancels; the source also when it is late.
        """
        return flux_of(_timeout(self, duration, fallback, scheduler))

    def delay_elements(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Flux[T]:
        """Hold each element back for ``duration`` seconds.

        Emits when the delay of the present element is over.
        Backpressures when its subscriber does; one element waits here.
        Completes when the last element has been sent.
        Cancels when its subscriber cancels.
        """
        pause, where = seconds(duration, "delay_elements()"), scheduler or shared_timer()

        def later(element: T) -> Stream[T]:
            return flux_of(TimerSource(pause, where), operator("map", lambda _: element))

        return flux_of(ConcatMapSource("delay_elements", self, later, 1, pause))


class MonoTiming(Stream[T]):
    """Operators of a Mono that use a clock."""

    __slots__ = ()

    def timeout(
        self,
        duration: float | timedelta,
        fallback: Mono[T] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Mono[T]:
        """Fail with TimeoutError, or go on with ``fallback``, if the element takes longer than ``duration``.

        >>> Mono.never().timeout(0.001, Mono.just("too late")).block()
        'too late'

        Emits when the present Mono does.
        Backpressures when its subscriber does.
        Completes when the present Mono does.
        Cancels when its subscriber cancels; the source also when it is late.
        """
        return mono_of(_timeout(self, duration, fallback, scheduler))

    def delay_element(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Mono[T]:
        """Hold the element back for ``duration`` seconds.

        Emits when the delay is over.
        Backpressures when its subscriber does.
        Completes when the element has been sent, or the source is empty.
        Cancels when its subscriber cancels.
        """
        flux = self._as_flux().delay_elements(duration, scheduler)
        return mono_of(flux._source)


def _timeout(
    stream: Stream[T],
    duration: float | timedelta,
    fallback: Publisher[T] | None,
    scheduler: Scheduler | None,
) -> TimeoutSource:
    other = None if fallback is None else as_same_kind(stream, fallback, "timeout()")
    return TimeoutSource(stream, seconds(duration, "timeout()"), other, scheduler or shared_timer())
