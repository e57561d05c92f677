"""Split a stream by what its elements are: by key, or by predicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import a_count, a_function, describe
from penstock.streams.api.boundaries import PREFETCH
from penstock.streams.api.flat_map import CONCURRENCY
from penstock.streams.operators.group_by import GroupBySource
from penstock.streams.operators.route import Junction, RouteSource
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux, GroupedFlux

__all__ = ["FluxGroups"]

K = TypeVar("K")


class FluxGroups(Stream[T]):
    """Operators of a Flux that make several streams of one, by what the elements are."""

    __slots__ = ()

    def group_by(
        self, key: Callable[[T], K], *, max_groups: int = CONCURRENCY, prefetch: int = PREFETCH
    ) -> Flux[GroupedFlux[K, T]]:
        """Send a stream of its own for each key; it has the elements for which ``key(element)`` is that key.

        >>> words = Flux.just("apple", "bear", "ant", "bee", "cat")
        >>> counts = words.group_by(lambda word: word[0]).flat_map(
        ...     lambda group: group.count().map(lambda n: (group.key, n))
        ... )
        >>> sorted(counts.collect_list().block())
        [('a', 2), ('b', 2), ('c', 1)]

        All groups are open until the source ends, so all of them must be read at the same time: give
        ``flat_map`` a ``concurrency`` of at least ``max_groups``. The defaults of both are the same. One key
        more than ``max_groups`` is the error TooManyGroups, which cancels the source.

        All groups together hold up to ``prefetch`` elements that were not taken yet, so a group that is not
        read stops the others. If the program has let go of such a group, its elements are left out, and if it
        still holds it, the log says which group the source waits for. A group that is cancelled makes room
        for another; the next element with its key opens a new one. When the stream of groups is cancelled,
        the groups that are open go on.

        Emits when an element has a new key; a group, when an element has its key.
        Backpressures when ``prefetch`` elements wait in all groups together.
        Completes when the source completes; so do all groups.
        Cancels when the stream of groups and all groups have been cancelled, or there are too many groups.

        Marble::

            a: 1-2-3-4-|
            a.group_by(lambda x: x % 2).flat_map(lambda g: g.map(lambda x: (g.key, x)))
            >  A-B-C-D-|
            where A = (1, 1), B = (0, 2), C = (1, 3), D = (0, 4)
        """
        return flux_of(
            GroupBySource(
                self,
                a_function(key, "group_by()"),
                a_count(max_groups, "group_by()"),
                a_count(prefetch, "group_by()"),
            )
        )

    def partition(
        self, predicate: Callable[[T], object], *, prefetch: int = PREFETCH
    ) -> tuple[Flux[T], Flux[T]]:
        """Make two streams: one of the elements for which ``predicate(element)`` is true, one of the others.

        >>> even, odd = Flux.range(6).partition(lambda x: x % 2 == 0)
        >>> Flux.merge(even.map(str), odd.map(lambda x: -x)).collect_list().block()
        ['0', '2', '4', -1, -3, -5]

        The source runs once for both, and the first subscriber starts it. Subscribe to both: the elements for
        the other one wait, and when ``prefetch`` wait, so does the source, and the log says so. If you
        need only one of the two, use ``filter``. The elements of a stream are left out once it was cancelled,
        or the program has let go of it.

        Emits when the source does: each element goes to one of the two.
        Backpressures when ``prefetch`` elements wait in both together.
        Completes when the source has completed and what waited was sent.
        Cancels when both are cancelled or let go of, or ``predicate`` raises.

        Marble::

            a: 1-2-3-4-|
            Flux.merge(*a.partition(lambda x: x % 2))
            >  1-2-3-4-|
        """
        test = a_function(predicate, "partition()")
        yes, no = _streams(
            self,
            "partition",
            ["the elements that match", "the elements that do not match"],
            lambda element: 0 if test(element) else 1,
            a_count(prefetch, "partition()"),
        )
        return yes, no

    def route(
        self, routes: Mapping[str, Callable[[T], object]], *, prefetch: int = PREFETCH
    ) -> dict[str, Flux[T]]:
        """Make a stream for each name; an element goes to the first one whose predicate holds.

        >>> def is_error(line):
        ...     return line.startswith("E")
        >>> routes = Flux.just("E disk", "I start", "E net").route({"errors": is_error, "rest": bool})
        >>> errors = routes["errors"].map(str.lower)
        >>> Flux.merge(errors, routes["rest"]).collect_list().block()
        ['e disk', 'e net', 'I start']

        Elements that no predicate wants are left out; let the last predicate take the rest if there should be
        none. The source runs once for all of them, and the first subscriber starts it. Subscribe to each: the
        elements for one without a subscriber wait, and when ``prefetch`` wait, so does the source, and the
        log says so. The elements of a stream are left out once it was cancelled, or the program has let go of
        it.

        Emits when the source does: each element goes to one of the streams, or to none.
        Backpressures when ``prefetch`` elements wait in all of them together.
        Completes when the source has completed and what waited was sent.
        Cancels when all of them are cancelled or let go of, or a predicate raises.

        Marble::

            a: 1-2-3-4-|
            a.route({"odd": lambda x: x % 2, "even": bool})["odd"]
            >  1---3---|
        """
        if not isinstance(routes, Mapping) or not routes:
            raise TypeError(f"route() needs a dict of names and predicates, not {describe(routes)}")
        tests = [a_function(test, f"route() for {name!r}") for name, test in routes.items()]

        def first_that_holds(element: Any) -> int | None:
            return next((number for number, test in enumerate(tests) if test(element)), None)

        names = list(routes)
        labels = [repr(name) for name in names]
        streams = _streams(self, "route", labels, first_that_holds, a_count(prefetch, "route()"))
        return dict(zip(names, streams, strict=True))


def _streams(
    upstream: Stream[Any], name: str, labels: list[str], choose: Callable[[Any], int | None], prefetch: int
) -> list[Flux[Any]]:
    junction = Junction(name + "()", upstream, [f"{label} of {name}()" for label in labels], choose, prefetch)
    return [flux_of(RouteSource(name, junction, number)) for number, label in enumerate(labels)]
