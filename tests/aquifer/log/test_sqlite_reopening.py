"""What a journal in a file still knows when it is opened again, and who may open it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalInUse, JournalTooNew
from penstock.aquifer.log import Cursor, Held, SqliteJournal
from tests.aquifer.log.making import NO_WATERMARK, everything, fill

OpenSqlite = Callable[..., SqliteJournal]


def test_everything_is_there_again(open_sqlite: OpenSqlite) -> None:
    before = open_sqlite()
    batches = fill(before, [3, 1, 7])
    before.append([], {"source": "17"})
    before.save_cursor("ann", Cursor(4, 60_000, 12.25))
    before.close()

    after = open_sqlite()

    assert after.epoch == before.epoch
    assert everything(after) == batches
    assert after.held == before.held
    assert after.marks == {"source": "17"}
    assert after.cursors == {"ann": Cursor(4, 60_000, 12.25)}


def test_the_head_does_not_go_back_when_nothing_is_left(open_sqlite: OpenSqlite) -> None:
    before = open_sqlite(max_records=10)
    fill(before, [10])
    assert before.make_space(10, 0, NO_WATERMARK)
    before.close()

    after = open_sqlite()

    assert (after.first, after.head) == (10, 10)
    assert after.held == Held(0, 0)
    (batch,) = fill(after, [2])
    assert everything(after) == [batch]


def test_what_was_forgotten_stays_forgotten(open_sqlite: OpenSqlite) -> None:
    before = open_sqlite(max_records=10)
    batches = fill(before, [5, 5])
    assert before.make_space(5, 0, NO_WATERMARK)
    before.close()

    after = open_sqlite()

    assert everything(after) == batches[1:]


def test_smaller_bounds_take_effect_with_the_next_room_that_is_made(open_sqlite: OpenSqlite) -> None:
    before = open_sqlite()
    batches = fill(before, [10] * 10)
    before.close()

    after = open_sqlite(max_records=25)

    assert everything(after) == batches
    assert not after.make_space(5, 0, 79)
    assert after.make_space(5, 0, 80)
    assert everything(after) == batches[8:]


def test_saved_cursors_are_stored_with_the_next_append(open_sqlite: OpenSqlite, path: Path) -> None:
    journal = open_sqlite()
    journal.save_cursor("ann", Cursor(1, 2, 3.0))

    def stored() -> list[object]:
        with contextlib.closing(sqlite3.connect(path)) as other:
            return other.execute("select name, acknowledged, lease_ms, remaining from cursors").fetchall()

    assert stored() == []
    fill(journal, [1])
    assert stored() == [("ann", 1, 2, 3.0)]
    journal.save_cursor("ann", None)
    journal.flush()
    assert stored() == []


def test_what_is_only_in_the_file_is_not_found_after_closing(open_sqlite: OpenSqlite) -> None:
    journal = open_sqlite(cache_bytes=1)
    fill(journal, [3])
    journal.close()

    with pytest.raises(JournalError, match="closed"):
        journal.find(1)


def test_an_empty_file_becomes_a_journal(open_sqlite: OpenSqlite, path: Path) -> None:
    path.touch()

    assert open_sqlite().head == 0


def test_a_creation_that_was_broken_off_is_begun_again(open_sqlite: OpenSqlite, path: Path) -> None:
    Path(f"{path}-new").write_bytes(b"SQLite format 3\0 and no further")

    assert open_sqlite().head == 0
    assert not Path(f"{path}-new").exists()


class TestInUse:
    def test_by_the_same_process(self, open_sqlite: OpenSqlite, path: Path) -> None:
        first = open_sqlite()

        with pytest.raises(JournalInUse, match=f"{path} is already open in this process"):
            SqliteJournal(path)

        fill(first, [1])
        first.close()
        assert open_sqlite().head == 1

    def test_under_another_name(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite()
        other_name = path.with_name("link.db")
        other_name.symlink_to(path)

        with pytest.raises(JournalInUse):
            SqliteJournal(other_name)

    def test_by_another_process_until_that_is_killed(self, open_sqlite: OpenSqlite, path: Path) -> None:
        script = (
            "import sys; from penstock.aquifer.log import SqliteJournal\n"
            "journal = SqliteJournal(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"

            with pytest.raises(JournalInUse, match=f"{path} is in use by the process {other.pid}"):
                SqliteJournal(path)

            other.kill()
            other.wait()
            assert open_sqlite().head == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_cannot_use_it_nor_keep_it_from_others(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite()
        fill(journal, [1])
        told, tells = os.pipe()
        waits, ends = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                fill(journal, [1])
            except JournalError:
                os.write(tells, b"refused")
            os.close(ends)
            os.read(waits, 1)  # until the parent lets go of the other end
            os._exit(0)
        os.close(tells)
        assert os.read(told, 10) == b"refused"

        fill(journal, [1])
        journal.close()
        assert open_sqlite().head == 2

        for descriptor in (told, waits, ends):
            os.close(descriptor)
        os.waitpid(child, 0)


class TestRefusals:
    def test_a_missing_directory(self, tmp_path: Path) -> None:
        with pytest.raises(JournalError, match=f"no directory {tmp_path}/not/there for .* create it first"):
            SqliteJournal(tmp_path / "not" / "there" / "journal.db")

    def test_a_directory(self, tmp_path: Path) -> None:
        folder = tmp_path / "journal.db"
        folder.mkdir()

        with pytest.raises(JournalError, match=f"{folder} cannot be opened: it is a directory"):
            SqliteJournal(folder)

    @pytest.mark.parametrize("content", [b"x", b"offset;value\n" * 1000, b"SQLite format 3\0" + b"!" * 5000])
    def test_a_file_of_something_else(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)

        with pytest.raises(JournalDamaged, match=f"{path} is .* give the journal another path"):
            SqliteJournal(path)

        assert path.read_bytes() == content

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_the_database_of_somebody_else(self, path: Path, mode: str) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute(f"pragma journal_mode = {mode}")
            theirs.execute("create table batches (theirs)")
        before = {file.name: file.read_bytes() for file in path.parent.iterdir()}

        says = r"not a journal of Penstock\. Nothing was changed in it; give"
        with pytest.raises(JournalDamaged, match=says):
            SqliteJournal(path)

        after = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        del after["journal.db-lock"]
        assert after == before

    def test_a_later_format_that_tells_the_version(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite().close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as later:
            later.execute("pragma user_version = 9")
            later.execute("update state set software = '7.3'")

        with pytest.raises(
            JournalTooNew, match=r"format 9 and needs Penstock 7\.3 or newer.*Update Penstock"
        ):
            SqliteJournal(path)

    def test_a_later_format_that_does_not(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite().close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as later:
            later.execute("pragma user_version = 9")
            later.execute("drop table state")

        with pytest.raises(JournalTooNew, match="format 9 and needs a later version of Penstock"):
            SqliteJournal(path)

    def test_a_log_without_its_journal(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite()
        fill(journal, [1])
        shutil.copy(f"{path}-wal", f"{path}-kept")
        journal.close()
        path.unlink()
        Path(f"{path}-kept").rename(f"{path}-wal")

        with pytest.raises(
            JournalDamaged, match=f"{path} is missing, but the file {path}-wal .* put the journal"
        ):
            SqliteJournal(path)

    def test_the_lock_is_free_again_after_a_refusal(self, open_sqlite: OpenSqlite, path: Path) -> None:
        path.write_bytes(b"something else")
        with pytest.raises(JournalDamaged):
            SqliteJournal(path)
        path.unlink()

        assert open_sqlite().head == 0


def test_another_program_that_writes_is_told_of_and_not_waited_for_in_vain(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    journal = open_sqlite()
    journal._writer.connection.execute("pragma busy_timeout = 1")  # nobody has five seconds
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(JournalInUse, match=f"another program works on the journal {path}"):
            fill(journal, [1])
        other.execute("rollback")

    (batch,) = fill(journal, [1])
    assert everything(journal) == [batch]
