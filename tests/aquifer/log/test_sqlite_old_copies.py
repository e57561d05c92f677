"""An old copy of a journal that was closed in order: its offsets must not be given again in silence."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged
from penstock.aquifer.log import SqliteJournal, compact_journal, ownership, verify_journal
from penstock.aquifer.protocol.messages import OnError, Subscribe, SubscribeFields
from tests.aquifer.log.making import fill
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog

OpenSqlite = Callable[..., SqliteJournal]
OLD = "old copy.*Put the newer file in its place.*accept_loss=True"


def stored(path: Path, *counts: int, width: int = 10) -> str:
    """A gateway appends so many records at a time, and closes its journal; returns the epoch."""
    with contextlib.closing(SqliteJournal(path)) as journal:
        for count in counts:
            fill(journal, [count], width=width)
        return journal.epoch


@pytest.fixture
def restored(path: Path, tmp_path: Path) -> str:
    """The journal has 3 records, and had 7 before; returns the epoch."""
    stored(path, 3)
    shutil.copy(path, tmp_path / "backup.db")
    epoch = stored(path, 4)
    shutil.copy(tmp_path / "backup.db", path)
    return epoch


def test_in_its_place_it_is_refused(restored: str, path: Path) -> None:
    for _ in range(2):  # It does not pass at the second try, either.
        with pytest.raises(JournalDamaged, match=OLD):
            SqliteJournal(path)


def test_it_is_refused_after_a_restart_of_the_machine_too(
    restored: str, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    another = tmp_path / "boot"
    another.write_text("another run\n")
    monkeypatch.setattr(ownership, "_BOOT", another)
    with pytest.raises(JournalDamaged, match=OLD):
        SqliteJournal(path)


def test_a_loss_that_is_accepted_begins_a_new_epoch(
    restored: str, path: Path, open_sqlite: OpenSqlite
) -> None:
    journal = open_sqlite(accept_loss=True)
    assert journal.head == 3
    assert journal.epoch != restored
    journal.close()
    assert open_sqlite().head == 3, "it is a journal like any other from then on"


def test_another_journal_in_its_place_is_no_old_copy(
    restored: str, path: Path, open_sqlite: OpenSqlite
) -> None:
    other = path.with_name("other.db")
    epoch = stored(other, 1)
    shutil.copy(other, path)
    assert open_sqlite().epoch == epoch


def test_it_is_found_by_verify_and_not_compacted(restored: str, path: Path) -> None:
    (finding,) = verify_journal(path).findings
    assert "old copy of the journal that was here: the last" in finding
    with pytest.raises(JournalDamaged, match=OLD):
        compact_journal(path)


def test_a_journal_that_was_compacted_is_no_old_copy(path: Path, open_sqlite: OpenSqlite) -> None:
    epoch = stored(path, 3)
    compact_journal(path)
    assert verify_journal(path).is_sound
    assert open_sqlite().epoch == epoch


def test_beside_newer_segment_files_it_is_refused_and_they_stay(
    path: Path, tmp_path: Path, open_sqlite: OpenSqlite
) -> None:
    stored(path, 3)
    shutil.copy(path, tmp_path / "backup.db")
    stored(path, 2000, width=100)
    segments = sorted(Path(f"{path}-segments").iterdir())
    assert segments
    shutil.copy(path, tmp_path / "newer.db")
    shutil.copy(tmp_path / "backup.db", path)
    Path(f"{path}-lock").unlink()

    with pytest.raises(JournalDamaged, match="has records that were stored after it"):
        SqliteJournal(path)
    assert "stored after it" in verify_journal(path).findings[0]
    assert sorted(Path(f"{path}-segments").iterdir()) == segments
    shutil.copy(tmp_path / "newer.db", path)
    assert open_sqlite().head == 2003


def test_a_loss_that_is_accepted_removes_newer_segment_files(
    path: Path, tmp_path: Path, open_sqlite: OpenSqlite
) -> None:
    stored(path, 3)
    shutil.copy(path, tmp_path / "backup.db")
    stored(path, 2000, width=100)
    shutil.copy(tmp_path / "backup.db", path)
    assert open_sqlite(accept_loss=True).head == 3
    assert list(Path(f"{path}-segments").iterdir()) == []


def test_elsewhere_it_is_opened_with_a_warning(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored(path, 3)
    stored(path, 1)
    assert str(tmp_path) not in caplog.text
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with caplog.at_level(logging.WARNING):
        stored(copy, 1)
        assert "If it is not the newest copy, stop this gateway" in caplog.text
        caplog.clear()
        stored(copy, 1)
        assert str(tmp_path) not in caplog.text, "it is known here from now on"


def test_what_a_failed_transaction_left_is_gone_when_the_journal_is_closed(
    path: Path, open_sqlite: OpenSqlite
) -> None:
    journal = open_sqlite()
    fill(journal, [2000], width=100)
    left = Path(f"{path}-segments") / f"{journal.head:020d}-0123456789abcdef"
    left.write_bytes(b"in doubt")
    journal.close()
    assert not left.exists()
    assert open_sqlite().head == 2000


def test_a_reader_that_has_read_further_in_this_epoch_is_told_and_the_gateway_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    front = FrontTable(log=PretendedLog(head=100))
    for _ in range(2):
        wanted = SubscribeFields(v=1, from_=150, epoch=front.log.epoch)
        answer = front.ask(Subscribe(x=wanted))
        assert isinstance(answer, OnError)
        assert "was an old copy of the journal restored?" in answer.message
    assert front.table.counters["ahead of the log"] == 2
    assert len([each for each in caplog.records if "150" in each.getMessage()]) == 1
    answer = front.ask(Subscribe(x=SubscribeFields(v=1, from_=150)))
    assert isinstance(answer, OnError)
    assert "old copy" not in answer.message, "it does not know the epoch"
