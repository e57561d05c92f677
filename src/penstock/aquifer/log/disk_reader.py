"""Reads batches back from the disk, for subscribers that are too far behind for the batches in memory."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from penstock.aquifer.errors import JournalDamaged, JournalError
from penstock.aquifer.log.batch_sequence import BatchSequence, Position
from penstock.aquifer.log.run_cache import RUN_BATCHES, RunCache
from penstock.aquifer.log.segments import SegmentFile, SegmentFileReader
from penstock.aquifer.log.sqlite_rows import (
    HEAD_COLUMNS,
    as_journal_errors,
    damaged,
    head_in,
    records_checksum,
)
from penstock.aquifer.records.batch import Batch

__all__ = ["ROW_COLUMNS", "DiskReader", "checked_batch"]

ROW_COLUMNS: Final = f"{HEAD_COLUMNS}, format, notes, payload, segment, place, notes_bytes, payload_bytes"
"""What :func:`checked_batch` takes."""

# The innermost select finds the batch that an offset is in, wherever in it that is.
_FROM_OFFSET: Final = f"""
    select {ROW_COLUMNS} from batches
    where first >= (select first from batches where first <= ? order by first desc limit 1)
    order by first
"""


def checked_batch(path: str, row: tuple[Any, ...], segments: SegmentFileReader) -> tuple[Position, Batch]:
    """The batch in a row, and where it is; JournalDamaged if it is not what was written."""
    head = head_in(row[:5])
    first, count, _, _, crc, format_name, notes, payload, segment, place, *sizes = row
    # A damaged row may have anything in any column.
    if head is None or not isinstance(format_name, str):
        raise damaged(path, f"the batch at {first} is not what was written")
    if segment is not None:
        if not isinstance(segment, str) or not all(isinstance(value, int) for value in (place, *sizes)):
            raise damaged(path, f"the batch at {first} is not what was written")
        notes, payload = segments.read(segment, place, sizes)
    if not (isinstance(notes, bytes) and isinstance(payload, bytes)):
        raise damaged(path, f"the batch at {first} is not what was written")
    batch = Batch(first, count, payload, notes, format_name)
    if records_checksum(batch) != crc & 0xFFFF_FFFF:
        raise damaged(path, f"the records {first} to {batch.end - 1} are not what was written")
    return head.position, batch


class DiskReader:
    """Finds batches through a connection of its own, from any thread."""

    def __init__(self, connection: sqlite3.Connection, path: str, cache_bytes: int) -> None:
        self.lock = threading.Lock()
        """While it is held, no thread reads."""
        self._connection: sqlite3.Connection | None = connection
        self._path = path
        self._segments = SegmentFileReader(path)
        self._cache = RunCache(cache_bytes)

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it; None if the disk does not have it."""
        with self.lock:
            run = self._cache.run_with(offset)
            if run is None:
                with as_journal_errors(self._path):
                    run = self._read(offset)
                if run.end != run.start:
                    self._cache.keep(run)
            return run.find(offset)

    def forget(self, files: Iterable[SegmentFile]) -> None:
        """Let go of segment files that are removed."""
        with self.lock:
            self._segments.forget(files)

    def close(self) -> None:
        """Wait until nobody reads, and close the file. It can be called again."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._segments.close()
            self._cache.clear()

    def _read(self, offset: int) -> BatchSequence:
        if self._connection is None:
            raise JournalError(f"the journal {self._path} is closed; open it again")
        run = BatchSequence(Position(offset, 0))
        rows_left = RUN_BATCHES
        with closing(self._connection.cursor()) as rows:
            rows.execute(_FROM_OFFSET, (offset,))
            try:
                for row in rows:
                    position, batch = checked_batch(self._path, row, self._segments)
                    if run.end == run.start:
                        run = BatchSequence(position)
                    if run.end != position:
                        raise damaged(self._path, f"the records before {batch.first} are missing")
                    run.extend((batch,))
                    rows_left -= 1
                    if run.nbytes >= self._cache.run_bytes or not rows_left:
                        break
            except (sqlite3.DatabaseError, JournalDamaged):
                # Only a reader that reaches the damage is told of it.
                if run.end == run.start:
                    raise
        return run
