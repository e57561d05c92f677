"""A Flux on several rails: each has a share of the elements, and a scheduler to run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from penstock.arguments import a_count, a_function, describe
from penstock.streams.api.boundaries import PREFETCH, a_scheduler
from penstock.streams.api.collection import Comparable
from penstock.streams.api.flat_map import CONCURRENCY, INNER_PREFETCH
from penstock.streams.explain import explain
from penstock.streams.flux import Flux
from penstock.streams.fusion.fragments import HandleSink
from penstock.streams.mono import Mono
from penstock.streams.operators.rails import GatherSource, ParallelSource
from penstock.streams.schedulers import Scheduler
from penstock.streams.stream import Stream, Streamable, T, flux_of

__all__ = ["ParallelFlux"]

R = TypeVar("R")
S = TypeVar("S")

Step = Callable[[Stream[Any]], Stream[Any]]
"""Puts operators below one rail."""


class ParallelFlux(Generic[T]):
    """Rails side by side, each with a share of the elements. Made by :meth:`Flux.parallel`.

    Each element goes to one rail: the next in turn that has demand. The operators are put below every rail,
    and each rail compiles them into a chain of its own, which runs on a worker of the scheduler that
    :meth:`run_on` names. :meth:`sequential` or :meth:`ordered` makes a Flux of the rails again, and nothing
    happens before somebody subscribes to that.

    >>> from penstock.streams import schedulers
    >>> with schedulers.pool(4) as pool:
    ...     squares = Flux.range(1, 5).parallel(4).run_on(pool).map(lambda x: x * x).sequential()
    ...     sorted(squares.collect_list().block())
    [1, 4, 9, 16, 25]

    A rail that is slow is left out until it has room again: up to ``prefetch`` elements wait on it, and the
    others go on. If a rail fails, all rails and the source are cancelled. If the source fails, the rails
    first send on what they have. A function that is called on a rail may be called on others at the same
    time.
    """

    __slots__ = ("_parallel", "_rail", "_steps")
    _parallel: ParallelSource
    _rail: Stream[T]
    """Stands for any of the rails."""
    _steps: tuple[Step, ...]

    def __init__(self, flux: Flux[T], rails: int) -> None:
        """Split ``flux`` as :meth:`Flux.parallel` does."""
        self._parallel = ParallelSource(flux, a_count(rails, "parallel()"))
        self._rail = flux_of(self._parallel)
        self._steps = ()

    @property
    def rails(self) -> int:
        """How many rails there are."""
        return self._parallel.rails

    def run_on(self, scheduler: Scheduler, prefetch: int = PREFETCH) -> ParallelFlux[T]:
        """Run each rail, from here on, on a worker of ``scheduler``; up to ``prefetch`` elements wait on it.

        A rail runs on one thread at a time, so its elements stay in order. Without ``run_on`` the rails run
        where the source does, one after the other. If an element takes long, a small ``prefetch`` keeps
        elements from waiting on a busy rail while another has nothing to do.
        """
        where, most = a_scheduler(scheduler, "run_on"), a_count(prefetch, "run_on()")
        return self._then(lambda rail: rail.publish_on(where, prefetch=most))

    def transform_rails(self, function: Callable[[Flux[T]], Stream[R]]) -> ParallelFlux[R]:
        """Put any chain of operators below each rail, which ``function`` gets as a Flux.

        >>> pairs = Flux.range(4).parallel(2).transform_rails(lambda rail: rail.buffer(2))
        >>> sorted(pairs.sequential().collect_list().block())
        [[0, 2], [1, 3]]

        The function is called once now, to see what it makes, and once for each rail of a subscriber. So what
        it makes besides, such as a buffer or a counter, belongs to one rail.
        """
        build = a_function(function, "transform_rails()")

        def checked(rail: Flux[Any]) -> Stream[Any]:
            made = build(rail)
            if not isinstance(made, Stream):
                raise TypeError(
                    f"the function of transform_rails() must return a Flux or a Mono, not {describe(made)}"
                )
            return made

        return self._then(checked, anew=True)

    # ---------------------------------------------------------------- what each rail does
    def map(self, mapper: Callable[[T], R]) -> ParallelFlux[R]:
        """Replace each element with ``mapper(element)``, as :meth:`Flux.map` does."""
        return self._then(lambda rail: rail.map(mapper))

    def filter(self, predicate: Callable[[T], object]) -> ParallelFlux[T]:
        """Let through the elements for which ``predicate(element)`` is true."""
        return self._then(lambda rail: rail.filter(predicate))

    def handle(self, handler: Callable[[T, HandleSink[R]], object]) -> ParallelFlux[R]:
        """Change elements, leave them out or end the rail, as :meth:`Flux.handle` does."""
        return self._then(lambda rail: rail.handle(handler))

    def do_on_next(self, action: Callable[[T], object]) -> ParallelFlux[T]:
        """Call ``action(element)`` for each element."""
        return self._then(lambda rail: rail.do_on_next(action))

    def flat_map(
        self,
        mapper: Callable[[T], Streamable[R]],
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = INNER_PREFETCH,
    ) -> ParallelFlux[R]:
        """Merge the streams that ``mapper`` makes of the elements, ``concurrency`` at once on each rail."""
        return self._then(lambda rail: rail.flat_map(mapper, concurrency=concurrency, prefetch=prefetch))

    def concat_map(self, mapper: Callable[[T], Streamable[R]]) -> ParallelFlux[R]:
        """Send the streams that ``mapper`` makes of the elements, on each rail one after the other."""
        return self._then(lambda rail: rail.concat_map(mapper))

    def flat_map_iterable(self, mapper: Callable[[T], Iterable[R]]) -> ParallelFlux[R]:
        """Send the elements of the iterables that ``mapper`` makes of the elements."""
        return self._then(lambda rail: rail.flat_map_iterable(mapper))

    def reduce_with(self, initial: Callable[[], R], accumulator: Callable[[R, T], R]) -> ParallelFlux[R]:
        """Combine the elements of each rail into one, starting from ``initial()``.

        >>> counts = Flux.range(10).parallel(3).reduce_with(int, lambda n, _: n + 1)
        >>> sorted(counts.sequential().collect_list().block())
        [3, 3, 4]

        A rail without elements sends what ``initial()`` gave.
        """
        return self._then(lambda rail: rail.reduce_with(initial, accumulator))

    # ---------------------------------------------------------------- one stream again
    def sequential(self, prefetch: int = INNER_PREFETCH) -> Flux[T]:
        """Join the rails: their elements come as they are ready, so their order is lost.

        >>> Flux.range(4).parallel(2).map(str).sequential().collect_list().block()
        ['0', '1', '2', '3']

        Emits when any rail has an element.
        Backpressures when its subscriber does; up to ``prefetch`` elements of each rail wait here.
        Completes when all rails have completed.
        Cancels when its subscriber cancels, or a rail fails: all rails and the source are cancelled.
        """
        return self._gathered("sequential", a_count(prefetch, "sequential()"))

    def ordered(
        self, key: Callable[[T], Comparable] | None = None, prefetch: int = INNER_PREFETCH
    ) -> Flux[T]:
        """Join the rails into a sorted stream; the elements of each rail must be sorted already.

        Elements are compared by ``key(element)``, or by themselves. Where the source is not sorted by
        anything, number its elements to keep their order:

        >>> words = Flux.just("one", "two", "three").index()
        >>> shouted = words.parallel(2).map(lambda pair: (pair[0], pair[1].upper()))
        >>> shouted.ordered(lambda pair: pair[0]).map(lambda pair: pair[1]).collect_list().block()
        ['ONE', 'TWO', 'THREE']

        A rail without an element holds up all the others, because its next one may be the smallest.

        Emits when each rail that has not ended has an element.
        Backpressures when its subscriber does; up to ``prefetch`` elements of each rail wait here.
        Completes when all rails have completed.
        Cancels when its subscriber cancels, a rail fails, or ``key`` raises.
        """
        by = None if key is None else a_function(key, "ordered()")
        return self._gathered("ordered", a_count(prefetch, "ordered()"), key=by, in_order=True)

    def reduce(self, accumulator: Callable[[T, T], T]) -> Mono[T]:
        """Combine all elements into one: those of each rail, and then the results of the rails.

        >>> Flux.range(1, 4).parallel(2).reduce(lambda a, b: a + b).block()
        10

        The elements are not combined in their order, so it must not matter: sums will do, strings will not.

        Emits when the source has completed, and all rails are done.
        Backpressures when its subscriber has not asked for the result; then it asks for all there is.
        Completes when all rails have completed.
        Cancels when its subscriber cancels, or ``accumulator`` raises.
        """
        return self._then(lambda rail: rail.reduce(accumulator)).sequential().reduce(accumulator)

    def explain(self) -> str:
        """Draw one rail, as :meth:`Flux.explain` draws a stream."""
        return explain(self._rail)

    def __repr__(self) -> str:
        labels = [op.label for op in self._rail._ops]
        return f"<ParallelFlux {' '.join([self._rail._source.label, *labels])}>"

    # ---------------------------------------------------------------- how rails are built
    def _then(self, step: Callable[[Flux[T]], Stream[R]], *, anew: bool = False) -> ParallelFlux[R]:
        """Put more operators below each rail; wrong arguments are refused here, and not by a subscriber.

        ``anew`` calls the step for each rail, whatever it makes.
        """
        before: Stream[Any] = self._rail
        after = step(before._as_flux())
        longer: ParallelFlux[R] = ParallelFlux.__new__(ParallelFlux)
        longer._parallel = self._parallel
        longer._rail = after
        shared = None if anew else _shared(before, after)
        longer._steps = (*self._steps, shared or _placed(step, after))
        return longer

    def _gathered(self, label: str, prefetch: int, **how: Any) -> Flux[T]:
        steps = self._steps

        def chain(rail: Stream[Any]) -> Stream[Any]:
            for step in steps:
                rail = step(rail)
            return rail

        shows = [how["key"]] if how.get("key") else []
        return flux_of(GatherSource(label, self._parallel, chain, self._rail, prefetch, *shows, **how))


def _shared(before: Stream[Any], after: Stream[Any]) -> Step | None:
    """The step of a synchronous operator, which all rails can share; None if it has a stage of its own."""
    if after._source is not before._source:
        return None
    ops = after._ops[len(before._ops) :]
    return lambda rail: rail._as_flux(*ops)


def _placed(step: Callable[[Flux[Any]], Stream[Any]], after: Stream[Any]) -> Step:
    """A step that makes a stage for each rail, and remembers the line that it was written in."""
    place = after._source.place

    def call(rail: Stream[Any]) -> Stream[Any]:
        made = step(rail._as_flux())
        made._source.place = place
        return made

    return call
