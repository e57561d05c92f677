"""The traps that the manual names under "How to lose records": each is as the manual says."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    EpochChanged,
    Gateway,
    JournalDamaged,
    JournalError,
    MemoryJournal,
    Overtaken,
    Record,
    SqliteJournal,
    TakenOver,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, UNBOUNDED, ByHand, Numbers, eventually, has, read, session_of
from tests.aquifer.log.making import fill
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.source.repository import ROOT

TRAPS = {
    "Copying `NAME` without `NAME-wal`.": "test_a_copy_without_its_wal_is_refused",
    "Copying `NAME` without `NAME-segments`.": "test_a_copy_without_its_segment_files_is_refused",
    "Restoring a backup as if nothing had happened.": "test_a_backup_opens_under_a_new_epoch",
    "Restoring an old copy of a journal that was closed properly.": "test_an_old_copy_gives_offsets_twice",
    "A journal on a network disk.": "test_the_journal_depends_on_memory_and_locks_of_one_machine",
    "Removing the files while the gateway runs.": "test_removing_the_files_ends_the_stream",
    "Forking with an open journal.": "test_a_forked_child_cannot_use_the_journal",
    "One `id` for two readers.": "test_two_readers_with_one_id_have_a_part_each",
    "`keep=False` without `on_gap`.": "test_an_optional_reader_that_is_slow_misses_records",
    "Acknowledging too early.": "test_what_was_acknowledged_does_not_come_again",
    "A lease that is shorter than an outage.": "test_after_the_lease_the_records_are_not_kept",
}


def test_every_trap_on_the_page_has_a_test() -> None:
    page = (ROOT / "docs/aquifer.md").read_text("utf-8")
    section = page.split("### How to lose records\n")[1].split("\n## ")[0]

    assert re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE) == list(TRAPS)
    assert [name for name in TRAPS.values() if name not in globals()] == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with closing(SqliteJournal(path)) as opened:
        yield opened


def read_all(path: Path, source: Flux[bytes], **settings: int | str) -> list[bytes]:
    """Serve a journal and what the source adds to it; what a reader gets."""
    with Gateway(source, ANYWHERE, journal=SqliteJournal(path)) as gateway:
        eventually(lambda: gateway.status().end is not None)
        return list(AquiferPublisher(gateway.endpoint, **settings).flux())  # type: ignore[arg-type]


def test_a_copy_without_its_wal_is_refused(journal: SqliteJournal, path: Path, tmp_path: Path) -> None:
    fill(journal, [3])
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)

    with pytest.raises(JournalDamaged):
        SqliteJournal(copy)


def test_a_journal_that_was_closed_is_one_file(path: Path) -> None:
    with closing(SqliteJournal(path)) as journal:
        fill(journal, [3])

    assert not Path(f"{path}-wal").exists()
    shutil.copy(path, path.with_name("copy.db"))
    with closing(SqliteJournal(path.with_name("copy.db"))) as copy:
        assert (copy.head, copy.epoch) == (3, journal.epoch)


def test_a_copy_without_its_segment_files_is_refused(path: Path) -> None:
    copy = path.with_name("copy.db")
    with closing(SqliteJournal(path)) as journal:
        large = fill(journal, [2000], width=100)
    shutil.copy(path, copy)

    with pytest.raises(JournalDamaged, match="is missing: put it back"):
        SqliteJournal(copy)
    shutil.copytree(f"{path}-segments", f"{copy}-segments")
    with closing(SqliteJournal(copy)) as journal:
        assert journal.find(0) == large[0]


def test_a_backup_opens_under_a_new_epoch(journal: SqliteJournal, path: Path, tmp_path: Path) -> None:
    fill(journal, [3])
    copy = tmp_path / "backup.db"
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)

    with pytest.raises(JournalDamaged, match="accept_loss=True"):
        SqliteJournal(copy)
    restored = SqliteJournal(copy, accept_loss=True)
    assert restored.head == 3
    with Gateway(Flux.empty(), ANYWHERE, journal=restored) as gateway:
        error = read(gateway.endpoint, start=3, epoch=journal.epoch).wait().error
        assert isinstance(error, EpochChanged)


def test_an_old_copy_gives_offsets_twice(path: Path) -> None:
    old, again = path.with_name("old.db"), path.with_name("again.db")
    assert read_all(path, Flux.just(b"a", b"b")) == [b"a", b"b"]
    for copy in (old, again):
        shutil.copy(path, copy)
    assert read_all(path, Flux.just(b"c", b"d")) == [b"a", b"b", b"c", b"d"]

    # A reader that has read all four asks for the fifth, and never sees what now has the offsets 2 and 3.
    assert read_all(old, Flux.just(b"C", b"D", b"E"), start=4) == [b"E"]

    # In the place of the journal it is refused.
    shutil.copy(again, path)
    with pytest.raises(JournalDamaged, match="old copy of the journal that was here"):
        SqliteJournal(path)


def test_the_journal_depends_on_memory_and_locks_of_one_machine(journal: SqliteJournal, path: Path) -> None:
    fill(journal, [1])

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:
        assert other.execute("pragma journal_mode").fetchone() == ("wal",)
    assert Path(f"{path}-shm").exists()
    assert Path(f"{path}-lock").exists()


def test_removing_the_files_ends_the_stream(path: Path) -> None:
    source = ByHand()
    gateway = Gateway(source, ANYWHERE, journal=SqliteJournal(path)).start()
    try:
        reader = read(gateway.endpoint)
        source.give(b"a")
        eventually(has(reader, 1))
        path.unlink()
        assert "journal" in str(reader.wait().error)
    finally:
        with pytest.raises(JournalDamaged):
            gateway.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_cannot_use_the_journal(journal: SqliteJournal) -> None:
    child = os.fork()
    if child == 0:
        try:
            fill(journal, [1])
        except JournalError:
            os._exit(7)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_two_readers_with_one_id_have_a_part_each() -> None:
    with Gateway(Numbers(5000), ANYWHERE, journal=MemoryJournal(max_records=1000)) as gateway:
        first = read(gateway.endpoint, 100, id="ledger")
        eventually(lambda: session_of(gateway)["acknowledged"] == 100)
        second = read(gateway.endpoint, id="ledger")
        eventually(has(second, 1))

        assert isinstance(first.request(UNBOUNDED).wait().error, TakenOver)
        assert len(first.items) < 5000
        assert second.wait().items == Numbers().values(100, 5000)


def test_an_optional_reader_that_is_slow_misses_records() -> None:
    with Gateway(Numbers(500), ANYWHERE, journal=MemoryJournal(max_records=50)) as gateway:
        slow = read(gateway.endpoint, 1, keep=False, window=1, max_window=1)
        eventually(has(slow, 1))
        assert len(read(gateway.endpoint).wait().items) > 0
        slow.request(500)

        assert isinstance(slow.wait().error, Overtaken)


def test_what_was_acknowledged_does_not_come_again() -> None:
    with Gateway(Numbers(10), ANYWHERE) as gateway:
        first = read(gateway.endpoint, 1, id="ledger", acknowledge="manual")
        eventually(has(first, 1))
        first.subscription.acknowledge(1)  # type: ignore[attr-defined]
        first.cancel()  # before the record had any effect
        # The next reader has a connection of its own, and may be heard first.
        eventually(lambda: [one.acknowledged for one in gateway.status().saved.values()] == [1])

        again = read(gateway.endpoint, id="ledger", records=True).wait()
        offsets = [record.offset for record in again.items if isinstance(record, Record)]
        assert offsets == list(range(1, 10))


def test_after_the_lease_the_records_are_not_kept() -> None:
    front = FrontTable(log=PretendedLog(head=100))
    front.subscribe(id="ledger", lease=5_000)
    front.say(b'{"jsonClass":"Subscribe","cancel":true,"x":{"v":1}}')
    front.subscribe(peer=b"other", from_=100)

    front.pass_time(4.0)
    assert front.table.needed() == 0
    front.pass_time(2.0)
    assert front.table.needed() == 100
