"""``merge_priority`` and ``merge_ordered``: which of the waiting elements goes first.

Both subscribe to all sources at once and keep a bounded queue of each. ``merge_priority`` sends the best of
what waits now. ``merge_ordered`` waits until every source that still runs has an element, so that sorted
sources make one sorted stream.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.flat_map import Inner, ManySources
from penstock.streams.source import Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["MergeOrderedSource", "MergePrioritySource"]

Key = Callable[[Any], Any]


class _MergeSource(Source):
    """Several streams with a queue each."""

    frames = 10
    stage_type: type[_Merge]

    def __init__(self, label: str, streams: tuple[Stream[Any], ...], key: Key | None, prefetch: int) -> None:
        super().__init__(label, *([key] if key else []))
        self._streams = streams
        self._key = key
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        assert self.boundary is not None
        stage = self.stage_type(self._key, ops, downstream, self.label, self.place)
        stage.inners = [Inner(stage, self.boundary) for _ in self._streams]
        stage.introduce()
        for inner, stream in zip(stage.inners, self._streams, strict=True):
            if stage.closed:
                return
            inner.subscribe_to(stream)
        stage.begin()

    def upstreams(self) -> list[Stream[Any]]:
        return list(self._streams)

    def queue(self) -> str:
        return f"{len(self._streams)}×{self.boundary}"

    def runs_on(self) -> str:
        return "sources"


class _Merge(ManySources):
    """Compares nothing before all sources are subscribed to: the first would always win otherwise."""

    __slots__ = ("_begun", "_key", "inners")
    inners: list[Inner]

    def __init__(self, key: Key | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._key = key
        self._begun = False

    def begin(self) -> None:
        self._begun = True
        self.wake()

    def finished(self) -> bool:
        # Whether it is done comes first: its last element is in the queue before that.
        return self._begun and all(inner.done and not inner.queue for inner in self.inners)

    def waiting(self) -> list[Any]:
        return [element for inner in self.inners for element in tuple(inner.queue)]


class _ByPriority(_Merge):
    """The first source that has an element or, with a key, the one whose element has the smallest."""

    __slots__ = ()

    def poll(self) -> Any:
        if not self._begun or self.halted:
            return PENDING
        key = self._key
        if key is None:
            for inner in self.inners:
                if inner.queue:
                    return inner.take()
            return PENDING
        ready = [inner for inner in self.inners if inner.queue]
        return min(ready, key=lambda inner: key(inner.queue[0])).take() if ready else PENDING


class _InOrder(_Merge):
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
        unknown = list(range(len(self.inners))) if self._unknown is None else self._unknown
        self._unknown = [number for number in unknown if not self._show(number)]
        if self._unknown or not self._heads:
            return PENDING
        _, number = heappop(self._heads)
        self._unknown.append(number)
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
        heappush(self._heads, (head if self._key is None else self._key(head), number))
        return True


class MergePrioritySource(_MergeSource):
    """``merge_priority``."""

    stage_type = _ByPriority


class MergeOrderedSource(_MergeSource):
    """``merge_ordered``."""

    stage_type = _InOrder
