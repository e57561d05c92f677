"""Looking after a journal file while no gateway has it open: verifying it, and giving disk space back.

Both hold the lock of the journal's owner, so that a gateway that starts meanwhile is told that the journal is
in use. :func:`verify_journal` changes nothing in the file. :func:`compact_journal` writes a new file beside
the old one, verifies it, and then puts it in the place of the old one: if it is killed, the old one is still
there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalFull, JournalLocked
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.database import clear_draft, inspect_file, loss_in, newer_segments, open_database
from penstock.aquifer.log.disk_reader import ROW_COLUMNS, checked_batch
from penstock.aquifer.log.journal import a_path
from penstock.aquifer.log.ownership import OwnerLock, sync_directory
from penstock.aquifer.log.schema import State, state_in, transaction, write_state
from penstock.aquifer.log.segments import (
    SegmentFile,
    SegmentFileReader,
    SegmentFileWriter,
    problems_of,
    size_of,
)
from penstock.aquifer.log.sqlite_rows import CURSORS, MARKS, SEGMENTS, CheckedTable, as_journal_errors
from penstock.aquifer.log.upgrades import ROW_COLUMNS_OF_TWO, state_in_two

__all__ = ["JournalCompaction", "JournalVerification", "compact_journal", "verify_journal"]

_MOST_FINDINGS: Final = 100
"""A file whose middle is overwritten has thousands, which all say the same."""
_STEPS: Final = 2000
"""Steps of SQLite between two looks at the progress."""
_SPARE: Final = 1024 * 1024
"""Bytes that a file has beside its records, at least."""

OnProgress = Callable[[int, int], object]
"""Is called with how many bytes are done, and of how many."""


@dataclass(frozen=True, slots=True)
class JournalVerification:
    """What :func:`verify_journal` found out."""

    path: str
    epoch: str
    first: int
    """The oldest offset,"""
    head: int
    """and the offset that the next record will get."""
    batches: int
    records: int
    """How many records were read, and have the checksum that they were written with."""
    nbytes: int
    cursors: int
    marks: int
    findings: tuple[str, ...]
    """What is wrong, each in a few words; empty if the journal is sound."""
    more_findings: int = 0
    """How many are left out."""

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {"sound": self.is_sound, **asdict(self)}


@dataclass(frozen=True, slots=True)
class JournalCompaction:
    """What :func:`compact_journal` has done."""

    path: str
    before: int
    """The size of the file and its segment files in bytes,"""
    after: int
    """and what it is now."""
    records: int

    @property
    def freed(self) -> int:
        """How many bytes were given back to the disk."""
        return self.before - self.after

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {**asdict(self), "freed": self.freed}


# ---------------------------------------------------------------- verifying
def verify_journal(
    path: str | os.PathLike[str], on_progress: OnProgress | None = None
) -> JournalVerification:
    """Read a whole journal, and check every checksum, the order of its records, its cursors and its marks.

    JournalError if it cannot be read at all: there is no such file, it is not a journal, or a gateway has it
    open. What is wrong inside is in the ``findings`` of the result.
    """
    where = _existing(path, "verify_journal(path)")
    with _owned(where) as lock, as_journal_errors(where):
        inspect_file(where, lock.lock_file())
        has_log = os.path.exists(f"{where}-wal") and os.path.getsize(f"{where}-wal") > 0
        uri = f"{Path(where).as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            verification = _Verification(connection, where, on_progress)
            with verification.noting():
                state = verification.state()
                lost = loss_in(state, lock.left_behind, has_log)
                if lost is None and not verification.is_earlier:
                    lost = newer_segments(connection, state, where)
                if lost is not None:
                    verification.found(lost)
                verification.run(state)
            return verification.result()


class _Verification:
    """One walk through a journal."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        on_progress: OnProgress | None,
        journal: str | None = None,
    ) -> None:
        """``journal`` is the one that the segment files belong to, if ``path`` is a new file for it."""
        self._connection = connection
        self._path = path
        self._journal = path if journal is None else journal
        self.is_earlier = False
        """Whether the file is of the format before this one, which a gateway would bring up to date."""
        self._on_progress = on_progress
        self._state: State | None = None
        self._findings: list[str] = []
        self._more = 0
        self._batches = self._records = self._nbytes = self._cursors = self._marks = 0

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Make a finding of damage, instead of an error."""
        try:
            with as_journal_errors(self._path):
                yield
        except JournalDamaged as damage:
            self.found(damage.finding or str(damage))

    def found(self, what: str) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(what)
        else:
            self._more += 1

    def state(self) -> State:
        (version,) = self._connection.execute("pragma user_version").fetchone()
        if version == 1:
            raise JournalError(
                f"the journal {self._path} was written by Penstock 0.1; open it with a gateway, which brings "
                "it up to date, and then verify it"
            )
        self.is_earlier = version == 2
        return (state_in_two if self.is_earlier else state_in)(self._connection, self._path)

    def run(self, state: State) -> None:
        self._state = state
        with self.noting():
            for (said,) in self._connection.execute("pragma quick_check(10)"):
                if said != "ok":
                    self.found(f"SQLite: {said}")
        if not self.is_earlier:
            with self.noting():
                for problem in problems_of(self._journal, self._files(state)):
                    self.found(problem.finding)
        with closing(SegmentFileReader(self._journal)) as segments, self.noting():
            self._check_batches(state, segments)
        with self.noting():
            table = CheckedTable(self._connection, self._path, CURSORS)
            for name, (acknowledged, *_) in table.load(state.cursors):
                self._cursors += 1
                if not 0 <= acknowledged <= state.head:
                    self.found(f"the cursor of {name!r} is at {acknowledged}, beyond the end {state.head}")
        with self.noting():
            table = CheckedTable(self._connection, self._path, MARKS)
            self._marks = sum(1 for _ in table.load(state.marks))

    def _files(self, state: State) -> Iterator[SegmentFile]:
        """The segment files with something in them that is needed."""
        for name, values in CheckedTable(self._connection, self._path, SEGMENTS).load(state.segments):
            file = SegmentFile(name, *values)
            if file.end > state.first:
                yield file

    def _check_batches(self, state: State, segments: SegmentFileReader) -> None:
        expected: Position | None = state.start
        total = state.total - state.before
        rows = self._connection.execute(
            f"select {ROW_COLUMNS_OF_TWO if self.is_earlier else ROW_COLUMNS} from batches "
            "where first >= ? order by first",
            (state.first,),
        )
        for row in rows:
            try:
                position, batch = checked_batch(self._path, row, segments)
            except JournalDamaged as damage:
                self.found(damage.finding)
                # Where it would end cannot be believed; the next sound batch says where it begins.
                expected = None
                continue
            if expected is not None and position != expected:
                self.found(
                    f"the records {expected.offset} to {position.offset - 1} are missing"
                    if position.offset > expected.offset
                    else f"the batch at {position.offset} is not in its place"
                )
            expected = Position(batch.end, position.before + batch.nbytes)
            self._batches += 1
            self._records += batch.count
            self._nbytes += batch.nbytes
            if self._on_progress is not None:
                self._on_progress(self._nbytes, total)
        if expected is not None and expected != state.end:
            self.found(f"the records {expected.offset} to {state.head - 1} are missing")

    def result(self) -> JournalVerification:
        state = self._state
        return JournalVerification(
            path=self._path,
            epoch=state.epoch if state else "",
            first=state.first if state else 0,
            head=state.head if state else 0,
            batches=self._batches,
            records=self._records,
            nbytes=self._nbytes,
            cursors=self._cursors,
            marks=self._marks,
            findings=tuple(self._findings),
            more_findings=self._more,
        )


# ---------------------------------------------------------------- compacting
def compact_journal(path: str | os.PathLike[str], on_progress: OnProgress | None = None) -> JournalCompaction:
    """Give the space of forgotten records back to the disk.

    A journal keeps the space of the records that it has forgotten, and fills it again. That suits a
    journal whose size is steady, and wastes space if the journal was once larger. The records, offsets,
    cursors, marks and the epoch stay as they are. Needs as much free space as the records take.

    JournalError if that cannot be done: the journal is in use, damaged, or the disk is full. Then nothing has
    changed.
    """
    where = _existing(path, "compact_journal(path)")
    database = sum(os.path.getsize(name) for name in (where, f"{where}-wal") if os.path.exists(name))
    before = database + size_of(where)
    with _owned(where) as lock, as_journal_errors(where):
        connection, state = open_database(where, lock, accept_loss=False)
        draft = f"{where}-new"
        try:
            with closing(connection):
                needed = min(state.total - state.before, database) + _SPARE
                free = shutil.disk_usage(os.path.dirname(where)).free
                if free < needed:
                    raise JournalFull(
                        f"compacting the journal {where} needs {needed:,} bytes, and the disk has {free:,}: "
                        "free some space and try again; nothing was changed"
                    )
                table = CheckedTable(connection, where, SEGMENTS)
                files = [SegmentFile(name, *values) for name, values in table.load(state.segments)]
                needless = {file.name: None for file in files if file.end <= state.first}
                with transaction(connection):
                    connection.execute("delete from batches where first < ?", (state.first,))
                    total = table.write(needless)
                    state = state._replace(serial=state.serial + 1, opened="", segments=total)
                    write_state(connection, state)
                lock.seal(state.epoch, state.serial)
                if on_progress is not None:
                    connection.set_progress_handler(_watcher(draft, needed, on_progress), _STEPS)
                os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                # As bytes: the name of a file need not be text.
                connection.execute("vacuum into cast(? as text)", (os.fsencode(draft),))
                connection.set_progress_handler(None, 0)
                connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            if os.path.exists(f"{where}-wal"):
                # The last program that closes a database removes it. Another one still has the old file open.
                raise JournalLocked(
                    f"another program has the journal {where} open; close it, and try again; nothing was lost"
                )
            _check_draft(draft, where, state)
            _replace(draft, where)
        finally:
            clear_draft(where)
        SegmentFileWriter(
            where, [file for file in files if file.name not in needless], None
        ).remove_strangers()
        after = os.path.getsize(where) + size_of(where)
        return JournalCompaction(where, before, after, state.head - state.first)


def _replace(draft: str, path: str) -> None:
    """Put the new file in the place of the old one, on the disk and not only in memory."""
    shutil.copymode(path, draft)
    descriptor = os.open(draft, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        _give_to_owner_of(path, descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    sync_directory(os.path.dirname(path))


def _give_to_owner_of(path: str, descriptor: int) -> None:
    """Leave the new file to the user of the old one: root may compact the journal of a service."""
    owner, made = os.stat(path), os.fstat(descriptor)
    if (owner.st_uid, owner.st_gid) == (made.st_uid, made.st_gid) or sys.platform == "win32":
        return
    try:
        if made.st_nlink != 1:
            raise PermissionError  # Whoever owns the directory has put another file there.
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except PermissionError:
        raise JournalError(
            f"the journal {path} belongs to another user, who could not open the new file; compact it as "
            f"the user {owner.st_uid} with the group {owner.st_gid}, or as root; nothing was changed"
        ) from None


def _watcher(draft: str, needed: int, on_progress: OnProgress) -> Callable[[], int]:
    def look() -> int:
        on_progress(min(os.path.getsize(draft), needed), needed)
        return 0

    return look


def _check_draft(draft: str, path: str, state: State) -> None:
    """Read the new file before it replaces the old one."""
    with closing(sqlite3.connect(f"{Path(draft).as_uri()}?mode=ro", uri=True)) as connection:
        verification = _Verification(connection, draft, None, path)
        with verification.noting():
            if state_in(connection, draft) != state:
                verification.found("it does not say the same of itself")
            verification.run(state)
        found = verification.result()
    if not found.is_sound:
        raise JournalDamaged(
            f"the journal {path} cannot be compacted, because its copy is not sound: {found.findings[0]}; "
            "nothing was changed. `penstock gateway verify` says more"
        )


# ---------------------------------------------------------------- both
def _existing(path: str | os.PathLike[str], subject: str) -> str:
    where = a_path(path, subject)
    if os.path.isdir(where):
        raise JournalError(f"{where} is a directory; name the file of a journal in it")
    if not os.path.exists(where):
        raise JournalError(f"there is no journal {where}; name the file that --journal named")
    if not os.path.getsize(where):
        raise JournalError(f"the file {where} is empty: no gateway has begun a journal in it")
    return where


@contextmanager
def _owned(path: str) -> Iterator[OwnerLock]:
    lock = OwnerLock(path)
    try:
        yield lock
    finally:
        lock.release()
