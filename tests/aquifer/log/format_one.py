"""A journal file as Penstock 0.1 wrote it: without checksums for anything but batches."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from penstock.aquifer.log.schema import APPLICATION_ID
from penstock.aquifer.records.batch import Batch

EPOCH = "0123456789ab"

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
        software text not null
    );
    create table cursors (
        name text primary key,
        acknowledged integer not null,
        lease_ms integer not null,
        seen real not null
    ) without rowid;
    create table marks (name text primary key, value text not null) without rowid;
    pragma user_version = 1;
"""


def write_format_one(path: Path, batches: Sequence[Batch], *, stored: float = 1_700_000_000.0) -> None:
    """A closed journal with these batches, the cursor of Ann at 2, and a mark of a writer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(_TABLES)
        old.execute(f"pragma application_id = {APPLICATION_ID}")
        before = 0
        for batch in batches:
            described = zlib.crc32(b"%d %d %s" % (batch.first, batch.count, batch.format.encode()))
            crc = zlib.crc32(batch.payload, zlib.crc32(batch.metadata, described))
            old.execute(
                "insert into batches values (?, ?, ?, ?, ?, ?, ?, ?)",
                (batch.first, batch.count, before, stored, batch.format, crc, batch.metadata, batch.payload),
            )
            before += batch.nbytes
        end = batches[-1].end if batches else 0
        old.execute("insert into state values (0, ?, 0, 0, ?, ?, '0.1')", (EPOCH, end, before))
        old.execute("insert into cursors values ('ann', 2, 60000, 1767225600.5)")
        old.execute("insert into marks values ('delivered:totals', '31')")
        old.execute("pragma journal_mode = wal")
