"""Consecutive batches in memory, oldest first: found by offset, forgotten from the front.

The writer appends and forgets while another thread finds batches, without a lock. The finding thread reads a
dict and a list that only grows; to cut the front of the list, the writer replaces it by a new one in one
step. So a batch that is being forgotten is either still there or not; there is no state in between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.aquifer.records.batch import Batch

__all__ = ["BatchSequence", "Position", "end_of"]

_LIST_FRONT_TO_KEEP: Final = 1024
"""Cutting the front off a list copies the rest: done only when so many, and half of them, are stale."""


class Position(NamedTuple):
    """A gap between two batches, or an end of their sequence."""

    offset: int
    """The offset of the first record after the gap."""
    before: int
    """How many bytes were ever stored before it."""


def end_of(batches: Iterable[Batch], start: Position) -> Position:
    """Where these batches end if they begin at ``start``; ValueError if they do not follow on it."""
    head, before = start
    for batch in batches:
        if batch.first != head:
            raise ValueError(f"a batch starts at offset {batch.first}, but the next offset is {head}")
        if batch.count < 1:
            raise ValueError(f"the batch at offset {head} has no records (count {batch.count})")
        head += batch.count
        before += batch.nbytes
    return Position(head, before)


class BatchSequence:
    """A stretch of the log. One thread changes it; :meth:`find` may be called from any other."""

    def __init__(self, start: Position) -> None:
        self.start = start
        """Where the oldest batch begins."""
        self.end = start
        """Where the newest batch ends."""
        self._batches: dict[int, Batch] = {}
        self._firsts: list[int] = []
        self._before: list[int] = []
        self._stale = 0
        """How many entries at the front of the two lists belong to batches that are forgotten."""

    @property
    def nbytes(self) -> int:
        """The size of the batches together."""
        return self.end.before - self.start.before

    def extend(self, batches: Iterable[Batch]) -> None:
        """Put batches at the end; they must follow on it."""
        offset, before = self.end
        for batch in batches:
            # First what it is found in, then what it is found by.
            self._batches[offset] = batch
            self._firsts.append(offset)
            self._before.append(before)
            offset += batch.count
            before += batch.nbytes
        self.end = Position(offset, before)

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it, if it is here."""
        batch = self._batches.get(offset)
        if batch is not None:
            return batch
        firsts = self._firsts
        index = bisect_right(firsts, offset) - 1
        if index < 0:
            return None
        batch = self._batches.get(firsts[index])
        return batch if batch is not None and offset < batch.end else None

    def position_of(self, offset: int) -> Position:
        """The beginning of the batch with this offset in it; an end of the sequence if there is none."""
        if offset <= self.start.offset:
            return self.start
        if offset >= self.end.offset:
            return self.end
        index = bisect_right(self._firsts, offset, self._stale) - 1
        return Position(self._firsts[index], self._before[index])

    def position_for(self, records: int, nbytes: int) -> Position:
        """The first position with no more than so many records and bytes after it."""
        index = max(
            bisect_left(self._firsts, self.end.offset - records, self._stale),
            bisect_left(self._before, self.end.before - nbytes, self._stale),
        )
        return Position(self._firsts[index], self._before[index]) if index < len(self._firsts) else self.end

    def forget_before(self, position: Position) -> None:
        """Forget every batch before this position."""
        if position.offset <= self.start.offset:
            return
        self.start = position
        index = bisect_left(self._firsts, position.offset, self._stale)
        for first in self._firsts[self._stale : index]:
            del self._batches[first]
        self._stale = index
        if index > _LIST_FRONT_TO_KEEP and index * 2 > len(self._firsts):
            self._firsts = self._firsts[index:]
            self._before = self._before[index:]
            self._stale = 0
