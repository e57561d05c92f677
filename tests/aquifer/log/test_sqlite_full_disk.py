"""A disk without room: nothing is stored, nothing is lost, and it goes on when there is room again."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.aquifer.errors import JournalError, JournalFull
from penstock.aquifer.log import Cursor, SqliteJournal
from penstock.aquifer.records.batch import Batch
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually
from tests.aquifer.log.making import NO_WATERMARK, batch_at, batches_from, everything, fill

OpenSqlite = Callable[..., SqliteJournal]


def fill_up(journal: SqliteJournal) -> list[Batch]:
    """Append until there is no room, and return what was appended before."""
    stored: list[Batch] = []

    def append_for_ever() -> None:
        while len(stored) < 1000:
            stored.extend(fill(journal, [20, 20], width=1000))

    with pytest.raises(JournalFull, match=rf"no space on the disk for .*{journal.path}.*free some space"):
        append_for_ever()
    return stored


def write_until_it_is_full(file: Path) -> None:
    """Take what is left of the disk."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))


def test_a_real_disk_that_is_full(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    journal = SqliteJournal(small_disk / "journal.db", cache_bytes=1)

    stored = fill_up(journal)

    assert everything(journal) == stored
    assert journal.held.nbytes == sum(batch.nbytes for batch in stored)
    journal.save_cursor("ann", Cursor(7, 8, 9.0))
    with pytest.raises(JournalFull):
        journal.append([batch_at(journal.head, 20, width=1000)], {"mark": "lost"})
    assert journal.marks == {}

    ballast.unlink()
    stored += fill(journal, [20], width=1000)
    assert everything(journal) == stored
    journal.close()

    journal = SqliteJournal(small_disk / "journal.db")
    assert everything(journal) == stored
    assert journal.cursors == {"ann": Cursor(7, 8, 9.0)}
    assert journal.marks == {}
    journal.close()


def test_a_real_disk_that_is_full_when_the_journal_is_closed_and_opened(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    journal = SqliteJournal(small_disk / "journal.db")
    stored = fill_up(journal)
    write_until_it_is_full(small_disk / "rest")
    journal.close()

    try:
        journal = SqliteJournal(small_disk / "journal.db")
    except JournalFull:
        # Even reading takes a few pages beside the file: to be told so is all one can ask for.
        ballast.unlink()
        journal = SqliteJournal(small_disk / "journal.db")

    assert everything(journal) == stored
    journal.close()


def test_no_room_even_to_create_the_journal(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(3 * 1024 * 1024 - 8192))

    with pytest.raises(JournalFull, match="free some space"):
        SqliteJournal(small_disk / "journal.db")

    (small_disk / "ballast").unlink()
    SqliteJournal(small_disk / "journal.db").close()


@pytest.mark.usefixtures("all_in_segments")
def test_segments_that_are_forgotten_make_space_for_the_next_group(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk / "journal.db", keep_acknowledged=False, cache_bytes=1)
    fill_up(journal)

    journal.retire(journal.head)
    stored = fill(journal, [20, 20], width=1000)

    assert everything(journal) == stored
    journal.close()
    journal = SqliteJournal(small_disk / "journal.db")
    assert everything(journal) == stored
    journal.close()


def test_a_log_that_can_be_carried_over_is_used_again(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk / "journal.db", keep_acknowledged=False, cache_bytes=1)
    fill(journal, [1], width=100_000)
    journal._writer.empty_wal()
    journal.retire(journal.head)
    stored = fill(journal, [1], width=10)
    write_until_it_is_full(small_disk / "rest")

    for _ in range(20):
        stored += fill(journal, [1], width=10)

    assert everything(journal) == stored
    journal.close()


def test_what_is_stored_is_not_called_a_failure_because_the_main_file_cannot_grow(small_disk: Path) -> None:
    path, ballast = small_disk / "journal.db", small_disk / "ballast"
    SqliteJournal(path).close()
    ballast.write_bytes(bytes(400_000))
    write_until_it_is_full(small_disk / "rest")
    os.truncate(ballast, 360_000)
    journal = SqliteJournal(path)  # There is space for what SQLite has beside it, and for no transaction.
    batches, size_before = batches_from(0, [50], width=1000), path.stat().st_size

    for size in range(360_000, 0, -4096):
        os.truncate(ballast, size)
        with contextlib.suppress(JournalFull):
            journal.append(batches)
            break

    assert everything(journal) == batches
    assert path.stat().st_size == size_before, "the disk has space for the log only"
    ballast.unlink()
    batches += fill(journal, [1])
    assert _says_that_it_is_open(path)
    journal.close()

    journal = SqliteJournal(path)
    assert everything(journal) == batches
    journal.close()


def _says_that_it_is_open(path: Path) -> bool:
    """What the main file says, without its write-ahead log."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        (opened,) = connection.execute("select opened from state").fetchone()
    return bool(opened)


def test_a_gateway_goes_on_when_its_readers_have_acknowledged_what_fills_the_disk(small_disk: Path) -> None:
    values = [bytes([number]) * 200_000 for number in range(40)]
    journal = SqliteJournal(small_disk / "journal.db", keep_acknowledged=False, max_bytes=8_000_000)
    with Gateway(
        Flux.from_iterable([[value] for value in values]),
        ANYWHERE,
        journal=journal,
        batched=True,
        prefetch=1,
    ) as gateway:
        eventually(lambda: "no space on the disk" in (gateway.status().stalled or ""))

        assert list(AquiferPublisher(gateway.endpoint, id="ann").flux()) == values


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files cannot be limited here")
@pytest.mark.parametrize("width", [1000, 10_000])
def test_a_limit_on_the_size_of_files_is_named_and_nothing_is_lost(
    open_sqlite: OpenSqlite, width: int
) -> None:
    import resource

    journal = open_sqlite(cache_bytes=1)
    stored = fill(journal, [20], width=width)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, usual[1]))

    def append_for_ever() -> None:
        while len(stored) < 1000:
            stored.extend(fill(journal, [20], width=width))

    try:
        with pytest.raises(JournalError, match="ulimit -f"):
            append_for_ever()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    stored += fill(journal, [20], width=width)
    assert everything(journal) == stored
    journal.close()
    assert everything(open_sqlite(cache_bytes=1)) == stored


class TestPagesRunOut:
    """SQLite is told that the disk has no more than so many pages, which works without a special disk."""

    def test_nothing_is_stored_and_it_goes_on_when_there_is_room(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite()
        journal._writer.connection.execute("pragma max_page_count = 40")
        stored = fill_up(journal)

        assert everything(journal) == stored
        assert journal.head == len(stored) * 20
        journal._writer.connection.execute("pragma max_page_count = 100")
        stored += fill(journal, [20], width=1000)
        journal.close()

        assert everything(open_sqlite()) == stored

    def test_room_that_is_made_in_the_journal_is_room_for_the_next_append(
        self, open_sqlite: OpenSqlite
    ) -> None:
        journal = open_sqlite(max_records=100_000)
        journal._writer.connection.execute("pragma max_page_count = 40")
        stored = fill_up(journal)

        assert journal.make_space(journal.max_records - journal.head + 200, 0, NO_WATERMARK)
        stored += fill(journal, [20, 20], width=1000)

        assert journal.first == 200
        assert everything(journal) == stored[10:]

    def test_closing_tells_of_it_and_lets_go_of_the_file(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite()
        journal._writer.connection.execute("pragma max_page_count = 40")
        stored = fill_up(journal)
        for number in range(10_000):
            journal.save_cursor(f"subscriber {number}", Cursor(0, 0, 0.0))

        with pytest.raises(JournalFull):
            journal.close()

        journal = open_sqlite()
        assert everything(journal) == stored
        assert journal.cursors == {}

    def test_cursors_that_could_not_be_stored_are_stored_later(self, open_sqlite: OpenSqlite) -> None:
        journal = open_sqlite()
        journal._writer.connection.execute("pragma max_page_count = 40")
        fill_up(journal)
        journal.save_cursor("ann", Cursor(7, 8, 9.0))
        with pytest.raises(JournalFull):
            fill(journal, [100], width=1000)
        journal.flush()
        journal.close()

        assert open_sqlite().cursors == {"ann": Cursor(7, 8, 9.0)}
