"""Where the batches of a log are, as its compacted topic has it: opening the log need not read all of it.

A segment has the places of up to 1024 batches that follow on each other. It is written with the transaction
of a later append, when the places are known and committed. What is not in a segment yet, about 16 MiB of the
log, is read when the log is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Final

import msgspec

from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.kafka_index import BatchPlace, KafkaIndex

__all__ = ["IndexSegments"]

_KEY: Final = "segment "
_MOST_BATCHES: Final = 1024
"""In a segment: some 30 kB."""
_BYTES: Final = 16 * 1024 * 1024
"""Of batches that have no segment yet, before they get one."""


class _Segment(msgspec.Struct, array_like=True, frozen=True):
    places: list[BatchPlace]
    end: Position


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Segment).decode


class IndexSegments:
    """The segments of a log: which there are, and what to write next. Used by one thread."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        """Where each segment ends, by its key; oldest first."""
        self._useless: list[str] = []
        """Segments that contradict the topic; they are deleted."""
        self._covered = 0
        """The log has segments up to this offset."""
        self._next: tuple[str, int] | None = None

    def load(self, stored: Mapping[str, bytes], index: KafkaIndex) -> None:
        """Extend an index that begins where the log does, by the segments that there are."""
        for key in sorted(key for key in stored if key.startswith(_KEY)):
            segment = _unpack(stored[key])
            places = [place for place in segment.places if place.position.offset >= index.end.offset]
            if self._useless or (places and places[0].position != index.end):
                self._useless.append(key)
                continue
            if places:
                index.extend(places, segment.end)
                self._covered = segment.end.offset
            self._ends[key] = segment.end.offset

    def discard(self) -> None:
        """Use none of them any more."""
        self._useless += self._ends
        self._ends, self._covered = {}, 0

    def changes(self, index: KafkaIndex) -> dict[str, bytes | None]:
        """What to write to the compacted topic, with whatever else is written."""
        forgotten = takewhile(lambda key: self._ends[key] <= index.start.offset, self._ends)
        changes: dict[str, bytes | None] = dict.fromkeys((*self._useless, *forgotten))
        self._next = None
        places, end = index.places_from(self._covered, _MOST_BATCHES)
        if len(places) == _MOST_BATCHES or (places and end.before - places[0].position.before >= _BYTES):
            key = f"{_KEY}{places[0].position.offset:020}"
            changes[key] = _pack(_Segment(places, end))
            self._next = key, end.offset
        return changes

    def written(self, changes: Mapping[str, bytes | None]) -> None:
        """The last :meth:`changes` are committed."""
        self._useless = []
        for key, value in changes.items():
            if value is None:
                self._ends.pop(key, None)
        if self._next is not None:
            key, self._covered = self._next
            self._ends[key] = self._covered
