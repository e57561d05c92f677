"""Which of several streams goes first: one after the other, by priority, sorted, or only the quickest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import a_count, a_function
from penstock.streams.api.combination import streams_of
from penstock.streams.api.filters import NoElement
from penstock.streams.api.flat_map import INNER_PREFETCH, to_stream
from penstock.streams.errors import together
from penstock.streams.operators.descent import ExpandDeepSource
from penstock.streams.operators.flat_map import FlatMapSource
from penstock.streams.operators.ordered_merge import MergeOrderedSource, MergePrioritySource
from penstock.streams.operators.race import FirstSource
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T, as_mono, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.api.collection import Comparable
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["FluxOrder", "MonoOrder"]

E = TypeVar("E")


class FluxOrder(Stream[T]):
    """Operators of a Flux that decide which stream goes first."""

    __slots__ = ()

    @staticmethod
    def merge_sequential(*publishers: Streamable[E], prefetch: int = INNER_PREFETCH) -> Flux[E]:
        """Run all publishers at once, but send all elements of the first, then all of the second, and so on.

        ``concat`` starts the second when the first has ended; here it has been working meanwhile, and up to
        ``prefetch`` of its elements wait.

        >>> Flux.merge_sequential(Flux.just(1, 3), Flux.just(2)).collect_list().block()
        [1, 3, 2]

        Emits when the first publisher that has not ended has an element.
        Completes when all have completed.

        Marble::

            a: 1---2-|
            b: -x-y|
            Flux.merge_sequential(a, b)
            >  1---2-(xy|)
        """
        streams = streams_of(publishers, "merge_sequential()")
        outer = flux_of(IterableSource.over("sources", streams))
        return flux_of(
            FlatMapSource(
                "merge_sequential",
                outer,
                lambda stream: stream,
                max(1, len(streams)),
                a_count(prefetch, "merge_sequential()"),
                sequential=True,
                members=streams,
            )
        )

    @staticmethod
    def merge_priority(
        *publishers: Streamable[E],
        key: Callable[[E], Comparable] | None = None,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[E]:
        """The elements of all publishers; if several of them wait, that of the first publisher goes first.

        With ``key`` it is the element with the smallest key, whoever sent it. Elements that nobody has to
        wait for go down as they arrive, so the result is not sorted: see :meth:`merge_ordered`.

        >>> Flux.merge_priority(Flux.just("urgent"), Flux.just("later", "last")).collect_list().block()
        ['urgent', 'later', 'last']

        Emits when any of them has an element; ``prefetch`` of each wait here.
        Completes when all have completed.

        Marble::

            a: 1-2---|
            b: x--y-|
            Flux.merge_priority(a, b)
            >  (1x)-2y--|
        """
        return _merge(MergePrioritySource, "merge_priority", publishers, key, prefetch)

    @staticmethod
    def merge_ordered(
        *publishers: Streamable[E],
        key: Callable[[E], Comparable] | None = None,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[E]:
        """One sorted stream of several sorted ones, as ``heapq.merge`` makes of lists.

        Elements are compared by ``key(element)``, or by themselves; of equal ones that of the first publisher
        goes first. A publisher without an element holds up all the others, because its next element may be
        the smallest.

        >>> Flux.merge_ordered(Flux.just(1, 4, 6), Flux.just(2, 3)).collect_list().block()
        [1, 2, 3, 4, 6]

        Emits when each publisher that has not ended has an element; ``prefetch`` of each wait here.
        Completes when all have completed.

        Marble::

            a: 1--4-6|
            b: -2-3-5|
            Flux.merge_ordered(a, b)
            >  -1-(23)-(45)(6|)
        """
        return _merge(MergeOrderedSource, "merge_ordered", publishers, key, prefetch)

    @staticmethod
    def first_with_signal(*publishers: Streamable[E]) -> Flux[E]:
        """The publisher that sends anything first, an element or its end; the others are cancelled.

        >>> Flux.first_with_signal(Flux.never(), Flux.just(1, 2)).collect_list().block()
        [1, 2]

        Until there is a winner, each of them is asked for one element.

        Emits when the winner does.
        Completes when the winner does.

        Marble::

            a: --1-2|
            b: -x-y-|
            Flux.first_with_signal(a, b)
            >  -x-y-|
        """
        return flux_of(FirstSource("first_with_signal", _some(publishers, "first_with_signal()")))

    @staticmethod
    def first_with_value(*publishers: Streamable[E]) -> Flux[E]:
        """The publisher that sends an element first; those that are empty or fail do not win.

        If there is no winner, the stream fails with NoElement. Its cause is the error of a publisher or, if
        several have failed, an ExceptionGroup.

        >>> down = Flux.error(ConnectionError("refused"))
        >>> Flux.first_with_value(down, Flux.empty(), Flux.just(1, 2)).collect_list().block()
        [1, 2]

        Emits when the winner does.
        Completes when the winner does.

        Marble::

            a: -|
            b: --x-y-|
            Flux.first_with_value(a, b)
            >  --x-y-|
        """
        streams = _some(publishers, "first_with_value()")
        return flux_of(FirstSource("first_with_value", streams, _no_value))

    def expand_deep(self, leads_to: Callable[[T], Streamable[T]]) -> Flux[T]:
        """Send each element, then all of the stream that it leads to, and only then its next sibling.

        For trees: a branch is finished before the next one begins. One stream is open for each level. To go
        level by level use :meth:`expand`.

        >>> tree = {"root": ["left", "right"], "left": ["a", "b"]}
        >>> Flux.just("root").expand_deep(lambda name: tree.get(name, [])).collect_list().block()
        ['root', 'left', 'a', 'b', 'right']

        Emits when the deepest open stream does.
        Backpressures when its subscriber does; nothing is asked for ahead.
        Completes when no element leads any further.
        Cancels when its subscriber cancels, or any stream fails.

        Marble::

            a: (48|)
            a.expand_deep(lambda n: [n // 2] if n > 1 else [])
            >  (4218421|)
        """
        return flux_of(ExpandDeepSource(self, to_stream(leads_to, "expand_deep"), leads_to))


class MonoOrder(Stream[T]):
    """Operators of a Mono that decide which stream goes first."""

    __slots__ = ()

    @staticmethod
    def first_with_signal(*monos: Streamable[E]) -> Mono[E]:
        """The Mono that has its element, is empty or fails first; the others are cancelled.

        >>> Mono.first_with_signal(Mono.never(), Mono.just("quick")).block()
        'quick'

        Emits when the winner does.
        Completes when the winner does.

        Marble::

            a: --1|
            b: -x-|
            Mono.first_with_signal(a.first(), b.first())
            >  -(x|)
        """
        return mono_of(FirstSource("first_with_signal", _some_monos(monos, "first_with_signal()")))

    @staticmethod
    def first_with_value(*monos: Streamable[E]) -> Mono[E]:
        """The Mono that has its element first; those that are empty or fail do not win.

        If there is no winner, it fails with NoElement. The cause is the error of a Mono or, if several have
        failed, an ExceptionGroup.

        >>> Mono.first_with_value(Mono.empty(), Mono.just("found")).block()
        'found'

        Emits when the winner does.
        Completes when the winner does.

        Marble::

            a: -|
            b: --x|
            Mono.first_with_value(a.first(), b.first())
            >  --(x|)
        """
        streams = _some_monos(monos, "first_with_value()")
        return mono_of(FirstSource("first_with_value", streams, _no_value))

    def expand(self, leads_to: Callable[[T], Streamable[T]]) -> Flux[T]:
        """Send the element and, later, those of the stream that it leads to, and so on, level by level.

        >>> Mono.just(8).expand(lambda n: [n // 2] if n > 1 else []).collect_list().block()
        [8, 4, 2, 1]

        Emits when the present stream does.
        Backpressures when its subscriber does.
        Completes when no element leads any further.
        Cancels when its subscriber cancels, or any stream fails.

        Marble::

            a: (4|)
            a.first().expand(lambda n: [n // 2] if n > 1 else [])
            >  (421|)
        """
        return self._as_flux().expand(leads_to)

    def expand_deep(self, leads_to: Callable[[T], Streamable[T]]) -> Flux[T]:
        """Send the element, then all of the stream that it leads to, each branch before the next one.

        >>> Mono.just(8).expand_deep(lambda n: [n // 2] if n > 1 else []).collect_list().block()
        [8, 4, 2, 1]

        Emits when the deepest open stream does.
        Backpressures when its subscriber does; nothing is asked for ahead.
        Completes when no element leads any further.
        Cancels when its subscriber cancels, or any stream fails.

        Marble::

            a: (4|)
            a.first().expand_deep(lambda n: [n // 2] if n > 1 else [])
            >  (421|)
        """
        return self._as_flux().expand_deep(leads_to)


def _merge(
    source: type[MergePrioritySource | MergeOrderedSource],
    name: str,
    publishers: tuple[Any, ...],
    key: Callable[[Any], Any] | None,
    prefetch: int,
) -> Flux[Any]:
    if key is not None:
        a_function(key, f"{name}()")
    streams = streams_of(publishers, f"{name}()")
    if not streams:
        return flux_of(IterableSource.over(name, ()))
    return flux_of(source(name, streams, key, a_count(prefetch, f"{name}()")))


def _some(publishers: tuple[Any, ...], wanted_by: str) -> tuple[Stream[Any], ...]:
    if not publishers:
        raise ValueError(f"{wanted_by} needs at least one publisher")
    return streams_of(publishers, wanted_by)


def _some_monos(monos: tuple[Any, ...], wanted_by: str) -> tuple[Stream[Any], ...]:
    return tuple(as_mono(stream, wanted_by) for stream in _some(monos, wanted_by))


def _no_value(failures: list[BaseException]) -> BaseException:
    error = NoElement("first_with_value(): no stream had an element; add one that has a default value")
    if failures:
        error.__cause__ = together(failures, "all streams of first_with_value() that did not end empty")
    return error
