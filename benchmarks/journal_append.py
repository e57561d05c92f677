"""What does a journal cost the writer of a gateway, in processor time, and what would another layout cost?

The writer packs groups of records and appends each of them. The journal puts large groups into segment files;
the last two alternatives are the same journal with everything in the SQLite file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measuring import Alternative, Question
from benchmarks.processes import RECORD
from penstock.aquifer import Journal, MemoryJournal, SqliteJournal
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import database, segments
from penstock.aquifer.records.batch import Batch
from penstock.aquifer.records.codecs import codec_named
from penstock.aquifer.records.packer import Packer

__all__ = ["question"]

GROUPS = {"small": 2_500, "large": 50_000}
"""Elements in a transaction: about one batch, and the most that the writer takes."""


@contextmanager
def question() -> Iterator[Question]:
    """Groups of both sizes; the groups are compared with packing alone."""
    yield Question(
        name="journal_append",
        title="records of 100 bytes, packed and appended by one thread",
        elements=200_000,
        base="packed, large groups",
        expected=lambda n: n,
        unit="record",
        alternatives=tuple(
            Alternative(f"{name}, {size} groups", partial(run, group), base=f"packed, {size} groups")
            for size, group in GROUPS.items()
            for name, run in (
                ("packed", _packed),
                ("MemoryJournal", _in_memory),
                ("SqliteJournal", _in_sqlite),
                ("SqliteJournal without segment files", _without_segments),
                ("SqliteJournal without segment files, pages of 64 KB", _with_large_pages),
            )
        ),
    )


Append = Callable[[list[Batch]], None]


def _append_all(group: int, records: int, append: Append) -> int:
    packer, head = Packer(codec_named("bytes"), Limits()), 0
    while head < records:
        batches = packer.pack([RECORD] * min(group, records - head), head).batches
        append(batches)
        head = batches[-1].end
    return head


def _packed(group: int, records: int) -> int:
    return _append_all(group, records, lambda batches: None)


def _in_memory(group: int, records: int) -> int:
    return _in_journal(MemoryJournal(max_bytes=None), group, records)


def _in_sqlite(group: int, records: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return _in_journal(SqliteJournal(Path(folder, "journal.db")), group, records)


def _without_segments(group: int, records: int) -> int:
    usual = segments.INLINE_BYTES
    segments.INLINE_BYTES = 2**62  # type: ignore[misc]
    try:
        return _in_sqlite(group, records)
    finally:
        segments.INLINE_BYTES = usual  # type: ignore[misc]


def _with_large_pages(group: int, records: int) -> int:
    usual = database.PAGE_BYTES
    database.PAGE_BYTES = 64 * 1024  # type: ignore[misc]
    try:
        return _without_segments(group, records)
    finally:
        database.PAGE_BYTES = usual  # type: ignore[misc]


def _in_journal(journal: Journal, group: int, records: int) -> int:
    with closing(journal):
        _append_all(group, records, journal.append)
        return journal.head
