"""The partitions of a reader group: which records are in one, and the durable id that keeps its cursor.

A record with a key is in the partition ``crc32(key) mod n``, with the CRC-32 of zlib, PNG and Ethernet. So
all records of a key are in one partition, in every process and every version. A record without a key is in
the partition ``offset mod n``: these are spread evenly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

__all__ = ["Partition", "by_partition", "partition_of"]

_ID: Final = re.compile(r"(.+)/([0-9]{1,9})-of-([0-9]{1,9})", re.DOTALL)


def partition_of(key: bytes | None, offset: int, partitions: int) -> int:
    """The number of the partition that a record is in, from 0 on, if a group has so many partitions."""
    return (offset if key is None else crc32(key)) % partitions


def by_partition(
    keys: Sequence[bytes | None] | None, first: int, count: int, partitions: int
) -> list[list[int]]:
    """Which of some consecutive records are in each partition: their numbers, from 0 on.

    ``first`` is the offset of the first of ``count`` records. ``keys`` is None if none of them has a key.
    """
    if partitions == 1:
        return [list(range(count))]
    if keys is None:
        return [list(range((number - first) % partitions, count, partitions)) for number in range(partitions)]
    found: list[list[int]] = [[] for _ in range(partitions)]
    add = [numbers.append for numbers in found]
    hashes: Iterable[int]
    if None in keys:
        hashes = [offset if key is None else crc32(key) for offset, key in enumerate(keys, first)]
    else:
        hashes = map(crc32, keys)  # type: ignore[arg-type]
    for number, hashed in enumerate(hashes):
        add[hashed % partitions](number)
    return found


class Partition(NamedTuple):
    """One of the partitions of a group."""

    group: str
    number: int
    partitions: int
    """How many there are in all."""

    @property
    def id(self) -> str:
        """The durable id that keeps its cursor: ``orders/0-of-8``."""
        return f"{self.group}/{self.number}-of-{self.partitions}"

    @classmethod
    def of_id(cls, id: str) -> Partition | None:
        """The partition that an id stands for; None if it is not the id of a partition."""
        found = _ID.fullmatch(id)
        if found is None:
            return None
        partition = cls(found[1], int(found[2]), int(found[3]))
        # Other spellings, such as 00-of-8, are ids like any other.
        return partition if partition.number < partition.partitions and partition.id == id else None
