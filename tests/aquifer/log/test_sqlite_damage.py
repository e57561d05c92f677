"""Any damage to the file is told as JournalDamaged, and nothing that is not what was written gets out."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import JournalDamaged, JournalTooNew
from penstock.aquifer.log import Cursor, SqliteJournal
from tests.aquifer.log.making import batches_from

PAGE = 16384
CURSORS = {"nightly": Cursor(7, 3_600_000, 1800.5, "a key"), "hourly": Cursor(2, 60_000, 60.0)}
MARKS = {"delivered:totals": "31", "delivered:rest": "7"}
BATCHES = batches_from(0, [3, 4, 5, 1], width=9000)


def sound_journal(path: Path) -> bytes:
    """The bytes of a closed journal with a bit of everything."""
    journal = SqliteJournal(path)
    journal.use_codec("text")
    for name, cursor in CURSORS.items():
        journal.save_cursor(name, cursor)
    journal.append(BATCHES, MARKS)
    journal.close()
    return path.read_bytes()


def everything_in(path: Path) -> str:
    """Open the journal and read all there is: "sound", or else the damage that was told.

    Fails if anything else is raised, or if anything is read that was not written.
    """
    try:
        journal = SqliteJournal(path, max_age=1000.0)
    except (JournalDamaged, JournalTooNew) as error:
        return str(error)
    told = ""
    try:
        assert journal.cursors == CURSORS
        assert journal.marks == MARKS
        assert (journal.first, journal.head) == (0, 13)
        for batch in BATCHES:
            try:
                assert journal.find(batch.first) == batch
                journal.held_from(batch.first + 1)
            except JournalDamaged as error:
                told = str(error)
        try:
            # They have just been stored: none of them is too old.
            journal.retire(13, time.time())
            assert journal.first == 0
            journal.make_space(journal.max_records, 0, 13)
        except JournalDamaged as error:
            told = str(error)
    finally:
        try:
            journal.close()
        except JournalDamaged as error:
            told = str(error)
    return told or "sound"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the damaged copies are."""
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def content(folder: Path) -> bytes:
    """A sound journal."""
    return sound_journal(folder / "sound.db")


def with_content(folder: Path, content: bytes | bytearray) -> Path:
    path = folder / "damaged.db"
    for suffix in ("-wal", "-shm", "-lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def test_without_damage_it_is_sound(folder: Path, content: bytes) -> None:
    assert everything_in(with_content(folder, content)) == "sound"


@pytest.mark.parametrize("name", [b"nightly", b"hourly", b"delivered:totals", b"delivered:rest"])
def test_each_bit_of_a_cursor_or_mark_is_protected(folder: Path, content: bytes, name: bytes) -> None:
    at = content.rindex(name)
    for place in range(at, at + len(name) + 12):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8

        assert everything_in(with_content(folder, damaged)) != "sound"


@pytest.mark.parametrize(
    "statement",
    [
        "update state set head = 'xyz'",
        "update state set head = null",
        "update state set epoch = 'another'",
        "update state set codec = ''",
        "update state set serial = 0",
        "update state set crc = null",
        "delete from state",
        "drop table state",
        "drop table batches",
        "alter table batches rename column stored to kept",
        "delete from cursors where name = 'nightly'",
        "delete from marks",
        "update cursors set acknowledged = 9 where name = 'nightly'",
        "update cursors set remaining = null",
        "update cursors set owner = 'another key'",
        "update cursors set name = x'ff' where name = 'hourly'",
        "update cursors set owner = cast(x'ff' as text)",
        "update marks set value = '32' where name = 'delivered:totals'",
        "update marks set written = 'yesterday'",
        "insert into marks select 'delivered:more', value, written, crc from marks limit 1",
        "update batches set format = null where first = 3",
        "update batches set format = cast(x'ff' as text) where first = 3",
        "update batches set payload = null where first = 3",
        "update batches set payload = cast(payload as text) where first = 3",
        "update batches set notes = 5 where first = 3",
        "update batches set count = 'four' where first = 3",
        "update batches set count = 0 where first = 3",
        "update batches set before = null where first = 3",
        "update batches set before = -1 where first = 0",
        "update batches set stored = 0.0 where first = 0",
        "update batches set stored = 'long ago' where first = 0",
        "update batches set crc = -1 where first = 3",
        "update batches set crc = null where first = 3",
        "delete from batches where first = 3",
        "delete from batches where first = 12",
        "update batches set first = 9 where first = 12",
    ],
)
def test_rows_that_are_not_what_was_written(folder: Path, content: bytes, statement: str) -> None:
    path = with_content(folder, content)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        # Damage knows no rules.
        tool.execute("pragma writable_schema = on")
        tool.execute("update sqlite_master set sql = replace(sql, 'not null', '')")
        tool.execute("pragma writable_schema = reset")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute(statement)

    assert "is damaged" in everything_in(path)


@pytest.mark.parametrize("text", [b"CREATE TABLE cursors", b"tablemarksmarks", b"tablestatestate"])
def test_tables_whose_names_are_no_text_any_more(folder: Path, content: bytes, text: bytes) -> None:
    for place in range(len(text)):
        damaged = bytearray(content)
        damaged[content.index(text) + place] = 0xE8

        assert everything_in(with_content(folder, damaged)) != "sound"


def flipped(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 8, 100])):
        content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)


def swapped(content: bytearray, chance: random.Random) -> None:
    one, other = (chance.randrange(len(content) // PAGE) * PAGE for _ in range(2))
    page = content[one : one + PAGE]
    content[one : one + PAGE] = content[other : other + PAGE]
    content[other : other + PAGE] = page


def copied(content: bytearray, chance: random.Random) -> None:
    one, other = (chance.randrange(len(content) // PAGE) * PAGE for _ in range(2))
    content[one : one + PAGE] = content[other : other + PAGE]


def zeroed(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    length = min(chance.choice([1, 512, 4096, PAGE]), len(content) - start)
    content[start : start + length] = bytes(length)


def overwritten(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(100, len(content))
    length = min(chance.choice([1, 4, 512, PAGE]), len(content) - start)
    content[start : start + length] = chance.randbytes(length)


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(1, len(content)) :]


def grown(content: bytearray, chance: random.Random) -> None:
    content += chance.randbytes(chance.choice([1, PAGE]))


@pytest.mark.slow
@given(
    damage=st.sampled_from([flipped, swapped, copied, zeroed, overwritten, cut, grown]), seed=st.integers(0)
)
@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_damage_anywhere_is_told_or_does_not_matter(
    folder: Path, content: bytes, damage: Callable[[bytearray, random.Random], None], seed: int
) -> None:
    damaged = bytearray(content)
    damage(damaged, random.Random(seed))

    everything_in(with_content(folder, damaged))
