"""Verifying and compacting a journal that no gateway has open."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.aquifer import (
    JournalDamaged,
    JournalError,
    JournalInUse,
    JournalLocked,
    SqliteJournal,
    compact_journal,
    verify_journal,
)
from penstock.aquifer.log import inspection
from tests.aquifer.log.making import batches_from
from tests.aquifer.log.test_sqlite_damage import BATCHES, CURSORS, MARKS, everything_in, sound_journal


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_a_sound_journal_is_told_in_figures(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    before = sound_journal(path)
    seen: list[tuple[int, int]] = []
    verified = verify_journal(path, lambda done, total: seen.append((done, total)))

    assert verified.is_sound
    assert (verified.first, verified.head, verified.records, verified.batches) == (0, 13, 13, len(BATCHES))
    assert (verified.cursors, verified.marks) == (len(CURSORS), len(MARKS))
    assert seen[-1] == (verified.nbytes, verified.nbytes)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("update batches set payload = zeroblob(length(payload)) where first = 3", "records 3 to 6 are not"),
        ("update batches set count = 2 where first = 0", "is not what was written"),
        ("delete from batches where first = 3", "the records 3 to 6 are missing"),
        ("delete from cursors where name = 'hourly'", "its cursors are not those that were written last"),
        ("update cursors set acknowledged = 0", "an entry of its cursors is not what was written"),
        ("update marks set value = 'x'", "an entry of its marks is not what was written"),
        ("update state set epoch = 'another'", "what it says of itself is not what was written"),
        ("delete from state", "does not say where its records begin"),
    ],
)
def test_each_damage_is_found(tmp_path: Path, statement: str, found: str) -> None:
    path = tmp_path / "journal.db"
    sound_journal(path)
    change(path, statement)
    verified = verify_journal(path)

    assert not verified.is_sound
    assert found in " ".join(verified.findings)
    assert "Move it away" not in " ".join(verified.findings)


def test_one_damaged_batch_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    sound_journal(path)
    change(path, "update batches set notes = x'00' where first in (0, 7)")
    verified = verify_journal(path)

    assert len(verified.findings) == 2
    assert verified.records == 13 - 3 - 5


@pytest.mark.parametrize("seed", range(30))
def test_whatever_a_gateway_would_notice_is_found(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "journal.db"
    image = bytearray(sound_journal(path))
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 4, 64))):
        image[chance.randrange(100, len(image))] ^= 1 << chance.randrange(8)
    path.write_bytes(image)
    try:
        sound = verify_journal(path).is_sound
    except JournalError:
        sound = False

    assert not sound or everything_in(path) == "sound"


def test_what_cannot_be_verified_is_refused(tmp_path: Path) -> None:
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.write_text("no journal at all " * 20)
    empty.touch()
    for path, told in ((text, "not a journal"), (empty, "is empty"), (tmp_path, "a directory")):
        with pytest.raises(JournalError, match=told):
            verify_journal(path)
    with pytest.raises(JournalError, match="there is no journal"):
        verify_journal(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_journal_in_use_is_refused_by_both(tmp_path: Path) -> None:
    with closing(SqliteJournal(tmp_path / "journal.db")) as journal:
        journal.append(BATCHES)
        for tend in (verify_journal, compact_journal):
            with pytest.raises(JournalInUse):
                tend(journal.path)
        journal.append(batches_from(13, [1]))


def test_a_lost_write_ahead_log_is_found(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    with closing(SqliteJournal(path)) as journal:
        journal.append(BATCHES)
        copy.write_bytes(path.read_bytes())
    assert "write-ahead log is missing" in verify_journal(copy).findings[0]


def grown(path: Path) -> int:
    """A journal that was larger once: 400 batches, of which the last four are left."""
    batches = batches_from(0, [1] * 400, width=20_000)
    with closing(SqliteJournal(path, max_records=4)) as journal:
        for start in range(0, 400, 5):
            journal.append(batches[start : start + 5], MARKS)
        for name, cursor in CURSORS.items():
            journal.save_cursor(name, cursor._replace(acknowledged=398))
        journal.make_space(0, 0, 396)
    return os.path.getsize(path)


def test_compacting_gives_space_back_and_changes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    before = grown(path)
    os.chmod(path, 0o640)
    seen: list[tuple[int, int]] = []
    compacted = compact_journal(path, lambda done, total: seen.append((done, total)))

    assert compacted.before == before
    assert compacted.after == os.path.getsize(path) < before / 20
    assert compacted.freed == before - compacted.after
    assert path.stat().st_mode & 0o777 == 0o640
    assert verify_journal(path).is_sound
    with closing(SqliteJournal(path, max_records=4)) as journal:
        assert (journal.first, journal.head) == (396, 400)
        assert journal.marks == MARKS
        assert journal.cursors["nightly"].acknowledged == 398
        epoch = journal.epoch
        journal.append(batches_from(400, [1]))
    assert verify_journal(path).epoch == epoch
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith("-new")) == []


def test_a_journal_that_was_killed_is_recovered_by_compacting(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    with closing(SqliteJournal(path)) as journal:
        journal.append(BATCHES, MARKS)
        for end in ("", "-wal"):
            Path(f"{copy}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
    compact_journal(copy)
    verified = verify_journal(copy)

    assert verified.is_sound
    assert verified.records == 13


def test_a_damaged_journal_is_not_compacted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    sound_journal(path)
    change(path, "update batches set notes = x'00' where first = 3")
    with pytest.raises(JournalDamaged, match="nothing was changed"):
        compact_journal(path)
    assert len(verify_journal(path).findings) == 1


def test_a_reader_of_the_old_file_keeps_it_from_being_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    grown(path)
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("select count(*) from batches").fetchone()
        with pytest.raises(JournalLocked, match="another program"):
            compact_journal(path)
    assert verify_journal(path).is_sound


def test_killed_before_the_new_file_is_in_place_the_old_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    grown(path)

    class Killed(BaseException):
        pass

    def die(draft: str, path: str) -> None:
        raise Killed

    monkeypatch.setattr(inspection, "_replace", die)
    with pytest.raises(Killed):
        compact_journal(path)
    verified = verify_journal(path)
    assert verified.is_sound
    assert verified.records == 4
