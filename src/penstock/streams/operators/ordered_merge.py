"""``merge_priority`` and ``merge_ordered``: which of the waiting elements goes first.

Both subscribe to all sources at once and keep a bounded queue of each. ``merge_priority`` sends the best of
what waits now. ``merge_ordered`` waits until every source that still runs has an element, so that sorted
sources make one sorted stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.flat_map import Inner
from penstock.streams.operators.side_by_side import SideBySide, SideBySideSource

__all__ = ["InOrder", "MergeOrderedSource", "MergePrioritySource"]


class _Merge(SideBySide):
    """Compares nothing before all sources are subscribed to: the first would always win otherwise."""

    __slots__ = ("_begun", "_over")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun = False
        self._over = 0
        """So many sources, from the first on, are known to have ended and to have nothing left."""

    def begin(self) -> None:
        self._begun = True
        self.wake()

    def finished(self) -> bool:
        if not self._begun:
            return False
        while self._over < len(self.inners):
            inner = self.inners[self._over]
            # Whether it is done comes first: its last element is in the queue before that.
            if not inner.done or inner.queue:
                return False
            self._over += 1
        return True


class _Ranked(Inner):
    """A stream of ``merge_priority``. It says that it has something, so that nobody asks them all."""

    __slots__ = ("is_in_heap", "number")
    _stage: _ByPriority

    def __init__(self, stage: _ByPriority, prefetch: int, number: int) -> None:
        super().__init__(stage, prefetch)
        self.number = number
        self.is_in_heap = False
        """Whether its next element is in the heap. Only the owner of the stage sets this."""

    def on_next(self, element: Any, /) -> None:
        stage = self._stage
        if stage.flowing and self._ahead is None and stage.is_first(self) and stage.push(element):
            self.took_one()
            return
        self.queue.append(element)
        if not self.is_in_heap:  # in this order: the owner says that it is not, and then looks into the queue
            stage.arrived.append(self)
        if stage.flowing:
            stage.flow()
        else:
            stage.wake()
        if self._ahead is not None:
            self._ahead.came(element)


class _ByPriority(_Merge):
    """The first source that has an element or, with a key, the one whose element has the smallest."""

    __slots__ = ("_heads", "arrived")
    inners: Sequence[_Ranked]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._heads: list[Any] = []
        """A heap of the sources that have an element: numbers or, with a key, keys and numbers."""
        self.arrived: deque[_Ranked] = deque()
        """Sources that have an element and may not be in the heap yet."""

    def expect(self, streams: int, prefetch: int) -> None:
        self.inners = [_Ranked(self, prefetch, number) for number in range(streams)]

    def is_first(self, inner: Inner) -> bool:
        """If nothing waits, there is nothing to compare."""
        return self._function is None and self._begun and not self._heads and not self.arrived

    def poll(self) -> Any:
        if not self._begun or self.halted:
            return PENDING
        while self.arrived:
            inner = self.arrived.popleft()
            if inner.queue and not inner.is_in_heap:
                self._show(inner)
        if not self._heads:
            return PENDING
        head = heappop(self._heads)
        inner = self.inners[head if self._function is None else head[1]]
        element = inner.take()
        inner.is_in_heap = False
        if inner.queue:
            self._show(inner)
        return element

    def _show(self, inner: _Ranked) -> None:
        """Put the next element of a source into the heap."""
        inner.is_in_heap = True
        number, key = inner.number, self._function
        heappush(self._heads, number if key is None else (key(inner.queue[0]), number))


class InOrder(_Merge):
    """The smallest element of all sources, as soon as each of them has shown its next one."""

    __slots__ = ("_heads", "_unknown")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._heads: list[tuple[Any, int]] = []
        """A heap of the next elements: key and number of the source, which decides between equals."""
        self._unknown: list[int] | None = None
        """The sources that are not in the heap and may still send something."""

    def poll(self) -> Any:
        if not self._begun or self.halted:
            return PENDING
        unknown = self._unknown
        if unknown is None:
            unknown = self._unknown = list(range(len(self.inners)))
        while unknown:  # one that is not known yet holds up all the others
            if not self._show(unknown[-1]):
                return PENDING
            unknown.pop()
        if not self._heads:
            return PENDING
        _, number = heappop(self._heads)
        unknown.append(number)
        return self.inners[number].take()

    def _show(self, number: int) -> bool:
        """Put the next element of a source into the heap; False if it is not known yet."""
        inner = self.inners[number]
        if not inner.queue:
            if not inner.done:
                return False
            if not inner.queue:  # otherwise an element and the end came between the two looks
                return True
        head = inner.queue[0]
        heappush(self._heads, (head if self._function is None else self._function(head), number))
        return True


class _MergeSource(SideBySideSource):
    """Several streams with a queue each."""

    def queue(self) -> str:
        return f"{len(self._streams)}×{self.boundary}"


class MergePrioritySource(_MergeSource):
    """``merge_priority``."""

    stage_type = _ByPriority


class MergeOrderedSource(_MergeSource):
    """``merge_ordered``."""

    stage_type = InOrder
