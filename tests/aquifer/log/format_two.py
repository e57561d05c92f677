"""A journal file as it was before there were segment files."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from penstock.aquifer.log.schema import APPLICATION_ID
from penstock.aquifer.log.sqlite_rows import batch_checksum
from penstock.aquifer.records.batch import Batch

EPOCH = "ba9876543210"

_TABLES = """
    pragma page_size = 16384;
    create table batches (
        first integer primary key,
        count integer not null,
        before integer not null,
        stored real not null,
        format text not null,
        crc integer not null,
        notes blob not null,
        payload blob not null
    );
    create table state (
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
    );
    create table cursors (
        name text primary key,
        acknowledged integer not null,
        lease_ms integer not null,
        remaining real not null,
        owner text,
        crc integer not null
    ) without rowid;
    create table marks (
        name text primary key,
        value text not null,
        written real not null,
        crc integer not null
    ) without rowid;
    pragma user_version = 2;
"""


def _checksum(*values: object) -> int:
    return zlib.crc32(ascii(values).encode("ascii"))


def write_format_two(path: Path, batches: Sequence[Batch], *, stored: float = 1_700_000_000.0) -> None:
    """A closed journal with these batches, the cursor of Ann at 2, and a mark of a writer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(_TABLES)
        old.execute(f"pragma application_id = {APPLICATION_ID}")
        before = 0
        for batch in batches:
            crc = batch_checksum(batch, before, stored)
            old.execute(
                "insert into batches values (?, ?, ?, ?, ?, ?, ?, ?)",
                (batch.first, batch.count, before, stored, batch.format, crc, batch.metadata, batch.payload),
            )
            before += batch.nbytes
        cursor = "ann", 2, 60_000, 60.0, "a key"
        mark = "delivered:totals", "31", 1_700_000_000.0
        cursors, marks = _checksum("cursors", *cursor), _checksum("marks", *mark)
        old.execute("insert into cursors values (?, ?, ?, ?, ?, ?)", (*cursor, cursors))
        old.execute("insert into marks values (?, ?, ?, ?)", (*mark, marks))
        end = batches[-1].end if batches else 0
        state = EPOCH, 0, 0, end, before, "0.2", "", 7, "", cursors, marks
        old.execute(
            "insert into state values (0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*state, _checksum("state", *state)),
        )
        old.execute("pragma journal_mode = wal")
