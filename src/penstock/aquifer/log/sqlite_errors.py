"""Translates errors of SQLite into those of a journal, which say what to do about them."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalFull, JournalLocked

__all__ = ["as_journal_errors", "damaged"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
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
        raise _not_allowed(error, path) from error


def damaged(path: str, what: str) -> JournalDamaged:
    """The error for a journal that cannot be trusted any more: what is wrong, and the way out.

    It does not propose to restore an older copy: that would have the same epoch, and would give the offsets
    that were given since the copy was made a second time.
    """
    return JournalDamaged(
        f"the journal {path} is damaged: {what}. Move it away, together with the files {path}-wal and "
        f"{path}-shm if they are there, and a new journal with a new epoch is begun; the command "
        f'sqlite3 {path} ".recover" may still get records out of the old one'
    )


def _full(error: Exception, path: str) -> JournalFull:
    return JournalFull(
        f"there is no space on the disk for the journal {path} ({error}); what was stored before is safe: "
        "free some space and try again"
    )


def _not_allowed(error: Exception, path: str) -> JournalError:
    return JournalError(
        f"the journal {path} cannot be opened for writing ({error}); check the permissions of the file "
        "and of its directory, and whether the disk is full"
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
            f"the disk reported an error with the journal {path} ({error}); check the disk and the quota"
        )
    return JournalError(_refused(error, path))


def _refused(error: Exception, path: str) -> str:
    return f"SQLite refused to work on the journal {path}: {error}"
