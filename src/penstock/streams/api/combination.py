"""Make one stream of several: one after the other, or mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from penstock.arguments import a_count, a_value
from penstock.streams.api.flat_map import INNER_PREFETCH
from penstock.streams.fusion import operator
from penstock.streams.operators.flat_map import FlatMapSource
from penstock.streams.operators.recovery import ConcatSource
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T, as_mono, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single
    from penstock.streams.stream import Streamable

__all__ = ["FluxCombination", "MonoCombination", "streams_of"]

R = TypeVar("R")
E = TypeVar("E")

_COLLECTIONS = (list, tuple, set, frozenset)


def streams_of(publishers: tuple[Any, ...], wanted_by: str) -> tuple[Stream[Any], ...]:
    """All publishers as streams; a list of streams is a mistake that is easily made."""
    for given in publishers:
        if isinstance(given, _COLLECTIONS) and isinstance(next(iter(given), None), Stream):
            raise TypeError(
                f"{wanted_by} takes streams one by one, and would send a {type(given).__name__} of streams "
                f"as elements; put a star before it: {wanted_by[:-1]}*streams)"
            )
    return tuple(as_stream(publisher, wanted_by) for publisher in publishers)


class FluxCombination(Stream[T]):
    """Operators of a Flux that join it with others."""

    __slots__ = ()

    @staticmethod
    def concat(*publishers: Streamable[E]) -> Flux[E]:
        """All elements of the first publisher, then all of the second, and so on.

        >>> Flux.concat(Flux.just(1), Flux.just(2, 3)).collect_list().block()
        [1, 2, 3]

        Emits when the present publisher does.
        Completes when the last one has completed.

        Marble::

            a: 1-2|
            b: x-y|
            Flux.concat(a, b)
            >  1-2x-y|
        """
        return flux_of(ConcatSource("concat", _flattened(streams_of(publishers, "concat()"), ConcatSource)))

    @staticmethod
    def merge(*publishers: Streamable[E], prefetch: int = INNER_PREFETCH) -> Flux[E]:
        """The elements of all publishers as they arrive.

        >>> sorted(Flux.merge(Flux.just(1, 3), Flux.just(2)).collect_list().block())
        [1, 2, 3]

        Emits when any of them has an element; ``prefetch`` of each wait here.
        Completes when all have completed.

        Marble::

            a: 1-2-3-|
            b: -x-y|
            Flux.merge(a, b)
            >  1x2y3-|
        """
        streams = streams_of(publishers, "merge()")
        outer = flux_of(IterableSource.over("sources", streams))
        prefetch = a_count(prefetch, "merge()")
        at_once = max(1, len(streams))
        return flux_of(
            FlatMapSource("merge", outer, lambda stream: stream, at_once, prefetch, members=streams)
        )

    def concat_with(self, *publishers: Streamable[R]) -> Flux[T | R]:
        """Go on with other publishers when this stream has completed.

        Emits when the present publisher does.
        Backpressures when its subscriber does; the next publisher gets the demand that is left.
        Completes when the last one has completed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2|
            b: x-y|
            a.concat_with(b)
            >  1-2x-y|
        """
        streams = streams_of((self, *publishers), "concat_with()")
        return flux_of(ConcatSource("concat_with", _flattened(streams, ConcatSource)))

    def merge_with(self, *publishers: Streamable[R]) -> Flux[T | R]:
        """Mix the elements of other publishers in as they arrive.

        Emits when any of them has an element.
        Backpressures when its subscriber does.
        Completes when all have completed.
        Cancels when its subscriber cancels, or any of them fails.

        Marble::

            a: 1-2-3-|
            b: -x-y|
            a.merge_with(b)
            >  1x2y3-|
        """
        return FluxCombination.merge(
            *_flattened(streams_of((self, *publishers), "merge_with()"), FlatMapSource)
        )

    def start_with(self, *elements: R) -> Flux[T | R]:
        """Send these elements before those of the stream.

        >>> Flux.just(2, 3).start_with(0, 1).collect_list().block()
        [0, 1, 2, 3]

        Emits when there is demand, first these, then those of the source.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: -1-2-|
            a.start_with(0)
            >  01-2-|
        """
        for element in elements:
            a_value(element, "start_with()")
        return self._with(operator("start_with", elements, shows=elements))

    @overload
    def then(self) -> Mono[Never]: ...
    @overload
    def then(self, other: Single[R]) -> Single[R]: ...
    @overload
    def then(self, other: Streamable[R]) -> Mono[R]: ...
    def then(self, other: Streamable[Any] | None = None) -> Mono[Any]:
        """Forget the elements; when the stream has completed, go on with ``other`` or just complete.

        >>> Flux.just(1, 2).then(Mono.just("done")).block()
        'done'

        Emits when ``other`` does.
        Never backpressures: the elements are asked for without a bound and not kept.
        Completes when ``other`` does, or without one when the stream does.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.then()
            >  ----|

            a.then(Mono.just(9))
            >  ----(9|)
        """
        return _then(self, other)

    def then_many(self, other: Streamable[R]) -> Flux[R]:
        """Forget the elements; when the stream has completed, go on with ``other``.

        Emits when ``other`` does.
        Backpressures when its subscriber does, as far as ``other`` is concerned.
        Completes when ``other`` does.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            b: x-y|
            a.then_many(b)
            >  ----x-y|
        """
        return _then_many(self, other)


class MonoCombination(Stream[T]):
    """Operators of a Mono that join it with others."""

    __slots__ = ()

    def concat_with(self, *publishers: Streamable[R]) -> Flux[T | R]:
        """Go on with other publishers after this Mono.

        Emits when the present publisher does.
        Backpressures when its subscriber does.
        Completes when the last one has completed.
        Cancels when its subscriber cancels.

        Marble::

            mono: -(1|)
            b: x-y|
            mono.concat_with(b)
            >     -(1x)-y|
        """
        return flux_of(ConcatSource("concat_with", streams_of((self, *publishers), "concat_with()")))

    def merge_with(self, *publishers: Streamable[R]) -> Flux[T | R]:
        """Mix the elements of other publishers in as they arrive.

        Emits when any of them has an element.
        Backpressures when its subscriber does.
        Completes when all have completed.
        Cancels when its subscriber cancels, or any of them fails.

        Marble::

            mono: -(1|)
            b:    x-y|
            mono.merge_with(b)
            >     x1y|
        """
        return FluxCombination.merge(
            *_flattened(streams_of((self, *publishers), "merge_with()"), FlatMapSource)
        )

    @overload
    def then(self) -> Mono[Never]: ...
    @overload
    def then(self, other: Single[R]) -> Single[R]: ...
    @overload
    def then(self, other: Streamable[R]) -> Mono[R]: ...
    def then(self, other: Streamable[Any] | None = None) -> Mono[Any]:
        """Forget the element; when this Mono has completed, go on with ``other`` or just complete.

        Emits when ``other`` does.
        Backpressures when its subscriber does.
        Completes when ``other`` does, or without one when this Mono does.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(1|)
            mono.then()
            >     --|

            mono.then(Mono.just(9))
            >     --(9|)
        """
        return _then(self, other)

    def then_many(self, other: Streamable[R]) -> Flux[R]:
        """Forget the element; when this Mono has completed, go on with ``other``.

        Emits when ``other`` does.
        Backpressures when its subscriber does.
        Completes when ``other`` does.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(1|)
            b: x-y|
            mono.then_many(b)
            >     --x-y|
        """
        return _then_many(self, other)

    def then_return(self, value: R) -> Single[R]:
        """Forget the element; when this Mono has completed, send ``value``.

        Emits when this Mono has completed and there is demand.
        Backpressures when its subscriber does.
        Completes when the value has been sent.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(1|)
            mono.then_return(9)
            >     --(9|)
        """
        a_value(value, "then_return()")
        return self._with(operator("ignore", label="then_return"))._with(operator("default_if_empty", value))


def _flattened(streams: tuple[Any, ...], kind: type[ConcatSource | FlatMapSource]) -> tuple[Any, ...]:
    """Replace the first stream by its members if it is itself a concatenation, or a merge.

    So a thousand streams that are added one by one make one stage, not a thousand.
    """
    first = streams[0] if streams else None
    if first is None or first._ops or not isinstance(first._source, kind) or not first._source.can_grow:
        return streams
    return (*(first._source.members or ()), *streams[1:])


def _then(stream: Stream[Any], other: Any) -> Mono[Any]:
    ignored = stream._as_mono(operator("ignore", label="then"))
    if other is None:
        return ignored
    return mono_of(ConcatSource("then", (ignored, as_mono(other, "then()"))))


def _then_many(stream: Stream[Any], other: Any) -> Flux[Any]:
    ignored = stream._as_mono(operator("ignore", label="then_many"))
    return flux_of(ConcatSource("then_many", streams_of((ignored, other), "then_many()")))
