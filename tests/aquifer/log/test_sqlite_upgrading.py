"""A journal of the first format is brought up to date once, as a whole, and nothing in it is lost."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalFull, JournalLocked
from penstock.aquifer.log import Cursor, SqliteJournal, compact_journal, verify_journal
from tests.aquifer.log.format_one import EPOCH, write_format_one
from tests.aquifer.log.format_two import EPOCH as EPOCH_OF_TWO
from tests.aquifer.log.format_two import write_format_two
from tests.aquifer.log.making import NO_WATERMARK, batches_from, everything, fill, segment_files
from tests.aquifer.log.test_sqlite_full_disk import write_until_it_is_full

OpenSqlite = Callable[..., SqliteJournal]


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("pragma user_version").fetchone()
    assert isinstance(version, int)
    return version


def changed(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute(statement)


def test_records_cursors_and_marks_are_there_with_whole_leases_and_no_owners(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    batches = batches_from(0, [3, 4])
    write_format_one(path, batches)

    journal = open_sqlite()

    assert journal.epoch == EPOCH
    assert everything(journal) == batches
    assert journal.cursors == {"ann": Cursor(2, 60_000, 60.0, None)}
    assert journal.marks == {"delivered:totals": "31"}
    batches += fill(journal, [5])
    journal.save_cursor("ann", Cursor(3, 60_000, 12.5, "a key"))
    journal.close()
    journal = open_sqlite()
    assert everything(journal) == batches
    assert journal.cursors == {"ann": Cursor(3, 60_000, 12.5, "a key")}
    assert journal.marks == {"delivered:totals": "31"}


def test_old_batches_still_have_their_age(open_sqlite: OpenSqlite, path: Path) -> None:
    write_format_one(path, batches_from(0, [3, 4]), stored=1000.0)
    journal = open_sqlite(max_age=60)

    journal.retire(NO_WATERMARK, 1059.0)
    assert journal.first == 0
    journal.retire(NO_WATERMARK, 1061.0)

    assert journal.first == 7


def test_damage_in_an_old_batch_is_noticed(open_sqlite: OpenSqlite, path: Path) -> None:
    write_format_one(path, batches_from(0, [3, 4]))
    changed(path, "update batches set payload = cast(x'90' || substr(payload, 2) as blob) where first = 0")

    with pytest.raises(JournalDamaged, match="the records 0 to 2 are not what was written"):
        open_sqlite().find(0)


@pytest.mark.parametrize(
    "statement",
    [
        "update state set head = 'seven'",
        "delete from state",
        "drop table marks",
        "update cursors set acknowledged = 'two'",
        "update cursors set lease_ms = 'long'",
        "update marks set value = x'ff00'",
    ],
)
def test_an_old_journal_that_is_damaged_is_refused_and_left_as_it_is(path: Path, statement: str) -> None:
    write_format_one(path, batches_from(0, [3, 4]))
    changed(path, statement)

    with pytest.raises(JournalDamaged):
        SqliteJournal(path)

    assert version_of(path) == 1


def test_a_foreign_lock_postpones_it(open_sqlite: OpenSqlite, path: Path) -> None:
    batches = batches_from(0, [3, 4])
    write_format_one(path, batches)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(JournalLocked):
            SqliteJournal(path)
        other.execute("rollback")

    assert everything(open_sqlite()) == batches


def test_a_full_disk_postpones_it(small_disk: Path, tmp_path: Path) -> None:
    batches = batches_from(0, [3, 4])
    write_format_one(tmp_path / "old.db", batches)
    path = small_disk / "journal.db"
    shutil.copy(tmp_path / "old.db", path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100_000))
    write_until_it_is_full(small_disk / "rest")

    with pytest.raises(JournalFull):
        SqliteJournal(path)

    (small_disk / "rest").unlink()
    journal = SqliteJournal(path)
    assert everything(journal) == batches
    assert journal.cursors == {"ann": Cursor(2, 60_000, 60.0, None)}
    journal.close()


def test_a_journal_that_only_says_that_it_is_old_is_damaged(open_sqlite: OpenSqlite, path: Path) -> None:
    open_sqlite().close()
    changed(path, "pragma user_version = 1")

    with pytest.raises(JournalDamaged, match="it says that it has format 1, but it does not"):
        SqliteJournal(path)


def test_a_format_that_never_was_is_damage(open_sqlite: OpenSqlite, path: Path) -> None:
    open_sqlite().close()
    changed(path, "pragma user_version = 0")

    with pytest.raises(JournalDamaged, match="it says that it has format 0"):
        SqliteJournal(path)


class TestFormatTwo:
    """A file from before there were segment files: its records stay where they are."""

    BATCHES = batches_from(0, [300, 400], width=200)

    @pytest.fixture
    def two(self, path: Path) -> Path:
        write_format_two(path, self.BATCHES)
        return path

    def test_everything_is_there_and_large_groups_go_to_segment_files_from_now_on(
        self, open_sqlite: OpenSqlite, two: Path
    ) -> None:
        journal = open_sqlite(cache_bytes=1)

        assert journal.epoch == EPOCH_OF_TWO
        assert everything(journal) == self.BATCHES
        assert journal.cursors == {"ann": Cursor(2, 60_000, 60.0, "a key")}
        assert journal.marks == {"delivered:totals": "31"}
        batches = self.BATCHES + fill(journal, [1000], width=200)
        journal.close()
        assert len(segment_files(two)) == 1
        assert verify_journal(two).is_sound
        assert version_of(two) == 3
        assert everything(open_sqlite(cache_bytes=1)) == batches

    def test_it_is_verified_as_it_is(self, two: Path) -> None:
        verified = verify_journal(two)

        assert (verified.is_sound, verified.records, verified.cursors) == (True, 700, 1)
        assert version_of(two) == 2
        changed(two, "update batches set notes = x'00' where first = 300")
        assert len(verify_journal(two).findings) == 1

    def test_it_is_compacted_and_brought_up_to_date(self, open_sqlite: OpenSqlite, two: Path) -> None:
        compact_journal(two)

        assert version_of(two) == 3
        assert everything(open_sqlite()) == self.BATCHES

    @pytest.mark.parametrize("statement", ["update state set head = 3", "delete from state"])
    def test_one_that_is_damaged_is_refused_and_left_as_it_is(self, two: Path, statement: str) -> None:
        changed(two, statement)

        with pytest.raises(JournalDamaged):
            SqliteJournal(two)
        assert version_of(two) == 2

    def test_one_that_only_says_so_is_damaged(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite().close()
        changed(path, "pragma user_version = 2")

        with pytest.raises(JournalDamaged, match="it says that it has format 2, but it does not"):
            SqliteJournal(path)


def test_a_journal_of_format_one_is_not_called_damaged_by_verifying_it(path: Path) -> None:
    write_format_one(path, batches_from(0, [3]))

    with pytest.raises(JournalError, match="open it with a gateway"):
        verify_journal(path)
