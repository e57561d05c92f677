"""The tables of a journal file, how a new file comes to be, and how an older one is brought up to date.

A batch is one row. Beside its bytes a row has the number of bytes that were ever stored before it, so that
the size of any stretch of the log is a difference between two rows. The table ``state`` has one row, which
tells where the log begins and ends; it is changed in the same transaction as everything else, and still tells
it when there are no batches left. Every row has a checksum.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import penstock
from penstock.aquifer.errors import JournalDamaged, JournalInUse
from penstock.aquifer.log.batch_window import Position
from penstock.aquifer.log.sqlite_errors import damaged
from penstock.aquifer.log.sqlite_rows import CURSORS, MARKS, CheckedTable, row_checksum

__all__ = [
    "APPLICATION_ID",
    "FORMAT",
    "PAGE_BYTES",
    "State",
    "clear_draft",
    "create",
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
    _sync_directory(os.path.dirname(path))


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


def _sync_directory(folder: str) -> None:
    """Make sure that a new name in it survives a loss of power."""
    if os.name == "nt":  # where a directory cannot be opened like this, nor has to be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
