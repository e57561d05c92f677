"""The records of a log with certain keys, for a subscriber that wants no others.

The keys are a few that the subscriber names, or those of a partition of a reader group. A filtered frame
stands for a range of offsets, as every frame does, and has the records of that range that are wanted: perhaps
none. So a record that is left out counts as passed, for the cursor, for gaps and
for acknowledgement, and nothing but the payload is smaller.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import ClassVar, Final

from penstock.aquifer.log import Log, UnpackedBatch
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
        self._wanted = wanted if isinstance(wanted, Partition) else frozenset(wanted)
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
        found = _Found(self._format, cursor)
        seen, unsaid = self.seen, self.unsaid
        end, looked = max(self.seen, cursor), 0
        while end < stop and looked < self.at_once:
            batch = self._log.find(end)
            if batch is None:
                break
            looked += batch.nbytes
            unpacked = self._log.unpacked(batch)
            numbers = self._matching(unpacked, end - batch.first, min(batch.end, stop) - batch.first)
            if numbers:
                stored, batch = batch.nbytes, self._log.expanded(batch)
                looked += batch.nbytes - stored
                if not found.may_add(batch):
                    break
                taken = found.add(batch, unpacked, numbers, most, nbytes)
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
        batch = found.batch(end)
        if batch.nbytes > nbytes and found.count > 1:
            # In its format, or as rows of very different sizes, it is larger than was reckoned.
            self.seen, self.unsaid = seen, unsaid
            fewer = min(max(found.count * nbytes // batch.nbytes, 1), found.count - 1)
            return self.next_batch(cursor, stop, fewer, nbytes)
        self.seen, self.unsaid = end, 0
        return batch

    def range(self, cursor: int, stop: int) -> Batch | None:
        """The same for a whole range, whatever it has: a subscriber has the beginning of this frame."""
        found = _Found(self._format, cursor)
        end = cursor
        while end < stop:
            batch = self._log.find(end)
            if batch is None:
                return None
            unpacked = self._log.unpacked(batch)
            numbers = self._matching(unpacked, end - batch.first, min(batch.end, stop) - batch.first)
            if numbers:
                batch = self._log.expanded(batch)
                if not found.may_add(batch):
                    return None  # Not a frame of this filter.
                found.add(batch, unpacked, numbers, _UNLIMITED, _UNLIMITED)
            end = min(batch.end, stop)
        self.seen = end
        return found.batch(end)

    def _matching(self, unpacked: UnpackedBatch, low: int, high: int) -> Sequence[int]:
        """Which records of a batch are wanted: their numbers, from ``low`` on, below ``high``."""
        wanted = self._wanted
        if isinstance(wanted, Partition):
            numbers = unpacked.in_partition(wanted.number, wanted.partitions)
            start, stop = bisect_left(numbers, low), bisect_left(numbers, high)
            return numbers if stop - start == len(numbers) else numbers[start:stop]
        keys = unpacked.metadata.keys
        if keys is None:
            return []
        if low or high < len(keys):
            keys = keys[low:high]
        return [number for number, key in enumerate(keys, low) if key in wanted]

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


class _Found:
    """The records of a frame: of several batches if these are of single records, or of one of Arrow rows."""

    def __init__(self, format: str, first: int) -> None:
        self.count = 0
        self.nbytes = _FRAME
        self._format = format
        self._first = first
        """The offset that the frame begins at."""
        self._positions: list[int] = []
        """Where the records are in the frame, from 0 on."""
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._rows: memoryview | None = None

    def may_add(self, batch: Batch) -> bool:
        """Whether records of this batch can be in the same frame."""
        return not self.count or (batch.format == MSGPACK and self._rows is None)

    def add(
        self, batch: Batch, unpacked: UnpackedBatch, numbers: Sequence[int], most: int, nbytes: int
    ) -> int:
        """Add the first of these records that may go, at least one if there is none yet; how many."""
        if len(numbers) > most - self.count:
            numbers = numbers[: most - self.count]
        metadata = unpacked.metadata
        if batch.format == ARROW:
            size = max(batch.nbytes // batch.count, 1)
            numbers = numbers[: max(nbytes // size, 1)]
            self.nbytes = size * len(numbers)
            self._rows = arrow.taken(batch.payload, numbers)
            keys = _keys_of(metadata, numbers)
        else:
            values = list(map(unpacked.values(batch).__getitem__, numbers))
            keys = _keys_of(metadata, numbers)
            size = sum(map(len, values)) + sum(map(len, filter(None, keys))) + _RECORD * len(values)
            if self.nbytes + size > nbytes:
                sizes = [
                    len(value) + _RECORD + len(key or b"") for value, key in zip(values, keys, strict=True)
                ]
                ends = list(accumulate(sizes, initial=self.nbytes))[1:]
                taken = max(bisect_right(ends, nbytes), 0 if self.count else 1)
                numbers, values, keys = numbers[:taken], values[:taken], keys[:taken]
                size = sum(sizes[:taken])
            self.nbytes += size
            self._values += values
        self.count += len(numbers)
        behind, timestamps = batch.first - self._first, metadata.timestamps
        self._positions += [behind + number for number in numbers] if behind else numbers
        self._keys += keys
        if timestamps is None:
            self._timestamps += [metadata.timestamp] * len(numbers)
        else:
            self._timestamps += map(timestamps.__getitem__, numbers)
        return len(numbers)

    def batch(self, end: int) -> Batch:
        """What was found, as the batch that stands for a range up to ``end``."""
        first = self._first
        payload: bytes | memoryview
        if self._rows is not None:
            payload = self._rows if self._format == ARROW else pack_values(arrow.rows(self._rows))
        elif not self.count:
            payload = b""
        elif self._format == ARROW:
            offsets = [first + position for position in self._positions]
            payload = arrow.table(offsets, self._timestamps, self._keys, self._values)
        else:
            payload = pack_values(self._values)
        times = self._timestamps
        metadata = ChosenMetadata(
            times[0] if times else 0,
            self._keys or None,
            times if len(set(times)) > 1 else None,
            self._positions,
        )
        return Batch(first, self.count, payload, pack_metadata(metadata), self._format, span=end - first)


def _keys_of(metadata: RecordMetadata, numbers: Sequence[int]) -> list[bytes | None]:
    keys = metadata.keys
    return [None] * len(numbers) if keys is None else list(map(keys.__getitem__, numbers))
