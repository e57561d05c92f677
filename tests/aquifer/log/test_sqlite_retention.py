"""What a journal in a file lets go, and how large it and its memory grow."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.log import SqliteJournal, annotated_journal, database, sqlite_writer
from tests.aquifer.log.making import NO_WATERMARK, Clock, everything, fill

OpenSqlite = Callable[..., SqliteJournal]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the journal takes for the time."""
    made = Clock(1_000_000.0)
    monkeypatch.setattr(annotated_journal, "time", made)
    return made


class TestAge:
    def test_batches_go_when_they_are_too_old(self, open_sqlite: OpenSqlite, clock: Clock) -> None:
        journal = open_sqlite(max_age=60)
        for _ in range(4):
            fill(journal, [5])
            clock.now += 20

        journal.retire(NO_WATERMARK, clock.now)

        assert journal.first == 10

    def test_batches_that_somebody_needs_stay(self, open_sqlite: OpenSqlite, clock: Clock) -> None:
        journal = open_sqlite(max_age=60)
        batches = fill(journal, [5, 5])
        clock.now += 1000

        journal.retire(7, clock.now)

        assert everything(journal) == batches[1:]

    def test_everything_may_go(self, open_sqlite: OpenSqlite, clock: Clock) -> None:
        journal = open_sqlite(max_age=0.5)
        fill(journal, [5, 5])

        journal.retire(NO_WATERMARK, clock.now + 1)

        assert (journal.first, journal.head) == (10, 10)

    def test_the_age_is_known_after_reopening(self, open_sqlite: OpenSqlite, clock: Clock) -> None:
        journal = open_sqlite(max_age=60)
        fill(journal, [5])
        journal.close()
        journal = open_sqlite(max_age=60)
        journal.retire(NO_WATERMARK, clock.now + 59)
        assert journal.first == 0

        journal.retire(NO_WATERMARK, clock.now + 61)

        assert journal.first == 5

    def test_a_clock_that_is_set_makes_nothing_older_or_younger(
        self, open_sqlite: OpenSqlite, clock: Clock
    ) -> None:
        journal = open_sqlite(max_age=60)
        fill(journal, [5])
        clock.set(clock.now + 86_400)
        journal.retire(NO_WATERMARK)
        assert journal.first == 0
        fill(journal, [5])
        clock.set(clock.now - 200_000)
        clock.now += 59

        journal.retire(NO_WATERMARK)
        assert journal.first == 0
        clock.now += 2
        journal.retire(NO_WATERMARK)

        assert journal.first == 10

    def test_a_clock_that_was_set_back_while_it_was_closed_makes_nothing_older(
        self, open_sqlite: OpenSqlite, clock: Clock
    ) -> None:
        journal = open_sqlite(max_age=60)
        fill(journal, [5])
        journal.close()
        clock.set(clock.now - 1000)
        journal = open_sqlite(max_age=60)
        clock.now += 30
        fill(journal, [5])
        clock.now += 31

        journal.retire(NO_WATERMARK)

        assert journal.first == 5

    def test_without_a_limit_nothing_goes(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite()
        fill(journal, [5])

        journal.retire(NO_WATERMARK, 1e12)

        assert journal.first == 0


class TestAcknowledged:
    def test_goes_at_once_if_so_set(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite(keep_acknowledged=False)
        batches = fill(journal, [5, 5, 5])

        journal.retire(9, 0.0)
        assert everything(journal) == batches[1:]
        journal.retire(3, 0.0)
        assert everything(journal) == batches[1:]
        journal.retire(15, 0.0)
        assert everything(journal) == []

    def test_is_deleted_from_the_file_with_the_next_flush(self, open_sqlite: OpenSqlite, path: Path) -> None:
        journal = open_sqlite(keep_acknowledged=False)
        fill(journal, [5, 5, 5])
        journal.retire(10, 0.0)

        journal.flush()

        assert rows_in(path) == 1


def rows_in(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as other:
        (count,) = other.execute("select count(*) from batches").fetchone()
    assert isinstance(count, int)
    return count


def test_very_many_batches_are_deleted_in_several_steps(
    open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "_ROWS_DELETED_AT_ONCE", 100)
    journal = open_sqlite(keep_acknowledged=False)
    batches = fill(journal, [1] * 350)
    journal.retire(300, 0.0)
    assert everything(journal) == batches[300:]

    left = []
    for _ in range(2):
        journal.flush()
        left.append(rows_in(path))
    journal.close()
    journal = open_sqlite()
    assert everything(journal) == batches[300:]
    for _ in range(2):
        journal.flush()
        left.append(rows_in(path))

    assert left == [250, 150, 50, 50]


def test_large_batches_are_deleted_in_several_steps(
    open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "_DELETED_AT_ONCE", 100_000)
    journal = open_sqlite(keep_acknowledged=False)
    fill(journal, [100] * 5, width=1000)
    journal.retire(NO_WATERMARK, 0.0)

    left = []
    while rows_in(path):
        journal.flush()
        left.append(rows_in(path))

    assert left == [4, 3, 2, 1, 0]


def test_the_files_do_not_grow_however_much_goes_through_them(open_sqlite: OpenSqlite, path: Path) -> None:
    """Twelve times the bound, and a subscriber that reads everything from the disk meanwhile."""
    bound = 8 * 1024 * 1024
    journal = open_sqlite(max_bytes=bound, cache_bytes=1)
    largest_file = largest_log = 0
    while journal.head < 12 * bound // 1000:
        assert journal.make_space(1000, 1_010_000, NO_WATERMARK)
        fill(journal, [100] * 10, width=1000)
        assert journal.find(journal.first) is not None
        assert journal.held.nbytes <= bound
        largest_file = max(largest_file, path.stat().st_size)
        largest_log = max(largest_log, os.stat(f"{path}-wal").st_size)

    assert largest_file < bound * 1.25
    assert largest_log < database.WAL_BYTES + 2_000_000


def test_a_log_that_a_reader_made_long_is_cut_when_the_reader_is_gone(
    open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "_WAL_TOO_LONG", 1_000_000)
    for module in (
        database,
        sqlite_writer,
    ):  # To wait for the reader once would take longer than all of this.
        monkeypatch.setattr(module, "BUSY_MILLISECONDS", 100_000)
    journal = open_sqlite()
    log = Path(f"{path}-wal")
    batches = fill(journal, [1])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select * from state").fetchone()
        begun = time.monotonic()
        for _ in range(20):
            batches += fill(journal, [100], width=1000)
        assert time.monotonic() - begun < 100
        assert log.stat().st_size > 1_500_000

    batches += fill(journal, [1])

    assert log.stat().st_size < 500_000
    assert everything(journal) == batches


class TestMemory:
    def test_recent_batches_are_found_without_the_disk(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite(cache_bytes=100_000)
        reads = reads_of(journal)
        fill(journal, [10] * 100, width=1000)

        recent = journal.head
        while not reads:
            recent -= 10
            journal.find(recent)

        assert 80_000 < (journal.head - recent) * 1000 <= 100_000

    def test_readers_at_different_places_do_not_disturb_each_other(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite(cache_bytes=4_000_000)
        fill(journal, [10] * 1600, width=1000)
        journal.close()
        journal = open_sqlite(cache_bytes=4_000_000)
        reads = reads_of(journal)
        places = [1000 * reader for reader in range(8)]

        for _ in range(100):
            for reader, place in enumerate(places):
                batch = journal.find(place)
                assert batch is not None
                places[reader] = batch.end

        # A quarter of a megabyte at a time: a megabyte for each reader takes four or five.
        assert len(reads) <= 8 * 5

    def test_bytes_read_from_the_disk_are_bounded(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite(cache_bytes=100_000)
        fill(journal, [10] * 200, width=1000)

        for batch in everything(journal):
            assert journal.find(batch.first) == batch

        assert sum(run.nbytes for run in journal._reader._cache._runs) <= 100_000
        assert journal._recent.nbytes <= 100_000


def reads_of(journal: SqliteJournal) -> list[str]:
    """What is read from the disk from now on."""
    reads: list[str] = []
    assert journal._reader._connection is not None
    journal._reader._connection.set_trace_callback(reads.append)
    return reads
