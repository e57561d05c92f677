"""Only what is newest: the latest stream, the latest element, or as many as there is time for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.arguments import a_count, a_function, seconds
from penstock.spec import Publisher
from penstock.streams.operators.combine_latest import CombineLatestSource
from penstock.streams.operators.companions import SkipUntilSource, TakeUntilSource, WithLatestSource
from penstock.streams.operators.flat_map import INNER_PREFETCH
from penstock.streams.operators.latest import conflated
from penstock.streams.operators.samples import (
    debounced,
    sampled,
    sampled_by,
    throttled_to_first,
    throttled_to_last,
)
from penstock.streams.operators.switch_map import SwitchMapSource
from penstock.streams.schedulers import Scheduler, shared_timer
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["FluxLatest", "MonoLatest"]

R = TypeVar("R")
E = TypeVar("E")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class FluxLatest(Stream[T]):
    """Operators of a Flux that keep up with what is newest."""

    __slots__ = ()

    def switch_map(self, mapper: Callable[[T], Streamable[R]]) -> Flux[R]:
        """Go on with the stream that ``mapper`` makes of the newest element, and cancel the one before.

        For a search while the user types: the answer to an old question is of no use. Once the source has
        the next element, nothing of the old stream goes down any more.

        >>> Flux.just("a", "b").switch_map(lambda name: Flux.just(name, name * 2)).collect_list().block()
        ['a', 'aa', 'b', 'bb']

        Emits when the stream of the newest element does.
        Backpressures when its subscriber does; the source is asked for everything.
        Completes when the source and the present inner stream have completed.
        Cancels when its subscriber cancels, or any stream fails; an inner stream also when the next begins.

        Marble::

            a: 1----2----|
            b: x-y-z-w-|
            a.switch_map(lambda _: b)
            >  x-y-zx-y-z-w-|
        """
        a_function(mapper, "switch_map()", may_await=True)
        return flux_of(
            SwitchMapSource(
                self, lambda element: as_stream(mapper(element), "the function of switch_map()"), mapper
            )
        )

    @overload
    @staticmethod
    def combine_latest(
        a: Streamable[A], b: Streamable[B], /, *, prefetch: int = ...
    ) -> Flux[tuple[A, B]]: ...
    @overload
    @staticmethod
    def combine_latest(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], /, *, prefetch: int = ...
    ) -> Flux[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def combine_latest(*publishers: Streamable[A], prefetch: int = ...) -> Flux[tuple[A, ...]]: ...
    @overload
    @staticmethod
    def combine_latest(
        *publishers: Streamable[Any], combinator: Callable[..., R], prefetch: int = ...
    ) -> Flux[R]: ...
    @staticmethod
    def combine_latest(
        *publishers: Streamable[Any],
        combinator: Callable[..., Any] | None = None,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[Any]:
        """The newest elements of all publishers together, whenever one of them has another.

        A row is a tuple, or what ``combinator(*row)`` makes of it. No element is left out: a slow subscriber
        gets every row, and ``prefetch`` elements of each publisher may wait here.

        >>> Flux.combine_latest(Flux.just("a"), Flux.just(1, 2)).collect_list().block()
        [('a', 1), ('a', 2)]

        Emits when one of them has an element, and all of them have had one.
        Completes when all of them have completed, or one of them has without an element.

        Marble::

            a: 1---2---|
            b: --x---y-|
            Flux.combine_latest(a, b, combinator=lambda n, name: f"{name}{n}")
            >  --A-B-C-|
            where A = "x1", B = "x2", C = "y2"
        """
        if combinator is not None:
            a_function(combinator, "combine_latest()")
        streams = tuple(as_stream(each, "combine_latest()") for each in publishers)
        if not streams:
            return flux_of(IterableSource.over("combine_latest", ()))
        return flux_of(
            CombineLatestSource("combine_latest", streams, combinator, a_count(prefetch, "combine_latest()"))
        )

    @overload
    def with_latest_from(self, other: Streamable[E]) -> Flux[tuple[T, E]]: ...
    @overload
    def with_latest_from(self, other: Streamable[E], combinator: Callable[[T, E], R]) -> Flux[R]: ...
    def with_latest_from(
        self, other: Streamable[Any], combinator: Callable[[T, Any], Any] | None = None
    ) -> Flux[Any]:
        """Put each element together with the newest one of ``other``.

        A pair is a tuple, or what ``combinator(element, newest)`` makes of it. Elements that come before
        ``other`` has one are left out. If ``other`` completes, its last element is used from then on.

        >>> Flux.just(1, 2).with_latest_from(Flux.just("x", "y")).collect_list().block()
        [(1, 'y'), (2, 'y')]

        Emits when an element arrives and ``other`` has had one.
        Backpressures when its subscriber does; ``other`` is asked for everything.
        Completes when the source completes, or ``other`` does without an element.
        Cancels when its subscriber cancels, or any of them fails.

        Marble::

            a: 1-2-3-4-|
            b: -x---y---|
            a.with_latest_from(b, lambda n, name: f"{name}{n}")
            >  --A-B-C-|
            where A = "x2", B = "x3", C = "y4"
        """
        if combinator is not None:
            a_function(combinator, "with_latest_from()")
        return flux_of(WithLatestSource(self, as_stream(other, "with_latest_from()"), combinator))

    def sample(self, when: float | timedelta | Publisher[Any], scheduler: Scheduler | None = None) -> Flux[T]:
        """Send the newest element every so many seconds, or whenever the publisher ``when`` has an element.

        An element is sent once; if there is no new one, nothing is sent. If there is no demand, the sample
        waits, and a newer one takes its place. The elements in between are dropped.

        >>> Flux.just(1, 2, 3).sample(60).collect_list().block()
        [3]

        Emits when the time has come and there is a new element; the last one when the source completes.
        Never backpressures: the source is asked for everything, and one element waits.
        Completes when the source, or the publisher ``when``, has completed and the last element was sent.
        Cancels when its subscriber cancels, or the publisher ``when`` fails.

        Marble::

            a: 12--3--4--5|
            a.sample(0.03)
            >  ---2--3--4-(5|)
            a.sample(Flux.interval(0.06))
            >  ------3----(5|)
        """
        if isinstance(when, timedelta) or not _is_publisher(when):
            period = seconds(when, "sample()", positive=True)
            return flux_of(sampled(self, period, scheduler or shared_timer()))
        if scheduler is not None:
            raise TypeError("sample() takes a scheduler for its clock; with a publisher there is none")
        return flux_of(sampled_by(self, as_stream(when, "sample()")))

    def throttle_first(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Flux[T]:
        """Send an element, then drop what comes during the next ``duration`` seconds.

        For a button that must not be pressed twice. If there is no demand, the element waits, and a newer one
        takes its place.

        >>> Flux.just(1, 2, 3).throttle_first(60).collect_list().block()
        [1]

        Emits when an element arrives and the time after the one before it is over.
        Never backpressures: the source is asked for everything, and one element waits.
        Completes when the source completes and the element that waits was sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 123--45---|
            a.throttle_first(0.03)
            >  1----4----|
        """
        window = seconds(duration, "throttle_first()")
        return flux_of(throttled_to_first(self, window, scheduler or shared_timer()))

    def throttle_last(self, duration: float | timedelta, scheduler: Scheduler | None = None) -> Flux[T]:
        """Wait for ``duration`` seconds after an element, then send the newest; drop those before it.

        The first element after a rest begins the wait. In ``sample``, by contrast, the clock always runs. If
        there is no demand, the element waits, and a newer one takes its place.

        >>> Flux.just(1, 2, 3).throttle_last(60).collect_list().block()
        [3]

        Emits when the wait is over; the last element when the source completes.
        Never backpressures: the source is asked for everything, and one element waits.
        Completes when the source completes and the last element was sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 123---4------|
            a.throttle_last(0.03)
            >  ---3-----4---|
        """
        window = seconds(duration, "throttle_last()")
        return flux_of(throttled_to_last(self, window, scheduler or shared_timer()))

    def debounce(self, pause: float | timedelta, scheduler: Scheduler | None = None) -> Flux[T]:
        """Send an element when none has come for ``pause`` seconds after it; drop those before it.

        For text that somebody types: it is sent when the typing pauses. If there is no demand, the element
        waits, and a newer one takes its place.

        >>> Flux.just("p", "pe", "pen").debounce(60).collect_list().block()
        ['pen']

        Emits when the source has paused; the last element when it completes.
        Never backpressures: the source is asked for everything, and one element waits.
        Completes when the source completes and the last element was sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-----3-----|
            a.debounce(0.03)
            >  -----2-----3--|
        """
        return flux_of(debounced(self, seconds(pause, "debounce()"), scheduler or shared_timer()))

    def conflate(self, seed: Callable[[T], R], aggregate: Callable[[R, T], R]) -> Flux[R]:
        """Make one element of all that come while the subscriber is busy.

        The first becomes ``seed(element)``; each further one is added with ``aggregate(result, element)``. A
        fast subscriber gets ``seed(element)`` for each. Both functions run on the thread of the source.

        >>> Flux.just(1, 2).conflate(lambda n: [n], lambda batch, n: [*batch, n]).collect_list().block()
        [[1], [2]]

        Emits when there is demand and something has come.
        Never backpressures: the source is asked for everything, and one element waits.
        Completes when the source has completed and the last result was sent.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: 1-2-3-4-|
            a.conflate(lambda n: n, lambda total, n: total + n)
            >  1-2-3-4-|
        """
        a_function(seed, "conflate()")
        a_function(aggregate, "conflate()")
        return flux_of(conflated(self, seed, aggregate))

    def take_until_other(self, other: Streamable[Any]) -> Flux[T]:
        """Let elements through until ``other`` has an element or completes; then complete.

        >>> Flux.interval(0.001).take_until_other(Mono.just("stop")).collect_list().block()
        []

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes, or ``other`` has an element or completes.
        Cancels when its subscriber cancels, or ``other`` has an element, completes or fails.

        Marble::

            a: 1-2-3-4-5-|
            b: -----x
            a.take_until_other(b)
            >  1-2-3|
        """
        return flux_of(TakeUntilSource("take_until_other", self, as_stream(other, "take_until_other()")))

    def skip_until_other(self, other: Streamable[Any]) -> Flux[T]:
        """Leave elements out until ``other`` has an element or completes.

        >>> Flux.just(1, 2).skip_until_other(Mono.empty()).collect_list().block()
        [1, 2]

        Emits when an element arrives and ``other`` has had an element, or has completed.
        Backpressures when its subscriber does; an element that is left out does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or any of them fails.

        Marble::

            a: 1-2-3-4-5-|
            b: ---x
            a.skip_until_other(b)
            >  ----3-4-5-|
        """
        return flux_of(SkipUntilSource("skip_until_other", self, as_stream(other, "skip_until_other()")))


class MonoLatest(Stream[T]):
    """Operators of a Mono that another stream has a say in."""

    __slots__ = ()

    def take_until_other(self, other: Streamable[Any]) -> Mono[T]:
        """Complete without an element if ``other`` has one, or completes, first.

        >>> Mono.never().take_until_other(Mono.just("stop")).block() is None
        True

        Emits when the element arrives before ``other`` has one or completes.
        Backpressures when its subscriber does.
        Completes when the source completes, or ``other`` has an element or completes.
        Cancels when its subscriber cancels, or ``other`` has an element, completes or fails.

        Marble::

            mono: -----(x|)
            b: --y
            mono.take_until_other(b)
            >  --|
        """
        return mono_of(TakeUntilSource("take_until_other", self, as_stream(other, "take_until_other()")))


def _is_publisher(thing: Any) -> bool:
    return isinstance(thing, Stream) or callable(getattr(thing, "subscribe", None))
