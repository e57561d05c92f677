"""The journal that survives its process: one SQLite file.

**What is safe.** When :meth:`SqliteJournal.append` returns, its batches, the marks and the cursors have been
written and synced to the disk (write-ahead log, ``synchronous=full``): neither a killed process nor a loss of
power takes them away, as far as the disk keeps what it says it has written. What was being appended in that
moment is there wholly or not at all. If the end of the write-ahead log was not synced and is torn, exactly
the appends that had not returned are missing, and the log goes on from there.

**What may come back.** Forgetting is not urgent: batches that :meth:`~SqliteJournal.make_room` or
:meth:`~SqliteJournal.retire` let go are deleted together with the next append or flush, so after a crash the
oldest of them may be there again. Many batches are deleted over several of these, so that none takes long.

**What is beside the file.** ``NAME-wal`` and ``NAME-shm`` belong to SQLite and are a part of the journal
while it is open; ``NAME-lock`` has the number of the process that has it open, and may stay behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from penstock.aquifer.batches import Batch
from penstock.aquifer.errors import JournalError, JournalFull
from penstock.aquifer.journal.database import BUSY_MILLISECONDS, WAL_BYTES, connect, open_database, read_state
from penstock.aquifer.journal.failures import as_journal_errors, damaged
from penstock.aquifer.journal.interface import Held, Journal, SavedCursor
from penstock.aquifer.journal.lock import OwnerLock
from penstock.aquifer.journal.reading import DiskReader, checksum
from penstock.aquifer.journal.settings import a_bound, a_path, a_switch, an_age
from penstock.aquifer.journal.window import BatchWindow, Place, end_of

__all__ = ["SqliteJournal"]

_MIB: Final = 1024 * 1024
_WAL_TOO_LONG: Final = 4 * WAL_BYTES
"""If readers kept SQLite from starting the write-ahead log anew for so long, they are made to wait."""
_DELETED_AT_ONCE: Final = 16 * _MIB
_ROWS_DELETED_AT_ONCE: Final = 4096
"""Each transaction deletes so much, or four times what it adds if that is more: it must not fall behind."""


class SqliteJournal(Journal):
    """Keeps records in a file until their number, their bytes or their age reach a bound.

    ``max_age`` is in seconds since a batch was stored; None keeps batches of any age. With
    ``keep_acknowledged=False`` records go as soon as every durable subscriber is done with them, instead of
    staying for those who come later. ``cache_bytes`` of the most recent batches are held in memory, so that a
    subscriber that keeps up never waits for the disk; those that are behind share as much again.

    One process has a journal open at a time. The directory must exist; the file is created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_records: int = 10_000_000,
        max_bytes: int = 1024 * _MIB,
        max_age: float | None = None,
        keep_acknowledged: bool = True,
        cache_bytes: int = 32 * _MIB,
    ) -> None:
        self.path = a_path(path, "SqliteJournal(path)")
        """The file, with symbolic links resolved."""
        self.max_records = a_bound(max_records, "SqliteJournal(max_records)")
        self.max_bytes = a_bound(max_bytes, "SqliteJournal(max_bytes)")
        self._max_age = an_age(max_age, "SqliteJournal(max_age)")
        self._keep_acknowledged = a_switch(keep_acknowledged, "SqliteJournal(keep_acknowledged)")
        self._cache_bytes = a_bound(cache_bytes, "SqliteJournal(cache_bytes)")
        self.durable = True
        self._lock = OwnerLock(self.path)
        try:
            self._connection = open_database(self.path)
        except BaseException:
            self._lock.release()
            raise
        try:
            with as_journal_errors(self.path):
                self._load()
        except BaseException:
            self._connection.close()
            self._lock.release()
            raise

    def _load(self) -> None:
        state = read_state(self._connection, self.path)
        self.epoch = state.epoch
        self._start, self._end = state.start, state.end
        self._stored_start = state.start
        self.first, self.head = state.start.offset, state.end.offset
        rows = self._connection.execute("select name, acknowledged, lease_ms, remaining, owner from cursors")
        self._cursors = {name: SavedCursor(*values) for name, *values in rows}
        self._unsaved: dict[str, SavedCursor | None] = {}
        self._marks: dict[str, str] = dict(self._connection.execute("select name, value from marks"))
        self._recent = BatchWindow(self._end)
        self._reader = DiskReader(connect(self.path), self.path, self._cache_bytes)

    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        return self._held_after(self._start)

    def held_from(self, floor: int) -> Held:
        """What is left if every batch that ends at or before ``floor`` is forgotten."""
        return self._held_after(self._place_of(floor))

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str] | None = None) -> None:
        """Store the batches, in one transaction that is on the disk when this returns.

        ValueError if they do not follow on the end of the log; JournalFull, with nothing stored, if the disk
        is full. The bounds are for :meth:`make_room`, not checked here.
        """
        self._check_open()
        end = end_of(batches, self._end)
        self._store(batches, marks or {}, end)
        self._recent.extend(batches)
        # From here on other threads look for them.
        self.head = end.offset
        self._recent.forget_before(self._recent.place_for(self.head, self._cache_bytes))

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
        batch = self._reader.find(offset)
        # It may have been forgotten, and deleted, while we were looking for it.
        if batch is None and offset >= self.first:
            raise damaged(self.path, f"the record {offset} is missing")
        return batch

    def make_room(self, records: int, nbytes: int, floor: int) -> bool:
        """Forget the oldest batches until so much more fits, or, if ``floor`` forbids that, none at all."""
        self._check_open()
        records_left, nbytes_left = self.max_records - records, self.max_bytes - nbytes
        held = self.held
        if held.records <= records_left and held.nbytes <= nbytes_left:
            return True
        reachable = self._place_of(floor)
        most = self._held_after(reachable)
        if most.records and (most.records > records_left or most.nbytes > nbytes_left):
            return False
        with as_journal_errors(self.path):
            row = self._connection.execute(
                "select first, before from batches where first >= ? and before >= ? order by first limit 1",
                (max(self.first, self.head - records_left), self._end.before - nbytes_left),
            ).fetchone()
        self._forget_before(Place(*row) if row else self._end)
        return True

    def retire(self, floor: int, now: float) -> None:
        """Forget what is too old or, if so set, acknowledged, but no batch that ends after ``floor``."""
        self._check_open()
        reachable = self._place_of(floor)
        if not self._keep_acknowledged:
            self._forget_before(reachable)
        elif self._max_age is not None:
            with as_journal_errors(self.path):
                row = self._connection.execute(
                    "select first, before from batches where first >= ? and (stored > ? or first >= ?) "
                    "order by first limit 1",
                    (self.first, now - self._max_age, reachable.offset),
                ).fetchone()
            self._forget_before(Place(*row) if row else reachable)

    @property
    def cursors(self) -> Mapping[str, SavedCursor]:
        """The durable subscribers, by id, as they are now."""
        return dict(self._cursors)

    def save_cursor(self, name: str, cursor: SavedCursor | None) -> None:
        """Remember, or with None forget, a cursor; stored with the next :meth:`append` or :meth:`flush`."""
        self._check_open()
        if cursor is None:
            self._cursors.pop(name, None)
        else:
            self._cursors[name] = cursor
        self._unsaved[name] = cursor

    @property
    def marks(self) -> Mapping[str, str]:
        """The marks, as they are now."""
        return dict(self._marks)

    def flush(self) -> None:
        """Store the cursors that were saved since the last :meth:`append`, and delete what was forgotten."""
        self._check_open()
        if self._unsaved or self._stored_start != self._start or self._oldest_forgotten() is not None:
            self._store((), {}, self._end)

    def close(self) -> None:
        """Store what is still to be stored and let go of the files. May be called again."""
        if not self._lock.held:
            return
        try:
            if self._unsaved or self._stored_start != self._start:
                self._store((), {}, self._end)
        finally:
            self._reader.close()
            self._connection.close()
            self._lock.release()

    def _check_open(self) -> None:
        if not self._lock.held:
            raise JournalError(
                f"the journal {self.path} is closed, or belongs to the process that this one was forked "
                "from; open it again where it is needed"
            )

    def _held_after(self, place: Place) -> Held:
        return Held(self._end.offset - place.offset, self._end.before - place.before)

    def _place_of(self, offset: int) -> Place:
        """The beginning of the batch with this offset in it; an end of the log if there is none."""
        if offset <= self.first:
            return self._start
        if offset >= self._recent.start.offset:
            return self._recent.place_of(offset)
        with as_journal_errors(self.path):
            row = self._connection.execute(
                "select first, before from batches where first <= ? order by first desc limit 1", (offset,)
            ).fetchone()
        if row is None:
            raise damaged(self.path, f"the record {offset} is missing")
        return Place(*row)

    def _forget_before(self, place: Place) -> None:
        if place.offset > self.first:
            self._start = place
            self.first = place.offset
            self._recent.forget_before(place)

    def _store(self, batches: Sequence[Batch], marks: Mapping[str, str], end: Place) -> None:
        """Bring the file up to date, and only then ourselves."""
        self._shorten_wal()
        execute, executemany = self._connection.execute, self._connection.executemany
        with self._transaction():
            # Deleted first, so that the new batches get their pages and the file does not grow.
            self._delete_forgotten(end.before - self._end.before, len(batches))
            executemany("insert into batches values (?, ?, ?, ?, ?, ?, ?, ?)", self._rows(batches))
            for name, cursor in self._unsaved.items():
                if cursor is None:
                    execute("delete from cursors where name = ?", (name,))
                else:
                    execute("insert or replace into cursors values (?, ?, ?, ?, ?)", (name, *cursor))
            executemany("insert or replace into marks values (?, ?)", marks.items())
            execute("update state set first = ?, before = ?, head = ?, total = ?", (*self._start, *end))
        self._stored_start = self._start
        self._unsaved.clear()
        self._marks.update(marks)
        self._end = end

    def _rows(self, batches: Sequence[Batch]) -> Iterator[tuple[object, ...]]:
        before, now = self._end.before, time.time()
        for batch in batches:
            crc = checksum(batch)
            yield batch.first, batch.count, before, now, batch.format, crc, batch.notes, batch.payload
            before += batch.nbytes

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with as_journal_errors(self.path):
            self._connection.execute("begin immediate")
            try:
                yield
                self._connection.execute("commit")
            except BaseException:
                # After some errors SQLite has already done it.
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    def _oldest_forgotten(self) -> Place | None:
        with as_journal_errors(self.path):
            row = self._connection.execute(
                "select first, before from batches where first < ? order by first limit 1", (self.first,)
            ).fetchone()
        return Place(*row) if row else None

    def _delete_forgotten(self, added_bytes: int, added_rows: int) -> None:
        oldest = self._oldest_forgotten()
        if oldest is None:
            return
        self._connection.execute(
            "delete from batches where first <= (select max(first) from (select first from batches "
            "where first < ? and before <= ? order by first limit ?))",
            (
                self.first,
                oldest.before + max(_DELETED_AT_ONCE, 4 * added_bytes),
                max(_ROWS_DELETED_AT_ONCE, 4 * added_rows),
            ),
        )

    def _shorten_wal(self) -> None:
        """See to it that the write-ahead log does not grow for ever.

        SQLite itself carries it over into the main file whenever it has ``WAL_BYTES``, and then starts it
        anew, unless somebody happens to be reading. This is for the case that always somebody is.
        """
        try:
            length = os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            # SQLite would write on into a file that has no name any more, and nobody would find it again.
            raise damaged(self.path, f"the file {self.path}-wal was removed while it was in use") from None
        if length <= _WAL_TOO_LONG:
            return
        # On a full disk the append may still find room in the log that is there.
        with self._reader.lock, suppress(JournalFull), as_journal_errors(self.path):
            # Our own readers are waiting; for the reader of a stranger, every append would wait in vain.
            self._connection.execute("pragma busy_timeout = 0")
            try:
                self._connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            finally:
                self._connection.execute(f"pragma busy_timeout = {BUSY_MILLISECONDS}")
