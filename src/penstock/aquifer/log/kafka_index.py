"""Where each batch of a log is in its Kafka topic: 32 bytes of memory for each."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.aquifer.log.batch_sequence import Position

__all__ = ["BatchPlace", "KafkaIndex"]

_FRONT_TO_KEEP: Final = 4096
"""Cutting the front off copies the rest: done only when so many, and half of them, are stale."""


class BatchPlace(NamedTuple):
    """One batch."""

    position: Position
    """Where it begins in the log."""
    place: int
    """The offset of its message in the topic."""
    stored: int
    """When it was stored, in milliseconds since 1970."""


class KafkaIndex:
    """The batches of a log, oldest first. One thread changes it; others may look."""

    def __init__(self, start: Position) -> None:
        self._lock = threading.Lock()
        self.start = self.end = start
        """Where the oldest batch begins, and the newest one ends."""
        self._firsts = array("q")
        self._before = array("q")
        self._places = array("q")
        self._stored = array("q")
        self._stale = 0
        """How many entries at the front belong to batches that are forgotten."""

    def extend(self, places: Iterable[BatchPlace], end: Position) -> None:
        """Add batches that follow on the end."""
        with self._lock:
            for (first, before), place, stored in places:
                self._firsts.append(first)
                self._before.append(before)
                self._places.append(place)
                self._stored.append(stored)
            self.end = end

    @property
    def newest_stored(self) -> int:
        """When the newest batch was stored, in milliseconds since 1970; 0 if there is none."""
        with self._lock:
            return self._stored[-1] if self._stale < len(self._stored) else 0

    def at(self, offset: int) -> BatchPlace | None:
        """The batch with this offset in it; None if there is none."""
        with self._lock:
            if not self.start.offset <= offset < self.end.offset:
                return None
            return self._entry(bisect_right(self._firsts, offset, self._stale) - 1)

    def places_from(self, offset: int, most: int) -> tuple[list[BatchPlace], Position]:
        """The batches from an offset on, at most so many, and where the last of them ends."""
        with self._lock:
            first = bisect_left(self._firsts, offset, self._stale)
            last = min(first + most, len(self._firsts))
            end = self._entry(last).position if last < len(self._firsts) else self.end
            return [self._entry(index) for index in range(first, last)], end

    def position_of(self, offset: int) -> Position:
        """The beginning of the batch with this offset in it; an end of the log if there is none."""
        if offset <= self.start.offset:
            return self.start
        found = self.at(offset)
        return self.end if found is None else found.position

    def position_for(self, records: int, nbytes: int) -> Position:
        """The first position with no more than so many records and bytes after it."""
        with self._lock:
            index = max(
                bisect_left(self._firsts, self.end.offset - records, self._stale),
                bisect_left(self._before, self.end.before - nbytes, self._stale),
            )
            return self._entry(index).position if index < len(self._firsts) else self.end

    def position_younger_than(self, milliseconds: int) -> Position:
        """Where the first batch begins that was stored after a time; the end if there is none."""
        with self._lock:
            # The clock of a writer may have been set back: what comes after a young batch stays as well.
            for index in range(self._stale, len(self._firsts)):
                if self._stored[index] > milliseconds:
                    return self._entry(index).position
            return self.end

    def forget_before(self, position: Position) -> int | None:
        """Forget every batch before this position; returns the place before which no message has to stay.

        None if none was forgotten.
        """
        with self._lock:
            if position.offset <= self.start.offset:
                return None
            self.start = position
            self._stale = bisect_left(self._firsts, position.offset, self._stale)
            kept = self._places[-1] + 1 if self._places else None
            if self._stale < len(self._firsts):
                kept = self._places[self._stale]
            if self._stale > _FRONT_TO_KEEP and self._stale * 2 > len(self._firsts):
                for column in (self._firsts, self._before, self._places, self._stored):
                    del column[: self._stale]
                self._stale = 0
            return kept

    def _entry(self, index: int) -> BatchPlace:
        return BatchPlace(
            Position(self._firsts[index], self._before[index]), self._places[index], self._stored[index]
        )
