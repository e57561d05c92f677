"""The SQLite file of a journal: its tables, how it comes to be, and what is checked before it is trusted.

A batch is one row. Beside its bytes a row has the number of bytes that were ever stored before it, so that
the size of any stretch of the log is a difference between two rows, and a checksum over all that was written.
The table ``state`` has one row, which tells where the log begins and ends; it is changed in the same
transaction as the batches, and still tells it when there are none left.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import penstock
from penstock.aquifer.errors import JournalDamaged, JournalError, JournalTooNew
from penstock.aquifer.journal.failures import as_journal_errors, damaged
from penstock.aquifer.journal.window import Place

__all__ = ["BUSY_MILLISECONDS", "WAL_BYTES", "State", "connect", "open_database", "read_state"]

APPLICATION_ID: Final = 0x50_53_41_4A
"""Marks a SQLite file as a journal of ours: the letters PSAJ."""
FORMAT: Final = 2
"""The layout of the tables. Whoever raises it puts the version that can read it into ``state.software``, so
that older versions can tell which one is needed."""
PAGE_BYTES: Final = 16 * 1024
"""Four times the usual: a batch then has fewer pages, and is written, read and deleted faster."""
WAL_BYTES: Final = 16 * 1024 * 1024
"""So much is gathered in the write-ahead log before it is carried over into the main file."""
BUSY_MILLISECONDS: Final = 5000
"""How long to wait for another program, a backup for instance, that has the file locked."""

_HEADER: Final = struct.Struct(">60x I 4x I 28x")
"""Of the hundred bytes that every SQLite file begins with: the number of our format, and the application."""

_TABLES: Final = (
    """create table batches (
        first integer primary key,
        count integer not null,
        before integer not null,
        stored real not null,
        format text not null,
        crc integer not null,
        notes blob not null,
        payload blob not null
    )""",
    """create table state (
        id integer primary key check (id = 0),
        epoch text not null,
        first integer not null,
        before integer not null,
        head integer not null,
        total integer not null,
        software text not null
    )""",
    """create table cursors (
        name text primary key,
        acknowledged integer not null,
        lease_ms integer not null,
        remaining real not null,
        owner text
    ) without rowid""",
    "create table marks (name text primary key, value text not null) without rowid",
)


_UPGRADES: Final = {
    1: (
        # Leases were kept as times of day. The whole lease begins anew: rather too long than forgotten.
        "alter table cursors rename column seen to remaining",
        "update cursors set remaining = lease_ms / 1000.0",
        "alter table cursors add column owner text",
    )
}
"""For each earlier format, what makes the next one of it."""


class State(NamedTuple):
    """What the journal knows of itself."""

    epoch: str
    start: Place
    end: Place


def connect(path: str) -> sqlite3.Connection:
    """A connection without transactions of its own making, for any one thread at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in (
            f"busy_timeout = {BUSY_MILLISECONDS}",
            "synchronous = full",
            f"wal_autocheckpoint = {WAL_BYTES // PAGE_BYTES}",
            # After a transaction that was larger than that, the file is cut again.
            f"journal_size_limit = {2 * WAL_BYTES}",
            # Some builds overwrite with zeros what is deleted: that would write every batch once more.
            "secure_delete = off",
            "cache_size = -8192",
        ):
            connection.execute(f"pragma {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_database(path: str) -> sqlite3.Connection:
    """Open the journal, or create it if there is none; whoever calls this has the lock."""
    if os.path.isdir(path):
        raise JournalError(f"the journal {path} cannot be opened: it is a directory; name a file in it")
    with as_journal_errors(path):
        if os.path.exists(path) and os.path.getsize(path):
            _inspect(path)
        else:
            _create(path)
        connection = connect(path)
        try:
            (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
            if mode != "wal":
                raise JournalError(
                    f"the journal {path} cannot have a write-ahead log, as on some network file systems; "
                    "put it on a local disk"
                )
            _upgrade(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring the tables of an earlier version up to date, all at once or not at all."""
    (version,) = connection.execute("pragma user_version").fetchone()
    if version >= FORMAT:
        return
    connection.execute("begin immediate")
    try:
        for step in range(version, FORMAT):
            for statement in _UPGRADES.get(step, ()):
                connection.execute(statement)
        connection.execute("update state set software = ?", (penstock.__version__,))
        connection.execute(f"pragma user_version = {FORMAT}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    # Into the main file, whose first bytes an earlier version looks at before it opens anything.
    connection.execute("pragma wal_checkpoint(truncate)").fetchone()


def read_state(connection: sqlite3.Connection, path: str) -> State:
    """Where the log begins and ends; JournalDamaged unless the batches at both ends agree with it."""
    row = connection.execute("select epoch, first, before, head, total from state").fetchone()
    if row is None:
        raise damaged(path, "it does not say where its records begin and end")
    state = State(row[0], Place(row[1], row[2]), Place(row[3], row[4]))
    oldest = connection.execute(
        "select first, before from batches where first >= ? order by first limit 1", (state.start.offset,)
    ).fetchone()
    newest = connection.execute(
        "select first + count, before + length(notes) + length(payload) from batches "
        "where first >= ? order by first desc limit 1",
        (state.start.offset,),
    ).fetchone()
    # Without batches the log begins where it ends.
    if (oldest or state.end) != state.start or (newest or state.end) != state.end:
        raise damaged(
            path, f"it should have the records {state.start.offset} to {state.end.offset - 1}, and has not"
        )
    return state


def _inspect(path: str) -> None:
    """Refuse what is no journal that we can read, without a trace in the file or beside it.

    Only the first bytes are looked at, and not by SQLite: it would begin to repair and to write, and what the
    main file says of anything else may be out of date as long as there is a write-ahead log. These bytes are
    written when a journal is created, and when a later version brings it up to date.
    """
    with open(path, "rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"SQLite format 3\0"):
        raise JournalDamaged(
            f"the file {path} is no journal: it is not even a SQLite database, or its beginning was "
            "overwritten. Nothing was changed in it; give the journal another path, or move the file away"
        )
    version, application = _HEADER.unpack(header)
    if application != APPLICATION_ID:
        raise JournalDamaged(
            f"the file {path} is a SQLite database, but no journal of Penstock. "
            "Nothing was changed in it; give the journal another path"
        )
    if version > FORMAT:
        raise JournalTooNew(
            f"the journal {path} has format {version} and needs {_needed_version(path)}; this is "
            f"Penstock {penstock.__version__}, which knows formats up to {FORMAT}. Update Penstock, or "
            "give the journal another path"
        )


def _needed_version(path: str) -> str:
    # "Immutable" is a promise not to look for locks and logs: even the files beside it are left alone.
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?immutable=1", uri=True)) as connection:
        try:
            (software,) = connection.execute("select software from state").fetchone()
        except (sqlite3.Error, TypeError):
            # A later format may have no such table, or no row in it.
            return "a later version of Penstock"
    return f"Penstock {software} or newer"


def _create(path: str) -> None:
    """Make a whole journal under another name first, so that there is never a half one under this."""
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        # SQLite would put these old pages into the new file.
        raise JournalDamaged(
            f"the journal {path} is missing, but the file {path}-wal that belongs to it is there; "
            "put the journal back, or move that file away, too, to begin a new one"
        )
    draft = f"{path}-new"
    for left_behind in (draft, f"{draft}-journal"):
        Path(left_behind).unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"pragma page_size = {PAGE_BYTES}")
            connection.execute("begin")
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {FORMAT}")
            for table in _TABLES:
                connection.execute(table)
            connection.execute(
                "insert into state values (0, ?, 0, 0, 0, 0, ?)", (secrets.token_hex(6), penstock.__version__)
            )
            connection.execute("commit")
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    _sync_directory(os.path.dirname(path))


def _sync_directory(folder: str) -> None:
    """Make sure that a new name in it survives a loss of power."""
    if os.name == "nt":  # where a directory cannot be opened like this, nor has to be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
