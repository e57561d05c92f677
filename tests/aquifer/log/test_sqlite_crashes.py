"""A journal in a file after the worst: its process killed, the end of its log torn, its bytes changed.

Killing a process does not take the power away: what SQLite has written but not synced would survive it. The
torn logs imitate that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged
from penstock.aquifer.log import SqliteJournal
from tests.aquifer.log.making import authors, batch_at, copy_of, everything, fill

OpenSqlite = Callable[..., SqliteJournal]
REPOSITORY = Path(__file__).parents[3]

APPENDS_FOR_EVER = """
import random, sys
from penstock.aquifer.log import SqliteJournal, segments
from tests.aquifer.log.making import NO_WATERMARK, batches_from

path, author, log_pages, inline = sys.argv[1:]
segments.INLINE_BYTES, segments.SEGMENT_BYTES = int(inline), 20_000
chance = random.Random(author)
journal = SqliteJournal(path, max_records=2000)
journal._writer.connection.execute(f"pragma wal_autocheckpoint = {log_pages}")
while True:
    counts = [chance.randint(1, 50) for _ in range(chance.randint(1, 5))]
    new = batches_from(journal.head, counts, author=author)
    records = sum(batch.count for batch in new)
    assert journal.make_space(records, sum(batch.nbytes for batch in new), NO_WATERMARK)
    start = journal.head
    journal.append(new, {"head": str(start + records)})
    print(start, journal.head, flush=True)
"""


def append_and_be_killed(
    path: Path, author: str, after: int, log_pages: int, inline: int
) -> list[tuple[int, int]]:
    """The stretches that a process appended and said so, before it was killed in the middle of the next.

    With few pages in the log it is often being carried over into the main file in that moment. Groups of
    ``inline`` bytes and more go to segment files.
    """
    with subprocess.Popen(
        [sys.executable, "-c", APPENDS_FOR_EVER, str(path), author, str(log_pages), str(inline)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        lines = list(itertools.islice(child.stdout, after))
        child.kill()
        lines += child.stdout.readlines()
    # The kill may have cut off the last line.
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return [(int(start), int(end)) for start, end in whole]


def execute(path: Path, *statements: str) -> None:
    """Change a journal as no journal would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.slow
@pytest.mark.parametrize("inline", [10**9, 700, 0], ids=["in SQLite", "in both", "in segment files"])
def test_nothing_that_was_appended_is_lost_when_the_process_is_killed(path: Path, inline: int) -> None:
    chance = random.Random(11)
    last_head = 0
    for turn in range(10):
        said = append_and_be_killed(
            path, f"turn{turn}", chance.randint(1, 40), log_pages=[1, 20, 1000][turn % 3], inline=inline
        )

        journal = SqliteJournal(path)
        batches = everything(journal)
        assert said[0][0] == last_head, "an offset was given twice, or left out"
        assert journal.head >= said[-1][1], "what append() returned for is lost"
        assert journal.marks == {"head": str(journal.head)}, "marks and records are not of the same append"
        claimed = dict(claim for batch in batches for claim in authors(batch))
        assert list(claimed) == list(range(journal.first, journal.head))
        for start, end in said:
            for offset in range(max(start, journal.first), end):
                assert claimed[offset] == f"turn{turn}"
        last_head = journal.head
        journal.close()


def test_every_append_is_synced(open_sqlite: OpenSqlite) -> None:
    """Only a loss of power would show it, so this looks at the setting."""
    (level,) = open_sqlite()._writer.connection.execute("pragma synchronous").fetchone()

    assert level == 2, "2 is FULL"


class TestTornLog:
    """The write-ahead log of appends that are only in it, with its end cut off or overwritten."""

    @pytest.fixture
    def steps(self, open_sqlite: OpenSqlite, path: Path) -> list[tuple[int, int]]:
        """After each of twelve appends: how long the log was, and the head."""
        journal = open_sqlite()
        steps = [(os.stat(f"{path}-wal").st_size, 0)]
        for turn in range(12):
            fill(journal, [10, turn + 1], width=500)
            steps.append((os.stat(f"{path}-wal").st_size, journal.head))
        return steps

    @pytest.mark.parametrize("damage", ["cut", "zeros", "garbage", "one bit"])
    def test_exactly_the_appends_before_the_damage_are_there(
        self, path: Path, steps: list[tuple[int, int]], damage: str
    ) -> None:
        chance = random.Random(damage)
        whole = steps[-1][0]
        begun = max(steps[0][0], 32)
        for number in range(12):
            torn = chance.randrange(begun, whole)
            copy = copy_of(path, path.parent / f"copy{number}")
            self.tear(Path(f"{copy}-wal"), torn, damage, chance)

            journal = SqliteJournal(copy)

            assert journal.head == max(head for length, head in steps if length <= torn)
            batches = everything(journal)
            assert [claim for batch in batches for claim in authors(batch)] == [
                (offset, "") for offset in range(journal.head)
            ]
            batches += fill(journal, [3])
            journal.close()
            journal = SqliteJournal(copy)
            assert everything(journal) == batches
            journal.close()

    @staticmethod
    def tear(log: Path, torn: int, damage: str, chance: random.Random) -> None:
        content = bytearray(log.read_bytes())
        if damage == "cut":
            del content[torn:]
        elif damage == "zeros":
            # A byte that was zero before would not be damaged.
            content[torn] ^= 0xFF
            content[torn + 1 :] = bytes(len(content) - torn - 1)
        elif damage == "garbage":
            content[torn] ^= 0xFF
            content[torn + 1 :] = chance.randbytes(len(content) - torn - 1)
        else:
            content[torn] ^= 1 << chance.randrange(8)
        log.write_bytes(content)


class TestDamagedFile:
    @pytest.fixture
    def damaged(self, open_sqlite: OpenSqlite, path: Path) -> Path:
        """A closed journal of three batches of a hundred thousand bytes, to be damaged."""
        journal = open_sqlite()
        for _ in range(3):
            fill(journal, [100], width=1000)
        journal.close()
        return path

    @staticmethod
    def overwrite(path: Path, place: int, content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(content)

    def test_its_beginning(self, damaged: Path) -> None:
        self.overwrite(damaged, 0, bytes(16384))

        with pytest.raises(JournalDamaged, match="its beginning was overwritten"):
            SqliteJournal(damaged)

    def test_its_tables(self, damaged: Path) -> None:
        self.overwrite(damaged, 200, b"\xff" * 16000)

        with pytest.raises(JournalDamaged, match=f"Move it away, together with the files {damaged}-wal"):
            SqliteJournal(damaged)

    def test_its_end(self, damaged: Path) -> None:
        os.truncate(damaged, damaged.stat().st_size - 20_000)

        with pytest.raises(JournalDamaged, match=r"malformed.*Move it away"):
            SqliteJournal(damaged)

    def test_its_state(self, damaged: Path) -> None:
        content = damaged.read_bytes()
        execute(damaged, "update state set head = 299")

        with pytest.raises(JournalDamaged, match="what it says of itself is not what was written"):
            SqliteJournal(damaged)

        damaged.write_bytes(content)
        SqliteJournal(damaged).close()

    @pytest.mark.parametrize("offset", [0, 200])
    def test_its_first_or_last_batch_is_missing(self, damaged: Path, offset: int) -> None:
        execute(damaged, f"delete from batches where first = {offset}")

        with pytest.raises(JournalDamaged, match="it should have the records 0 to 299, but does not"):
            SqliteJournal(damaged)

    def test_its_state_is_missing(self, damaged: Path) -> None:
        execute(damaged, "delete from state")

        with pytest.raises(JournalDamaged, match="does not say where its records begin"):
            SqliteJournal(damaged)

    def test_one_byte_of_a_batch_is_noticed_by_those_who_read_it(
        self, open_sqlite: OpenSqlite, damaged: Path
    ) -> None:
        position = damaged.read_bytes().index(b"150 ...")
        self.overwrite(damaged, position, b"151")
        journal = open_sqlite()

        assert journal.find(99) == batch_at(0, 100, width=1000)
        assert journal.find(200) == batch_at(200, 100, width=1000)
        for offset in (100, 150, 199):
            with pytest.raises(JournalDamaged, match="the records 100 to 199 are not what was written"):
                journal.find(offset)
        assert journal.make_space(1, journal.max_bytes, 200) is False
        fill(journal, [1])

    def test_a_batch_that_is_missing(self, open_sqlite: OpenSqlite, damaged: Path) -> None:
        journal = open_sqlite()
        journal._writer.connection.execute("delete from batches where first = 100")

        assert journal.find(99) is not None
        with pytest.raises(JournalDamaged, match="the record 123 is missing"):
            journal.find(123)
        assert journal.find(200) is not None

    def test_batches_that_changed_places(self, open_sqlite: OpenSqlite, damaged: Path) -> None:
        journal = open_sqlite()
        for step in (
            "update batches set first = 1000 where first = 100",
            "update batches set first = 100 where first = 200",
        ):
            journal._writer.connection.execute(step)

        with pytest.raises(JournalDamaged, match="the batch at 100 is not what was written"):
            journal.find(100)
