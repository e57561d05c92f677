"""The SQLite file of a journal: how it is created, and how it is opened and checked.

While the file is open, its state says so, and that is in the main file at once. So if the process is killed,
and its write-ahead log is lost afterwards, the next process notices. Otherwise it would give the offsets of
the lost records a second time.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Final

import penstock
from penstock.aquifer.errors import JournalDamaged, JournalError, JournalInUse, JournalTooNew
from penstock.aquifer.log.ownership import OwnerLock, Seal, sync_directory
from penstock.aquifer.log.schema import (
    APPLICATION_ID,
    BATCHES,
    FORMAT,
    FORMAT_WITH_ZSTD,
    State,
    create_tables,
    state_in,
    transaction,
)
from penstock.aquifer.log.segments import SegmentFile, folder_of, missing_in, newer_in
from penstock.aquifer.log.sqlite_rows import (
    CURSORS,
    HEAD_COLUMNS,
    MARKS,
    SEGMENTS,
    CheckedTable,
    damaged,
    head_in,
)
from penstock.aquifer.log.upgrades import upgrade

__all__ = [
    "BUSY_MILLISECONDS",
    "PAGE_BYTES",
    "WAL_BYTES",
    "clear_draft",
    "connect",
    "create",
    "inspect_file",
    "loss_in",
    "newer_segments",
    "open_database",
]


PAGE_BYTES: Final = 16 * 1024
"""Four times the usual: a batch then has fewer pages, and is written, read and deleted faster."""


def create(path: str) -> None:
    """Make a whole journal under another name first, so that there is never a half one under this."""
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        # SQLite would put these old pages into the new file.
        raise JournalDamaged(
            f"the journal {path} is missing, but the file {path}-wal that belongs to it is there; "
            "put the journal back, or move that file away, too, to begin a new one"
        )
    folder = folder_of(path)
    if os.path.isdir(folder) and os.listdir(folder):
        raise JournalDamaged(
            f"the journal {path} is missing, but the directory {folder} that belongs to it is there; "
            "put the journal back, or move that directory away, too, to begin a new one"
        )
    draft = f"{path}-new"
    clear_draft(path)
    try:
        # Here, because SQLite would let others read it. The files beside it get the same rights as this one.
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"pragma page_size = {PAGE_BYTES}")
            with transaction(connection):
                connection.execute(f"pragma application_id = {APPLICATION_ID}")
                state = State(secrets.token_hex(6), 0, 0, 0, 0)
                create_tables(connection, state, BATCHES, CURSORS, MARKS, SEGMENTS)
        _put_in_place(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    sync_directory(os.path.dirname(path))


def clear_draft(path: str) -> None:
    """Remove what a creation left behind that did not get to its end."""
    for left_behind in (f"{path}-new", f"{path}-new-journal"):
        Path(left_behind).unlink(missing_ok=True)


def _put_in_place(draft: str, path: str) -> None:
    """Give the new journal its name, but never in the place of another one."""
    if os.path.exists(path) and os.path.getsize(path) == 0:
        os.replace(draft, path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        raise JournalInUse(
            f"another process is creating the journal {path}, and its lock was removed; start again"
        ) from None
    except OSError:  # A file system without hard links.
        os.rename(draft, path)


_log = logging.getLogger("penstock.aquifer")

WAL_BYTES: Final = 16 * 1024 * 1024
"""So much is gathered in the write-ahead log before it is carried over into the main file."""
BUSY_MILLISECONDS: Final = 1000
"""How long to wait for another program, a backup for instance, that has the file locked. Then the caller is
told, and may try again."""

_HEADER: Final = struct.Struct(">60x I 4x I 28x")
"""Of the hundred bytes that every SQLite file begins with: the number of our format, and the application."""


def connect(path: str) -> sqlite3.Connection:
    """A connection without transactions of its own making, for any one thread at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in (
            f"busy_timeout = {BUSY_MILLISECONDS}",
            "synchronous = full",
            f"wal_autocheckpoint = {WAL_BYTES // PAGE_BYTES}",
            # After a transaction that was larger than that, the file is cut again.
            f"journal_size_limit = {2 * WAL_BYTES}",
            # Some builds overwrite with zeros what is deleted: that would write every batch once more.
            "secure_delete = off",
            "cache_size = -8192",
            # Damage is noticed where a page is read, not only where it leads astray.
            "cell_size_check = on",
            "trusted_schema = off",
        ):
            connection.execute(f"pragma {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_database(path: str, lock: OwnerLock, *, accept_loss: bool) -> tuple[sqlite3.Connection, State]:
    """Open the journal, or create it if there is none; the caller holds the lock."""
    if os.path.isdir(path):
        raise JournalError(f"the journal {path} cannot be opened: it is a directory; name a file in it")
    if os.path.exists(path) and os.path.getsize(path):
        clear_draft(path)
    else:
        create(path)
    inspect_file(path, lock.lock_file())
    has_log = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
    connection = connect(path)
    try:
        (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        if mode != "wal":
            raise JournalError(
                f"the journal {path} cannot have a write-ahead log, as on some network file systems; "
                "put it on a local disk"
            )
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > FORMAT_WITH_ZSTD:
            raise _too_new(path, version)
        if version in (1, 2):
            upgrade(connection, path, version)
            # Into the main file, whose first bytes an earlier version looks at before it opens anything.
            connection.execute("pragma wal_checkpoint(full)").fetchone()
        elif version not in (FORMAT, FORMAT_WITH_ZSTD):
            raise damaged(path, f"it says that it has format {version}")
        state = _read_state(connection, path)
        lost = loss_in(state, lock.left_behind, has_log) or newer_segments(connection, state, path)
        if lost is None and lock.is_new and state.serial:
            _log.warning(_MAYBE_OLD, path)
        if lost is not None:
            state = _accept(lost, state, path, accept_loss)
            state = _without_what_was_removed(connection, state, path)
    except BaseException:
        connection.close()
        raise
    return connection, state


_MAYBE_OLD: Final = (
    "the journal %s was moved, copied or restored: there is no NAME-lock of its last gateway beside it. If "
    "it is not the newest copy, stop this gateway: other records would get offsets that readers know already"
)


def loss_in(state: State, seal: Seal | None, has_log: bool) -> str | None:
    """What is missing after a crash, or because the file is an old copy; None if nothing is."""
    if seal is not None and seal.epoch == state.epoch:
        missing = seal.serial - state.serial
        if missing > 0:
            old = "" if state.opened else "it is an old copy of the journal that was here: "
            return f"{old}the last {missing} transactions are missing"
        if seal.exact and not missing:
            return None
        # If there are more, another owner came after the seal, under another name of the file: the log of
        # that one is not beside this name.
    if state.opened and not has_log:
        return "its write-ahead log is missing, which may have had its newest records"
    return None


def newer_segments(connection: sqlite3.Connection, state: State, path: str) -> str | None:
    """Whether there are segment files that are newer than a file that was closed; None if there are none."""
    if state.opened:
        return None  # What a killed process has begun.
    rows = CheckedTable(connection, path, SEGMENTS).load(state.segments)
    newer = newer_in(path, (name for name, _ in rows), state.head)
    if not newer:
        return None
    return f"it is an old copy: the file {newer[0]} has records that were stored after it"


def _accept(lost: str, state: State, path: str, accept_loss: bool) -> State:
    if not accept_loss:
        what = f"cannot be opened: {lost}. Put the newer file in its place. If that is gone for good"
        if state.opened:
            what = (
                f"was not closed in order, and {lost}: was the file {path}-wal removed, or a copy restored "
                "without it? Put it back. If it is gone for good"
            )
        raise JournalDamaged(
            f"the journal {path} {what}, open the journal with accept_loss=True (penstock gateway "
            "--accept-loss): what is left is kept and gets a new epoch, so that no reader takes new records "
            "for old ones"
        )
    _log.warning("the journal %s continues with a new epoch: %s", path, lost)
    return state._replace(epoch=secrets.token_hex(6))


def _without_what_was_removed(connection: sqlite3.Connection, state: State, path: str) -> State:
    """The same, beginning after the segment files that were removed because they were forgotten.

    That they were forgotten is in what was lost.
    """
    rows = CheckedTable(connection, path, SEGMENTS).load(state.segments)
    files = sorted(SegmentFile(name, *values) for name, values in rows)
    missing = missing_in(path, files)
    if not missing or missing != files[: len(missing)]:
        return state
    row = connection.execute(
        f"select {HEAD_COLUMNS} from batches where first >= ? order by first limit 1",
        (max(missing[-1].end, state.first),),
    ).fetchone()
    if row is None:
        return state._replace(first=state.head, before=state.total)
    head = head_in(row)
    if head is None:
        raise damaged(path, f"the batch at {row[0]} is not what was written")
    return state._replace(first=head.position.offset, before=head.position.before)


def _read_state(connection: sqlite3.Connection, path: str) -> State:
    """The state; JournalDamaged unless it is what was written, and the batches at both ends agree with it."""
    state = state_in(connection, path)
    oldest = connection.execute(
        f"select {HEAD_COLUMNS} from batches where first >= ? order by first limit 1", (state.first,)
    ).fetchone()
    newest = connection.execute(
        f"select {HEAD_COLUMNS}, coalesce(notes_bytes + payload_bytes, length(notes) + length(payload)) "
        "from batches where first >= ? order by first desc limit 1",
        (state.first,),
    ).fetchone()
    if oldest is None or newest is None:
        # Without batches the log begins where it ends.
        agree = state.start == state.end
    else:
        first, last = head_in(oldest), head_in(newest[:-1])
        agree = (
            first is not None
            and last is not None
            and first.position == state.start
            and (last.end, last.position.before) == (state.head, state.total - newest[-1])
        )
    if not agree:
        raise damaged(path, f"it should have the records {state.first} to {state.head - 1}, but does not")
    return state


def inspect_file(path: str, descriptor: int) -> None:
    """Refuse a file that is not a journal of ours, without leaving a trace in it or beside it.

    Only the first bytes are looked at, and not by SQLite: it would begin to repair and to write, and what the
    main file says of anything else may be out of date as long as there is a write-ahead log. These bytes are
    written when a journal is created, and when it is brought up to date.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    header = os.read(descriptor, _HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(b"SQLite format 3\0"):
        raise JournalDamaged(
            f"the file {path} is not a journal: it is not even a SQLite database, or its beginning was "
            "overwritten. Nothing was changed in it; give the journal another path, or move the file away"
        )
    version, application = _HEADER.unpack(header)
    if application != APPLICATION_ID:
        raise JournalDamaged(
            f"the file {path} is a SQLite database, but not a journal of Penstock. "
            "Nothing was changed in it; give the journal another path"
        )
    if version > FORMAT_WITH_ZSTD:
        raise _too_new(path, version)


def _too_new(path: str, version: int) -> JournalTooNew:
    return JournalTooNew(
        f"the journal {path} has format {version} and needs {_needed_version(path)}; this is "
        f"Penstock {penstock.__version__}, which knows formats up to {FORMAT_WITH_ZSTD}. Update Penstock, or "
        "give the journal another path"
    )


def _needed_version(path: str) -> str:
    # "Immutable" is a promise not to look for locks and logs: even the files beside it are left alone.
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?immutable=1", uri=True)) as connection:
        try:
            (software,) = connection.execute("select software from state").fetchone()
        except (sqlite3.Error, TypeError):
            # A later format may have no such table, or no row in it.
            return "a later version of Penstock"
    return f"Penstock {software} or newer"
