"""Ask another stream about each element: whether to keep it, when to send it, what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.arguments import a_count, a_function
from penstock.streams.fusion import operator
from penstock.streams.operators.concat import ConcatMapSource
from penstock.streams.operators.flat_map import FlatMapSource
from penstock.streams.stream import Stream, T, as_mono, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["FluxTriggers", "MonoTriggers"]

R = TypeVar("R")
E = TypeVar("E")


class FluxTriggers(Stream[T]):
    """Operators of a Flux that wait for another stream, one for each element."""

    __slots__ = ()

    def filter_when(self, predicate: Callable[[T], Streamable[object]], *, concurrency: int = 1) -> Flux[T]:
        """Let through the elements for which the stream of ``predicate(element)`` begins with a true value.

        The predicate may be a coroutine function. An element whose stream is empty is left out.

        >>> async def is_known(word):
        ...     return word in {"bear", "cat"}
        >>> Flux.just("ant", "bear", "cat").filter_when(is_known).collect_list().block()
        ['bear', 'cat']

        With ``concurrency`` that many elements are asked about at once; they are sent in their order all the
        same.

        Emits when the answer for the oldest element has come, and it is true.
        Backpressures when its subscriber does; ``concurrency`` elements wait here.
        Completes when the source has completed and the last answer has come.
        Cancels when its subscriber cancels, or the predicate or its stream fails.

        Marble::

            a: 1-2-3-|
            b: -0|
            a.filter_when(lambda x: b.map(lambda _: x % 2))
            >  -1---3|
        """
        at_once = a_count(concurrency, "filter_when()")
        source = FlatMapSource("filter_when", self, _kept(predicate), at_once, 1, predicate, sequential=True)
        return flux_of(source)

    def delay_until(self, trigger: Callable[[T], Streamable[object]]) -> Flux[T]:
        """Send each element when the stream of ``trigger(element)`` has completed.

        The trigger may be a coroutine function. What its stream sends is ignored.

        >>> saved = []
        >>> async def save(word):
        ...     saved.append(word)
        >>> Flux.just("a", "b").delay_until(save).map(lambda _: list(saved)).collect_list().block()
        [['a'], ['a', 'b']]

        Elements are dealt with one after the other, in their order.

        Emits when the stream of the oldest element has completed.
        Backpressures when its subscriber does; one element of the source waits here.
        Completes when the source has completed and the last element has been sent.
        Cancels when its subscriber cancels, or the trigger or its stream fails.

        Marble::

            a: 1-2-|
            b: --x|
            a.delay_until(lambda _: b)
            >  ---1--(2|)
        """
        return flux_of(ConcatMapSource("delay_until", self, _delayed(trigger), 1, trigger))


class MonoTriggers(Stream[T]):
    """Operators of a Mono that wait for another stream."""

    __slots__ = ()

    def filter_when(self, predicate: Callable[[T], Streamable[object]]) -> Mono[T]:
        """Keep the element if the stream of ``predicate(element)`` begins with a true value.

        >>> Mono.just(3).filter_when(lambda n: Mono.just(n > 5)).block() is None
        True

        Emits when the answer has come, and it is true.
        Backpressures when its subscriber does.
        Completes when the answer has come, or this Mono is empty.
        Cancels when its subscriber cancels, or the predicate or its stream fails.

        Marble::

            mono: -(1|)
            b: --x|
            mono.filter_when(lambda _: b)
            >     ---(1|)
        """
        return mono_of(ConcatMapSource("filter_when", self, _kept(predicate), 1, predicate))

    def delay_until(self, trigger: Callable[[T], Streamable[object]]) -> Mono[T]:
        """Send the element when the stream of ``trigger(element)`` has completed.

        >>> Mono.just(3).delay_until(lambda n: Flux.range(n)).block()
        3

        Emits when that stream has completed.
        Backpressures when its subscriber does.
        Completes when the element has been sent, or this Mono is empty.
        Cancels when its subscriber cancels, or the trigger or its stream fails.

        Marble::

            mono: -(1|)
            b: --x|
            mono.delay_until(lambda _: b)
            >     ----(1|)
        """
        return mono_of(ConcatMapSource("delay_until", self, _delayed(trigger), 1, trigger))

    @overload
    def zip_when(self, mapper: Callable[[T], Streamable[R]]) -> Mono[tuple[T, R]]: ...
    @overload
    def zip_when(self, mapper: Callable[[T], Streamable[R]], combinator: Callable[[T, R], E]) -> Mono[E]: ...
    def zip_when(
        self, mapper: Callable[[T], Streamable[Any]], combinator: Callable[[T, Any], Any] | None = None
    ) -> Mono[Any]:
        """Send the element together with the first one of the stream that ``mapper`` makes of it.

        >>> Mono.just(3).zip_when(lambda n: Mono.just(n * n)).block()
        (3, 9)

        With ``combinator(element, other)`` it sends the result of that instead of a tuple.

        Emits when the second stream has an element.
        Backpressures when its subscriber does.
        Completes when the pair has been sent, or one of the two is empty.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            mono_a: -(1|)
            mono_b: --(x|)
            mono_a.zip_when(lambda _: mono_b)
            >       ---(A|)
            where A = (1, "x")
        """
        a_function(mapper, "zip_when()", may_await=True)
        join = _pair if combinator is None else a_function(combinator, "zip_when()")

        def to_pair(element: Any) -> Stream[Any]:
            other = as_mono(mapper(element), "the function of zip_when()")
            return other.map(lambda found: join(element, found))

        return mono_of(ConcatMapSource("zip_when", self, to_pair, 1, mapper))


def _pair(element: Any, other: Any) -> tuple[Any, Any]:
    return element, other


def _first(element: Any, ignored: Any) -> Any:
    return element


def _kept(predicate: Callable[[Any], Any]) -> Callable[[Any], Stream[Any]]:
    """What becomes of an element: itself, or nothing."""
    a_function(predicate, "filter_when()", may_await=True)

    def to_answer(element: Any) -> Stream[Any]:
        answer = as_mono(predicate(element), "the predicate of filter_when()")
        return answer.filter(bool).map(lambda _: element)

    return to_answer


def _delayed(trigger: Callable[[Any], Any]) -> Callable[[Any], Stream[Any]]:
    """What becomes of an element: itself, when the trigger has gone off."""
    a_function(trigger, "delay_until()", may_await=True)

    def to_later(element: Any) -> Stream[Any]:
        signal = as_stream(trigger(element), "the trigger of delay_until()")
        return signal._as_mono(operator("reduce_from", _first, lambda: element, label="delay_until"))

    return to_later
