"""Compressed batches in every kind of journal: stored as they are, counted as they are, noticed if torn."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalTooNew
from penstock.aquifer.log import (
    Journal,
    Log,
    MemoryJournal,
    SqliteJournal,
    compact_journal,
    database,
    verify_journal,
)
from penstock.aquifer.log.database import inspect_file
from penstock.aquifer.records.batch import Batch
from penstock.aquifer.records.compression import Compressor, expanded
from tests.aquifer.log.conftest import Open
from tests.aquifer.log.format_two import write_format_two
from tests.aquifer.log.making import NO_WATERMARK, batches_from, copy_of, everything, fill, segment_files

OpenSqlite = Callable[..., SqliteJournal]


def fill_both(journal: Journal, counts: list[int], width: int = 100) -> tuple[list[Batch], list[Batch]]:
    """Append batches, compressed where it pays; as they are stored, and as they were."""
    plain = batches_from(journal.head, counts, width=width)
    stored = [Compressor().compressed(batch) for batch in plain]
    journal.append(stored)
    return stored, plain


def format_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("pragma user_version").fetchone()
    return int(version)


# ---------------------------------------------------------------- every journal
def test_compressed_and_plain_batches_come_back_as_they_went_in(journal: Journal) -> None:
    stored, plain = fill_both(journal, [3, 20, 1, 30])
    assert [batch.compressed for batch in stored] == [False, True, False, True]
    assert everything(journal) == stored
    assert [expanded(batch) for batch in everything(journal)] == plain
    assert [journal.find(offset) for offset in (2, 3, 22, 23, 53)] == [
        stored[0], stored[1], stored[1], stored[2], stored[3]
    ]  # fmt: skip


def test_a_journal_counts_the_bytes_that_it_stores(open_any: Open) -> None:
    journal = open_any(max_records=1000, max_bytes=4_000)
    stored, plain = fill_both(journal, [30, 30, 30])
    assert journal.held.nbytes == sum(batch.nbytes for batch in stored) < 1500
    assert sum(batch.nbytes for batch in plain) > 4_000
    assert journal.make_space(1, 2_500, 0)
    assert not journal.make_space(1, 4_000, 0)
    assert journal.make_space(1, 3_900, NO_WATERMARK)
    assert journal.first > 0
    assert everything(journal) == [batch for batch in stored if batch.first >= journal.first]


def test_a_journal_that_survives_has_them_after_it_was_opened_again(open_any: Open) -> None:
    first = open_any()
    if not first.durable:
        pytest.skip("it does not survive")
    stored, plain = fill_both(first, [3, 20, 30])
    first.close()
    second = open_any()
    assert everything(second) == stored
    more, more_plain = fill_both(second, [40, 2])
    fill(second, [25])
    assert [expanded(batch) for batch in everything(second)][:5] == plain + more_plain
    assert everything(second)[:5] == stored + more


# ---------------------------------------------------------------- the file
def test_the_file_says_so_from_the_first_compressed_batch_on(open_sqlite: OpenSqlite, path: Path) -> None:
    journal = open_sqlite()
    fill_both(journal, [2])
    assert format_of(path) == 3
    fill_both(journal, [50])
    assert format_of(path) == 4
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        # An earlier version looks at the first bytes of the main file, before anything else.
        patch.setattr(database, "FORMAT_WITH_ZSTD", 3)
        with pytest.raises(JournalTooNew, match="has format 4 and needs Penstock"):
            inspect_file(str(path), file.fileno())
    journal.close()
    assert format_of(path) == 4


def test_a_file_of_an_earlier_version_takes_compressed_batches(open_sqlite: OpenSqlite, path: Path) -> None:
    before = batches_from(0, [3, 40])
    write_format_two(path, before)
    journal = open_sqlite()
    assert everything(journal) == before
    stored, _ = fill_both(journal, [50])
    journal.close()
    assert everything(open_sqlite()) == before + stored
    assert format_of(path) == 4


@pytest.mark.parametrize("kind", ["inline", "segments"])
def test_a_file_with_compressed_batches_is_verified_and_compacted(
    kind: str, open_sqlite: OpenSqlite, path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "segments":
        request.getfixturevalue("all_in_segments")
    journal = open_sqlite(max_records=200)
    for _ in range(6):
        journal.make_space(70, 0, NO_WATERMARK)
        stored, plain = fill_both(journal, [50, 20])
    journal.close()
    assert bool(segment_files(path)) == (kind == "segments")
    assert verify_journal(path).is_sound
    compact_journal(path)
    assert format_of(path) == 4
    after = open_sqlite(cache_bytes=1)
    assert everything(after)[-2:] == stored
    assert [expanded(batch) for batch in everything(after)][-2:] == plain


def test_without_the_package_a_file_with_compressed_batches_says_what_to_install(
    open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_sqlite()
    stored, _ = fill_both(journal, [50])
    journal.close()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(JournalError) as told:
            open_sqlite()
        assert str(told.value) == (
            f"the journal {path} has records that are compressed with zstd, and zstandard is not installed: "
            "pip install 'penstock-streams[zstd]'"
        )
    assert everything(open_sqlite()) == stored


def test_without_the_package_a_file_that_has_no_compressed_batches_any_more_opens(
    open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_sqlite(max_records=60)
    fill_both(journal, [50])
    assert journal.make_space(20, 0, NO_WATERMARK)
    plain = fill(journal, [20])
    journal.close()
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert everything(open_sqlite()) == plain


@pytest.mark.parametrize("kind", ["inline", "segments"])
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_byte_of_a_compressed_batch_that_has_changed_is_noticed(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    if kind == "segments":
        request.getfixturevalue("all_in_segments")
    path = tmp_path_factory.mktemp("torn") / "journal.db"
    with closing(SqliteJournal(path)) as journal:
        stored, _ = fill_both(journal, [50, 60, 70])
    victim = data.draw(st.sampled_from(stored))
    at = data.draw(st.integers(0, len(victim.payload) - 1))
    changed = bytearray(victim.payload)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    file = segment_files(path)[0] if kind == "segments" else path
    content = file.read_bytes()
    assert content.count(bytes(victim.payload)) == 1
    file.write_bytes(content.replace(bytes(victim.payload), bytes(changed)))
    with closing(SqliteJournal(path, cache_bytes=1)) as journal:
        for batch in stored:
            if batch is victim:
                with pytest.raises(JournalDamaged, match="are not what was written"):
                    journal.find(batch.first)
            elif batch.first < victim.first:
                assert journal.find(batch.first) == batch


def test_a_crash_after_a_compressed_batch_loses_nothing(
    open_sqlite: OpenSqlite, path: Path, tmp_path: Path
) -> None:
    journal = open_sqlite()
    stored, _ = fill_both(journal, [50, 60])
    copy = copy_of(path, tmp_path / "crashed")
    assert everything(open_sqlite(copy)) == stored
    assert format_of(copy) == 4


def test_a_batch_that_lies_about_its_size_is_told_as_damage() -> None:
    journal = MemoryJournal()
    log = Log(journal)
    log.append([Batch(0, 3, b"not zstd", b"", "msgpack+zstd")])
    found = log.find(0)
    assert found is not None
    for read in (log.expanded, lambda batch: log.measure(0, 1000), lambda batch: log.fitting(0, 1, 10)):
        with pytest.raises(JournalDamaged, match=r"the records 0 to 2 of the log .* cannot be read"):
            read(found)
