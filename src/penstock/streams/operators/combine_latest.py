"""``combine_latest``: whenever any of several streams has an element, the newest ones of all of them."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.operators.flat_map import Inner
from penstock.streams.operators.side_by_side import SideBySide, SideBySideSource

__all__ = ["CombineLatestSource"]


class _Combining(SideBySide):
    """Elements wait in the order of their arrival; each changes its place in the row when its turn comes."""

    __slots__ = ("_missing", "ready", "row")
    inners: list[_CombinedInner]
    row: list[Any]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._missing = 0
        """How many streams have not had the turn of their first element."""
        self.ready: deque[tuple[_CombinedInner, Any]] = deque()

    def expect(self, streams: int, prefetch: int) -> None:
        self.inners = [_CombinedInner(self, prefetch, index) for index in range(streams)]
        self.row = [NOTHING] * streams
        self._missing = streams

    def poll(self) -> Any:
        ready, row = self.ready, self.row
        while ready and not self.halted:
            inner, element = ready.popleft()
            if row[inner.index] is NOTHING:
                self._missing -= 1
            row[inner.index] = element
            inner.took_one()
            if self._missing:
                continue
            return tuple(row) if self._function is None else self._function(*row)
        return PENDING

    def finished(self) -> bool:
        """All have ended; or one has without an element, so that no row can ever be complete."""
        # A stream is done after its last element is ready, so look in this order.
        ended = [inner for inner in self.inners if inner.done]
        if self._missing and any(inner.is_empty for inner in ended):
            return True
        return len(ended) == len(self.inners) and not self.ready

    def waiting(self) -> list[Any]:
        return [element for _, element in tuple(self.ready)]

    def release(self) -> None:
        super().release()
        self.ready.clear()
        self.row = []


class _CombinedInner(Inner):
    """Puts its elements into the common queue, in the order of arrival."""

    __slots__ = ("_came", "index")
    _stage: _Combining

    def __init__(self, stage: _Combining, prefetch: int, index: int) -> None:
        super().__init__(stage, prefetch)
        self.index = index
        self._came = False

    @property
    def is_empty(self) -> bool:
        """Whether no element has come yet."""
        return not self._came

    def on_next(self, element: Any, /) -> None:
        self._came = True
        self._stage.ready.append((self, element))
        self._stage.wake()
        if self._ahead is not None:
            self._ahead.came(element)

    def _waiting(self) -> list[Any]:
        return [element for inner, element in list(self._stage.ready) if inner is self]


class CombineLatestSource(SideBySideSource):
    """``combine_latest``: a row for each element, ``prefetch`` of each stream may wait."""

    stage_type = _Combining
