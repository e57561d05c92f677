"""Brings the file of an earlier version up to date, in one transaction. Its batches stay as they are."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

import penstock
from penstock.aquifer.log.schema import BATCHES, STATE, State, create_tables, transaction, write_state
from penstock.aquifer.log.sqlite_rows import (
    CURSORS,
    HEAD_COLUMNS,
    MARKS,
    SEGMENTS,
    CheckedTable,
    damaged,
    row_checksum,
)

__all__ = ["ROW_COLUMNS_OF_TWO", "state_in_two", "upgrade"]

ROW_COLUMNS_OF_TWO: Final = f"{HEAD_COLUMNS}, format, notes, payload, null, null, null, null"
"""The columns of a batch as those of a later format: its records are in the row."""
_COLUMNS_OF_TWO: Final = "epoch, first, before, head, total, software, codec, serial, opened, cursors, marks"
_SINCE_THREE: Final = ("segment text", "place integer", "notes_bytes integer", "payload_bytes integer")
"""Columns of the batches: where their records are, if they are in a segment file."""


def upgrade(connection: sqlite3.Connection, path: str, version: int) -> None:
    """Bring a file of format 1 or 2 up to date."""
    with transaction(connection):
        columns = {name for _, name, *_ in connection.execute("pragma table_info(state)")}
        if ("crc" in columns) != (version == 2) or "segments" in columns:
            raise damaged(path, f"it says that it has format {version}, but it does not")
        if version == 1:
            _from_one(connection, path)
        else:
            _from_two(connection, path)
        for column in _SINCE_THREE:
            connection.execute(f"alter table {BATCHES} add column {column}")


def state_in_two(connection: sqlite3.Connection, path: str) -> State:
    """The state in a file of format 2; JournalDamaged unless it is what was written."""
    row = connection.execute(f"select {_COLUMNS_OF_TWO}, crc from {STATE}").fetchone()
    if row is None:
        raise damaged(path, "it does not say where its records begin and end")
    *values, crc = row
    if crc != row_checksum(STATE, *values):
        raise damaged(path, "what it says of itself is not what was written")
    return State(*values)


def _from_two(connection: sqlite3.Connection, path: str) -> None:
    """What is new is where the records of large groups are: the file has none of these yet."""
    state = state_in_two(connection, path)
    connection.execute(f"drop table {STATE}")
    create_tables(connection, state._replace(software=penstock.__version__), SEGMENTS)


def _from_one(connection: sqlite3.Connection, path: str) -> None:
    """What is new is a checksum for every row, the owners of cursors, and leases that do not run always."""
    row = connection.execute("select epoch, first, before, head, total from state").fetchone()
    cursors = connection.execute("select name, acknowledged, lease_ms from cursors").fetchall()
    marks = connection.execute("select name, value from marks").fetchall()
    if row is None or tuple(map(type, row)) != (str, int, int, int, int):
        raise damaged(path, "it does not say where its records begin and end")
    for table in (STATE, CURSORS, MARKS):
        connection.execute(f"drop table {table}")
    create_tables(connection, State(*row), CURSORS, MARKS, SEGMENTS)
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
