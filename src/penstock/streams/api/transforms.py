"""Turn each element into something else, or gather neighbours into lists."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.arguments import a_count, a_function, a_value
from penstock.streams.fusion import operator
from penstock.streams.fusion.fragments import NOTHING, HandleSink
from penstock.streams.stream import Stream, T

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["FluxLists", "FluxTransforms", "HandleSink", "MonoTransforms"]

R = TypeVar("R")


def a_class(type: Any, operator: str) -> Any:
    """The class that an operator compares elements with, or a TypeError that names both."""
    if not isinstance(type, builtins.type):
        raise TypeError(f"{operator}() needs a class, not {type!r}; pass for example str")
    return type


class FluxTransforms(Stream[T]):
    """Operators of a Flux that turn elements into others, one after the other."""

    __slots__ = ()

    def map(self, mapper: Callable[[T], R]) -> Flux[R]:
        """Send ``mapper(element)`` in place of each element.

        >>> Flux.range(1, 3).map(lambda x: x * 10).collect_list().block()
        [10, 20, 30]

        An exception in ``mapper`` ends the stream with that error. So does ``None`` as its result (§2.13):
        to leave elements out use :meth:`map_not_none`.

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            a: 1-2-3-|
            a.map(lambda x: x * 2)
            >  2-4-6-|
        """
        return self._with(operator("map", a_function(mapper, "map()")))

    def map_not_none(self, mapper: Callable[[T], R | None]) -> Flux[R]:
        """Send ``mapper(element)`` in place of each element, and nothing where that is ``None``.

        The function may look something up, and elements that it does not find drop out:

        >>> ages = {"Ann": 31, "Cem": 27}
        >>> Flux.just("Ann", "Bob", "Cem").map_not_none(ages.get).collect_list().block()
        [31, 27]

        Emits when an element arrives for which ``mapper`` gives something.
        Backpressures when its subscriber does; an element that drops out does not use up demand.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            a: 1-2-3-|
            a.map_not_none({1: "x", 3: "y"}.get)
            >  x---y-|
        """
        return self._with(operator("map_not_none", a_function(mapper, "map_not_none()")))

    def flat_map_iterable(self, mapper: Callable[[T], Iterable[R]]) -> Flux[R]:
        """Send the elements of the iterable ``mapper(element)``, one by one, in place of each element.

        The iterable is walked through only as far as there is demand, so it may be endless. For publishers
        use ``concat_map`` or ``flat_map``.

        >>> Flux.just("a b", "c").flat_map_iterable(str.split).collect_list().block()
        ['a', 'b', 'c']

        Emits when the iterable at hand has an element.
        Backpressures when its subscriber does; the iterable waits where it is.
        Completes when the source has completed and the last iterable is at its end.
        Cancels when its subscriber cancels, or ``mapper`` or an iterable raises.

        Marble::

            a: 1-2---|
            a.flat_map_iterable(range)
            >  0-(01)---|
        """
        return self._with(
            operator("flat", a_function(mapper, "flat_map_iterable()"), label="flat_map_iterable")
        )

    def handle(self, handler: Callable[[T, HandleSink[R]], object]) -> Flux[R]:
        """Let ``handler(element, sink)`` decide: send one element on, send none, or end the stream.

        It is ``map``, ``filter`` and ``take_while`` in one function. Call ``sink.next(result)`` at most once
        for each element, ``sink.complete()`` to end the stream, or neither to leave the element out. To fail,
        raise.

        >>> def until_blank(line, sink):
        ...     if not line:
        ...         sink.complete()
        ...     elif not line.startswith("#"):
        ...         sink.next(line.upper())
        >>> Flux.just("one", "# remark", "two", "", "three").handle(until_blank).collect_list().block()
        ['ONE', 'TWO']

        Emits when ``handler`` calls ``sink.next``.
        Backpressures when its subscriber does; an element that is left out does not use up demand.
        Completes when the source completes, or ``handler`` calls ``sink.complete``.
        Cancels when its subscriber cancels, ``handler`` calls ``sink.complete``, or raises.

        Marble::

            a: 1-2-3-|
            a.handle(lambda x, sink: sink.next(x * 3) if x % 2 else None)
            >  3---9-|
        """
        return self._with(operator("handle", a_function(handler, "handle()")))

    @overload
    def scan(self, accumulator: Callable[[T, T], T]) -> Flux[T]: ...
    @overload
    def scan(self, accumulator: Callable[[R, T], R], seed: R) -> Flux[R]: ...
    def scan(self, accumulator: Callable[[Any, T], Any], seed: Any = NOTHING) -> Flux[Any]:
        """Send the result so far for each element: a ``reduce`` that shows its work.

        Without a seed the first element is sent as it is, and what follows is
        ``accumulator(last result, element)``:

        >>> Flux.just(1, 2, 3, 4).scan(lambda total, x: total + x).collect_list().block()
        [1, 3, 6, 10]

        A seed is sent first, before any element arrives, so there is one result more than there are elements:

        >>> Flux.just(3, 4).scan(lambda text, n: text + "." * n, "|").collect_list().block()
        ['|', '|...', '|.......']

        Every subscriber starts from the same seed. If the function changes it in place, use
        :meth:`scan_with`, which makes a new one each time.

        Emits when there is demand (the seed), then when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``accumulator`` raises.

        Marble::

            a: 1-2-3-|
            a.scan(lambda total, x: total + x)
            >  1-3-6-|
        """
        function = a_function(accumulator, "scan()")
        if seed is NOTHING:
            return self._with(operator("scan", function))
        first = a_value(seed, "scan()")
        return self._with(
            operator("scan_from", function, lambda: first, label="scan", shows=(function, first))
        )

    def scan_with(self, seed: Callable[[], R], accumulator: Callable[[R, T], R]) -> Flux[R]:
        """Send the result so far, starting from ``seed()``, which is called for each subscriber.

        >>> def count(seen, word):
        ...     return {**seen, word: seen.get(word, 0) + 1}
        >>> Flux.just("a", "b", "a").scan_with(dict, count).last().block()
        {'a': 2, 'b': 1}

        The result of ``accumulator`` is sent on *and* kept. If subscribers keep what they receive, return a
        new object instead of changing the old one.

        Emits when there is demand (the seed), then when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: -1-2-|
            a.scan_with(list, lambda seen, x: [*seen, x])
            >  EA-B-|
            where E = [], A = [1], B = [1, 2]
        """
        make, add = a_function(seed, "scan_with()"), a_function(accumulator, "scan_with()")
        return self._with(operator("scan_from", add, make, label="scan_with", shows=(make, add)))

    def index(self) -> Flux[tuple[int, T]]:
        """Send each element with its number, counted from 0, like ``enumerate``.

        >>> Flux.just("a", "b").index().collect_list().block()
        [(0, 'a'), (1, 'b')]

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: x-y-|
            a.index()
            >  A-B-|
            where A = (0, "x"), B = (1, "y")
        """
        return self._with(operator("index"))

    def cast(self, type: type[R]) -> Flux[R]:
        """Promise that all elements are of this type, and end with a ``TypeError`` at the first that is not.

        The type checker believes the promise; the check at run time is ``isinstance``, and the element goes
        on as it is. To leave the others out use ``of_type``, to convert use :meth:`map`.

        >>> numbers: Flux[object] = Flux.just(1, 2)
        >>> numbers.cast(int).map(lambda x: x + 1).collect_list().block()
        [2, 3]

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or an element is of another type.

        Marble::

            a: 1-2-x-|
            a.cast(int)
            >  1-2-#
            where # = TypeError
        """
        return self._with(operator("cast", a_class(type, "cast")))


class MonoTransforms(Stream[T]):
    """Operators of a Mono that turn its element into another."""

    __slots__ = ()

    def map(self, mapper: Callable[[T], R]) -> Mono[R]:
        """Send ``mapper(element)`` in place of the element.

        >>> Mono.just(20).map(lambda x: x + 1).block()
        21

        An exception in ``mapper`` becomes the Mono's error. So does ``None`` as its result (§2.13): for a
        function that may find nothing use :meth:`map_not_none`.

        Emits when the element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            mono: --(2|)
            mono.map(lambda x: x * 3)
            >     --(6|)
        """
        return self._with(operator("map", a_function(mapper, "map()")))

    def map_not_none(self, mapper: Callable[[T], R | None]) -> Mono[R]:
        """Send ``mapper(element)`` in place of the element; where that is ``None`` the Mono is empty.

        >>> ages = {"Ann": 31}
        >>> Mono.just("Bob").map_not_none(ages.get).default_if_empty(0).block()
        0

        Emits when the element arrives and ``mapper`` gives something for it.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``mapper`` raises.

        Marble::

            mono: --(x|)
            mono.map_not_none({"x": 1}.get)
            >     --(1|)

            mono.map_not_none({"y": 1}.get)
            >     --|
        """
        return self._with(operator("map_not_none", a_function(mapper, "map_not_none()")))

    def flat_map_iterable(self, mapper: Callable[[T], Iterable[R]]) -> Flux[R]:
        """A Flux of the elements of the iterable ``mapper(element)``.

        The iterable is walked through only as far as there is demand.

        >>> Mono.just("to be or").flat_map_iterable(str.split).collect_list().block()
        ['to', 'be', 'or']

        Emits when the element has arrived and the iterable has another one.
        Backpressures when its subscriber does; the iterable waits where it is.
        Completes when the iterable is at its end, or the source completes without an element.
        Cancels when its subscriber cancels, or ``mapper`` or the iterable raises.

        Marble::

            mono: --(3|)
            mono.flat_map_iterable(range)
            >     --(012|)
        """
        return self._as_flux(
            operator("flat", a_function(mapper, "flat_map_iterable()"), label="flat_map_iterable")
        )

    def handle(self, handler: Callable[[T, HandleSink[R]], object]) -> Mono[R]:
        """Let ``handler(element, sink)`` decide what becomes of the element.

        Call ``sink.next(result)`` to send something on, or do nothing to complete empty. To fail, raise.

        >>> def half(x, sink):
        ...     if x % 2 == 0:
        ...         sink.next(x // 2)
        >>> Mono.just(10).handle(half).block()
        5

        Emits when ``handler`` calls ``sink.next``.
        Backpressures when its subscriber does.
        Completes when the source completes, or ``handler`` calls ``sink.complete``.
        Cancels when its subscriber cancels, ``handler`` calls ``sink.complete``, or raises.

        Marble::

            mono: --(2|)
            mono.handle(lambda x, sink: sink.next(x * 3))
            >     --(6|)
        """
        return self._with(operator("handle", a_function(handler, "handle()")))

    def cast(self, type: type[R]) -> Mono[R]:
        """Promise that the element is of this type, and end with a ``TypeError`` if it is not.

        The type checker believes the promise; the check at run time is ``isinstance``. To be empty instead
        use ``of_type``, to convert use :meth:`map`.

        >>> answer: Mono[object] = Mono.just("yes")
        >>> answer.cast(str).map(str.upper).block()
        'YES'

        Emits when the element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or the element is of another type.

        Marble::

            mono: --(x|)
            mono.cast(str)
            >     --(x|)

            mono.cast(int)
            >     --#
        """
        return self._with(operator("cast", a_class(type, "cast")))


class FluxLists(Stream[T]):
    """Operators of a Flux that gather neighbouring elements into lists."""

    __slots__ = ()

    def buffer(self, size: int, skip: int | None = None) -> Flux[list[T]]:
        """Send lists of ``size`` elements; the last one may be shorter.

        >>> Flux.range(1, 5).buffer(2).collect_list().block()
        [[1, 2], [3, 4], [5]]

        With ``skip`` a new list begins every ``skip`` elements. A smaller number than ``size`` makes them
        overlap, a larger one leaves elements out between them:

        >>> Flux.range(1, 4).buffer(2, skip=1).collect_list().block()
        [[1, 2], [2, 3], [3, 4], [4]]
        >>> Flux.range(1, 5).buffer(1, skip=2).collect_list().block()
        [[1], [3], [5]]

        Every list is new, so the subscriber may keep or change it.

        Emits when a list is full, and for what is left over when the source completes.
        Backpressures when its subscriber does; for each list that is asked for, ``size`` elements are.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.buffer(2)
            >  --A---(B|)
            where A = [1, 2], B = [3]
        """
        length = a_count(size, "buffer()")
        step = length if skip is None else a_count(skip, "buffer()")
        if step == length:
            return self._with(operator("buffer", length))
        return self._with(operator("buffer_sliding", length, step, label="buffer"))

    def buffer_until(self, predicate: Callable[[T], object], *, cut_before: bool = False) -> Flux[list[T]]:
        """Send lists that end with an element for which ``predicate(element)`` is true.

        >>> words = Flux.just("so", "far.", "and", "on.")
        >>> words.buffer_until(lambda word: word[-1] == ".").collect_list().block()
        [['so', 'far.'], ['and', 'on.']]

        With ``cut_before`` such an element begins the next list instead of ending this one:

        >>> lines = Flux.just("# one", "a", "# two", "b", "c")
        >>> lines.buffer_until(lambda line: line[0] == "#", cut_before=True).collect_list().block()
        [['# one', 'a'], ['# two', 'b', 'c']]

        No list is empty. Only the elements decide how long a list gets, so make sure that each one ends.

        Emits when an element ends a list (or begins the next), and what is left when the source completes.
        Backpressures when its subscriber does; elements are asked for one by one until a list ends.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-|
            a.buffer_until(lambda x: x % 2 == 0)
            >  --A---(B|)
            where A = [1, 2], B = [3]
        """
        function = a_function(predicate, "buffer_until()")
        if cut_before:
            shows = (function, True)
            return self._with(operator("buffer_until_before", function, label="buffer_until", shows=shows))
        return self._with(operator("buffer_until", function))

    def buffer_while(self, predicate: Callable[[T], object]) -> Flux[list[T]]:
        """Send lists of neighbouring elements for which ``predicate(element)`` is true; leave the others out.

        >>> Flux.just(1, 2, 0, 3, 0, 0, 4).buffer_while(lambda x: x > 0).collect_list().block()
        [[1, 2], [3], [4]]

        No list is empty. Only the elements decide how long a list gets, so make sure that each one ends.

        Emits when an element does not match, and for what is left over when the source completes.
        Backpressures when its subscriber does; elements are asked for one by one until a list ends.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-9-2-|
            a.buffer_while(lambda x: x < 5)
            >  --A---(B|)
            where A = [1], B = [2]
        """
        return self._with(operator("buffer_while", a_function(predicate, "buffer_while()")))
