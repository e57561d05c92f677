"""The SQLite file of a journal: its tables, how it is created and upgraded, and how it is opened and checked.

A batch is one row. Beside its bytes a row has the number of bytes that were ever stored before it, so that
the size of any stretch of the log is a difference between two rows. The table ``state`` has one row, which
says where the log begins and ends; it changes in the same transaction as everything else, and still says so
when there are no batches left. Every row has a checksum.

While the file is open, its state says so, and that is in the main file at once. So if the process is killed,
and its write-ahead log is lost afterwards, the next process notices. Otherwise it would give the offsets of
the lost records a second time.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import penstock
from penstock.aquifer.errors import JournalDamaged, JournalError, JournalInUse, JournalTooNew
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.ownership import OwnerLock, Seal
from penstock.aquifer.log.sqlite_rows import (
    CURSORS,
    HEAD_COLUMNS,
    MARKS,
    CheckedTable,
    damaged,
    head_in,
    row_checksum,
)

__all__ = [
    "APPLICATION_ID",
    "BUSY_MILLISECONDS",
    "FORMAT",
    "PAGE_BYTES",
    "WAL_BYTES",
    "State",
    "clear_draft",
    "connect",
    "create",
    "inspect_file",
    "loss_in",
    "open_database",
    "state_in",
    "sync_directory",
    "transaction",
    "upgrade",
    "write_state",
]


APPLICATION_ID: Final = 0x50_53_41_4A
"""Marks a SQLite file as a journal of ours: the letters PSAJ."""
FORMAT: Final = 2
"""The layout of the tables. If you raise it, put the version that can read it into ``state.software``, so
that older versions can tell which one is needed."""
PAGE_BYTES: Final = 16 * 1024
"""Four times the usual: a batch then has fewer pages, and is written, read and deleted faster."""

_BATCHES: Final = """create table batches (
    first integer primary key,
    count integer not null,
    before integer not null,
    stored real not null,
    format text not null,
    crc integer not null,
    notes blob not null,
    payload blob not null
)"""
_TABLES: Final = (
    """create table state (
        id integer primary key check (id = 0),
        epoch text not null,
        first integer not null,
        before integer not null,
        head integer not null,
        total integer not null,
        software text not null,
        codec text not null,
        serial integer not null,
        opened text not null,
        cursors integer not null,
        marks integer not null,
        crc integer not null
    )""",
    """create table cursors (
        name text primary key,
        acknowledged integer not null,
        lease_ms integer not null,
        remaining real not null,
        owner text,
        crc integer not null
    ) without rowid""",
    """create table marks (
        name text primary key,
        value text not null,
        written real not null,
        crc integer not null
    ) without rowid""",
)


class State(NamedTuple):
    """What the journal knows of itself: the row of the table ``state``, without its number and checksum."""

    epoch: str
    first: int
    before: int
    head: int
    total: int
    software: str = penstock.__version__
    """The oldest version that can read this file, as far as is known."""
    codec: str = ""
    """The codec of the records; empty while it is unknown."""
    serial: int = 0
    """How many transactions there were before."""
    opened: str = ""
    """A token of the process that has it open, or was killed; empty after it was closed."""
    cursors: int = 0
    marks: int = 0
    """The sums of the checksums in these tables."""

    @property
    def start(self) -> Position:
        """Where the oldest batch begins."""
        return Position(self.first, self.before)

    @property
    def end(self) -> Position:
        """Where the newest batch ends."""
        return Position(self.head, self.total)


_UPDATE: Final = f"update state set {', '.join(f'{column} = ?' for column in (*State._fields, 'crc'))}"
_UPDATE_IF: Final = f"{_UPDATE} where opened = ?"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything inside is stored, or nothing is."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        # After some errors SQLite has already done it.
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def write_state(connection: sqlite3.Connection, state: State, opened: str | None = None) -> bool:
    """Write the state, inside a transaction; whether the file was still opened by this one, if it matters."""
    values = (*state, row_checksum("state", *state))
    if opened is None:
        return connection.execute(_UPDATE, values).rowcount == 1
    return connection.execute(_UPDATE_IF, (*values, opened)).rowcount == 1


def create(path: str) -> None:
    """Make a whole journal under another name first, so that there is never a half one under this."""
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        # SQLite would put these old pages into the new file.
        raise JournalDamaged(
            f"the journal {path} is missing, but the file {path}-wal that belongs to it is there; "
            "put the journal back, or move that file away, too, to begin a new one"
        )
    draft = f"{path}-new"
    clear_draft(path)
    try:
        # Here, because SQLite would let others read it. The files beside it get the same rights as this one.
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"pragma page_size = {PAGE_BYTES}")
            with transaction(connection):
                connection.execute(f"pragma application_id = {APPLICATION_ID}")
                connection.execute(_BATCHES)
                _make_tables(connection, State(secrets.token_hex(6), 0, 0, 0, 0))
        _put_in_place(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    sync_directory(os.path.dirname(path))


def clear_draft(path: str) -> None:
    """Remove what a creation left behind that did not get to its end."""
    for left_behind in (f"{path}-new", f"{path}-new-journal"):
        Path(left_behind).unlink(missing_ok=True)


def upgrade(connection: sqlite3.Connection, path: str) -> None:
    """Bring a file of format 1 up to date, in one transaction; its batches stay as they are."""
    with transaction(connection):
        columns = {name for _, name, *_ in connection.execute("pragma table_info(state)")}
        if "crc" in columns:
            raise damaged(path, "it says that it has format 1, and has not")
        row = connection.execute("select epoch, first, before, head, total from state").fetchone()
        cursors = connection.execute("select name, acknowledged, lease_ms from cursors").fetchall()
        marks = connection.execute("select name, value from marks").fetchall()
        if row is None or tuple(map(type, row)) != (str, int, int, int, int):
            raise damaged(path, "it does not say where its records begin and end")
        for table in ("state", CURSORS, MARKS):
            connection.execute(f"drop table {table}")
        _make_tables(connection, State(*row))
        now = time.time()
        try:
            # Leases were stored as times of day. Each starts again: too long is better than forgotten.
            new_cursors = {name: (reached, lease, lease / 1000, None) for name, reached, lease in cursors}
            totals = [
                CheckedTable(connection, path, CURSORS).write(new_cursors),
                CheckedTable(connection, path, MARKS).write({name: (it, now) for name, it in marks}),
            ]
        except TypeError as error:
            raise damaged(path, str(error)) from error
        write_state(connection, State(*row)._replace(cursors=totals[0], marks=totals[1]))


def _make_tables(connection: sqlite3.Connection, state: State) -> None:
    connection.execute(f"pragma user_version = {FORMAT}")
    for table in _TABLES:
        connection.execute(table)
    marks = ", ".join("?" * (len(State._fields) + 1))
    connection.execute(f"insert into state values (0, {marks})", (*state, row_checksum("state", *state)))


def _put_in_place(draft: str, path: str) -> None:
    """Give the new journal its name, but never in the place of another one."""
    if os.path.exists(path) and os.path.getsize(path) == 0:
        os.replace(draft, path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        raise JournalInUse(
            f"another process is creating the journal {path}, and its lock was removed; start again"
        ) from None
    except OSError:  # A file system without hard links.
        os.rename(draft, path)


def sync_directory(folder: str) -> None:
    """Make sure that a new name in it survives a loss of power."""
    if os.name == "nt":  # where a directory cannot be opened like this, nor has to be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_log = logging.getLogger("penstock.aquifer")

WAL_BYTES: Final = 16 * 1024 * 1024
"""So much is gathered in the write-ahead log before it is carried over into the main file."""
BUSY_MILLISECONDS: Final = 1000
"""How long to wait for another program, a backup for instance, that has the file locked. Then the caller is
told, and may try again."""

_HEADER: Final = struct.Struct(">60x I 4x I 28x")
"""Of the hundred bytes that every SQLite file begins with: the number of our format, and the application."""
_TYPES: Final = (str, int, int, int, int, str, str, int, str, int, int)
"""The columns of the state."""


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
            # Damage is noticed where a page is read, not only where it leads astray.
            "cell_size_check = on",
            "trusted_schema = off",
        ):
            connection.execute(f"pragma {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_database(path: str, lock: OwnerLock, *, accept_loss: bool) -> tuple[sqlite3.Connection, State]:
    """Open the journal, or create it if there is none; the caller holds the lock."""
    if os.path.isdir(path):
        raise JournalError(f"the journal {path} cannot be opened: it is a directory; name a file in it")
    if os.path.exists(path) and os.path.getsize(path):
        clear_draft(path)
    else:
        create(path)
    inspect_file(path, lock.lock_file())
    has_log = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
    connection = connect(path)
    try:
        (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        if mode != "wal":
            raise JournalError(
                f"the journal {path} cannot have a write-ahead log, as on some network file systems; "
                "put it on a local disk"
            )
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > FORMAT:
            raise _too_new(path, version)
        if version == 1:
            upgrade(connection, path)
            # Into the main file, whose first bytes an earlier version looks at before it opens anything.
            connection.execute("pragma wal_checkpoint(full)").fetchone()
        elif version != FORMAT:
            raise damaged(path, f"it says that it has format {version}")
        state = _read_state(connection, path)
        lost = loss_in(state, lock.left_behind, has_log)
        if lost is not None:
            state = _accept(lost, state, path, accept_loss)
    except BaseException:
        connection.close()
        raise
    return connection, state


def loss_in(state: State, seal: Seal | None, has_log: bool) -> str | None:
    """What is missing after a crash; None if nothing is."""
    if seal is not None and seal.epoch == state.epoch:
        missing = seal.serial - state.serial
        return f"the last {missing} transactions are missing" if missing > 0 else None
    if state.opened and not has_log:
        return "its write-ahead log is missing, which may have had its newest records"
    return None


def _accept(lost: str, state: State, path: str, accept_loss: bool) -> State:
    if not accept_loss:
        raise JournalDamaged(
            f"the journal {path} was not closed in order, and {lost}: was the file {path}-wal removed, or a "
            "copy restored without it? Put it back. If it is gone for good, open the journal with "
            "accept_loss=True (penstock gateway --accept-loss): what is left is kept and gets a new epoch, "
            "so that no reader takes new records for old ones"
        )
    _log.warning("the journal %s continues with a new epoch: %s", path, lost)
    return state._replace(epoch=secrets.token_hex(6))


def state_in(connection: sqlite3.Connection, path: str) -> State:
    """The state; JournalDamaged unless it is what was written."""
    row = connection.execute(f"select {', '.join(State._fields)}, crc from state").fetchone()
    if row is None:
        raise damaged(path, "it does not say where its records begin and end")
    *values, crc = row
    if tuple(map(type, values)) != _TYPES or crc != row_checksum("state", *values):
        raise damaged(path, "what it says of itself is not what was written")
    return State(*values)


def _read_state(connection: sqlite3.Connection, path: str) -> State:
    """The state; JournalDamaged unless it is what was written, and the batches at both ends agree with it."""
    state = state_in(connection, path)
    oldest = connection.execute(
        f"select {HEAD_COLUMNS} from batches where first >= ? order by first limit 1", (state.first,)
    ).fetchone()
    newest = connection.execute(
        f"select {HEAD_COLUMNS}, length(notes) + length(payload) from batches "
        "where first >= ? order by first desc limit 1",
        (state.first,),
    ).fetchone()
    if oldest is None or newest is None:
        # Without batches the log begins where it ends.
        agree = state.start == state.end
    else:
        first, last = head_in(oldest), head_in(newest[:-1])
        agree = (
            first is not None
            and last is not None
            and first.position == state.start
            and (last.end, last.position.before) == (state.head, state.total - newest[-1])
        )
    if not agree:
        raise damaged(path, f"it should have the records {state.first} to {state.head - 1}, and has not")
    return state


def inspect_file(path: str, descriptor: int) -> None:
    """Refuse a file that is not a journal of ours, without leaving a trace in it or beside it.

    Only the first bytes are looked at, and not by SQLite: it would begin to repair and to write, and what the
    main file says of anything else may be out of date as long as there is a write-ahead log. These bytes are
    written when a journal is created, and when it is brought up to date.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    header = os.read(descriptor, _HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"SQLite format 3\0"):
        raise JournalDamaged(
            f"the file {path} is not a journal: it is not even a SQLite database, or its beginning was "
            "overwritten. Nothing was changed in it; give the journal another path, or move the file away"
        )
    version, application = _HEADER.unpack(header)
    if application != APPLICATION_ID:
        raise JournalDamaged(
            f"the file {path} is a SQLite database, but not a journal of Penstock. "
            "Nothing was changed in it; give the journal another path"
        )
    if version > FORMAT:
        raise _too_new(path, version)


def _too_new(path: str, version: int) -> JournalTooNew:
    return JournalTooNew(
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
