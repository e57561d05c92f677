"""The tables of a journal, and the row in which it says what it knows of itself.

A batch is one row. Beside its bytes a row has the number of bytes that were ever stored before it, so that
the size of any stretch of the log is a difference between two rows. The records of large groups are in
segment files; then the row has no bytes, but says where they are. The table ``state`` has one row, which
says where the log begins and ends; it changes in the same transaction as everything else, and still says so
when there are no batches left. Every row has a checksum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import penstock
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.journal import lacks_zstd
from penstock.aquifer.log.sqlite_rows import CURSORS, MARKS, SEGMENTS, damaged, row_checksum
from penstock.aquifer.records.compression import knows_zstd

__all__ = [
    "APPLICATION_ID",
    "BATCHES",
    "FORMAT",
    "FORMAT_WITH_ZSTD",
    "STATE",
    "State",
    "create_tables",
    "may_have_compressed",
    "note_compressed",
    "state_in",
    "transaction",
    "write_state",
]

APPLICATION_ID: Final = 0x50_53_41_4A
"""Marks a SQLite file as a journal of ours: the letters PSAJ."""
FORMAT: Final = 3
"""The layout of the tables. If you raise it, put the version that can read it into ``state.software``, so
that older versions can tell which one is needed."""
FORMAT_WITH_ZSTD: Final = 4
"""The same tables with batches that are compressed, which earlier versions could not read."""
BATCHES: Final = "batches"
STATE: Final = "state"

_COLUMNS: Final = {
    BATCHES: """(
    first integer primary key,
    count integer not null,
    before integer not null,
    stored real not null,
    format text not null,
    crc integer not null,
    notes blob not null,
    payload blob not null,
    segment text,
    place integer,
    notes_bytes integer,
    payload_bytes integer
)""",
    STATE: """(
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
        segments integer not null,
        crc integer not null
    )""",
    CURSORS: """(
        name text primary key,
        acknowledged integer not null,
        lease_ms integer not null,
        remaining real not null,
        owner text,
        crc integer not null
    ) without rowid""",
    MARKS: """(
        name text primary key,
        value text not null,
        written real not null,
        crc integer not null
    ) without rowid""",
    SEGMENTS: """(
        name text primary key,
        end integer not null,
        size integer not null,
        crc integer not null
    ) without rowid""",
}


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
    segments: int = 0
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
_COMPRESSED: Final = "select 1 from batches where first >= ? and format like '%+zstd' limit 1"


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


def create_tables(connection: sqlite3.Connection, state: State, *others: str) -> None:
    """Make the table of the state, with this in it, and others, inside a transaction."""
    connection.execute(f"pragma user_version = {FORMAT}")
    for table in (STATE, *others):
        connection.execute(f"create table {table} {_COLUMNS[table]}")
    marks = ", ".join("?" * (len(State._fields) + 1))
    connection.execute(f"insert into state values (0, {marks})", (*state, row_checksum("state", *state)))


def may_have_compressed(connection: sqlite3.Connection, path: str, first: int) -> bool:
    """Whether batches may be compressed; JournalError if some from ``first`` on are and cannot be read."""
    (version,) = connection.execute("pragma user_version").fetchone()
    if version != FORMAT_WITH_ZSTD:
        return False
    if not knows_zstd() and connection.execute(_COMPRESSED, (first,)).fetchone() is not None:
        raise lacks_zstd(path)
    return True


def note_compressed(connection: sqlite3.Connection) -> None:
    """Say that batches may be compressed, inside a transaction."""
    connection.execute(f"pragma user_version = {FORMAT_WITH_ZSTD}")


_TYPES: Final = (str, int, int, int, int, str, str, int, str, int, int, int)
"""The columns of the state."""


def state_in(connection: sqlite3.Connection, path: str) -> State:
    """The state; JournalDamaged unless it is what was written."""
    row = connection.execute(f"select {', '.join(State._fields)}, crc from state").fetchone()
    if row is None:
        raise damaged(path, "it does not say where its records begin and end")
    *values, crc = row
    if tuple(map(type, values)) != _TYPES or crc != row_checksum("state", *values):
        raise damaged(path, "what it says of itself is not what was written")
    return State(*values)
