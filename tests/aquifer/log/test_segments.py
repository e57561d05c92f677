"""Segment files after the worst: torn, cut, changed, removed, exchanged, or on a disk without space."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalFull
from penstock.aquifer.log import (
    Cursor,
    SqliteJournal,
    compact_journal,
    segments,
    sqlite_writer,
    verify_journal,
)
from penstock.aquifer.records.batch import Batch
from tests.aquifer.log.making import NO_WATERMARK, batches_from, copy_of, everything, fill, segment_files
from tests.aquifer.log.test_sqlite_crashes import TestTornLog
from tests.aquifer.log.test_sqlite_full_disk import fill_up, write_until_it_is_full

__all__ = ["TestTornLog"]

OpenSqlite = Callable[..., SqliteJournal]
pytestmark = pytest.mark.usefixtures("all_in_segments")


@pytest.fixture
def stored(open_sqlite: OpenSqlite) -> list[Batch]:
    """A closed journal of eight groups in several segment files."""
    journal = open_sqlite(cache_bytes=1)
    batches = [batch for _ in range(8) for batch in fill(journal, [3, 4], width=200)]
    journal.close()
    return batches


def read_all(journal: SqliteJournal, batches: list[Batch]) -> list[str]:
    """Find each of these batches; what was told of those that are damaged. Nothing else may get out."""
    told = []
    for batch in batches:
        try:
            assert journal.find(batch.first) == batch
        except JournalDamaged as error:
            told.append(error.finding)
    return told


class TestWhatIsThere:
    def test_large_groups_are_in_segment_files_and_small_ones_in_sqlite(
        self, open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(segments, "INLINE_BYTES", 1000)
        journal = open_sqlite(cache_bytes=1)
        batches = fill(journal, [1], width=900)
        assert segment_files(path) == []
        batches += fill(journal, [1], width=1100) + fill(journal, [1], width=900)
        batches += fill(journal, [2, 3], width=1100)

        with closing(sqlite3.connect(path)) as other:
            rows = other.execute("select segment is null, length(payload) = 0 from batches").fetchall()
        assert rows == [(1, 0), (0, 1), (1, 0), (0, 1), (0, 1)]
        assert everything(journal) == batches
        journal.close()
        assert verify_journal(path).batches == 5
        assert everything(open_sqlite(cache_bytes=1)) == batches

    def test_they_are_for_their_owner_alone(self, stored: list[Batch], path: Path) -> None:
        assert len(segment_files(path)) > 1
        assert {file.stat().st_mode & 0o777 for file in segment_files(path)} == {0o600}
        assert os.stat(f"{path}-segments").st_mode & 0o777 == 0o700

    def test_a_journal_moved_with_its_directory_is_the_same(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path, tmp_path: Path
    ) -> None:
        moved = tmp_path / "moved.db"
        path.rename(moved)
        Path(f"{path}-segments").rename(f"{moved}-segments")

        assert everything(open_sqlite(moved)) == stored

    def test_each_is_synced_before_the_transaction_is_committed(
        self, open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = open_sqlite()
        seen = []

        def look(descriptor: int) -> None:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:
                (count,) = other.execute("select count(*) from batches").fetchone()
            seen.append((count, os.fstat(descriptor).st_size))

        monkeypatch.setattr(segments, "_sync", look)
        fill(journal, [3])
        fill(journal, [3])

        sizes = [size for _, size in seen]
        assert [count for count, _ in seen] == [0, 1]
        assert sizes[1] == segment_files(path)[0].stat().st_size > sizes[0]


class TestWrittenOnAnotherThread:
    """While one thread writes the records, the other one computes checksums and talks to SQLite."""

    @pytest.fixture
    def happened(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What happens to the next group: its sync waits until the other thread has failed."""
        happened: list[str] = []
        failed, sync, undo = threading.Event(), segments._sync, segments.SegmentFileWriter.undo

        def fail(batches: list[Batch], *_: object) -> Iterator[tuple[object, ...]]:
            for _batch in batches:
                happened.append("failed")
                failed.set()
                raise ValueError("a defect")
            yield from ()

        def wait_and_sync(descriptor: int) -> None:
            assert failed.wait(60)
            sync(descriptor)
            happened.append("synced")

        def note_undo(self: segments.SegmentFileWriter, *, certain: bool) -> None:
            happened.append("undone")
            undo(self, certain=certain)

        monkeypatch.setattr(sqlite_writer, "_rows", fail)
        monkeypatch.setattr(segments, "_sync", wait_and_sync)
        monkeypatch.setattr(segments.SegmentFileWriter, "undo", note_undo)
        return happened

    def test_a_group_that_fails_is_undone_when_nobody_writes_any_more(
        self, open_sqlite: OpenSqlite, happened: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = open_sqlite(cache_bytes=1)
        with pytest.raises(ValueError, match="a defect"):
            fill(journal, [3])

        assert happened == ["failed", "synced", "undone"]
        monkeypatch.undo()
        stored = fill(journal, [4], width=200_000)
        assert everything(journal) == stored

    def test_an_interrupt_waits_for_the_disk_as_well(
        self, open_sqlite: OpenSqlite, happened: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        interrupts = [KeyboardInterrupt()]

        def wait(futures: list[Future[None]]) -> None:
            if interrupts:
                raise interrupts.pop()
            concurrent.futures.wait(futures)

        monkeypatch.setattr(sqlite_writer, "wait", wait)
        journal = open_sqlite()
        with pytest.raises(KeyboardInterrupt):
            fill(journal, [3])

        assert happened == ["failed", "synced", "undone"]

    def test_without_another_thread_it_is_written_all_the_same(
        self, open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
        journal = open_sqlite(cache_bytes=1)
        stored = fill(journal, [3, 4])
        assert everything(journal) == stored
        assert segment_files(path)

    def test_a_closed_journal_leaves_no_thread(self, open_sqlite: OpenSqlite) -> None:
        def writers() -> set[threading.Thread]:
            return {each for each in threading.enumerate() if each.name.startswith("penstock-journal")}

        before = writers()
        journal = open_sqlite()
        fill(journal, [3])
        assert writers() - before
        journal.close()
        assert writers() <= before


class TestTornEnd:
    """What is in the files beyond what the index says was never acknowledged."""

    def test_it_is_overwritten(self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path) -> None:
        with segment_files(path)[-1].open("ab") as file:
            file.write(random.Random(1).randbytes(5000))

        journal = open_sqlite(cache_bytes=1)
        assert everything(journal) == stored
        stored += fill(journal, [5, 6], width=300)
        journal.close()

        assert everything(open_sqlite(cache_bytes=1)) == stored

    def test_files_that_the_index_does_not_know_are_removed(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path
    ) -> None:
        known = segment_files(path)
        begun = known[0].with_name(f"{56:020d}-{'0' * 16}")
        begun.write_bytes(b"Penstock seg")
        note = known[0].with_name("a note of the operator")
        note.touch()

        journal = open_sqlite()

        assert not begun.exists()
        assert note.exists()
        assert everything(journal) == stored

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_a_sync_that_fails_stores_nothing(
        self, open_sqlite: OpenSqlite, path: Path, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = open_sqlite(cache_bytes=1)
        batches = fill(journal, [3], width=200)

        def fail(descriptor: int) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(segments, "_sync", fail)
            with pytest.raises(JournalFull if code == errno.ENOSPC else JournalError):
                journal.append(batches_from(3, [4], author="lost"), {"mark": "lost"})
        assert (journal.head, journal.marks) == (3, {})

        batches += fill(journal, [5], width=200)
        assert everything(journal) == batches
        journal.close()
        assert everything(open_sqlite(cache_bytes=1)) == batches

    def test_a_transaction_that_fails_gives_the_space_back(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite(cache_bytes=1)
        batches = fill(journal, [3], width=200)
        (file,) = segment_files(path)
        size = file.stat().st_size
        (pages,) = journal._writer.connection.execute("pragma page_count").fetchone()
        journal._writer.connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(JournalFull):
            journal.append(batches_from(3, [1] * 3000, width=200))
        assert file.stat().st_size == size
        assert segment_files(path) == [file]

        journal._writer.connection.execute("pragma max_page_count = 100000")
        batches += fill(journal, [5], width=200)
        assert everything(journal) == batches


class TestDamage:
    """Refused when the journal is opened, or told to those who read it: never served."""

    def test_a_file_that_is_missing(self, stored: list[Batch], path: Path) -> None:
        file = segment_files(path)[1]
        file.rename(path.with_name("elsewhere"))

        with pytest.raises(JournalDamaged, match=rf"the file {file}, which has records of it, is missing"):
            SqliteJournal(path)
        path.with_name("elsewhere").rename(file)
        with closing(SqliteJournal(path)) as journal:
            assert everything(journal) == stored

    def test_a_directory_that_is_missing(self, stored: list[Batch], path: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)

        with pytest.raises(JournalDamaged, match="is missing: put it back"):
            SqliteJournal(copy)

    def test_a_directory_without_its_journal(self, stored: list[Batch], path: Path) -> None:
        path.unlink()

        with pytest.raises(
            JournalDamaged, match=f"the directory {path}-segments that belongs to it is there"
        ):
            SqliteJournal(path)
        assert len(segment_files(path)) > 1

    @pytest.mark.parametrize("which", [0, -1])
    def test_a_file_that_was_cut(self, stored: list[Batch], path: Path, which: int) -> None:
        file = segment_files(path)[which]
        os.truncate(file, file.stat().st_size - 1)

        with pytest.raises(JournalDamaged, match=r"bytes and should have"):
            SqliteJournal(path)

    def test_a_file_of_another_journal(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path, tmp_path: Path
    ) -> None:
        other = open_sqlite(tmp_path / "other.db")
        for _ in range(8):
            fill(other, [3, 4], width=200)
        other.close()
        file = segment_files(path)[1]
        shutil.copy(segment_files(tmp_path / "other.db")[1], file)

        with pytest.raises(JournalDamaged, match=f"the file {file} does not belong to it"):
            SqliteJournal(path)

    def test_two_files_that_changed_places(self, stored: list[Batch], path: Path) -> None:
        one, two, *_ = segment_files(path)
        one.rename(path.with_name("x"))
        two.rename(one)
        path.with_name("x").rename(two)

        with pytest.raises(JournalDamaged, match="does not belong to it"):
            SqliteJournal(path)

    def test_one_bit_is_told_to_those_who_read_it(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path
    ) -> None:
        file = segment_files(path)[1]
        content = bytearray(file.read_bytes())
        content[-10] ^= 4
        file.write_bytes(content)
        findings = verify_journal(path).findings

        told = read_all(open_sqlite(cache_bytes=1), stored)

        assert len(told) == 1
        assert "are not what was written" in told[0]
        assert findings == tuple(told)

    @pytest.mark.parametrize(
        "statement",
        [
            "delete from segments where name = (select max(name) from segments)",
            "update segments set size = size - 1",
            "update segments set end = end + 1",
            "insert into segments select replace(name, '0', '1'), end, size, crc from segments limit 1",
        ],
    )
    def test_the_list_of_files_is_protected(self, stored: list[Batch], path: Path, statement: str) -> None:
        change(path, statement)

        with pytest.raises(JournalDamaged, match="its segments"):
            SqliteJournal(path)

    @pytest.mark.parametrize(
        "change_to",
        [
            "place = place + 1",
            "place = -1",
            "place = 'here'",
            "place = 1 << 60",
            "payload_bytes = payload_bytes - 1",
            "payload_bytes = 1 << 60",
            "notes_bytes = -5",
            "segment = '../journal.db'",
            "segment = x'00'",
            "segment = (select max(segment) from batches)",
            "segment = null",
        ],
    )
    def test_where_a_batch_is_is_protected(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path, change_to: str
    ) -> None:
        change(path, f"update batches set {change_to} where first = 3")
        assert not verify_journal(path).is_sound

        assert len(read_all(open_sqlite(cache_bytes=1), stored)) == 1

    @given(seed=st.integers(0))
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    def test_damage_anywhere_is_told_or_does_not_matter(
        self, stored: list[Batch], path: Path, seed: int
    ) -> None:
        chance = random.Random(seed)
        file = chance.choice(segment_files(path))
        content = file.read_bytes()
        damaged = bytearray(content)
        start = chance.randrange(len(damaged))
        length = chance.choice([1, 30, 4000])
        how = chance.choice(["flipped", "zeros", "garbage", "cut", "copied"])
        if how == "flipped":
            damaged[start] ^= 1 << chance.randrange(8)
        elif how == "cut":
            del damaged[start:]
        elif how == "copied":
            damaged[start : start + length] = damaged[:length]
        else:
            damaged[start : start + length] = bytes(length) if how == "zeros" else chance.randbytes(length)
        file.write_bytes(damaged)
        try:
            journal = SqliteJournal(path, cache_bytes=1)
        except JournalDamaged:
            pass
        else:
            with closing(journal):
                told = read_all(journal, stored)
            assert told or bytes(damaged[: len(content)]) == content
        finally:
            file.write_bytes(content)


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


class TestRetention:
    def test_files_go_when_all_in_them_is_forgotten(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite(max_records=40, cache_bytes=1)
        most = 0
        for _ in range(60):
            assert journal.make_space(10, 0, NO_WATERMARK)
            fill(journal, [10], width=200)
            most = max(most, len(segment_files(path)))
            assert len(everything(journal)) <= 4

        assert most <= 5
        journal.close()
        assert verify_journal(path).is_sound

    def test_those_that_a_reader_needs_stay(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite(max_records=40, cache_bytes=1)
        batches = [batch for _ in range(4) for batch in fill(journal, [10], width=200)]

        assert not journal.make_space(30, 0, 10)

        assert everything(journal) == batches

    def test_a_reader_that_was_overtaken_is_told_so_and_not_of_damage(
        self, open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = open_sqlite(max_records=1000, cache_bytes=1)
        for _ in range(6):
            fill(journal, [10], width=200)
        find = journal._reader.find

        def overtaken(offset: int) -> Batch | None:
            assert journal.make_space(990, 0, NO_WATERMARK)
            journal.flush()
            journal.flush()
            return find(offset)

        monkeypatch.setattr(journal._reader, "find", overtaken)
        assert journal.find(5) is None
        assert journal.first == 50

    def test_an_empty_journal_gives_all_space_back_when_it_is_opened_again(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path
    ) -> None:
        journal = open_sqlite(max_age=1.0)
        journal.retire(NO_WATERMARK, 4e9)
        journal.close()
        open_sqlite().close()

        assert segment_files(path) == []

    def test_a_file_that_was_forgotten_and_is_written_to_again_stays(
        self, open_sqlite: OpenSqlite, path: Path
    ) -> None:
        journal = open_sqlite(max_records=100)
        fill(journal, [10], width=20)
        journal.close()
        journal = open_sqlite(max_records=100, cache_bytes=1)
        assert journal.make_space(100, 0, NO_WATERMARK)

        batches = fill(journal, [10], width=20)

        assert len(segment_files(path)) == 1
        assert everything(journal) == batches
        journal.close()
        assert everything(open_sqlite(cache_bytes=1)) == batches

    def test_compacting_removes_what_is_forgotten(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite(max_records=100)
        fill(journal, [10], width=200)
        assert journal.make_space(100, 0, NO_WATERMARK)
        journal.close()
        before = path.stat().st_size + segment_files(path)[0].stat().st_size

        compacted = compact_journal(path)

        assert (compacted.before, compacted.after) == (before, path.stat().st_size)
        assert compacted.freed > 2000
        assert segment_files(path) == []
        assert verify_journal(path).is_sound
        assert open_sqlite().head == 10

    def test_compacting_keeps_what_is_not_forgotten(
        self, open_sqlite: OpenSqlite, stored: list[Batch], path: Path
    ) -> None:
        compacted = compact_journal(path)

        assert compacted.after == path.stat().st_size + sum(f.stat().st_size for f in segment_files(path))
        assert everything(open_sqlite(cache_bytes=1)) == stored

    def test_a_journal_with_a_damaged_file_is_not_compacted(self, stored: list[Batch], path: Path) -> None:
        file = segment_files(path)[1]
        content = bytearray(file.read_bytes())
        content[-10] ^= 4
        file.write_bytes(content)

        with pytest.raises(JournalDamaged, match="nothing was changed"):
            compact_journal(path)
        assert len(verify_journal(path).findings) == 1


class TestRemovedWhileItRuns:
    @pytest.fixture
    def owner(self, path: Path) -> Iterator[SqliteJournal]:
        journal = SqliteJournal(path, cache_bytes=1)
        for _ in range(8):
            fill(journal, [3, 4], width=200)
        yield journal
        with suppress(JournalDamaged):
            journal.close()

    def test_the_newest_file(self, owner: SqliteJournal, path: Path) -> None:
        segment_files(path)[-1].unlink()

        with pytest.raises(JournalDamaged, match="was removed or moved away while"):
            fill(owner, [3])

    def test_another_file(self, owner: SqliteJournal, path: Path) -> None:
        segment_files(path)[0].unlink()

        with pytest.raises(JournalDamaged, match="was removed or moved away while"):
            owner.flush()

    def test_all_of_them(self, owner: SqliteJournal, path: Path) -> None:
        shutil.rmtree(f"{path}-segments")

        with pytest.raises(JournalDamaged, match="was removed or moved away while"):
            owner.flush()

    def test_the_directory_is_not_made_again_beside_the_one_that_was_moved(
        self, owner: SqliteJournal, path: Path, open_sqlite: OpenSqlite
    ) -> None:
        stored = everything(owner)
        owner.close()
        owner = SqliteJournal(path, cache_bytes=1)
        owner._writer.segments._full = 1  # The next group begins another file.
        os.rename(f"{path}-segments", path.with_name("moved"))
        with pytest.raises(JournalDamaged, match="was removed or moved away while"):
            fill(owner, [3], width=200)
        owner.close()

        os.rename(path.with_name("moved"), f"{path}-segments")
        assert everything(open_sqlite(cache_bytes=1)) == stored

    @pytest.mark.parametrize("reopened", [False, True])
    def test_the_newest_file_is_cut(self, owner: SqliteJournal, path: Path, reopened: bool) -> None:
        if reopened:
            owner.close()
            owner = SqliteJournal(path, cache_bytes=1)
        head, newest = owner.head, segment_files(path)[-1]
        os.truncate(newest, newest.stat().st_size - 1)

        with pytest.raises(JournalDamaged, match=r"has \d+ bytes and should have"):
            fill(owner, [3])

        assert owner.head == head
        if reopened:
            owner.close()


def test_a_forked_child_cannot_write(open_sqlite: OpenSqlite, path: Path) -> None:
    journal = open_sqlite()
    batches = fill(journal, [3])
    child = os.fork()
    if child == 0:
        try:
            fill(journal, [3], author="child")
        except JournalError:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    batches += fill(journal, [3])
    journal.close()
    assert everything(open_sqlite(cache_bytes=1)) == batches


def test_a_disk_that_is_full(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    journal = SqliteJournal(path, cache_bytes=1)
    stored = fill_up(journal)
    journal.save_cursor("ann", Cursor(7, 8, 9.0))
    write_until_it_is_full(small_disk / "rest")
    with pytest.raises(JournalFull):
        journal.append(batches_from(journal.head, [20], width=1000), {"mark": "lost"})
    assert everything(journal) == stored

    ballast.unlink()
    stored += fill(journal, [20], width=1000)
    journal.close()
    with closing(SqliteJournal(path, cache_bytes=1)) as journal:
        assert everything(journal) == stored
        assert journal.cursors == {"ann": Cursor(7, 8, 9.0)}
        assert journal.marks == {}


def test_a_loss_is_accepted_though_files_were_removed_meanwhile(
    open_sqlite: OpenSqlite, path: Path, tmp_path: Path
) -> None:
    """The index that is left is older than the removal of the oldest files."""
    journal = open_sqlite(max_records=60, cache_bytes=1)
    for _ in range(6):
        fill(journal, [10], width=500)
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    assert journal.make_space(30, 0, NO_WATERMARK)
    batches = everything(journal)
    journal.flush()
    shutil.copytree(f"{path}-segments", f"{copy}-segments")

    with pytest.raises(JournalDamaged, match="accept_loss=True"):
        SqliteJournal(copy)
    restored = open_sqlite(copy, accept_loss=True, cache_bytes=1)

    assert restored.epoch != journal.epoch
    assert everything(restored) == batches
    batches += fill(restored, [5])
    restored.close()
    assert everything(open_sqlite(copy, cache_bytes=1)) == batches


def test_killed_between_the_files_and_the_index(open_sqlite: OpenSqlite, path: Path) -> None:
    """The files of a crash at any moment: the index is older than the segment files."""
    journal = open_sqlite(cache_bytes=1)
    stored: list[Batch] = []
    for number in range(6):
        copy = copy_of(path, path.parent / f"copy{number}")
        known = list(stored)
        stored += fill(journal, [3, 4], width=300)
        shutil.rmtree(f"{copy}-segments", ignore_errors=True)
        shutil.copytree(f"{path}-segments", f"{copy}-segments")

        with closing(SqliteJournal(copy, cache_bytes=1)) as survivor:
            assert everything(survivor) == known
            known += fill(survivor, [1, 2], width=300)
            assert everything(survivor) == known
        with closing(SqliteJournal(copy, cache_bytes=1)) as survivor:
            assert everything(survivor) == known
