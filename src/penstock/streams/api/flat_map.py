"""Turn each element into a stream, or wait for something for each element."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import a_count, a_function
from penstock.streams.operators.concat import ConcatMapSource
from penstock.streams.operators.flat_map import INNER_PREFETCH, FlatMapSource
from penstock.streams.operators.map_async import MapAsyncSource
from penstock.streams.operators.recovery import ExpandRule, FollowSource
from penstock.streams.stream import Stream, T, as_mono, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["CONCURRENCY", "INNER_PREFETCH", "FluxFlatMap", "MonoFlatMap", "to_stream"]

R = TypeVar("R")

CONCURRENCY = 16
"""How many inner streams, or coroutines, run at once by default."""


def to_stream(mapper: Callable[[Any], Any], operator: str) -> Callable[[Any], Stream[Any]]:
    """``mapper``, with its results as streams."""
    a_function(mapper, f"{operator}()", may_await=True)
    return lambda element: as_stream(mapper(element), f"the function of {operator}()")


class FluxFlatMap(Stream[T]):
    """Operators of a Flux that open another stream for each element."""

    __slots__ = ()

    def flat_map(
        self,
        mapper: Callable[[T], Streamable[R]],
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[R]:
        """Merge the streams that ``mapper`` makes of the elements, ``concurrency`` of them at once.

        Elements go down in the order in which they arrive, so those of different streams mix. To keep the
        order use :meth:`flat_map_sequential` (all run) or :meth:`concat_map` (one at a time).

        >>> Flux.range(3).flat_map(lambda n: Flux.just(n, n * 10)).collect_list().block()
        [0, 0, 1, 10, 2, 20]

        Emits when any of the inner streams has an element.
        Backpressures when its subscriber does; up to ``concurrency × prefetch`` elements wait here.
        Completes when the source and all inner streams have completed.
        Cancels when its subscriber cancels, or any stream fails: all the others are cancelled.

        Marble::

            a: 12----|
            b: x--y|
            a.flat_map(lambda _: b)
            >  xx-yy-|
        """
        return flux_of(
            FlatMapSource(
                "flat_map",
                self,
                to_stream(mapper, "flat_map"),
                a_count(concurrency, "flat_map()"),
                a_count(prefetch, "flat_map()"),
                mapper,
            )
        )

    def flat_map_sequential(
        self,
        mapper: Callable[[T], Streamable[R]],
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[R]:
        """Run the streams that ``mapper`` makes at once, but send their elements in the order of the source.

        >>> Flux.range(3).flat_map_sequential(lambda n: Flux.just(n, n * 10)).collect_list().block()
        [0, 0, 1, 10, 2, 20]

        Emits when the oldest inner stream has an element.
        Backpressures when its subscriber does; up to ``concurrency × prefetch`` elements wait here.
        Completes when the source and all inner streams have completed.
        Cancels when its subscriber cancels, or any stream fails.

        Marble::

            a: 12----|
            b: x--y|
            a.flat_map_sequential(lambda _: b)
            >  x--y(xy)-|
        """
        return flux_of(
            FlatMapSource(
                "flat_map_sequential",
                self,
                to_stream(mapper, "flat_map_sequential"),
                a_count(concurrency, "flat_map_sequential()"),
                a_count(prefetch, "flat_map_sequential()"),
                mapper,
                sequential=True,
            )
        )

    def concat_map(self, mapper: Callable[[T], Streamable[R]], *, prefetch: int = 1) -> Flux[R]:
        """Run the streams that ``mapper`` makes of the elements one after the other.

        >>> Flux.just(1, 2).concat_map(lambda n: Flux.range(n)).collect_list().block()
        [0, 0, 1]

        Emits when the present inner stream has an element.
        Backpressures when its subscriber does; ``prefetch`` elements of the source wait here.
        Completes when the source and the last inner stream have completed.
        Cancels when its subscriber cancels, or an inner stream fails.

        Marble::

            a: 12-----|
            b: x-y|
            a.concat_map(lambda _: b)
            >  x-yx-y-|
        """
        source = ConcatMapSource(
            "concat_map", self, to_stream(mapper, "concat_map"), a_count(prefetch, "concat_map()"), mapper
        )
        return flux_of(source)

    def expand(self, leads_to: Callable[[T], Streamable[T]]) -> Flux[T]:
        """Send each element and, later, those of the stream that it leads to, and so on, level by level.

        For trees and pages: the elements of a level come before those that they lead to. Elements whose turn
        has not come are kept.

        >>> Flux.just(8).expand(lambda n: Flux.just(n // 2) if n > 1 else Flux.empty()).collect_list().block()
        [8, 4, 2, 1]

        Emits when the present stream does.
        Backpressures when its subscriber does.
        Completes when no element leads any further.
        Cancels when its subscriber cancels, or any stream fails.

        Marble::

            a: --4|
            a.expand(lambda n: Flux.just(n // 2) if n > 1 else Flux.empty())
            >  --4(21|)
        """
        open_stream = to_stream(leads_to, "expand")
        return flux_of(FollowSource("expand", self, lambda: ExpandRule(open_stream), leads_to))

    def map_async(
        self,
        function: Callable[[T], Awaitable[R]],
        *,
        concurrency: int = CONCURRENCY,
        ordered: bool = True,
    ) -> Flux[R]:
        """Await ``function(element)`` for each element, up to ``concurrency`` at once.

        The results come in the order of the elements, or with ``ordered=False`` as they finish. Coroutines
        run on the subscriber's event loop or, if there is none, on a loop that the package keeps in a
        background thread.

        >>> async def double(n):
        ...     return n * 2
        >>> Flux.range(3).map_async(double).collect_list().block()
        [0, 2, 4]

        Emits when the oldest coroutine (or, unordered, any) has its result.
        Backpressures when its subscriber does; at most ``concurrency`` elements are in the works.
        Completes when the source has completed and all results are sent.
        Cancels when its subscriber cancels, or a coroutine fails: the others are cancelled.

        Marble::

            a: 1-2---|
            a.map_async(lambda x: asyncio.sleep(0.03, x))
            >  ---1-2|
        """
        a_function(function, "map_async()", may_await=True)
        return flux_of(MapAsyncSource(self, function, a_count(concurrency, "map_async()"), ordered))


class MonoFlatMap(Stream[T]):
    """Operators of a Mono that go on with another stream."""

    __slots__ = ()

    def flat_map(self, mapper: Callable[[T], Streamable[R]]) -> Mono[R]:
        """Go on with the Mono that ``mapper`` makes of the element.

        >>> Mono.just(3).flat_map(lambda n: Mono.just(n + 1)).block()
        4

        Emits when the second Mono has its element.
        Backpressures when its subscriber does.
        Completes when the second Mono does, or the first is empty.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            mono_a: -(1|)
            mono_b: --(x|)
            mono_a.flat_map(lambda _: mono_b)
            >       ---(x|)
        """
        a_function(mapper, "flat_map()", may_await=True)

        def to_mono(element: Any) -> Stream[Any]:
            return as_mono(mapper(element), "the function of flat_map()")

        return mono_of(ConcatMapSource("flat_map", self, to_mono, 1, mapper))

    def flat_map_many(self, mapper: Callable[[T], Streamable[R]]) -> Flux[R]:
        """Go on with the stream that ``mapper`` makes of the element.

        >>> Mono.just(3).flat_map_many(Flux.range).collect_list().block()
        [0, 1, 2]

        Emits when that stream does.
        Backpressures when its subscriber does.
        Completes when that stream does, or this Mono is empty.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            mono: -(1|)
            b: x-y|
            mono.flat_map_many(lambda _: b)
            >     -x-y|
        """
        source = ConcatMapSource("flat_map_many", self, to_stream(mapper, "flat_map_many"), 1, mapper)
        return flux_of(source)

    def map_async(self, function: Callable[[T], Awaitable[R]]) -> Mono[R]:
        """Await ``function(element)``.

        Emits when the coroutine has its result.
        Backpressures when its subscriber does.
        Completes when the result has been sent.
        Cancels when its subscriber cancels: so is the coroutine.

        Marble::

            mono: -(1|)
            mono.map_async(lambda x: asyncio.sleep(0.02, x + 1))
            >     ---(2|)
        """
        a_function(function, "map_async()", may_await=True)
        return mono_of(MapAsyncSource(self, function, 1, ordered=True))
