"""WindowEnd a stream into streams or lists, by number, time, weight or predicate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, overload

from penstock.arguments import a_count, a_function, a_number, seconds
from penstock.streams.api.boundaries import PREFETCH
from penstock.streams.fusion import operator
from penstock.streams.fusion.fragments import RunOfKey, WeightedBatch
from penstock.streams.operators.buffer_timeout import BufferTimeoutSource
from penstock.streams.operators.windows import WindowEnd, WindowSource, at_another_key, grid_of, span_of
from penstock.streams.schedulers import Scheduler, shared_timer
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux

__all__ = ["FluxWindows"]


class FluxWindows(Stream[T]):
    """Operators of a Flux that cut it into a row of streams, or of lists with a clock or a weight."""

    __slots__ = ()

    @overload
    def window(self, size: int, skip: int | None = None) -> Flux[Flux[T]]: ...
    @overload
    def window(
        self, *, every: float | timedelta, prefetch: int = PREFETCH, scheduler: Scheduler | None = None
    ) -> Flux[Flux[T]]: ...
    def window(
        self,
        size: int | None = None,
        skip: int | None = None,
        *,
        every: float | timedelta | None = None,
        prefetch: int = PREFETCH,
        scheduler: Scheduler | None = None,
    ) -> Flux[Flux[T]]:
        """Send streams of ``size`` elements each, or a stream for each span of ``every`` seconds.

        >>> totals = Flux.range(1, 5).window(2).concat_map(lambda window: window.reduce(lambda a, b: a + b))
        >>> totals.collect_list().block()
        [3, 7, 5]

        With ``skip`` a new window begins every ``skip`` elements. A smaller number than ``size`` makes them
        overlap, a larger one leaves elements out between them:

        >>> Flux.range(1, 4).window(2, skip=1).flat_map(lambda w: w.collect_list()).collect_list().block()
        [[1, 2], [2, 3], [3, 4], [4]]

        A window opens with its first element, so none is empty, and it can be read once. Spans are counted
        from the subscription. Use ``buffer`` for lists; a window is for what should be read while it comes.

        A window that nobody reads does not stop the source. One of ``size`` elements keeps them for a reader
        who comes later; one of ``every`` seconds keeps the first ``prefetch`` elements, and the source
        waits until its time is over. When the stream of windows is cancelled, the open window goes on.

        Emits when an element comes and no window is open.
        Backpressures when its subscriber does (for each window ``size`` elements are asked for), or, with
        ``every``, when ``prefetch`` elements of the open window wait.
        Completes when the source completes and all windows were sent; so do the open ones.
        Cancels when its subscriber has cancelled and the open window is at its end or cancelled.

        Marble::

            a: 1-2-3-4-5-|
            a.window(2).concat_map(lambda w: w.collect_list())
            >  --A---B---(C|)
            where A = [1, 2], B = [3, 4], C = [5]
            a.window(every=0.05).concat_map(lambda w: w.count())
            >  -----3----(2|)
            a.window(1, skip=3).concat_map(lambda w: w)
            >  1-----4---|
        """
        if (size is None) == (every is None):
            raise TypeError("window() needs either a size or every=seconds; for both use window_timeout()")
        if every is None:
            length = a_count(size, "window()")
            step = length if skip is None else a_count(skip, "window()")
            if step == length:
                return flux_of(WindowSource("window", self, length, prefetch=length, size=length))
            return flux_of(
                WindowSource("window", self, length, step, prefetch=length, size=length, skip=step)
            )
        if skip is not None:
            raise TypeError("window() with every=seconds has no skip; spans follow each other")
        period = seconds(every, "window()", positive=True)
        return flux_of(
            WindowSource(
                "window",
                self,
                period,
                prefetch=a_count(prefetch, "window()"),
                span=grid_of(period),
                scheduler=scheduler or shared_timer(),
            )
        )

    def window_timeout(
        self, size: int, duration: float | timedelta, scheduler: Scheduler | None = None
    ) -> Flux[Flux[T]]:
        """Send streams of at most ``size`` elements, each of which is open for at most ``duration`` seconds.

        >>> windows = Flux.range(5).window_timeout(2, 60).concat_map(lambda window: window.collect_list())
        >>> windows.collect_list().block()
        [[0, 1], [2, 3], [4]]

        A window opens with its first element, and the clock starts then. It can be read once; one that nobody
        reads does not stop the source.

        Emits when an element comes and no window is open.
        Backpressures when its subscriber does; for each window ``size`` elements are asked for.
        Completes when the source completes; so does the open window.
        Cancels when its subscriber has cancelled and the open window is at its end or cancelled.

        Marble::

            a: 12-3------4|
            a.window_timeout(2, 0.03).concat_map(lambda w: w.collect_list())
            >  -A----B----(C|)
            where A = [1, 2], B = [3], C = [4]
        """
        length = a_count(size, "window_timeout()")
        span = seconds(duration, "window_timeout()")
        return flux_of(
            WindowSource(
                "window_timeout",
                self,
                length,
                span,
                prefetch=length,
                size=length,
                span=span_of(span),
                scheduler=scheduler or shared_timer(),
            )
        )

    def window_until(
        self, predicate: Callable[[T], object], *, cut_before: bool = False, prefetch: int = PREFETCH
    ) -> Flux[Flux[T]]:
        """Send streams that end with an element for which ``predicate(element)`` is true.

        >>> words = Flux.just("so", "far.", "and", "on.")
        >>> sentences = words.window_until(lambda word: word[-1] == ".")
        >>> sentences.concat_map(lambda w: w.reduce(lambda a, b: a + " " + b)).collect_list().block()
        ['so far.', 'and on.']

        With ``cut_before`` such an element begins the next window instead of ending this one. A window can be
        read once. If the program lets go of one without reading it, its elements are left out; if it still
        holds it and ``prefetch`` elements wait, the source waits, and the log says so.

        Emits when an element comes and no window is open.
        Backpressures when its subscriber does, or ``prefetch`` elements of the open window wait.
        Completes when the source completes; so does the open window.
        Cancels when its subscriber has cancelled and the open window is at its end or cancelled.

        Marble::

            a: 1-2-3-4-|
            a.window_until(lambda x: x % 2 == 0).concat_map(lambda w: w.collect_list())
            >  --A---B-|
            where A = [1, 2], B = [3, 4]
        """
        test = a_function(predicate, "window_until()")
        cut = WindowEnd.BEFORE if cut_before else WindowEnd.AFTER
        return flux_of(
            WindowSource(
                "window_until",
                self,
                test,
                prefetch=a_count(prefetch, "window_until()"),
                judge=lambda: lambda element: cut if test(element) else WindowEnd.NOWHERE,
            )
        )

    def window_while(self, predicate: Callable[[T], object], *, prefetch: int = PREFETCH) -> Flux[Flux[T]]:
        """Send streams of neighbours for which ``predicate(element)`` is true; leave the others out.

        >>> runs = Flux.just(1, 2, 0, 3, 0, 0, 4).window_while(lambda x: x > 0)
        >>> runs.concat_map(lambda window: window.collect_list()).collect_list().block()
        [[1, 2], [3], [4]]

        A window can be read once. If the program lets go of one without reading it, its elements are left
        out; if it still holds it and ``prefetch`` elements wait, the source waits, and the log says so.

        Emits when an element matches and no window is open.
        Backpressures when its subscriber does, or ``prefetch`` elements of the open window wait.
        Completes when the source completes; so does the open window.
        Cancels when its subscriber has cancelled and the open window is at its end or cancelled.

        Marble::

            a: 1-2-0-3-|
            a.window_while(bool).concat_map(lambda w: w.collect_list())
            >  ----A---(B|)
            where A = [1, 2], B = [3]
        """
        test = a_function(predicate, "window_while()")
        return flux_of(
            WindowSource(
                "window_while",
                self,
                test,
                prefetch=a_count(prefetch, "window_while()"),
                judge=lambda: lambda element: WindowEnd.NOWHERE if test(element) else WindowEnd.INSTEAD,
            )
        )

    def window_until_changed(
        self, key: Callable[[T], object] | None = None, *, prefetch: int = PREFETCH
    ) -> Flux[Flux[T]]:
        """Send streams of neighbours that are equal, or for which ``key(element)`` is.

        >>> readings = Flux.just(("a", 1), ("a", 2), ("b", 3), ("a", 4))
        >>> runs = readings.window_until_changed(lambda reading: reading[0])
        >>> runs.concat_map(lambda window: window.count()).collect_list().block()
        [2, 1, 1]

        A key that comes back begins a new window; use ``group_by`` for one stream of each key. A window can
        be read once. If the program lets go of one without reading it, its elements are left out; if it
        still holds it and ``prefetch`` elements wait, the source waits, and the log says so.

        Emits when an element comes whose key is not that of the element before.
        Backpressures when its subscriber does, or ``prefetch`` elements of the open window wait.
        Completes when the source completes; so does the open window.
        Cancels when its subscriber has cancelled and the open window is at its end or cancelled.

        Marble::

            a: 1-1-2-|
            a.window_until_changed().concat_map(lambda w: w.collect_list())
            >  ----A-(B|)
            where A = [1, 1], B = [2]
        """
        key_of = None if key is None else a_function(key, "window_until_changed()")
        return flux_of(
            WindowSource(
                "window_until_changed",
                self,
                *([] if key_of is None else [key_of]),
                prefetch=a_count(prefetch, "window_until_changed()"),
                judge=lambda: at_another_key(key_of),
            )
        )

    def buffer_until_changed(self, key: Callable[[T], object] | None = None) -> Flux[list[T]]:
        """Send lists of neighbours that are equal, or for which ``key(element)`` is.

        >>> Flux.just(1, 3, 2, 4, 5).buffer_until_changed(lambda x: x % 2).collect_list().block()
        [[1, 3], [2, 4], [5]]

        A key that comes back begins a new list. Only the elements decide how long a list gets, so make sure
        that each one ends.

        Emits when an element has another key than the one before, and what is left at the end.
        Backpressures when its subscriber does; elements are asked for one by one until a list ends.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``key`` raises.

        Marble::

            a: 1-1-2-|
            a.buffer_until_changed()
            >  ----A-(B|)
            where A = [1, 1], B = [2]
        """
        key_of = None if key is None else a_function(key, "buffer_until_changed()")
        shows = () if key_of is None else (key_of,)
        return self._with(
            operator("regroup", lambda: RunOfKey(key_of), label="buffer_until_changed", shows=shows)
        )

    def buffer_timeout(
        self, size: int, duration: float | timedelta, scheduler: Scheduler | None = None
    ) -> Flux[list[T]]:
        """Send lists of ``size`` elements, or of fewer when ``duration`` seconds have passed.

        >>> Flux.range(5).buffer_timeout(2, 60).collect_list().block()
        [[0, 1], [2, 3], [4]]

        The clock of a list starts with its first element, and no list is empty. Without demand the elements
        wait, so there is never a list more than was asked for, and none is longer than ``size``: one that is
        late is sent with the next demand. If the source fails, what waits is sent before the error.

        Emits when ``size`` elements wait, or the first of them has waited for ``duration``.
        Backpressures when four lists' worth of elements wait.
        Completes when the source has completed and what was left over has been sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 12-3-----4|
            a.buffer_timeout(2, 0.03)
            >  -A----B---(C|)
            where A = [1, 2], B = [3], C = [4]
        """
        return flux_of(
            BufferTimeoutSource(
                self,
                a_count(size, "buffer_timeout()"),
                seconds(duration, "buffer_timeout()"),
                scheduler or shared_timer(),
            )
        )

    def batch_weighted(self, max_weight: float, weight: Callable[[T], float]) -> Flux[list[T]]:
        """Send lists whose elements weigh ``max_weight`` at most together, as ``weight(element)`` tells.

        >>> lines = Flux.just("one", "three", "no", "seventeen", "x")
        >>> lines.batch_weighted(8, len).collect_list().block()
        [['one', 'three'], ['no'], ['seventeen'], ['x']]

        With ``len`` it bounds the bytes of a list. An element that alone weighs more is a list of its own. A
        list is sent as soon as it has the full weight, or the next element would make it too heavy.

        Emits when a list is full, and for what is left over when the source completes.
        Backpressures when its subscriber does; elements are asked for one by one until a list is full.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``weight`` raises or is negative.

        Marble::

            a: 1-2-3-4-|
            a.batch_weighted(3, lambda x: x)
            >  --A-B-C-|
            where A = [1, 2], B = [3], C = [4]
        """
        most = a_number(max_weight, "batch_weighted()", above=0)
        scales = a_function(weight, "batch_weighted()")
        return self._with(
            operator(
                "regroup",
                lambda: WeightedBatch(most, scales),
                label="batch_weighted",
                shows=(max_weight, scales),
            )
        )
