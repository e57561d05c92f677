"""Checksums for every row of a journal file: SQLite itself has none, and a flipped bit must not pass.

A batch has two checksums in one column. The low 32 bits cover its records. The bits above cover the columns
that the journal decides with (offsets, sizes, time) and the low part, so that these can be checked without
reading the records. Rows that format 1 wrote have zero there.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from penstock.aquifer.batches import Batch
from penstock.aquifer.journal.window import Place

__all__ = ["HEAD_COLUMNS", "BatchHead", "batch_checksum", "head_in", "records_checksum", "row_checksum"]

HEAD_COLUMNS: Final = "first, count, before, stored, crc"
_HEAD: Final = struct.Struct(">qqqdI")


class BatchHead(NamedTuple):
    """What the journal knows of a batch without reading its records."""

    place: Place
    end: int
    stored: float
    """When it was stored: seconds since 1970."""


def row_checksum(*values: object) -> int:
    """Over the values of a row, in their order.

    Their text in ASCII is the same in every version of Python; what ``repr`` escapes depends on the version.
    """
    return zlib.crc32(ascii(values).encode("ascii"))


def records_checksum(batch: Batch) -> int:
    """Over the records and what is needed to read them; with the offset, so that a moved row is noticed."""
    described = zlib.crc32(b"%d %d %s" % (batch.first, batch.count, batch.format.encode()))
    return zlib.crc32(batch.payload, zlib.crc32(batch.notes, described))


def batch_checksum(batch: Batch, before: int, stored: float) -> int:
    """What is stored beside a batch."""
    low = records_checksum(batch)
    return _head_checksum(batch.first, batch.count, before, stored, low) << 32 | low


def head_in(row: tuple[object, ...]) -> BatchHead | None:
    """The head of a batch from its ``HEAD_COLUMNS``; None if it is not what was written."""
    first, count, before, stored, crc = row
    # A damaged row may have anything in any column.
    if not (isinstance(first, int) and isinstance(count, int) and isinstance(before, int)):
        return None
    if not (isinstance(stored, float) and isinstance(crc, int)) or count < 1 or crc < 0:
        return None
    low, high = crc & 0xFFFF_FFFF, crc >> 32
    if high and high != _head_checksum(first, count, before, stored, low):
        return None
    return BatchHead(Place(first, before), first + count, stored)


def _head_checksum(first: int, count: int, before: int, stored: float, low: int) -> int:
    # 31 bits, because SQLite's integers are signed; never zero, because that stands for format 1.
    return zlib.crc32(_HEAD.pack(first, count, before, stored, low)) & 0x7FFF_FFFF or 1
