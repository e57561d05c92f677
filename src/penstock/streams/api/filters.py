"""Let some elements through and not others."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Never, TypeGuard, TypeVar, overload

from penstock.arguments import a_count, a_function, a_value
from penstock.streams.api.transforms import a_class
from penstock.streams.fusion import operator
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single

__all__ = ["FluxFilters", "MonoFilters", "NoElement", "TooManyElements"]

R = TypeVar("R")


class NoElement(LookupError):
    """A stream completed without the element that an operator needs."""


class TooManyElements(ValueError):
    """A stream had more elements than an operator allows."""


def _not_single(met_a_second: bool) -> Exception:
    if met_a_second:
        return TooManyElements("single() met a second element; for the first of several use first()")
    return NoElement(
        "single() met no element; remove it if the stream may be empty, or use default_if_empty()"
    )


def _itself(element: R) -> R:
    return element


class FluxFilters(Stream[T]):
    """Operators of a Flux that let some of its elements through."""

    __slots__ = ()

    @overload
    def filter(self, predicate: Callable[[T], TypeGuard[R]]) -> Flux[R]: ...
    @overload
    def filter(self, predicate: Callable[[T], TypeIs[R]]) -> Flux[R]: ...
    @overload
    def filter(self, predicate: Callable[[T], object]) -> Flux[T]: ...
    def filter(self, predicate: Callable[[T], object]) -> Flux[Any]:
        """Let the elements through for which ``predicate(element)`` is true.

        >>> Flux.range(1, 6).filter(lambda x: x % 2 == 0).collect_list().block()
        [2, 4, 6]

        Emits when an element arrives that passes.
        Backpressures when its subscriber does; an element that does not pass does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-4-|
            a.filter(lambda x: x % 2 == 0)
            >  --2---4-|
        """
        return self._with(operator("filter", a_function(predicate, "filter()")))

    def of_type(self, type: type[R]) -> Flux[R]:
        """Let the elements through that are of this type, by ``isinstance``.

        >>> Flux.just(1, "two", 3).of_type(int).collect_list().block()
        [1, 3]

        Emits when an element of the type arrives.
        Backpressures when its subscriber does; an element that does not pass does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-x-2-|
            a.of_type(str)
            >  --x---|
        """
        return self._with(operator("of_type", a_class(type, "of_type")))

    def take(self, n: int) -> Flux[T]:
        """Let the first ``n`` elements through, then complete.

        >>> Flux.range(1, 1_000_000).take(3).collect_list().block()
        [1, 2, 3]

        The source is never asked for more than ``n``, even if the subscriber asks for everything, and it is
        cancelled as soon as the last one has passed. ``take(0)`` does not subscribe to it at all.

        Emits when an element arrives, ``n`` times at most.
        Backpressures when its subscriber does, and never lets demand for more than ``n`` through.
        Completes when ``n`` elements have passed, or the source completes.
        Cancels when ``n`` elements have passed, or its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.take(2)
            >  1-(2|)
        """
        n = a_count(n, "take()", least=0)
        if n == 0:
            nothing: Any = self._of(IterableSource.over("take", (), 0))
            return nothing
        return self._with(operator("take", n))

    def take_while(self, predicate: Callable[[T], object]) -> Flux[T]:
        """Let elements through as long as ``predicate(element)`` is true; at the first that is not, complete.

        >>> Flux.just(1, 2, 9, 3).take_while(lambda x: x < 5).collect_list().block()
        [1, 2]

        Emits when an element arrives that passes.
        Backpressures when its subscriber does.
        Completes when an element does not pass (it is left out), or the source completes.
        Cancels when an element does not pass, its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-|
            a.take_while(lambda x: x < 3)
            >  1-2-|
        """
        return self._with(operator("take_while", a_function(predicate, "take_while()")))

    def take_until(self, predicate: Callable[[T], object]) -> Flux[T]:
        """Let elements through up to the first for which ``predicate(element)`` is true, with that one.

        >>> Flux.just("GET /", "Host: x", "", "body").take_until(lambda line: not line).collect_list().block()
        ['GET /', 'Host: x', '']

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the element that ends it has passed, or the source completes.
        Cancels when the element that ends it has passed, its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-|
            a.take_until(lambda x: x == 2)
            >  1-(2|)
        """
        return self._with(operator("take_until", a_function(predicate, "take_until()")))

    def take_last(self, n: int) -> Flux[T]:
        """Let the last ``n`` elements through, once the source has completed.

        >>> Flux.range(1, 10).take_last(3).collect_list().block()
        [8, 9, 10]

        Up to ``n`` elements are kept until then. An endless source never gets there.

        Emits when the source has completed.
        Backpressures when its subscriber does, after the end; before, it asks for all there is.
        Completes when the source has completed and the last element has passed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.take_last(2)
            >  ------(23|)
        """
        return self._with(operator("take_last", a_count(n, "take_last()", least=0)))

    def skip(self, n: int) -> Flux[T]:
        """Leave the first ``n`` elements out.

        >>> Flux.range(1, 5).skip(3).collect_list().block()
        [4, 5]

        Emits when an element arrives after the first ``n``.
        Backpressures when its subscriber does; the first request is for ``n`` elements more.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.skip(2)
            >  ----3-|
        """
        return self._with(operator("skip", a_count(n, "skip()", least=0)))

    def skip_last(self, n: int) -> Flux[T]:
        """Leave out the last ``n`` elements.

        >>> Flux.range(1, 5).skip_last(2).collect_list().block()
        [1, 2, 3]

        Whether an element is one of the last is known when ``n`` more have come, so ``n`` elements wait here.

        Emits when an element arrives after ``n`` others.
        Backpressures when its subscriber does; the elements that wait are asked for in addition.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-3-4-|
            a.skip_last(2)
            >  ----1-2-|
        """
        return self._with(operator("skip_last", a_count(n, "skip_last()", least=0)))

    def skip_while(self, predicate: Callable[[T], object]) -> Flux[T]:
        """Leave elements out as long as ``predicate(element)`` is true; then let all the others through.

        >>> Flux.just(1, 2, 9, 3).skip_while(lambda x: x < 5).collect_list().block()
        [9, 3]

        Emits when an element arrives, from the first that does not match on.
        Backpressures when its subscriber does; an element that is left out does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-1-|
            a.skip_while(lambda x: x < 2)
            >  --2-3-1-|
        """
        return self._with(operator("skip_while", a_function(predicate, "skip_while()")))

    def distinct(self, key: Callable[[T], Hashable] | None = None) -> Flux[T]:
        """Leave out repetitions: let only the first element of each ``key(element)`` through.

        >>> Flux.just("a", "b", "a").distinct().collect_list().block()
        ['a', 'b']
        >>> Flux.just("ape", "ant", "bee").distinct(lambda word: word[0]).collect_list().block()
        ['ape', 'bee']

        The keys (without a function: the elements) must be hashable. All of them are kept in memory until
        the stream ends. For an endless stream see :meth:`distinct_until_changed`.

        Emits when an element with a new key arrives.
        Backpressures when its subscriber does; an element that is left out does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``key`` raises.

        Marble::

            a: 1-2-1-3-|
            a.distinct()
            >  1-2---3-|
        """
        shows = () if key is None else (key,)
        function = a_function(_itself if key is None else key, "distinct()")
        return self._with(operator("distinct", function, shows=shows))

    def distinct_until_changed(self, key: Callable[[T], object] | None = None) -> Flux[T]:
        """Leave out what repeats the element just before it, by ``==`` on ``key(element)``.

        >>> Flux.just(1, 1, 2, 2, 1).distinct_until_changed().collect_list().block()
        [1, 2, 1]

        Only the last key is kept, so this is safe on an endless stream.

        Emits when an element arrives whose key differs from the one before.
        Backpressures when its subscriber does; an element that is left out does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``key`` raises.

        Marble::

            a: 1-1-2-1-|
            a.distinct_until_changed()
            >  1---2-1-|
        """
        shows = () if key is None else (key,)
        function = a_function(_itself if key is None else key, "distinct_until_changed()")
        return self._with(operator("distinct_until_changed", function, shows=shows))

    def first(self) -> Mono[T]:
        """The first element, as a Mono; empty if there is none.

        >>> Flux.just("a", "b").first().block()
        'a'

        For a default value put ``default_if_empty`` below it; to fail if it is empty, ``single``.

        Emits when an element arrives.
        Backpressures when its subscriber does; one element is asked for.
        Completes when an element has passed, or the source completes.
        Cancels when an element has passed, or its subscriber cancels.

        Marble::

            a: -1-2-|
            a.first()
            >  -(1|)
        """
        return self._as_mono(operator("take", 1, label="first", shows=()))

    def last(self) -> Mono[T]:
        """The last element, as a Mono; empty if there is none.

        >>> Flux.just("a", "b").last().block()
        'b'

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the element; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.last()
            >  ----(2|)
        """
        return self._as_mono(operator("last"))

    def single(self) -> Single[T]:
        """The only element, as a Mono; an error if there is none, or more than one.

        >>> Flux.just("only").single().block()
        'only'

        An empty stream fails with :class:`NoElement`, a second element with :class:`TooManyElements`.

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the element; then it asks for all there is.
        Completes when the source has completed.
        Cancels when a second element arrives, or its subscriber cancels.

        Marble::

            a: -1-|
            a.single()
            >  ---(1|)

            a.repeat().single()
            >  ----#
            where # = TooManyElements
        """
        return self._as_mono(operator("single", _not_single, shows=()))

    @overload
    def element_at(self, index: int) -> Single[T]: ...
    @overload
    def element_at(self, index: int, default: R) -> Single[T | R]: ...
    def element_at(self, index: int, default: Any = NOTHING) -> Single[Any]:
        """The element with this number, counted from 0, as a Mono.

        >>> Flux.just("a", "b", "c").element_at(1).block()
        'b'

        A stream that is too short ends with an ``IndexError``, or gives the default if there is one:

        >>> Flux.just("a").element_at(5, default="-").block()
        '-'

        Emits when the element arrives, or, with a default, when the source completes before.
        Backpressures when its subscriber does; elements are asked for up to the one, and no further.
        Completes when the element has passed.
        Cancels when the element has passed, or its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.element_at(1)
            >  --(2|)
        """
        number = a_count(index, "element_at()", least=0)
        if default is not NOTHING:
            a_value(default, "element_at()")

        def substitute(missing: int) -> Any:
            if default is not NOTHING:
                return default
            raise IndexError(
                f"element_at({number}) met the end after {number - missing} elements; "
                "pass a default if the stream may be shorter"
            )

        shows = (number,) if default is NOTHING else (number, default)
        return self._as_mono(operator("element_at", number, substitute, shows=shows))

    def ignore_elements(self) -> Mono[Never]:
        """Let no element through, only the end: a Mono that is empty, or fails.

        >>> Flux.range(1, 3).ignore_elements().default_if_empty("done").block()
        'done'

        Never emits.
        Backpressures when its subscriber has not asked for anything; then it asks for all there is.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.ignore_elements()
            >  ----|
        """
        return self._as_mono(operator("ignore", label="ignore_elements"))


class MonoFilters(Stream[T]):
    """Operators of a Mono that let its element through, or leave it empty."""

    __slots__ = ()

    @overload
    def filter(self, predicate: Callable[[T], TypeGuard[R]]) -> Mono[R]: ...
    @overload
    def filter(self, predicate: Callable[[T], TypeIs[R]]) -> Mono[R]: ...
    @overload
    def filter(self, predicate: Callable[[T], object]) -> Mono[T]: ...
    def filter(self, predicate: Callable[[T], object]) -> Mono[Any]:
        """Let the element through if ``predicate(element)`` is true; otherwise the Mono is empty.

        >>> Mono.just(7).filter(lambda x: x > 10).default_if_empty(0).block()
        0

        Emits when the element arrives and passes.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``predicate`` raises.

        Marble::

            mono: --(5|)
            mono.filter(lambda x: x > 3)
            >     --(5|)

            mono.filter(lambda x: x > 7)
            >     --|
        """
        return self._with(operator("filter", a_function(predicate, "filter()")))

    def of_type(self, type: type[R]) -> Mono[R]:
        """Let the element through if it is of this type, by ``isinstance``; otherwise the Mono is empty.

        >>> Mono.just("seven").of_type(int).default_if_empty(0).block()
        0

        Emits when the element arrives and is of the type.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(5|)
            mono.of_type(int)
            >     --(5|)

            mono.of_type(str)
            >     --|
        """
        return self._with(operator("of_type", a_class(type, "of_type")))

    def single(self) -> Single[T]:
        """Insist on the element: a Mono that is empty ends with the error :class:`NoElement`.

        >>> Mono.just("here").single().block()
        'here'

        Emits when the element has arrived and the source has completed.
        Backpressures when its subscriber does.
        Completes when the source has completed.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(5|)
            mono.single()
            >     --(5|)

            mono.ignore_element().single()
            >     --#
            where # = NoElement
        """
        return self._with(operator("single", _not_single, shows=()))

    def ignore_element(self) -> Mono[Never]:
        """Hold the element back and let only the end through: a Mono that is empty, or fails.

        >>> Mono.just("x").ignore_element().default_if_empty("done").block()
        'done'

        Never emits.
        Backpressures when its subscriber has not asked for anything.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(5|)
            mono.ignore_element()
            >     --|
        """
        return self._with(operator("ignore", label="ignore_element"))
