"""Gather elements into one value, into a collection, or into order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from penstock.arguments import a_function, a_value
from penstock.streams.fusion import operator
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.stream import Stream, T

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single

__all__ = ["Comparable", "FluxCollection", "MonoCollection"]

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Comparable(Protocol):
    """What can be put in order: it has ``<``."""

    def __lt__(self, other: Any, /) -> bool: ...


def _dict_entry(key: Callable[[Any], Any], value: Callable[[Any], Any] | None) -> Callable[[Any, Any], None]:
    def put(collected: dict[Any, Any], element: Any) -> None:
        collected[key(element)] = element if value is None else value(element)

    return put


def _list_entry(key: Callable[[Any], Any], value: Callable[[Any], Any] | None) -> Callable[[Any, Any], None]:
    def put(collected: dict[Any, list[Any]], element: Any) -> None:
        collected.setdefault(key(element), []).append(element if value is None else value(element))

    return put


class FluxCollection(Stream[T]):
    """Operators of a Flux that gather its elements.

    Most of them send their result when the source completes, so the source must not be endless. As soon as
    there is demand for the result, they ask the source for everything.
    """

    __slots__ = ()

    @overload
    def reduce(self, accumulator: Callable[[T, T], T]) -> Mono[T]: ...
    @overload
    def reduce(self, accumulator: Callable[[R, T], R], initial: R) -> Single[R]: ...
    def reduce(self, accumulator: Callable[[Any, T], Any], initial: Any = NOTHING) -> Mono[Any]:
        """Combine all elements into one: ``accumulator(result so far, element)``.

        Without an initial value the first element is the first result, and an empty stream gives an empty
        Mono:

        >>> Flux.range(1, 4).reduce(lambda total, x: total + x).block()
        10

        With one, an empty stream gives the initial value:

        >>> Flux.just("a", "bb").reduce(lambda length, word: length + len(word), 0).block()
        3

        Every subscriber starts from the same initial value. If the function changes it in place, use
        :meth:`reduce_with` or :meth:`collect`, which make a new one each time.

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the result; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or ``accumulator`` raises.

        Marble::

            a: 1-2-3-|
            a.reduce(lambda total, x: total + x)
            >  ------(6|)
        """
        function = a_function(accumulator, "reduce()")
        if initial is NOTHING:
            return self._as_mono(operator("reduce", function))
        first = a_value(initial, "reduce()")
        return self._as_mono(
            operator("reduce_from", function, lambda: first, label="reduce", shows=(function, first))
        )

    def reduce_with(self, initial: Callable[[], R], accumulator: Callable[[R, T], R]) -> Single[R]:
        """Combine all elements into one, starting from ``initial()``, which is called for each subscriber.

        >>> from collections import Counter
        >>> Flux.just("a", "b", "a").reduce_with(Counter, lambda seen, x: seen + Counter([x])).block()
        Counter({'a': 2, 'b': 1})

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the result; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: 1-2-3-|
            a.reduce_with(lambda: 3, lambda total, x: total + x)
            >  ------(9|)
        """
        make, add = a_function(initial, "reduce_with()"), a_function(accumulator, "reduce_with()")
        return self._as_mono(operator("reduce_from", add, make, label="reduce_with", shows=(make, add)))

    def collect(self, factory: Callable[[], R], add: Callable[[R, T], object]) -> Single[R]:
        """Put all elements into a container: ``factory()`` makes one for each subscriber, ``add`` fills it.

        What ``add`` returns is ignored, so a method of the container will do:

        >>> from collections import deque
        >>> Flux.range(1, 5).collect(lambda: deque(maxlen=2), deque.append).block()
        deque([4, 5], maxlen=2)

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the result; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: 1-2-|
            a.collect(list, list.append)
            >  ----(A|)
            where A = [1, 2]
        """
        return self._as_mono(
            operator("collect", a_function(factory, "collect()"), a_function(add, "collect()"))
        )

    def collect_list(self) -> Single[list[T]]:
        """All elements in a list; an empty stream gives an empty list.

        >>> Flux.just(3, 1, 3).collect_list().block()
        [3, 1, 3]

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the list; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.collect_list()
            >  ----(A|)
            where A = [1, 2]
        """
        return self._as_mono(operator("collect_list"))

    def collect_set(self) -> Single[set[T]]:
        """All different elements in a set; they must be hashable.

        >>> sorted(Flux.just(3, 1, 3).collect_set().block())
        [1, 3]

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the set; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or an element is not hashable.

        Marble::

            a: 1-2-1-|
            a.collect_set()
            >  ------(A|)
            where A = {1, 2}
        """
        return self._as_mono(operator("collect", set, set.add, label="collect_set", shows=()))

    @overload
    def collect_dict(self, key: Callable[[T], K]) -> Single[dict[K, T]]: ...
    @overload
    def collect_dict(self, key: Callable[[T], K], value: Callable[[T], V]) -> Single[dict[K, V]]: ...
    def collect_dict(
        self, key: Callable[[T], Any], value: Callable[[T], Any] | None = None
    ) -> Single[dict[Any, Any]]:
        """A dict from ``key(element)`` to ``value(element)``, or to the element itself.

        >>> Flux.just("ant", "bee").collect_dict(lambda word: word[0], str.upper).block()
        {'a': 'ANT', 'b': 'BEE'}

        Where several elements have the same key, the last one stays. To keep all of them use
        :meth:`collect_multimap`.

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the dict; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: 1-2-3-|
            a.collect_dict(lambda x: x % 2)
            >  ------(A|)
            where A = {1: 3, 0: 2}
        """
        return self._as_mono(_keyed("collect_dict", _dict_entry, key, value))

    @overload
    def collect_multimap(self, key: Callable[[T], K]) -> Single[dict[K, list[T]]]: ...
    @overload
    def collect_multimap(
        self, key: Callable[[T], K], value: Callable[[T], V]
    ) -> Single[dict[K, list[V]]]: ...
    def collect_multimap(
        self, key: Callable[[T], Any], value: Callable[[T], Any] | None = None
    ) -> Single[dict[Any, list[Any]]]:
        """A dict from each ``key(element)`` to the list of all elements (or values) that have it.

        >>> Flux.just("ant", "bee", "ape").collect_multimap(lambda word: word[0]).block()
        {'a': ['ant', 'ape'], 'b': ['bee']}

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the dict; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels, or a function raises.

        Marble::

            a: 1-2-3-|
            a.collect_multimap(lambda x: x % 2)
            >  ------(A|)
            where A = {1: [1, 3], 0: [2]}
        """
        return self._as_mono(_keyed("collect_multimap", _list_entry, key, value))

    def count(self) -> Single[int]:
        """How many elements there were.

        >>> Flux.just("a", "b").count().block()
        2

        Emits when the source has completed.
        Backpressures when its subscriber has not asked for the number; then it asks for all there is.
        Completes when the source has completed.
        Cancels when its subscriber cancels.

        Marble::

            a: x-y-z-|
            a.count()
            >  ------(3|)
        """
        return self._as_mono(operator("count"))

    def any(self, predicate: Callable[[T], object]) -> Single[bool]:
        """Whether ``predicate(element)`` is true for any element; decided at the first for which it is.

        >>> Flux.range(1, 1_000_000).any(lambda x: x == 3).block()
        True

        Emits when an element matches, or else (``False``) when the source has completed.
        Backpressures when its subscriber has not asked for the answer; then it asks for all there is.
        Completes when it has answered.
        Cancels when an element matches, its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-|
            a.any(lambda x: x == 2)
            >  --(T|)
            where T = True
        """
        return self._as_mono(operator("any", a_function(predicate, "any()")))

    def all(self, predicate: Callable[[T], object]) -> Single[bool]:
        """Whether ``predicate(element)`` is true for all elements; decided at the first for which it is not.

        >>> Flux.just(2, 4, 5, 6).all(lambda x: x % 2 == 0).block()
        False

        Emits when an element does not match, or else (``True``) when the source has completed.
        Backpressures when its subscriber has not asked for the answer; then it asks for all there is.
        Completes when it has answered.
        Cancels when an element does not match, its subscriber cancels, or ``predicate`` raises.

        Marble::

            a: 1-2-3-|
            a.all(lambda x: x < 2)
            >  --(F|)
            where F = False
        """
        return self._as_mono(operator("all", a_function(predicate, "all()")))

    def has_element(self, value: object) -> Single[bool]:
        """Whether an element equals ``value``; decided at the first that does.

        >>> Flux.just("a", "b").has_element("b").block()
        True

        Emits when such an element arrives, or else (``False``) when the source has completed.
        Backpressures when its subscriber has not asked for the answer; then it asks for all there is.
        Completes when it has answered.
        Cancels when such an element arrives, or its subscriber cancels.

        Marble::

            a: 1-2-3-|
            a.has_element(2)
            >  --(T|)
            where T = True
        """
        wanted = a_value(value, "has_element()")
        return self._as_mono(operator("any", partial(eq, wanted), label="has_element", shows=(wanted,)))

    def has_elements(self) -> Single[bool]:
        """Whether there is any element at all; decided at the first.

        >>> Flux.range(1, 1_000_000).has_elements().block()
        True

        Emits when an element arrives, or else (``False``) when the source has completed.
        Backpressures when its subscriber does; one element is asked for.
        Completes when it has answered.
        Cancels when an element arrives, or its subscriber cancels.

        Marble::

            a: --1-2-|
            a.has_elements()
            >  --(T|)
            where T = True
        """
        return self._as_mono(operator("has_elements"))

    def sort(self, key: Callable[[T], Comparable] | None = None, *, reverse: bool = False) -> Flux[T]:
        """Send all elements in order, like ``sorted``: by ``key(element)``, equal ones as they came.

        >>> Flux.just("pear", "fig", "apple").sort().collect_list().block()
        ['apple', 'fig', 'pear']
        >>> Flux.just("pear", "fig", "apple").sort(len, reverse=True).collect_list().block()
        ['apple', 'pear', 'fig']

        All elements are kept in memory, and nothing is sent before the last one has come.

        Emits when the source has completed.
        Backpressures when its subscriber does, after the end; before, it asks for all there is.
        Completes when the source has completed and the last element has passed.
        Cancels when its subscriber cancels, or elements cannot be compared.

        Marble::

            a: 3-1-2-|
            a.sort()
            >  ------(123|)
        """
        function = None if key is None else a_function(key, "sort()")
        shows = (key, True) if reverse else () if key is None else (key,)
        return self._with(operator("sort", function, reverse, shows=shows))

    def default_if_empty(self, value: R) -> Flux[T | R]:
        """Send ``value`` if the source completes without an element.

        >>> Flux.empty().default_if_empty("nobody").collect_list().block()
        ['nobody']

        For another stream as a substitute use ``switch_if_empty``.

        Emits when an element arrives, or the source completes without one.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: --|
            a.default_if_empty(9)
            >  --(9|)
        """
        return self._with(operator("default_if_empty", a_value(value, "default_if_empty()")))


def _keyed(name: str, entry: Callable[..., Any], key: Any, value: Any) -> Any:
    """An operator that collects into a dict."""
    shows = (key,) if value is None else (key, value)
    for function in shows:
        a_function(function, f"{name}()")
    return operator("collect", dict, entry(key, value), label=name, shows=shows)


class MonoCollection(Stream[T]):
    """Operators of a Mono that ask whether it is empty, or replace an empty one."""

    __slots__ = ()

    def default_if_empty(self, value: R) -> Single[T | R]:
        """Send ``value`` if the source completes without an element.

        >>> Mono.empty().default_if_empty("nobody").block()
        'nobody'

        For another Mono as a substitute use ``switch_if_empty``.

        Emits when the element arrives, or the source completes without one.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --|
            mono.default_if_empty(9)
            >     --(9|)
        """
        return self._with(operator("default_if_empty", a_value(value, "default_if_empty()")))

    def has_element(self) -> Single[bool]:
        """Whether there is an element.

        >>> Mono.empty().has_element().block()
        False

        Emits when the element arrives, or else (``False``) when the source has completed.
        Backpressures when its subscriber does.
        Completes when it has answered.
        Cancels when the element arrives, or its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.has_element()
            >     --(T|)
            where T = True
        """
        return self._with(operator("has_elements", label="has_element"))
