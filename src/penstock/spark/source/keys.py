"""``partitionBy=key``: in which partition of a batch a record is, by its key.

A gateway cannot look up records by key. So each task reads the whole batch and keeps the records of its keys,
in the order of the log: no record goes through a shuffle, but each is read as often as there are tasks.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from penstock.aquifer import Batch, unpack_metadata

__all__ = ["KeyShare"]


class KeyShare(NamedTuple):
    """One of several partitions of a batch."""

    number: int
    of_all: int

    def of(self, batch: Batch) -> list[int]:
        """The numbers of the records that are in this partition.

        The same key is in the same partition in every process and in every batch of as many partitions.
        Records without a key are spread by their offset.
        """
        if self.of_all == 1:
            return list(range(batch.count))
        keys = unpack_metadata(batch.metadata).keys or [None] * batch.count
        return [
            number
            for number, key in enumerate(keys)
            if (batch.first + number if key is None else crc32(key)) % self.of_all == self.number
        ]
