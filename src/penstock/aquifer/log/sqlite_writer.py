"""Writes the files of a :class:`~penstock.aquifer.SqliteJournal`: one transaction after the other.

What a transaction stores becomes true for the writer only when it is committed. If it fails, the next one
begins where the last one that was committed has ended.
"""

from __future__ import annotations

import math
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Final

import penstock
from penstock.aquifer.errors import (
    JournalDamaged,
    JournalFull,
    JournalInUse,
    JournalLocked,
    JournalUnavailable,
)
from penstock.aquifer.log import segments
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.database import BUSY_MILLISECONDS, WAL_BYTES, connect
from penstock.aquifer.log.disk_reader import DiskReader
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.log.marks import Mark, Marks
from penstock.aquifer.log.ownership import JournalFiles, OwnerLock
from penstock.aquifer.log.schema import (
    State,
    may_have_compressed,
    note_compressed,
    transaction,
    write_state,
)
from penstock.aquifer.log.segments import SegmentFile, SegmentFileWriter, place_in, problems_of
from penstock.aquifer.log.sqlite_rows import (
    CURSORS,
    HEAD_COLUMNS,
    MARKS,
    SEGMENTS,
    BatchHead,
    CheckedTable,
    as_journal_errors,
    batch_checksum,
    damaged,
    head_in,
)
from penstock.aquifer.records.batch import Batch

__all__ = ["SqliteWriter"]

_MIB: Final = 1024 * 1024
_WAL_TOO_LONG: Final = 4 * WAL_BYTES
"""If readers keep SQLite from restarting the write-ahead log beyond this size, they have to wait."""
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
"""Bytes that SQLite puts before the write-ahead log, and before each page in it."""
_PATIENCE_AT_THE_END: Final = 5000
"""Milliseconds that the last transaction waits for another program, because it cannot be tried again."""
_DELETED_AT_ONCE: Final = 16 * _MIB
_ROWS_DELETED_AT_ONCE: Final = 4096
"""Each transaction deletes so much, or four times what it adds if that is more: it must not fall behind."""
_NOTHING_STORED: Final = JournalFull, JournalLocked, JournalUnavailable
"""After these it is certain that the transaction was undone."""
_INSERT: Final = "insert into batches values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _large(batches: Sequence[Batch]) -> bool:
    """Whether the batches of a transaction go to a segment file."""
    return bool(batches) and sum(batch.nbytes for batch in batches) >= segments.INLINE_BYTES


class SqliteWriter:
    """The files of one journal, as their owner sees them; one thread calls everything but the reader."""

    def __init__(self, path: str, connection: sqlite3.Connection, lock: OwnerLock, state: State) -> None:
        self.connection = connection
        self.state = state
        """What the file says of itself since the last transaction."""
        self._path = path
        self._lock = lock
        self._compressed = may_have_compressed(connection, path, state.first)
        """Whether the file says that batches in it may be compressed."""
        self._token = secrets.token_hex(8)
        self._wal_bytes = 0
        """How long the write-ahead log was when it was looked at last."""
        self._is_to_carry_over = False
        """Whether the main file lacks something that it should say at once."""
        self._cursor_table = CheckedTable(connection, path, CURSORS)
        self._mark_table = CheckedTable(connection, path, MARKS)
        self._segment_table = CheckedTable(connection, path, SEGMENTS)
        self._disk = ThreadPoolExecutor(1, "penstock-journal")
        """Writes segment files, while this thread computes checksums and talks to SQLite."""

    def cursors(self) -> dict[str, Cursor]:
        """The cursors in the file."""
        stored = self._cursor_table.load(self.state.cursors)
        return {name: Cursor(*values) for name, values in stored}

    def marks(self) -> Marks:
        """The marks in the file."""
        stored = self._mark_table.load(self.state.marks)
        return Marks((name, Mark(*values)) for name, values in stored)

    def open_segments(self, max_bytes: int | None, cache_bytes: int) -> None:
        """Check the segment files, and open a reader for them and for the file."""
        rows = self._segment_table.load(self.state.segments)
        files = [SegmentFile(name, *values) for name, values in rows]
        self.segments = SegmentFileWriter(self._path, files, max_bytes)
        for problem in problems_of(self._path, (file for file in files if file.end > self.state.first)):
            raise problem
        self.segments.remove_strangers()
        self.reader = DiskReader(connect(self._path), self._path, cache_bytes)
        self._files = JournalFiles(self._path)

    def head_of(self, which: str, values: tuple[float, ...]) -> BatchHead | None:
        """The first batch in this order, without its records."""
        with as_journal_errors(self._path):
            row = self.connection.execute(
                f"select {HEAD_COLUMNS} from batches where {which} limit 1", values
            ).fetchone()
        if row is None:
            return None
        head = head_in(row)
        if head is None:
            raise damaged(self._path, f"the batch at {row[0]} is not what was written")
        return head

    def has_forgotten(self, first: int) -> bool:
        """Whether the file has batches before this offset, which are to be deleted."""
        return self._oldest_before(first) is not None

    def has_needless_segments(self, first: int) -> bool:
        """Whether there are segment files whose space the next transaction gives back to the disk."""
        return bool(self.segments.forgotten_before(first, None))

    def check_files(self) -> None:
        """JournalDamaged if the files are not there any more."""
        with as_journal_errors(self._path):
            self._files.check_all()
            self._check_wal()
            self.segments.check_all()

    # ---------------------------------------------------------------- a transaction
    def store(
        self,
        batches: Sequence[Batch],
        start: Position,
        end: Position,
        *,
        codec: str,
        now: float,
        cursors: Mapping[str, Cursor | None],
        marks: Mapping[str, Mark | None],
        closing: bool,
    ) -> bool:
        """Bring the files up to date: the log goes from ``start`` to ``end``, and the batches are new in it.

        Returns whether to call :meth:`carry_over`.
        """
        with as_journal_errors(self._path):
            if self._check_wal() > _WAL_TOO_LONG:
                self._shorten_wal()
            self.segments.check()
            if batches:
                self.segments.check_length()
        file = self.segments.next_file(batches) if _large(batches) else None
        forgotten = self.segments.forgotten_before(start.offset, file)
        files: dict[str, tuple[int, int] | None] = dict.fromkeys((gone.name for gone in forgotten), None)
        if file is not None:
            files[file.name] = file.end, file.size
        before = self.state
        first_compressed = not self._compressed and any(batch.compressed for batch in batches)
        try:
            with as_journal_errors(self._path), transaction(self.connection):
                # First of all: if the journal belongs to another process now, store nothing.
                state = State(
                    before.epoch,
                    *start,
                    *end,
                    penstock.__version__ if first_compressed else before.software,
                    codec,
                    before.serial + 1,
                    "" if closing else self._token,
                    self._cursor_table.write(cursors),
                    self._mark_table.write(marks),
                    self._segment_table.write(files),
                )
                if not write_state(self.connection, state, before.opened):
                    raise self._not_ours_any_more()
                if first_compressed:
                    note_compressed(self.connection)
                # Deleted before, so that the new batches get their pages and the file does not grow.
                self._delete_before(start.offset, end.before - before.total, len(batches))
                with self._writing(file, batches):
                    self.connection.executemany(_INSERT, _rows(batches, before.total, now, file))
        except BaseException as error:
            self.segments.undo(certain=isinstance(error, _NOTHING_STORED))
            raise
        self._lock.seal(state.epoch, state.serial)
        self.state = state
        self._compressed |= first_compressed
        if files:
            self._segment_table.written(files, state.segments)
            self.reader.forget(forgotten)
            self.segments.committed(file, forgotten)
        if cursors:
            self._cursor_table.written(cursors, state.cursors)
        if marks:
            self._mark_table.written(marks, state.marks)
        self._is_to_carry_over |= first_compressed or bool(state.opened and state.opened != before.opened)
        return self._is_to_carry_over

    @contextmanager
    def _writing(self, file: SegmentFile | None, batches: Sequence[Batch]) -> Iterator[None]:
        """Write a segment file on another thread meanwhile; after it, the records are on the disk."""
        if file is None:
            yield
            return
        try:
            written = self._disk.submit(self.segments.write, file, batches)
        except RuntimeError:  # The interpreter is about to end, or the system has no more threads.
            self.segments.write(file, batches)
            yield
            return
        try:
            try:
                yield
            finally:
                _wait_for(written)  # Whatever has happened: nothing is undone while it is being written.
            written.result()
        finally:
            # An error in it has this frame in its traceback. The batches must not wait for the collector.
            del written

    def _not_ours_any_more(self) -> JournalInUse:
        return JournalInUse(
            f"the journal {self._path} was opened by another gateway, although this one has it open: was the "
            f"file {self._path}-lock removed? This one stores nothing any more; let one of the two run"
        )

    def _oldest_before(self, first: int) -> BatchHead | None:
        return self.head_of("first < ? order by first", (first,))

    def _delete_before(self, first: int, added_bytes: int, added_rows: int) -> None:
        oldest = self._oldest_before(first)
        if oldest is None:
            return
        self.connection.execute(
            "delete from batches where first <= (select max(first) from (select first from batches "
            "where first < ? and before <= ? order by first limit ?))",
            (
                first,
                oldest.position.before + max(_DELETED_AT_ONCE, 4 * added_bytes),
                max(_ROWS_DELETED_AT_ONCE, 4 * added_rows),
            ),
        )

    # ---------------------------------------------------------------- the write-ahead log
    def _check_wal(self) -> int:
        """JournalDamaged if somebody has cut the log, or removed a file; returns how long the log is.

        SQLite would go on behind the cut, and after a crash it would find nothing of what is there.
        """
        nbytes = self._files.check()
        if nbytes < self._wal_bytes and nbytes < self._wal_needed():
            raise self._files.was_cut()
        self._wal_bytes = nbytes
        return nbytes

    def _wal_needed(self) -> float:
        """How long the log has to be. A program that carries all of it over may cut it as well."""
        try:
            with as_journal_errors(self._path):
                _, frames, _ = self.connection.execute("pragma wal_checkpoint(passive)").fetchone()
                (page_bytes,) = self.connection.execute("pragma page_size").fetchone()
        except JournalDamaged:
            return math.inf  # What is to be carried over is not there.
        except _NOTHING_STORED:
            return 0
        return _WAL_HEADER + frames * (_FRAME_HEADER + page_bytes) if frames > 0 else 0

    def carry_over(self) -> None:
        """Carry the log over into the main file; if another program reads now, a part waits until later.

        On a full disk all of it waits until after the next transaction. The last one is safe in the log, and
        its caller must not be told that it failed.
        """
        with suppress(*_NOTHING_STORED), as_journal_errors(self._path):
            self.connection.execute("pragma wal_checkpoint(passive)").fetchone()
            self._is_to_carry_over = False

    def restart_wal(self) -> bool:
        """Carry the whole log over on a full disk, and let the next transaction write to its beginning.

        The log keeps its length: what it has of the disk is ours. False if the main file has no space either,
        or another program reads.
        """
        return self._carry_all_over("restart")

    def _shorten_wal(self) -> None:
        """Keep the write-ahead log from growing forever.

        SQLite itself carries it over into the main file whenever it has ``WAL_BYTES``, and then starts it
        again, unless somebody happens to be reading. This is for the case that somebody always is.
        """
        # On a full disk the append may still find room in the log that is there.
        self._carry_all_over("truncate")

    def _carry_all_over(self, how: str) -> bool:
        with self.reader.lock, suppress(JournalFull), as_journal_errors(self._path):
            # Our own readers wait for the lock; the reader of another program would hold up every append.
            self.connection.execute("pragma busy_timeout = 0")
            try:
                busy, *_ = self.connection.execute(f"pragma wal_checkpoint({how})").fetchone()
                return not busy
            finally:
                self.connection.execute(f"pragma busy_timeout = {BUSY_MILLISECONDS}")
        return False

    def empty_wal(self) -> None:
        """Carry the whole log over, and begin a new one."""
        self.connection.execute("pragma wal_checkpoint(truncate)").fetchone()

    # ---------------------------------------------------------------- the end
    def wait_longer(self) -> None:
        """Wait longer for another program that has the file locked: what follows cannot be tried again."""
        with as_journal_errors(self._path):
            self.connection.execute(f"pragma busy_timeout = {_PATIENCE_AT_THE_END}")

    def close(self) -> None:
        """Close the files."""
        self._disk.shutdown()
        self.reader.close()
        self.segments.close()
        self.connection.close()


def _wait_for(written: Future[None]) -> None:
    """Wait until it is done, also if this thread is interrupted."""
    interruption: BaseException | None = None
    while not written.done():
        try:
            wait([written])
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption


def _rows(
    batches: Sequence[Batch], before: int, now: float, file: SegmentFile | None
) -> Iterator[tuple[object, ...]]:
    place = place_in(file, batches) if file is not None else 0
    for batch in batches:
        crc = batch_checksum(batch, before, now)
        head = batch.first, batch.count, before, now, batch.format, crc
        if file is None:
            yield *head, batch.metadata, batch.payload, None, None, None, None
        else:
            yield *head, b"", b"", file.name, place, len(batch.metadata), len(batch.payload)
        before += batch.nbytes
        place += batch.nbytes
