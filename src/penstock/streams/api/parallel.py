"""Work for several processors: rails on threads, or a function on several processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import a_count, a_flag, a_function, describe
from penstock.streams.operators.map_parallel import MapParallelSource
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from penstock.streams.flux import Flux
    from penstock.streams.parallel_flux import ParallelFlux

__all__ = ["FluxParallel"]

R = TypeVar("R")


def a_pool(pool: Any) -> Any:
    """An executor or None, or a TypeError that names one."""
    if pool is not None and not callable(getattr(pool, "submit", None)):
        raise TypeError(f"map_parallel() needs a ProcessPoolExecutor for pool, not {describe(pool)}")
    return pool


class FluxParallel(Stream[T]):
    """Operators of a Flux that use several processors."""

    __slots__ = ()

    def parallel(self, rails: int | None = None) -> ParallelFlux[T]:
        """Deal the elements out to ``rails`` that work side by side; by default one for each processor.

        ``run_on(scheduler)`` gives each rail a worker, the operators after it are put below every rail, and
        ``sequential()`` makes one stream of them again:

        >>> from penstock.streams import schedulers
        >>> with schedulers.pool(2) as pool:
        ...     sizes = Flux.just("a", "bb", "ccc").parallel(2).run_on(pool).map(len).sequential()
        ...     sorted(sizes.collect_list().block())
        [1, 2, 3]

        Rails are for chains whose functions block, or leave Python's interpreter lock alone while they
        compute, as compression, hashing and NumPy do. For Python code that computes use ``map_parallel``,
        which has processes. ``flat_map(function, concurrency=n)`` opens a stream for each element; rails
        open one for each worker, so a small element costs less, and a worker can keep something, such as
        a partial sum.

        Emits when the source does: each element goes to the next rail that has demand.
        Backpressures when all rails do; it keeps nothing, and asks for what the rails ask for together.
        Completes when the source completes; so does each rail, after what waits on it.
        Cancels when all rails are cancelled, or one fails.

        Marble::

            a: 1-2-3-4-|
            a.parallel(2).map(lambda x: x + 1).sequential()
            >  2-3-4-5-|
            a.parallel(2).reduce(lambda x, y: x if x > y else y)
            >  --------(4|)
        """
        from penstock.streams.parallel_flux import ParallelFlux

        return ParallelFlux(self._as_flux(), (os.cpu_count() or 1) if rails is None else rails)

    def map_parallel(
        self,
        function: Callable[[T], R],
        workers: int | None = None,
        *,
        ordered: bool = True,
        pool: Executor | None = None,
    ) -> Flux[R]:
        """Call ``function(element)`` on ``workers`` processes; by default one for each processor.

        For functions that compute: in one process Python runs one of them at a time. A call costs some 100 µs
        for the way there and back, so give it elements that are worth it, for example lists (``buffer``).
        With ``ordered=False`` results come as they are ready.

        >>> Flux.just(-2, 3, -4).map_parallel(abs, workers=1).collect_list().block()
        [2, 3, 4]

        The function, the elements and the results are pickled. So the function is defined at the top of a
        module, and the program's main module can be imported (``if __name__ == "__main__":`` round what it
        does). What cannot be pickled is named in the error, and an exception of the function has the
        traceback of its process as a note. If a process dies, the stream fails with WorkerDied, and the
        elements that were under way are reported as dropped.

        Every subscriber has its own processes, which start with the first element and end with it; after a
        cancel they finish the calls that have begun. To start them once for several streams, pass a
        ``pool``, such as ``concurrent.futures.ProcessPoolExecutor``, which stays open; ``workers`` then says
        how many of its processes to keep busy.

        Emits when a result has come back (the oldest, if ordered) and there is demand.
        Backpressures when twice as many elements as there are processes are in the works.
        Completes when the source has completed and all results have been sent.
        Cancels when its subscriber cancels, ``function`` raises, or a process dies.
        """
        return flux_of(
            MapParallelSource(
                self,
                a_function(function, "map_parallel()"),
                (os.cpu_count() or 1) if workers is None else a_count(workers, "map_parallel()"),
                a_flag(ordered, "map_parallel()"),
                a_pool(pool),
            )
        )
