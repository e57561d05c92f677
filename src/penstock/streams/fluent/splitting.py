"""Cut a stream into pieces that are lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.streams.arguments import a_count, a_function
from penstock.streams.segment import operator
from penstock.streams.stream import Stream, T

if TYPE_CHECKING:
    from penstock.streams.flux import Flux

__all__ = ["FluxSplitting"]


class FluxSplitting(Stream[T]):
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
        """
        length = a_count(size, "buffer")
        step = length if skip is None else a_count(skip, "buffer")
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

        No list is empty. How long one gets is up to the elements, so make sure that the end of a list comes.

        Emits when an element ends a list (or begins the next), and what is left when the source completes.
        Backpressures when its subscriber does; elements are asked for one by one until a list ends.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``predicate`` raises.
        """
        function = a_function(predicate, "buffer_until")
        if cut_before:
            shows = (function, True)
            return self._with(operator("buffer_until_before", function, label="buffer_until", shows=shows))
        return self._with(operator("buffer_until", function))

    def buffer_while(self, predicate: Callable[[T], object]) -> Flux[list[T]]:
        """Send lists of neighbouring elements for which ``predicate(element)`` is true; leave the others out.

        >>> Flux.just(1, 2, 0, 3, 0, 0, 4).buffer_while(lambda x: x > 0).collect_list().block()
        [[1, 2], [3], [4]]

        No list is empty. How long one gets is up to the elements, so make sure that the end of a list comes.

        Emits when an element does not match, and for what is left over when the source completes.
        Backpressures when its subscriber does; elements are asked for one by one until a list ends.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or ``predicate`` raises.
        """
        return self._with(operator("buffer_while", a_function(predicate, "buffer_while")))
