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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalFull, JournalLocked
from penstock.aquifer.log.annotated_journal import AnnotatedJournal
from penstock.aquifer.log.batch_sequence import BatchSequence, Position, end_of
from penstock.aquifer.log.database import open_database
from penstock.aquifer.log.journal import Cursor, Held, a_bound, a_path, an_age, remaining
from penstock.aquifer.log.ownership import OwnerLock
from penstock.aquifer.log.schema import State
from penstock.aquifer.log.spool import Spool, in_memory
from penstock.aquifer.log.sqlite_rows import as_journal_errors, damaged
from penstock.aquifer.log.sqlite_writer import SqliteWriter
from penstock.aquifer.records.batch import Batch
from penstock.arguments import a_count, a_flag

__all__ = ["SqliteJournal"]

_MIB: Final = 1024 * 1024


class SqliteJournal(AnnotatedJournal):
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
                connection, state = open_database(self.path, self._lock, accept_loss=accept_loss)
        except BaseException:
            self._lock.release()
            raise
        try:
            with as_journal_errors(self.path):
                self._writer = SqliteWriter(self.path, connection, self._lock, state)
                self._load(state)
        except BaseException:
            connection.close()
            self._lock.release()
            raise

    def _load(self, state: State) -> None:
        self.epoch = state.epoch
        self._start, self._end = state.start, state.end
        self.first, self.head = state.first, state.head
        self._unsaved: dict[str, Cursor | None] = {}
        self._cursors = self._writer.cursors()
        self._marks = self._writer.marks()
        self._writer.open_segments(self.max_bytes, self._cache_bytes)
        try:
            self._recent = BatchSequence(self._end)
            self._reader = self._writer.reader
            newest = self._writer.head_of("first < ? order by first desc", (self.head,))
            self._start_clock(newest.stored if newest else 0.0)
            self._codec = state.codec  # If it changes, the next transaction stores it.
            # Last: from here on the file says that it is open, and by whom. If that cannot be written now, it
            # is with the first that is stored.
            with suppress(JournalFull, JournalLocked):
                self._store((), {}, self._end)
        except BaseException:
            self._writer.close()
            raise

    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        return self._held_after(self._start)

    def held_from(self, low_watermark: int) -> Held:
        """What is left if every batch that ends at or before ``low_watermark`` is forgotten."""
        return self._held_after(self._position_of(low_watermark))

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Store the batches, in one transaction that is on the disk when this returns.

        ValueError if they do not follow on the end of the log; JournalFull, with nothing stored, if the disk
        is full, and JournalLocked if another program has the file locked. The bounds are for
        :meth:`make_space`, not checked here.
        """
        self._check_open()
        end = end_of(batches, self._end)
        self._store(batches, marks or {}, end)
        # What comes from a spool gives its space back.
        self._recent.extend(in_memory(batches, self._cache_bytes))
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
        head = self._writer.head_of(
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
            head = self._writer.head_of(
                "first >= ? and (stored > ? or first >= ?) order by first",
                (self.first, now - self._max_age, reachable.offset),
            )
            position = head.position if head else reachable
            if position.offset > self.first:
                # The last one that goes is checked: if its time is true, those before it were even older.
                self._writer.head_of("first < ? order by first desc", (position.offset,))
                self._forget_before(position)

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Remember, or with None forget, a cursor; stored with the next :meth:`append` or :meth:`flush`."""
        super().save_cursor(name, cursor)
        self._unsaved[name] = cursor

    def open_spool(self) -> Spool | None:
        """A new spool in the directory of the file; None on a system that cannot write to a removed file."""
        return Spool(self.path) if hasattr(os, "pwrite") else None

    def flush(self) -> None:
        """Store the cursors that were saved since the last :meth:`append`, and delete what was forgotten.

        JournalDamaged if the files are not there any more, even if there is nothing to store.
        """
        self._check_open()
        stored = self._writer.state
        changed = self._unsaved or stored.start != self._start or stored.codec != self._codec
        if changed or self._writer.has_forgotten(self.first):
            self._store((), {}, self._end)
        self._writer.check_files()

    def close(self) -> None:
        """Store the rest and close the files. It can be called again."""
        if not self._lock.held:
            return
        closed = False
        try:
            closed = self._close_in_order()
        finally:
            self._writer.close()
            self._lock.release(closed=closed)

    def _close_in_order(self) -> bool:
        """Store the rest, and that the journal is closed; False if only the latter was not possible."""
        unsaved = bool(self._unsaved) or self._writer.state.start != self._start
        self._writer.wait_longer()
        try:
            self._store((), {}, self._end, closing=True)
        except JournalLocked:
            if unsaved:
                raise
        except JournalFull:
            # For the end without the rest there may be room in the log, once that is carried over.
            self._unsaved.clear()
            with suppress(JournalFull, JournalLocked), as_journal_errors(self.path):
                self._writer.empty_wal()
                self._store((), {}, self._end, closing=True)
            if unsaved:
                raise
        if self._writer.state.opened:
            return False
        # What a transaction left that failed in doubt: from here on it is certain that it is not in the log.
        with suppress(OSError):
            self._writer.segments.remove_strangers()
        return True

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
        head = self._writer.head_of("first <= ? order by first desc", (offset,))
        if head is None:
            raise damaged(self.path, f"the record {offset} is missing")
        return head.position

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
        """Bring the files up to date, and only then ourselves; on a full disk with the space that we have."""
        try:
            self._commit(batches, marks, end, closing=closing)
        except JournalFull as full:
            if not isinstance(full.__cause__, OSError):
                if not self._writer.restart_wal():
                    raise
            elif self._writer.has_needless_segments(self.first):
                # These are removed after a transaction, and the next segment is written before one.
                self._store((), {}, self._end)
            else:
                raise
            self._commit(batches, marks, end, closing=closing)

    def _commit(
        self, batches: Sequence[Batch], marks: Mapping[str, str | None], end: Position, *, closing: bool
    ) -> None:
        cursors, now = dict(self._unsaved), self._now()
        mark_changes = self._marks.changes(marks, now) if marks else {}
        is_to_carry_over = self._writer.store(
            batches,
            self._start,
            end,
            codec=self._codec,
            now=now,
            cursors=cursors,
            marks=mark_changes,
            closing=closing,
        )
        if cursors:
            self._unsaved.clear()
        if mark_changes:
            self._marks.apply(mark_changes)
        self._end = end
        if is_to_carry_over:
            self._writer.carry_over()
