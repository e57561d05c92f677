"""Batches of a log as their records, for sessions that get only some of these.

Each partition of a reader group is a session, and all of them search the same batches, one soon after the
other. To unpack a batch and to look at its keys takes most of the time of a search. So that is done once, and
the batches that were searched last are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from penstock.aquifer.records import Batch, RecordMetadata, by_partition, unpack_metadata, unpack_values

__all__ = ["UnpackedBatch", "UnpackedBatches"]

_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of unpacked batches that are kept. One alone may have more."""
_RECORD: Final = 150
"""Bytes that a record takes here beside its packed ones: a few objects, and their places in lists."""


class UnpackedBatch:
    """The records of one batch; each part of it is unpacked when it is first asked for."""

    __slots__ = ("_batch", "_divided", "_values", "metadata")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.metadata: RecordMetadata = unpack_metadata(batch.metadata)
        self._values: list[bytes] | None = None
        self._divided: dict[int, list[list[int]]] = {}

    def values(self, batch: Batch) -> list[bytes]:
        """The values of the records; ``batch`` is this one, or what it was expanded to."""
        if batch is not self._batch:
            return unpack_values(batch.payload)  # Expanded batches are kept as well: that is enough.
        if self._values is None:
            self._values = unpack_values(batch.payload)
        return self._values

    def in_partition(self, number: int, partitions: int) -> list[int]:
        """Which of its records are in a partition, if there are so many of these: their numbers."""
        divided = self._divided.get(partitions)
        if divided is None:
            batch = self._batch
            divided = by_partition(self.metadata.keys, batch.first, batch.count, partitions)
            self._divided[partitions] = divided
        return divided[number]


class UnpackedBatches:
    """The batches that were searched last. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[UnpackedBatch, int]] = OrderedDict()
        """By first offset and end, with their sizes; the most recently used is the last."""
        self._bytes = 0

    def of(self, batch: Batch) -> UnpackedBatch:
        """The batch as its records."""
        key = batch.first, batch.end
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept[0]
            made, size = UnpackedBatch(batch), batch.nbytes + _RECORD * batch.count
            self._kept[key] = made, size
            self._bytes += size
            while self._bytes > _MOST_BYTES and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone
        return made
