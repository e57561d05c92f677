"""Rows of a journal file: checksums, small tables of checked rows, and the errors of SQLite in our terms.

SQLite itself has no checksums, and a flipped bit must not pass. A batch has two checksums in one column. The
low 32 bits cover its records. The bits above cover the columns that the journal decides with (offsets, sizes,
time) and the low part, so that they can be checked without reading the records. Rows of format 1 have zero
there. Of the small tables (cursors, marks and segment files) the sum of all checksums is in the journal's
state: so a row that has changed is noticed, and also one that is missing, or that came back.
"""

from __future__ import annotations

import errno
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from penstock.aquifer.errors import (
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalUnavailable,
)
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.records.batch import Batch

__all__ = [
    "CURSORS",
    "HEAD_COLUMNS",
    "MARKS",
    "SEGMENTS",
    "BatchHead",
    "CheckedTable",
    "as_journal_errors",
    "batch_checksum",
    "damaged",
    "head_in",
    "records_checksum",
    "row_checksum",
]


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NOT_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""The system has no more files or memory at the moment: a crowd of connections can bring that about."""
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
"""The second is what SQLite reports if the disk has no space for the index of its write-ahead log."""
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    # The file is shorter than it says.
    sqlite3.SQLITE_IOERR_SHORT_READ,
    # All of our statements fit the tables of a sound journal: a table, a column or a rule has changed.
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_SCHEMA,
}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_FORBIDDEN = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


@contextmanager
def as_journal_errors(path: str) -> Iterator[None]:
    """Raise a JournalError in place of what SQLite raises inside."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explained(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a part of the file in its message, which is not text any more.
        raise damaged(path, "its tables cannot be read") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _full(error, path) from error
        if error.errno in _NOT_NOW:
            raise _not_now(error, path) from error
        if error.errno == errno.EFBIG:
            raise _too_long(error, path) from error
        raise _not_allowed(error, path) from error


def damaged(path: str, what: str) -> JournalDamaged:
    """The error for a journal that cannot be trusted any more: what is wrong, and the way out.

    It does not propose to restore an older copy: that would have the same epoch, and would give the offsets
    that were given since the copy was made a second time.
    """
    error = JournalDamaged(
        f"the journal {path} is damaged: {what}. Move it away, together with the files {path}-wal and "
        f"{path}-shm and the directory {path}-segments if they are there, and a new journal with a new "
        "epoch is begun; the command "
        f'sqlite3 {path} ".recover" may still get records out of the old one'
    )
    error.finding = what
    return error


def _full(error: Exception, path: str) -> JournalFull:
    return JournalFull(
        f"there is no space on the disk for the journal {path} ({error}); what was stored before is safe: "
        "free some space and try again"
    )


def _not_now(error: Exception, path: str) -> JournalUnavailable:
    return JournalUnavailable(
        f"the journal {path} cannot be used at the moment ({error}); what was stored before is safe. If this "
        "process has too many files and connections open, raise the limit (ulimit -n), and try again"
    )


def _too_long(error: Exception, path: str) -> JournalError:
    return JournalError(
        f"a file of the journal {path} cannot be as long as it has to be ({error}); what was stored before "
        "is safe: raise the limit of the process (ulimit -f), or use another file system"
    )


def _not_allowed(error: Exception, path: str) -> JournalError:
    return JournalError(
        f"the journal {path} cannot be opened for writing ({error}); check the permissions of the file "
        "and of its directory, whether the disk is full, and whether the process has too many files open "
        "(ulimit -n)"
    )


def _explained(error: sqlite3.Error, path: str) -> JournalError:
    # An error that the sqlite3 module itself raises, as for a mark that is not a string, has no code.
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        if isinstance(error, sqlite3.OperationalError):
            # The one error that the module itself finds while it reads. Its text has the bytes in it.
            return damaged(path, "a text in it is not UTF-8")
        return JournalError(_refused(error, path))
    kind = code & 0xFF
    if code in _FULL or kind in _FULL:
        return _full(error, path)
    if kind in _DAMAGED or code in _DAMAGED:
        return damaged(path, str(error))
    if kind in _BUSY:
        return JournalLocked(
            f"another program works on the journal {path} ({error}); let it finish, and keep other "
            "programs away while a gateway runs"
        )
    if kind in _FORBIDDEN:
        return _not_allowed(error, path)
    if kind == sqlite3.SQLITE_TOOBIG:
        return JournalError(f"a batch is too large for the journal {path} ({error}); make smaller batches")
    if kind == sqlite3.SQLITE_IOERR:
        return JournalError(
            f"the disk reported an error with the journal {path} ({error}); check the disk, the "
            "quota, and the limit on the size of files (ulimit -f)"
        )
    return JournalError(_refused(error, path))


def _refused(error: Exception, path: str) -> str:
    return f"SQLite refused to work on the journal {path}: {error}"


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
SEGMENTS: Final = "segments"
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    CURSORS: ((int,), (int,), (float,), (str, type(None))),
    MARKS: ((str,), (float,)),
    SEGMENTS: ((int,), (int,)),
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

    def load(self, total: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
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
