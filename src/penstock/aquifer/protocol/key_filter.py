"""The records of a log with certain keys, for a subscriber that wants no others.

The keys are a few that the subscriber names, or those of a partition of a reader group. A filtered frame
stands for a range of offsets, as every frame does, and has the records of that range that are wanted: perhaps
none. So a record that is left out counts as passed, for the cursor, for gaps and
for acknowledgement, and nothing but the payload is smaller.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

from penstock.aquifer.log import Log
from penstock.aquifer.records import (
    ARROW,
    MSGPACK,
    Batch,
    ChosenMetadata,
    Partition,
    RecordMetadata,
    arrow,
    pack_metadata,
    pack_values,
    unpack_metadata,
    unpack_values,
)

__all__ = ["KeyFilter"]

_ENOUGH: Final = 64 * 1024
"""A frame with so many bytes does not look for records in one more batch of the log."""
_UNLIMITED: Final = 2**62
_FRAME: Final = 32
"""Bytes that a frame has beside its records, at most,"""
_RECORD: Final = 24
"""and a record beside its value and its key: their lengths, its time and its place."""


class KeyFilter:
    """How far the log was searched for a session, and what was found."""

    at_once: ClassVar[int] = 1 << 20
    """Bytes of the log that are searched before other subscribers have their turn."""

    def __init__(self, log: Log, wanted: Collection[bytes] | Partition, format: str, start: int) -> None:
        self._log = log
        self._matching = wanted.matching if isinstance(wanted, Partition) else _OneOf(wanted).matching
        self._format = format
        self.seen = start
        """Between what the session was sent and this offset, no record is wanted."""
        self.looked_at = 0
        """Bytes of the log that were searched in all."""
        self.unsaid = 0
        """Bytes of the log that were searched and left out since the session was sent something."""
        self._asked_at = 0

    def next_batch(self, cursor: int, stop: int, most: int, nbytes: int) -> Batch | None:
        """The next records that are wanted, at most so many and so large; None if there are none yet.

        One record may be larger than ``nbytes``. The batch begins at the cursor, with what is left out.
        """
        found = _Found(self._format)
        seen, unsaid = self.seen, self.unsaid
        end, looked = max(self.seen, cursor), 0
        while end < stop and looked < self.at_once:
            batch = self._log.find(end)
            if batch is None:
                break
            looked += batch.nbytes
            metadata = unpack_metadata(batch.metadata)
            numbers = self._matching(
                metadata, batch.first, end - batch.first, min(batch.end, stop) - batch.first
            )
            if numbers:
                stored, batch = batch.nbytes, self._log.expanded(batch)
                looked += batch.nbytes - stored
                if not found.may_add(batch):
                    break
                taken = found.add(batch, metadata, numbers, most, nbytes)
                if taken < len(numbers):
                    end = batch.first + numbers[taken]
                    break
            end = min(batch.end, stop)
            if not found.count:
                self.seen = end
                self.unsaid += batch.nbytes
            elif found.nbytes >= min(nbytes, _ENOUGH) or found.count >= most:
                break
        self.looked_at += looked
        if not found.count:
            return None
        batch = found.batch(cursor, end)
        if batch.nbytes > nbytes and found.count > 1:
            # In its format, or as rows of very different sizes, it is larger than was reckoned.
            self.seen, self.unsaid = seen, unsaid
            fewer = min(max(found.count * nbytes // batch.nbytes, 1), found.count - 1)
            return self.next_batch(cursor, stop, fewer, nbytes)
        self.seen, self.unsaid = end, 0
        return batch

    def range(self, cursor: int, stop: int) -> Batch | None:
        """The same for a whole range, whatever it has: a subscriber has the beginning of this frame."""
        found = _Found(self._format)
        end = cursor
        while end < stop:
            batch = self._log.find(end)
            if batch is None:
                return None
            metadata = unpack_metadata(batch.metadata)
            numbers = self._matching(
                metadata, batch.first, end - batch.first, min(batch.end, stop) - batch.first
            )
            if numbers:
                batch = self._log.expanded(batch)
                if not found.may_add(batch):
                    return None  # Not a frame of this filter.
                found.add(batch, metadata, numbers, _UNLIMITED, _UNLIMITED)
            end = min(batch.end, stop)
        self.seen = end
        return found.batch(cursor, end)

    def left_out(self, cursor: int) -> Batch:
        """What was searched without finding anything, as a batch without records."""
        self.unsaid = 0
        return Batch(cursor, 0, b"", pack_metadata(ChosenMetadata(0, chosen=[])), span=self.seen - cursor)

    def asks(self, batch: Batch) -> bool:
        """Whether the frame with this batch has to be answered: what is left out may fill the log as well."""
        if batch.count and self.looked_at - self._asked_at < self._log.ack_every_bytes:
            return False
        self._asked_at = self.looked_at
        return True


class _OneOf:
    """Chooses the records that have one of a few keys."""

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys = frozenset(keys)

    def matching(self, metadata: RecordMetadata, first: int, low: int, high: int) -> list[int]:
        """Which records of a batch have one of the keys: their numbers, from ``low`` on, below ``high``."""
        keys, wanted = metadata.keys, self._keys
        if keys is None:
            return []
        if low or high < len(keys):
            keys = keys[low:high]
        return [number for number, key in enumerate(keys, low) if key in wanted]


class _Found:
    """The records of a frame: of several batches if these are of single records, or of one of Arrow rows."""

    def __init__(self, format: str) -> None:
        self.count = 0
        self.nbytes = _FRAME
        self._format = format
        self._offsets: list[int] = []
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._rows: memoryview | None = None

    def may_add(self, batch: Batch) -> bool:
        """Whether records of this batch can be in the same frame."""
        return not self.count or (batch.format == MSGPACK and self._rows is None)

    def add(self, batch: Batch, metadata: RecordMetadata, numbers: list[int], most: int, nbytes: int) -> int:
        """Add the first of these records that may go, at least one if there is none yet; how many."""
        numbers = numbers[: most - self.count]
        if batch.format == ARROW:
            size = max(batch.nbytes // batch.count, 1)
            numbers = numbers[: max(nbytes // size, 1)]
            self.nbytes = size * len(numbers)
            self._rows = arrow.taken(batch.payload, numbers)
        else:
            values = unpack_values(batch.payload)
            keys_of = metadata.keys
            for taken, number in enumerate(numbers):
                key = None if keys_of is None else keys_of[number]
                size = len(values[number]) + _RECORD + (0 if key is None else len(key))
                if self.nbytes + size > nbytes and (self.count or taken):
                    numbers = numbers[:taken]
                    break
                self._values.append(values[number])
                self.nbytes += size
        keys, timestamps = metadata.keys, metadata.timestamps
        self.count += len(numbers)
        self._offsets += [batch.first + number for number in numbers]
        self._keys += [None if keys is None else keys[number] for number in numbers]
        self._timestamps += [
            metadata.timestamp if timestamps is None else timestamps[number] for number in numbers
        ]
        return len(numbers)

    def batch(self, first: int, end: int) -> Batch:
        """What was found, as the batch that stands for a range."""
        payload: bytes | memoryview
        if self._rows is not None:
            payload = self._rows if self._format == ARROW else pack_values(arrow.rows(self._rows))
        elif not self.count:
            payload = b""
        elif self._format == ARROW:
            payload = arrow.table(self._offsets, self._timestamps, self._keys, self._values)
        else:
            payload = pack_values(self._values)
        times = self._timestamps
        metadata = ChosenMetadata(
            times[0] if times else 0,
            self._keys or None,
            times if len(set(times)) > 1 else None,
            [offset - first for offset in self._offsets],
        )
        return Batch(first, self.count, payload, pack_metadata(metadata), self._format, span=end - first)
