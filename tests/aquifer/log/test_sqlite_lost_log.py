"""A write-ahead log that is lost after its owner was killed: its records must not be replaced in silence."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged
from penstock.aquifer.log import Cursor, SqliteJournal, ownership
from tests.aquifer.log.making import everything, fill

OpenSqlite = Callable[..., SqliteJournal]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

LOST = "was not closed in order.* Put it back.*accept_loss=True"


def killed_owner(path: Path, *appends: int, carried_over: int = 0) -> str:
    """A process appends so many records at a time, and is killed; returns the epoch of the journal.

    After ``carried_over`` appends the log is carried over into the main file.
    """
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        journal = SqliteJournal(path)
        for number, count in enumerate(appends, 1):
            fill(journal, [count])
            journal.save_cursor("ann", Cursor(journal.head, 60_000, 60.0))
            journal.flush()
            if number == carried_over:
                journal._writer.connection.execute("pragma wal_checkpoint(passive)").fetchone()
        os.write(tells, journal.epoch.encode())
        os.kill(os.getpid(), 9)
    os.close(tells)
    epoch = os.read(told, 100).decode()
    os.close(told)
    os.waitpid(child, 0)
    return epoch


def test_with_its_log_everything_is_there(open_sqlite: OpenSqlite, path: Path) -> None:
    epoch = killed_owner(path, 3, 4)

    journal = open_sqlite()

    assert (journal.head, journal.epoch) == (7, epoch)


def test_a_log_that_was_removed(path: Path) -> None:
    killed_owner(path, 3, 4)
    Path(f"{path}-wal").unlink()

    for _ in range(2):  # It does not pass at the second try, either.
        with pytest.raises(JournalDamaged, match=LOST):
            SqliteJournal(path)


@pytest.mark.parametrize("appends", [(), (3,)])
def test_a_log_and_everything_else_beside_the_journal_was_removed(
    path: Path, appends: tuple[int, ...]
) -> None:
    killed_owner(path, *appends)
    for suffix in ("-wal", "-shm", "-lock"):
        Path(f"{path}{suffix}").unlink()

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(path)


def test_a_log_that_was_emptied(path: Path) -> None:
    killed_owner(path, 3, 4)
    os.truncate(f"{path}-wal", 0)

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(path)


def test_a_log_that_was_cut(path: Path) -> None:
    """On a machine that was not restarted, that is no torn end: nothing that was written gets lost."""
    killed_owner(path, 3, 4)
    log = Path(f"{path}-wal")
    os.truncate(log, log.stat().st_size - 1)

    with pytest.raises(JournalDamaged, match="the last 1 transactions are missing"):
        SqliteJournal(path)


def test_a_copy_of_the_journal_without_its_log(open_sqlite: OpenSqlite, path: Path, tmp_path: Path) -> None:
    journal = open_sqlite()
    fill(journal, [3])
    shutil.copy(path, tmp_path / "restored.db")

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(tmp_path / "restored.db")


def test_a_backup_of_an_open_journal_opens_with_a_new_epoch_only(
    open_sqlite: OpenSqlite, path: Path, tmp_path: Path
) -> None:
    journal = open_sqlite()
    fill(journal, [3])
    journal.flush()
    copy = tmp_path / "copy.db"
    with (
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(copy)
    with contextlib.closing(SqliteJournal(copy, accept_loss=True)) as restored:
        assert restored.head == 3
        assert restored.epoch != journal.epoch


def test_an_old_copy_in_the_place_of_a_journal_whose_owner_was_killed(
    open_sqlite: OpenSqlite, path: Path, tmp_path: Path
) -> None:
    journal = open_sqlite()
    fill(journal, [3])
    journal.close()
    shutil.copy(path, tmp_path / "backup.db")
    killed_owner(path, 4)
    Path(f"{path}-wal").unlink()
    shutil.copy(tmp_path / "backup.db", path)

    with pytest.raises(JournalDamaged, match="transactions are missing"):
        SqliteJournal(path)


def test_the_other_name_of_a_file_whose_owner_was_killed(path: Path, tmp_path: Path) -> None:
    killed_owner(path, 3)
    os.link(path, tmp_path / "second.db")

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(tmp_path / "second.db")


@pytest.mark.parametrize("give_a_second_name", [os.link, os.rename])
def test_a_name_that_has_the_seal_of_an_earlier_owner(
    path: Path, tmp_path: Path, give_a_second_name: Callable[[Path, Path], None]
) -> None:
    with contextlib.closing(SqliteJournal(path)) as journal:
        fill(journal, [3])
    second = tmp_path / "second.db"
    give_a_second_name(path, second)
    killed_owner(second, 4)
    if not path.exists():
        second.rename(path)

    with pytest.raises(JournalDamaged, match=LOST):
        SqliteJournal(path)


def test_a_name_that_was_not_used_for_a_while_does_no_harm(
    open_sqlite: OpenSqlite, path: Path, tmp_path: Path
) -> None:
    with contextlib.closing(SqliteJournal(path)) as journal:
        fill(journal, [3])
    path.rename(tmp_path / "second.db")
    with contextlib.closing(SqliteJournal(tmp_path / "second.db")) as journal:
        fill(journal, [4])
    (tmp_path / "second.db").rename(path)

    assert open_sqlite().head == 7


def test_a_tool_that_carried_the_log_over_did_no_harm(open_sqlite: OpenSqlite, path: Path) -> None:
    epoch = killed_owner(path, 3, 4)
    with contextlib.closing(sqlite3.connect(path)) as tool:
        tool.execute("select count(*) from batches").fetchone()
    assert not Path(f"{path}-wal").exists()

    journal = open_sqlite()

    assert (journal.head, journal.epoch) == (7, epoch)
    assert journal.cursors == {"ann": Cursor(7, 60_000, 60.0)}


def test_after_a_restart_of_the_machine_a_missing_log_is_lost_whatever_the_lock_file_says(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed_owner(path, 3, carried_over=1)
    Path(f"{path}-wal").unlink()
    another = tmp_path / "boot"
    another.write_text("another run\n")
    monkeypatch.setattr(ownership, "_BOOT", another)

    with pytest.raises(JournalDamaged, match="its write-ahead log is missing"):
        SqliteJournal(path)


def test_a_loss_that_is_accepted_begins_a_new_epoch_with_what_is_left(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    epoch = killed_owner(path, 3, 4, carried_over=1)
    Path(f"{path}-wal").unlink()

    journal = open_sqlite(accept_loss=True)

    assert journal.epoch != epoch
    assert journal.head == 3
    assert len(everything(journal)) == 1
    assert journal.cursors == {"ann": Cursor(3, 60_000, 60.0)}
    new_epoch = journal.epoch
    fill(journal, [2])
    journal.close()
    journal = open_sqlite()
    assert (journal.epoch, journal.head) == (new_epoch, 5)


def test_accepting_a_loss_changes_nothing_if_there_is_none(open_sqlite: OpenSqlite, path: Path) -> None:
    epoch = killed_owner(path, 3)

    journal = open_sqlite(accept_loss=True)

    assert (journal.epoch, journal.head) == (epoch, 3)


@pytest.mark.parametrize("left", [0, 40_000])
@pytest.mark.parametrize("carried_over", [False, True])
def test_a_log_that_is_cut_while_it_is_in_use(path: Path, left: int, carried_over: bool) -> None:
    journal = SqliteJournal(path, cache_bytes=1)
    for _ in range(5):
        fill(journal, [10], width=1000)
    if carried_over:
        journal._writer.carry_over()
    os.truncate(f"{path}-wal", left)

    with pytest.raises(JournalDamaged, match=r"-wal was cut while .* --accept-loss"):
        fill(journal, [10])
    with pytest.raises(JournalDamaged, match="-wal was cut while"):
        journal.flush()
    assert journal.head == 50
    with pytest.raises(JournalDamaged, match="-wal was cut while"):
        journal.close()


def test_a_tool_that_carries_the_log_over_and_cuts_it_meanwhile_does_no_harm(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    journal = open_sqlite()
    stored = fill(journal, [10], width=1000)
    stored += fill(journal, [10], width=1000)
    with contextlib.closing(sqlite3.connect(path)) as tool:
        assert tool.execute("pragma wal_checkpoint(truncate)").fetchone() == (0, 0, 0)
    assert os.path.getsize(f"{path}-wal") == 0

    journal.flush()
    stored += fill(journal, [10], width=1000)
    journal.close()
    assert everything(open_sqlite(cache_bytes=1)) == stored
