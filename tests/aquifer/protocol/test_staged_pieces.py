"""What is staged is in memory, and on the disk of the journal when it is large; both have bounds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Spool
from penstock.aquifer.log.spool import is_spooled
from penstock.aquifer.protocol.staged_pieces import AttemptKey, StagedPieces
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values, values_of
from tests.aquifer.faults.rigs import nameless_files

if sys.platform == "win32":
    pytest.skip("an open file cannot be removed here", allow_module_level=True)

import resource

METADATA = pack_metadata(RecordMetadata(1))
KEY = AttemptKey("ann", "query", 0, 0, 0)
OTHER = KEY._replace(owner="bob")
PIECE = 10_000
"""About so many bytes has a piece."""


def piece(number: int = 0, size: int = PIECE) -> Batch:
    """A piece with one record, which begins with its number."""
    return Batch(0, 1, pack_values([(b"%d " % number).ljust(size, b".")]), METADATA)


def staged_in(folder: Path, *, memory: int = 8 * PIECE, disk: int = 100 * PIECE) -> StagedPieces:
    """Two pieces fit into a quarter of the memory."""
    limits = Limits(staged_bytes=memory + 8 * 1000, staged_disk_bytes=disk)
    return StagedPieces(limits, Spool(str(folder / "journal.db"), file_bytes=10 * PIECE + 1000))


def on_disk(folder: Path) -> int:
    """The bytes that files without a name take of the disk."""
    return sum(status.st_blocks * 512 for status in nameless_files(folder).values())


def test_the_first_pieces_are_in_memory_and_the_others_on_the_disk(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)

    for seq in range(6):
        assert staged.put(KEY, seq, piece(seq), 0.0) is None

    found = staged.of(KEY)
    assert [is_spooled(found[seq]) for seq in range(6)] == [False, False, True, True, True, True]
    assert [values_of(found[seq]) for seq in range(6)] == [values_of(piece(seq)) for seq in range(6)]
    assert staged.nbytes > 6 * PIECE
    assert 4 * PIECE <= on_disk(tmp_path) < 6 * PIECE


def test_what_is_dropped_gives_memory_and_disk_back(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    for seq in range(40):
        staged.put(KEY, seq, piece(seq), 0.0)
    assert len(nameless_files(tmp_path)) == 4

    staged.drop_published("ann", "query", 0)

    assert (staged.nbytes, nameless_files(tmp_path), staged.owners()) == (0, {}, set())
    staged.put(KEY, 0, piece(), 0.0)
    assert not is_spooled(staged.of(KEY)[0])


def test_a_piece_that_comes_again_replaces_the_first_wherever_that_is(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    for seq in range(5):
        staged.put(KEY, seq, piece(seq), 0.0)
    before = staged.nbytes

    for seq in (1, 4, 4, 0):
        assert staged.put(KEY, seq, piece(seq + 5), 0.0) is None

    assert staged.nbytes == before
    values = [values_of(staged.of(KEY)[seq]) for seq in range(5)]
    assert values == [values_of(piece(number)) for number in (5, 6, 2, 3, 9)]
    staged.drop(lambda key: key == KEY)
    assert (staged.nbytes, nameless_files(tmp_path)) == (0, {})


def test_replacing_a_piece_for_ever_does_not_fill_the_disk(tmp_path: Path) -> None:
    # One piece in each file would keep all of it.
    staged = staged_in(tmp_path, memory=800 * PIECE, disk=50 * PIECE)
    staged.put(KEY, 0, piece(size=200 * PIECE), 0.0)
    seq, problem = 1, None
    for number in range(300):
        seq += number % 10 == 0
        problem = staged.put(KEY, seq, piece(number), 0.0) or problem

    assert on_disk(tmp_path) <= 60 * PIECE
    assert problem is not None
    assert "staged_disk_bytes" in problem


def test_the_disk_has_a_bound_of_its_own(tmp_path: Path) -> None:
    staged = staged_in(tmp_path, disk=20 * PIECE)
    taken = 0
    while (problem := staged.put(KEY, taken, piece(taken), 0.0)) is None:
        taken += 1

    assert taken in (21, 22)
    for words in (f"no more than {20 * PIECE} bytes", "smaller batches", "Limits(staged_disk_bytes=…)"):
        assert words in problem
    assert len(staged.of(KEY)) == taken
    staged.drop_published("ann", "query", 0)
    assert staged.put(KEY, 0, piece(), 0.0) is None


def test_small_pieces_on_the_disk_need_memory_too(tmp_path: Path) -> None:
    staged = staged_in(tmp_path, memory=80_000)
    taken = 0
    while (problem := staged.put(KEY, taken, piece(taken, size=50), 0.0)) is None:
        taken += 1

    assert taken < 88_000 / 512
    assert "too many pieces" in problem
    assert "Limits(staged_bytes=…)" in problem


def test_keys_and_times_go_to_the_disk_as_well(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    metadata = pack_metadata(RecordMetadata(1, [b"k" * 1000] * 100))
    assert staged.put(KEY, 0, Batch(0, 100, pack_values([b""] * 100), metadata), 0.0) is None

    assert staged.of(KEY)[0].metadata == metadata
    assert isinstance(staged.of(KEY)[0].metadata, memoryview)
    assert on_disk(tmp_path) >= 100_000


def test_without_a_disk_the_error_says_what_to_do() -> None:
    staged = StagedPieces(Limits(staged_bytes=5 * PIECE), None)
    taken = 0
    while (problem := staged.put(KEY, taken, piece(taken), 0.0)) is None:
        taken += 1

    assert taken == 4, "all of the memory is for them"
    for words in ("not in a file", "smaller batches", "a journal in a file", "Limits(staged_bytes=…)"):
        assert words in problem


def test_pieces_of_another_key_stay(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    for seq in range(10):
        staged.put(KEY, seq, piece(seq), 0.0)
        staged.put(OTHER, seq, piece(100 + seq), 0.0)

    staged.drop_published("ann", "query", 0)

    assert staged.owners() == {"bob"}
    assert [values_of(staged.of(OTHER)[seq]) for seq in range(10)] == [
        values_of(piece(100 + seq)) for seq in range(10)
    ]
    staged.drop(lambda key: key.owner == "bob")
    assert (staged.nbytes, nameless_files(tmp_path)) == (0, {})


def test_on_a_full_disk_attempts_that_are_dead_make_space(small_disk: Path) -> None:
    spool = Spool(str(small_disk / "journal.db"), file_bytes=250_000)
    staged = StagedPieces(Limits(staged_bytes=500_000), spool)
    for attempt in range(5):
        key = KEY._replace(attempt=attempt)
        for seq in range(5):
            assert staged.put(key, seq, piece(seq, size=200_000), float(attempt)) is None

    assert [values_of(staged.of(key)[seq]) for seq in range(5)] == [
        values_of(piece(seq, size=200_000)) for seq in range(5)
    ]


def test_as_much_of_the_disk_stays_free_as_publishing_takes(small_disk: Path) -> None:
    staged = StagedPieces(Limits(staged_bytes=500_000), Spool(str(small_disk / "journal.db")))
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    taken = 0
    while (problem := staged.put(KEY, taken, piece(taken, size=200_000), 0.0)) is None:
        taken += 1
    before = staged.nbytes

    assert taken in (4, 5)
    assert "free some space" in problem
    disk = os.statvfs(small_disk)
    assert disk.f_bavail * disk.f_frsize >= before
    ballast.unlink()
    assert staged.put(KEY, taken, piece(taken, size=200_000), 0.0) is None
    assert [values_of(staged.of(KEY)[seq]) for seq in range(taken + 1)] == [
        values_of(piece(seq, size=200_000)) for seq in range(taken + 1)
    ]


def test_a_disk_that_refuses_a_piece_keeps_the_others(tmp_path: Path) -> None:
    staged = staged_in(tmp_path)
    for seq in range(5):
        assert staged.put(KEY, seq, piece(seq), 0.0) is None
    before, usual = staged.nbytes, resource.getrlimit(resource.RLIMIT_FSIZE)
    # Not even the file that is there may get as long as this.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        problem = staged.put(KEY, 5, piece(5), 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    assert problem is not None
    assert "File too large" in problem
    assert staged.nbytes == before
    assert staged.put(KEY, 5, piece(5), 0.0) is None
    assert [values_of(staged.of(KEY)[seq]) for seq in range(6)] == [values_of(piece(seq)) for seq in range(6)]


def test_a_folder_that_was_removed_refuses_what_does_not_fit_into_memory(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    staged = staged_in(folder)
    os.rmdir(folder)

    answers = [staged.put(KEY, seq, piece(seq), 0.0) for seq in range(4)]

    assert answers[:2] == [None, None]
    assert all(answer is not None and "No such file or directory" in answer for answer in answers[2:])
