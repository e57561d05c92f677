"""The journal that survives its process: a SQLite file, and segment files for large groups of records.

**What is safe.** When :meth:`SqliteJournal.append` returns, its batches, the marks and the cursors have been
written and synced to the disk (write-ahead log, ``synchronous=full``): neither a killed process nor a loss of
power takes them away, as far as the disk keeps what it says it has written. The records of a large group are
in a segment file, which is synced before the transaction is committed. What was being appended in that
moment is there wholly or not at all. If the end of the write-ahead log was not synced and is torn, exactly
the appends that had not returned are missing, and the log continues from there.

**What may come back.** Forgetting is not urgent: batches that :meth:`~SqliteJournal.make_space` or
:meth:`~SqliteJournal.retire` let go are deleted together with the next append or flush, so after a crash the
oldest of them may be there again. Many batches are deleted over several of these, so that none takes long.

**What is refused.** Every row has a checksum, and the file says whether it was closed in order. Damage, a
write-ahead log or a segment file that was lost, a file that was removed while it was in use, and a second
owner are noticed; nothing is read or written then that would not be what readers were told before.

**What is beside the file.** ``NAME-wal`` and ``NAME-shm`` belong to SQLite and are a part of the journal
while it is open; ``NAME-segments`` has the segment files, and is always a part of it; ``NAME-lock`` tells who
has it open, and may stay behind. All are readable by their owner alone.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import penstock
from penstock.aquifer.errors import (
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalInUse,
    JournalLocked,
    JournalUnavailable,
)
from penstock.aquifer.log import segments
from penstock.aquifer.log.batch_sequence import BatchSequence, Position, end_of
from penstock.aquifer.log.database import BUSY_MILLISECONDS, WAL_BYTES, connect, open_database
from penstock.aquifer.log.disk_reader import DiskReader
from penstock.aquifer.log.journal import (
    Cursor,
    Held,
    Journal,
    a_bound,
    a_path,
    an_age,
    check_codec,
    remaining,
)
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
from penstock.arguments import a_count, a_flag

__all__ = ["SqliteJournal"]

_MIB: Final = 1024 * 1024
_WAL_TOO_LONG: Final = 4 * WAL_BYTES
"""If readers keep SQLite from restarting the write-ahead log beyond this size, they have to wait."""
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


class SqliteJournal(Journal):
    """Keeps records in a file until their number, their size or their age reaches a bound.

    ``max_records`` and ``max_bytes`` may be None for no bound. ``max_age`` is in seconds since a batch was
    stored; None keeps batches of any age. With ``keep_acknowledged=False`` records go as soon as every
    durable subscriber has acknowledged them, and do not stay for later subscribers. ``cache_bytes`` of the
    most recent batches stay in memory, so that a subscriber that keeps up never waits for the disk;
    subscribers that are behind share as much again.

    One process has a journal open at a time. The directory must exist; the file is created.

    With ``accept_loss`` a journal is opened although its newest records were lost together with its
    write-ahead log; what is left gets a new epoch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_records: int | None = 10_000_000,
        max_bytes: int | None = 1024 * _MIB,
        max_age: float | None = None,
        keep_acknowledged: bool = True,
        cache_bytes: int = 32 * _MIB,
        accept_loss: bool = False,
    ) -> None:
        self.path = a_path(path, "SqliteJournal(path)")
        """The file, with symbolic links resolved."""
        self.max_records = a_bound(max_records, "SqliteJournal(max_records)")
        self.max_bytes = a_bound(max_bytes, "SqliteJournal(max_bytes)")
        self._max_age = an_age(max_age, "SqliteJournal(max_age)")
        self._keep_acknowledged = a_flag(keep_acknowledged, "SqliteJournal(keep_acknowledged)")
        self._cache_bytes = a_count(cache_bytes, "SqliteJournal(cache_bytes)")
        accept_loss = a_flag(accept_loss, "SqliteJournal(accept_loss)")
        self.durable = True
        self._lock = OwnerLock(self.path)
        try:
            with as_journal_errors(self.path):
                self._connection, state = open_database(self.path, self._lock, accept_loss=accept_loss)
        except BaseException:
            self._lock.release()
            raise
        try:
            with as_journal_errors(self.path):
                self._load(state)
        except BaseException:
            self._connection.close()
            self._lock.release()
            raise

    def _load(self, state: State) -> None:
        self.epoch = state.epoch
        self._start, self._end = state.start, state.end
        self.first, self.head = state.first, state.head
        self._compressed = may_have_compressed(self._connection, self.path, state.first)
        """Whether the file says that batches in it may be compressed."""
        self._cursor_table = CheckedTable(self._connection, self.path, CURSORS)
        self._cursors: dict[str, Cursor] = {}
        self._unsaved: dict[str, Cursor | None] = {}
        for name, values in self._cursor_table.load(state.cursors):
            self._cursors[name] = Cursor(*values)
        self._mark_table = CheckedTable(self._connection, self.path, MARKS)
        self._marks = Marks((name, Mark(*values)) for name, values in self._mark_table.load(state.marks))
        self._segment_table = CheckedTable(self._connection, self.path, SEGMENTS)
        rows = self._segment_table.load(state.segments)
        files = [SegmentFile(name, *values) for name, values in rows]
        self._segments = SegmentFileWriter(self.path, files, self.max_bytes)
        for problem in problems_of(self.path, (file for file in files if file.end > self.first)):
            raise problem
        self._segments.remove_strangers()
        self._recent = BatchSequence(self._end)
        self._reader = DiskReader(connect(self.path), self.path, self._cache_bytes)
        newest = self._head_of("first < ? order by first desc", (self.head,))
        self._clock = max(time.time(), newest.stored if newest else 0.0) - time.monotonic()
        self._files = JournalFiles(self.path)
        self._state = state
        self._codec = state.codec
        """What is stored of it, if it has changed, is stored with the next transaction."""
        self._token = secrets.token_hex(8)
        try:
            # Last: from here on the file says that it is open, and by whom. If that cannot be written now, it
            # is with the first that is stored.
            with suppress(JournalFull, JournalLocked):
                self._store((), {}, self._end)
        except BaseException:
            self._reader.close()
            self._segments.close()
            raise

    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        return self._held_after(self._start)

    def held_from(self, low_watermark: int) -> Held:
        """What is left if every batch that ends at or before ``low_watermark`` is forgotten."""
        return self._held_after(self._position_of(low_watermark))

    def use_codec(self, codec: str) -> None:
        """Say what the records are encoded with; JournalError if there are records of another codec."""
        self._check_open()
        check_codec(self, self._codec, codec)
        self._codec = codec

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Store the batches, in one transaction that is on the disk when this returns.

        ValueError if they do not follow on the end of the log; JournalFull, with nothing stored, if the disk
        is full, and JournalLocked if another program has the file locked. The bounds are for
        :meth:`make_space`, not checked here.
        """
        self._check_open()
        end = end_of(batches, self._end)
        self._store(batches, marks or {}, end)
        self._recent.extend(batches)
        # From here on other threads look for them.
        self.head = end.offset
        self._recent.forget_before(self._recent.position_for(self.head, self._cache_bytes))

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it; None if it is before ``first`` or not before ``head``.

        JournalDamaged if it should be there and cannot be read, or is not what was written.
        """
        if not self.first <= offset < self.head:
            return None
        batch = self._recent.find(offset)
        if batch is not None:
            return batch
        self._check_open()
        try:
            batch = self._reader.find(offset)
        except JournalDamaged:
            if offset >= self.first:
                raise
            batch = None
        # It may have been forgotten, and deleted, while we were looking for it.
        if batch is None and offset >= self.first:
            raise damaged(self.path, f"the record {offset} is missing")
        return batch

    def make_space(self, records: int, nbytes: int, low_watermark: int) -> bool:
        """Forget the oldest batches until so much more fits; none, if ``low_watermark`` does not allow it."""
        self._check_open()
        records_left, nbytes_left = remaining(self.max_records, records), remaining(self.max_bytes, nbytes)
        held = self.held
        if held.records <= records_left and held.nbytes <= nbytes_left:
            return True
        reachable = self._position_of(low_watermark)
        most = self._held_after(reachable)
        if most.records and (most.records > records_left or most.nbytes > nbytes_left):
            return False
        head = self._head_of(
            "first >= ? and before >= ? order by first",
            (max(self.first, self.head - records_left), self._end.before - nbytes_left),
        )
        self._forget_before(head.position if head else self._end)
        return True

    def retire(self, low_watermark: int, now: float | None = None, needed: int | None = None) -> None:
        """Forget what is too old or, if so set, acknowledged, but no batch that ends after ``low_watermark``.

        What is too old goes up to ``needed``, if that is given.
        """
        self._check_open()
        if not self._keep_acknowledged:
            self._forget_before(self._position_of(low_watermark))
        if self._max_age is not None:
            reachable = self._position_of(low_watermark if needed is None else needed)
            now = self._now() if now is None else now
            head = self._head_of(
                "first >= ? and (stored > ? or first >= ?) order by first",
                (self.first, now - self._max_age, reachable.offset),
            )
            position = head.position if head else reachable
            if position.offset > self.first:
                # The last one that goes is checked: if its time is true, those before it were even older.
                self._head_of("first < ? order by first desc", (position.offset,))
                self._forget_before(position)

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable subscribers, by id, as they are now."""
        return dict(self._cursors)

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Remember, or with None forget, a cursor; stored with the next :meth:`append` or :meth:`flush`."""
        self._check_open()
        if cursor is None:
            self._cursors.pop(name, None)
        else:
            self._cursors[name] = cursor
        self._unsaved[name] = cursor

    @property
    def marks(self) -> Mapping[str, str]:
        """The marks, as they are now: a view, not a copy."""
        return self._marks.values

    def has_space_for_mark(self, name: str) -> bool:
        """Whether a mark of this name can be stored."""
        return self._marks.have_space_for(name, self._now())

    def flush(self) -> None:
        """Store the cursors that were saved since the last :meth:`append`, and delete what was forgotten.

        JournalDamaged if the files are not there any more, even if there is nothing to store.
        """
        self._check_open()
        changed = self._unsaved or self._state.start != self._start or self._state.codec != self._codec
        if changed or self._oldest_forgotten() is not None:
            self._store((), {}, self._end)
        self._files.check_all()
        self._segments.check_all()

    def close(self) -> None:
        """Store the rest and close the files. It can be called again."""
        if not self._lock.held:
            return
        closed = False
        try:
            closed = self._close_in_order()
        finally:
            self._reader.close()
            self._segments.close()
            self._connection.close()
            self._lock.release(closed=closed)

    def _close_in_order(self) -> bool:
        """Store the rest, and that the journal is closed; False if only the latter was not possible."""
        unsaved = bool(self._unsaved) or self._state.start != self._start
        with as_journal_errors(self.path):
            self._connection.execute(f"pragma busy_timeout = {_PATIENCE_AT_THE_END}")
        try:
            self._store((), {}, self._end, closing=True)
        except JournalLocked:
            if unsaved:
                raise
        except JournalFull:
            # For the end without the rest there may be room in the log, once that is carried over.
            self._unsaved.clear()
            with suppress(JournalFull, JournalLocked), as_journal_errors(self.path):
                self._connection.execute("pragma wal_checkpoint(truncate)").fetchone()
                self._store((), {}, self._end, closing=True)
            if unsaved:
                raise
        if self._state.opened:
            return False
        # What a transaction left that failed in doubt: from here on it is certain that it is not in the log.
        with suppress(OSError):
            self._segments.remove_strangers()
        return True

    def _now(self) -> float:
        """The time of day when the journal was opened, and the seconds since then.

        If the clock is set meanwhile, that makes no record older or younger.
        """
        return self._clock + time.monotonic()

    def _check_open(self) -> None:
        if not self._lock.held:
            raise JournalError(
                f"the journal {self.path} is closed, or belongs to the process that this one was forked "
                "from; open it again where it is needed"
            )

    def _held_after(self, position: Position) -> Held:
        return Held(self._end.offset - position.offset, self._end.before - position.before)

    def _position_of(self, offset: int) -> Position:
        """The beginning of the batch with this offset in it; an end of the log if there is none."""
        if offset <= self.first:
            return self._start
        if offset >= self._recent.start.offset:
            return self._recent.position_of(offset)
        head = self._head_of("first <= ? order by first desc", (offset,))
        if head is None:
            raise damaged(self.path, f"the record {offset} is missing")
        return head.position

    def _head_of(self, which: str, values: tuple[float, ...]) -> BatchHead | None:
        """The first batch in this order, without its records."""
        with as_journal_errors(self.path):
            row = self._connection.execute(
                f"select {HEAD_COLUMNS} from batches where {which} limit 1", values
            ).fetchone()
        if row is None:
            return None
        head = head_in(row)
        if head is None:
            raise damaged(self.path, f"the batch at {row[0]} is not what was written")
        return head

    def _forget_before(self, position: Position) -> None:
        if position.offset > self.first:
            self._start = position
            self.first = position.offset
            self._recent.forget_before(position)

    def _store(
        self,
        batches: Sequence[Batch],
        marks: Mapping[str, str | None],
        end: Position,
        *,
        closing: bool = False,
    ) -> None:
        """Bring the files up to date, and only then ourselves."""
        if self._files.check() > _WAL_TOO_LONG:
            self._shorten_wal()
        self._segments.check()
        cursors, now = dict(self._unsaved), self._now()
        mark_changes = self._marks.changes(marks, now) if marks else {}
        file = self._segments.next_file(batches) if _large(batches) else None
        forgotten = self._segments.forgotten_before(self.first, file)
        files: dict[str, tuple[int, int] | None] = dict.fromkeys((gone.name for gone in forgotten), None)
        if file is not None:
            files[file.name] = file.end, file.size
        before = self._state
        first_compressed = not self._compressed and any(batch.compressed for batch in batches)
        try:
            with as_journal_errors(self.path), transaction(self._connection):
                # First of all: if the journal belongs to another process now, store nothing.
                state = State(
                    before.epoch,
                    *self._start,
                    *end,
                    penstock.__version__ if first_compressed else before.software,
                    self._codec,
                    before.serial + 1,
                    "" if closing else self._token,
                    self._cursor_table.write(cursors),
                    self._mark_table.write(mark_changes),
                    self._segment_table.write(files),
                )
                if not write_state(self._connection, state, before.opened):
                    raise self._not_ours_any_more()
                if first_compressed:
                    note_compressed(self._connection)
                # Deleted before, so that the new batches get their pages and the file does not grow.
                self._delete_forgotten(end.before - self._end.before, len(batches))
                if file is not None:
                    self._segments.write(file, batches)
                self._connection.executemany(_INSERT, self._rows(batches, now, file))
        except BaseException as error:
            self._segments.undo(certain=isinstance(error, _NOTHING_STORED))
            raise
        self._lock.seal(self.epoch, state.serial)
        self._state = state
        self._compressed |= first_compressed
        if files:
            self._segment_table.written(files, state.segments)
            self._reader.forget(forgotten)
            self._segments.committed(file, forgotten)
        if cursors:
            self._cursor_table.written(cursors, state.cursors)
            self._unsaved.clear()
        if mark_changes:
            self._mark_table.written(mark_changes, state.marks)
            self._marks.apply(mark_changes)
        self._end = end
        if first_compressed or (state.opened and state.opened != before.opened):
            # Into the main file. If another program reads at this moment, a part may wait until later.
            with as_journal_errors(self.path):
                self._connection.execute("pragma wal_checkpoint(passive)").fetchone()

    def _not_ours_any_more(self) -> JournalInUse:
        return JournalInUse(
            f"the journal {self.path} was opened by another gateway, although this one has it open: was the "
            f"file {self.path}-lock removed? This one stores nothing any more; let one of the two run"
        )

    def _rows(
        self, batches: Sequence[Batch], now: float, file: SegmentFile | None
    ) -> Iterator[tuple[object, ...]]:
        before = self._end.before
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

    def _oldest_forgotten(self) -> BatchHead | None:
        return self._head_of("first < ? order by first", (self.first,))

    def _delete_forgotten(self, added_bytes: int, added_rows: int) -> None:
        oldest = self._oldest_forgotten()
        if oldest is None:
            return
        self._connection.execute(
            "delete from batches where first <= (select max(first) from (select first from batches "
            "where first < ? and before <= ? order by first limit ?))",
            (
                self.first,
                oldest.position.before + max(_DELETED_AT_ONCE, 4 * added_bytes),
                max(_ROWS_DELETED_AT_ONCE, 4 * added_rows),
            ),
        )

    def _shorten_wal(self) -> None:
        """Keep the write-ahead log from growing forever.

        SQLite itself carries it over into the main file whenever it has ``WAL_BYTES``, and then starts it
        again, unless somebody happens to be reading. This is for the case that somebody always is.
        """
        # On a full disk the append may still find room in the log that is there.
        with self._reader.lock, suppress(JournalFull), as_journal_errors(self.path):
            # Our own readers are waiting; for the reader of a stranger, every append would wait in vain.
            self._connection.execute("pragma busy_timeout = 0")
            try:
                self._connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            finally:
                self._connection.execute(f"pragma busy_timeout = {BUSY_MILLISECONDS}")
