"""Several streams of which some may fail: the others run to their end, and the errors wait for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never, TypeVar

from penstock.arguments import a_count
from penstock.streams.api.combination import streams_of
from penstock.streams.api.flat_map import CONCURRENCY, INNER_PREFETCH, to_stream
from penstock.streams.fusion import operator
from penstock.streams.operators.concat import ConcatMapSource
from penstock.streams.operators.delayed_errors import DelayErrorSource, Failures
from penstock.streams.operators.flat_map import FlatMapSource
from penstock.streams.operators.recovery import ConcatSource
from penstock.streams.source import IterableSource, Source
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["FluxDelayedErrors", "MonoDelayedErrors"]

R = TypeVar("R")
E = TypeVar("E")


class FluxDelayedErrors(Stream[T]):
    """Operators of a Flux that keep errors until every stream has ended."""

    __slots__ = ()

    @staticmethod
    def concat_delay_error(*publishers: Streamable[E]) -> Flux[E]:
        """All elements of the first publisher, then of the second, and so on; errors wait until the end.

        A publisher that fails makes way for the next. After the last one the stream fails: with the error
        or, if there were several, with an ExceptionGroup.

        >>> broken = Flux.just(1, 0).map(lambda n: 1 // n)
        >>> both = Flux.concat_delay_error(broken, Flux.just(2)).materialize()
        >>> [signal.element or signal.error for signal in both]
        [1, 2, ZeroDivisionError('integer division or modulo by zero')]

        Emits when the present publisher does.
        Completes when the last one has completed and none has failed.

        Marble::

            a: 1-#
            b: x-|
            Flux.concat_delay_error(a, b)
            >  1-x-#
        """
        streams = streams_of(publishers, "concat_delay_error()")

        def combine(failures: Failures) -> Source:
            return ConcatSource("concat_delay_error", tuple(failures.of(stream) for stream in streams))

        return flux_of(DelayErrorSource("concat_delay_error", streams, combine))

    @staticmethod
    def merge_delay_error(*publishers: Streamable[E], prefetch: int = INNER_PREFETCH) -> Flux[E]:
        """The elements of all publishers as they arrive; errors wait until all have ended.

        The error is that of the publisher or, if several have failed, an ExceptionGroup.

        >>> two = Flux.merge_delay_error(Flux.error(ValueError("x")), Flux.just(1)).materialize()
        >>> [signal.element or signal.error for signal in two]
        [1, ValueError('x')]

        Emits when any of them has an element; ``prefetch`` of each wait here.
        Completes when all have completed and none has failed.

        Marble::

            a: 1-#
            b: x---y|
            Flux.merge_delay_error(a, b)
            >  (1x)---y#
        """
        streams = streams_of(publishers, "merge_delay_error()")
        ahead = a_count(prefetch, "merge_delay_error()")

        def combine(failures: Failures) -> Source:
            outer = flux_of(IterableSource.over("sources", streams))
            return FlatMapSource("merge_delay_error", outer, failures.of, max(1, len(streams)), ahead)

        return flux_of(DelayErrorSource("merge_delay_error", streams, combine))

    @staticmethod
    def merge_sequential_delay_error(*publishers: Streamable[E], prefetch: int = INNER_PREFETCH) -> Flux[E]:
        """As ``merge_sequential``, but errors wait until all publishers have ended.

        The error is that of the publisher or, if several have failed, an ExceptionGroup.

        >>> both = Flux.merge_sequential_delay_error(Flux.error(ValueError("x")), [1, 2]).materialize()
        >>> [signal.element or signal.error for signal in both]
        [1, 2, ValueError('x')]

        Emits when the first publisher that has not ended has an element; ``prefetch`` of each wait here.
        Completes when all have completed and none has failed.

        Marble::

            a: 1--#
            b: -x-y|
            Flux.merge_sequential_delay_error(a, b)
            >  1--(xy)#
        """
        streams = streams_of(publishers, "merge_sequential_delay_error()")
        ahead = a_count(prefetch, "merge_sequential_delay_error()")
        label, at_once = "merge_sequential_delay_error", max(1, len(streams))

        def combine(failures: Failures) -> Source:
            outer = flux_of(IterableSource.over("sources", streams))
            return FlatMapSource(label, outer, failures.of, at_once, ahead, sequential=True)

        return flux_of(DelayErrorSource(label, streams, combine))

    def flat_map_sequential_delay_error(
        self,
        mapper: Callable[[T], Streamable[R]],
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[R]:
        """As ``flat_map_sequential``, but errors wait: the other streams run to their end.

        An error of the source, of an inner stream, or of ``mapper`` is kept. When all inner streams have
        ended, the stream fails: with the error or, if there were several, with an ExceptionGroup.

        >>> halves = Flux.just(1, 0, 2).flat_map_sequential_delay_error(lambda n: [2 // n]).materialize()
        >>> [signal.element or signal.error for signal in halves]
        [2, 1, ZeroDivisionError('integer division or modulo by zero')]

        Emits when the oldest inner stream has an element.
        Backpressures when its subscriber does; up to ``concurrency × prefetch`` elements wait here.
        Completes when the source and all inner streams have completed and none has failed.
        Cancels when its subscriber cancels.

        Marble::

            a: 012-|
            a.flat_map_sequential_delay_error(lambda n: [2 // n])
            >  -21-#
        """
        label = "flat_map_sequential_delay_error"
        opens = to_stream(mapper, label)
        at_once = a_count(concurrency, f"{label}()")
        ahead = a_count(prefetch, f"{label}()")

        def combine(failures: Failures) -> Source:
            outer, inner = failures.of(self), failures.calling(opens)
            return FlatMapSource(label, outer, inner, at_once, ahead, sequential=True)

        return flux_of(DelayErrorSource(label, (self,), combine, mapper))

    def flat_map_delay_error(
        self,
        mapper: Callable[[T], Streamable[R]],
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[R]:
        """As ``flat_map``, but errors wait: the other streams run to their end.

        An error of the source, of an inner stream, or of ``mapper`` is kept. When all inner streams have
        ended, the stream fails: with the error or, if there were several, with an ExceptionGroup.

        >>> halves = Flux.just(1, 0, 2).flat_map_delay_error(lambda n: Flux.just(2 // n)).materialize()
        >>> [signal.element or signal.error for signal in halves]
        [2, 1, ZeroDivisionError('integer division or modulo by zero')]

        Emits when any of the inner streams has an element.
        Backpressures when its subscriber does; up to ``concurrency × prefetch`` elements wait here.
        Completes when the source and all inner streams have completed and none has failed.
        Cancels when its subscriber cancels.

        Marble::

            a: 012-|
            a.flat_map_delay_error(lambda n: Flux.just(2 // n))
            >  -21-#
        """
        opens = to_stream(mapper, "flat_map_delay_error")
        at_once = a_count(concurrency, "flat_map_delay_error()")
        ahead = a_count(prefetch, "flat_map_delay_error()")

        def combine(failures: Failures) -> Source:
            outer, inner = failures.of(self), failures.calling(opens)
            return FlatMapSource("flat_map_delay_error", outer, inner, at_once, ahead)

        return flux_of(DelayErrorSource("flat_map_delay_error", (self,), combine, mapper))

    def concat_map_delay_error(self, mapper: Callable[[T], Streamable[R]], *, prefetch: int = 1) -> Flux[R]:
        """As ``concat_map``, but errors wait: the streams that follow run all the same.

        An error of the source, of an inner stream, or of ``mapper`` is kept until the end. The stream then
        fails: with the error or, if there were several, with an ExceptionGroup.

        >>> halves = Flux.just(1, 0, 2).concat_map_delay_error(lambda n: Flux.just(2 // n)).materialize()
        >>> [signal.element or signal.error for signal in halves]
        [2, 1, ZeroDivisionError('integer division or modulo by zero')]

        Emits when the present inner stream has an element.
        Backpressures when its subscriber does; ``prefetch`` elements of the source wait here.
        Completes when the source and the last inner stream have completed and none has failed.
        Cancels when its subscriber cancels.

        Marble::

            a: 012-|
            a.concat_map_delay_error(lambda n: Flux.just(2 // n))
            >  -21-#
        """
        opens = to_stream(mapper, "concat_map_delay_error")
        ahead = a_count(prefetch, "concat_map_delay_error()")

        def combine(failures: Failures) -> Source:
            outer, inner = failures.of(self), failures.calling(opens)
            return ConcatMapSource("concat_map_delay_error", outer, inner, ahead)

        return flux_of(DelayErrorSource("concat_map_delay_error", (self,), combine, mapper))


class MonoDelayedErrors(Stream[T]):
    """Operators of a Mono that keep errors until every stream has ended."""

    __slots__ = ()

    @staticmethod
    def when_delay_error(*publishers: Streamable[Any]) -> Mono[Never]:
        """Complete when all publishers have ended; fail then if any of them has failed.

        The error is that of the publisher or, if several have failed, an ExceptionGroup.

        >>> both = Mono.when_delay_error(Mono.error(ValueError("x")), Mono.error(KeyError("y")))
        >>> both.materialize().block().error.exceptions
        (ValueError('x'), KeyError('y'))

        Never emits.
        Completes when the last of them has completed and none has failed.

        Marble::

            a: -#
            b: -x--|
            Mono.when_delay_error(a, b)
            >  ----#
        """
        merged = FluxDelayedErrors.merge_delay_error(*publishers)
        return merged._as_mono(operator("ignore", label="when_delay_error"))
