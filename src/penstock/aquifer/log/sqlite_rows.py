"""Checksums for every row of a journal file: SQLite itself has none, and a flipped bit must not pass.

A batch has two checksums in one column. The low 32 bits cover its records. The bits above cover the columns
that the journal decides with (offsets, sizes, time) and the low part, so that these can be checked without
reading the records. Rows that format 1 wrote have zero there.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.aquifer.log.batch_window import Position
from penstock.aquifer.log.sqlite_errors import damaged
from penstock.aquifer.records.batch import Batch

__all__ = [
    "CURSORS",
    "HEAD_COLUMNS",
    "MARKS",
    "BatchHead",
    "CheckedTable",
    "batch_checksum",
    "head_in",
    "records_checksum",
    "row_checksum",
]

HEAD_COLUMNS: Final = "first, count, before, stored, crc"
_HEAD: Final = struct.Struct(">qqqdI")


class BatchHead(NamedTuple):
    """What the journal knows of a batch without reading its records."""

    position: Position
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
    return zlib.crc32(batch.payload, zlib.crc32(batch.metadata, described))


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
    return BatchHead(Position(first, before), first + count, stored)


def _head_checksum(first: int, count: int, before: int, stored: float, low: int) -> int:
    # 31 bits, because SQLite's integers are signed; never zero, because that stands for format 1.
    return zlib.crc32(_HEAD.pack(first, count, before, stored, low)) & 0x7FFF_FFFF or 1


CURSORS: Final = "cursors"
MARKS: Final = "marks"
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    CURSORS: ((int,), (int,), (float,), (str, type(None))),
    MARKS: ((str,), (float,)),
}
"""What the columns between the name and the checksum may hold."""


class CheckedTable:
    """Reads a table once, and then writes what has changed."""

    def __init__(self, connection: sqlite3.Connection, path: str, table: str) -> None:
        self._connection = connection
        self._path = path
        self._table = table
        self._checksums: dict[str, int] = {}
        self.total = 0
        """The sum of the checksums of all rows that are stored."""
        marks = ", ".join("?" * (len(_TYPES[table]) + 2))
        self._insert = f"insert or replace into {table} values ({marks})"
        self._delete = f"delete from {table} where name = ?"

    def load(self, total: int) -> Iterator[tuple[str, tuple[object, ...]]]:
        """The rows, each as its name and its values; JournalDamaged if they are not what was written."""
        for name, *values, crc in self._connection.execute(f"select * from {self._table}"):
            sound = type(name) is str and self._fit(values)
            if not sound or crc != row_checksum(self._table, name, *values):
                raise damaged(self._path, f"an entry of its {self._table} is not what was written")
            self._checksums[name] = crc
            self.total += crc
            yield name, tuple(values)
        if self.total != total:
            raise damaged(self._path, f"its {self._table} are not those that were written last")

    def write(self, changes: Mapping[str, tuple[object, ...] | None]) -> int:
        """Write these rows, and delete those with None, inside a transaction; returns the total after it."""
        total = self.total
        for name, values in changes.items():
            total -= self._checksums.get(name, 0)
            if values is None:
                self._connection.execute(self._delete, (name,))
                continue
            if not self._fit(values):
                # SQLite would convert some of these without a word, and the checksum would not fit any more.
                raise TypeError(f"{values!r} cannot be stored among the {self._table} of a journal")
            crc = row_checksum(self._table, name, *values)
            self._connection.execute(self._insert, (name, *values, crc))
            total += crc
        return total

    def _fit(self, values: Sequence[object]) -> bool:
        return all(type(value) in kinds for value, kinds in zip(values, _TYPES[self._table], strict=True))

    def written(self, changes: Mapping[str, tuple[object, ...] | None], total: int) -> None:
        """The transaction of :meth:`write` was committed."""
        for name, values in changes.items():
            if values is None:
                self._checksums.pop(name, None)
            else:
                self._checksums[name] = row_checksum(self._table, name, *values)
        self.total = total
