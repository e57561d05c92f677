"""Bytes on the disk of a journal that are not to be stored: their files have no name, and do not last."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer.log import MemoryJournal, Spool, SqliteJournal
from penstock.aquifer.log.spool import in_memory, is_spooled
from penstock.aquifer.records.batch import values_of
from tests.aquifer.faults.rigs import nameless_descriptors, nameless_files
from tests.aquifer.log.making import batches_from, everything

if sys.platform == "win32":
    pytest.skip("an open file cannot be removed here", allow_module_level=True)

import resource

KIB = 1024


@pytest.fixture(params=["nameless", "removed"])
def spool(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """A spool with files of 64 KiB, on a system with files that never had a name, and on one without."""
    if request.param == "removed":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return Spool(str(tmp_path / "journal.db"), file_bytes=64 * KIB)


def test_what_was_put_there_can_be_read(spool: Spool) -> None:
    pieces = [bytes([number]) * (number * 700) for number in range(1, 200)]

    views = [view for number in range(0, 199, 2) for view in spool.put(*pieces[number : number + 2])]

    assert list(map(bytes, views)) == pieces
    assert all(view.readonly for view in views)
    assert spool.nbytes == sum(map(len, views))


def test_a_piece_may_be_larger_than_a_file(spool: Spool, tmp_path: Path) -> None:
    large = os.urandom(200 * KIB)

    (before,), (view,), (after,) = spool.put(b"before"), spool.put(large), spool.put(b"after")

    assert (bytes(before), bytes(view), bytes(after)) == (b"before", large, b"after")
    assert len(nameless_files(tmp_path)) == 3


def test_its_files_have_no_name_and_no_other_user_may_read_them(spool: Spool, tmp_path: Path) -> None:
    views = spool.put(b"secret")

    assert os.listdir(tmp_path) == []
    (status,) = nameless_files(tmp_path).values()
    assert (status.st_mode & 0o777, status.st_nlink) == (0o600, 0)
    del views


def test_a_file_takes_as_much_of_the_disk_as_is_in_it(spool: Spool, tmp_path: Path) -> None:
    views = spool.put(b"x")

    (status,) = nameless_files(tmp_path).values()

    assert status.st_blocks * 512 < 32 * KIB
    del views


def test_the_last_view_of_a_file_takes_it_along(spool: Spool, tmp_path: Path) -> None:
    views = [spool.put(bytes(10 * KIB))[0] for _ in range(12)]
    assert len(nameless_files(tmp_path)) == 2

    del views[:5]
    assert len(nameless_files(tmp_path)) == 2
    assert spool.nbytes == 120 * KIB, "what was dropped still takes space"
    del views[0]
    assert len(nameless_files(tmp_path)) == 1
    assert spool.nbytes == 60 * KIB
    part = views[-1][5:10]
    views.clear()
    assert len(nameless_files(tmp_path)) == 1, "a part of a view keeps the file"
    del part
    assert (nameless_files(tmp_path), spool.nbytes) == ({}, 0)


def test_after_all_are_gone_it_begins_again(spool: Spool, tmp_path: Path) -> None:
    for _ in range(3):
        views = [spool.put(b"piece")[0] for _ in range(3)]
        assert list(map(bytes, views)) == [b"piece"] * 3
        assert len(nameless_files(tmp_path)) == 1
        views.clear()
        assert nameless_files(tmp_path) == {}


def test_a_full_file_needs_one_descriptor(spool: Spool, tmp_path: Path) -> None:
    views = [spool.put(bytes(64 * KIB))[0] for _ in range(20)]

    assert len(nameless_files(tmp_path)) == 20
    assert len(nameless_descriptors(tmp_path)) <= 21  # The last one is still written to.
    views.clear()
    assert nameless_descriptors(tmp_path) == {}


def test_a_file_that_was_given_up_is_not_written_to_again(spool: Spool) -> None:
    (first,) = spool.put(bytes(40 * KIB))
    (second,) = spool.put(bytes(40 * KIB))  # It does not fit into the first file.
    del second
    assert spool.nbytes == 40 * KIB

    (third,) = spool.put(b"third")

    assert bytes(third) == b"third"
    assert bytes(first) == bytes(40 * KIB)


def test_a_file_that_was_given_up_is_not_written_to_if_there_is_no_other(
    spool: Spool, tmp_path: Path
) -> None:
    (kept,) = spool.put(b"k" * 40 * KIB)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50 * KIB, usual[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            spool.put(bytes(40 * KIB))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    # It gets the number that the file had.
    with (tmp_path / "another").open("w+b", buffering=0) as another:
        (after,) = spool.put(b"after")

        assert another.read() == b""
    assert (bytes(kept), bytes(after)) == (b"k" * 40 * KIB, b"after")


def test_another_thread_may_drop_the_last_view(spool: Spool, tmp_path: Path) -> None:
    for _ in range(200):
        views = [spool.put(b"piece" * 1000)[0] for _ in range(3)]
        dropping = threading.Thread(target=views.clear)
        dropping.start()
        (mine,) = spool.put(b"mine")
        dropping.join()
        assert bytes(mine) == b"mine"
        del mine
    assert nameless_files(tmp_path) == {}


def test_a_full_disk_is_an_error_and_keeps_nothing(small_disk: Path) -> None:
    spool = Spool(str(small_disk / "journal.db"))
    (kept,) = spool.put(b"k" * 1_000_000)
    free = os.statvfs(small_disk).f_bavail

    for _ in range(3):
        with pytest.raises(OSError, match="No space left") as full:
            spool.put(bytes(1_000_000), bytes(5_000_000))
        assert full.value.errno == errno.ENOSPC
    (after,) = spool.put(b"a" * 1_000_000)

    assert (bytes(kept), bytes(after)) == (b"k" * 1_000_000, b"a" * 1_000_000)
    assert spool.nbytes == 2_000_000
    del kept, after, full
    assert os.statvfs(small_disk).f_bavail > free


def test_a_full_disk_has_its_space_again_when_the_views_are_gone(small_disk: Path) -> None:
    spool = Spool(str(small_disk / "journal.db"))
    for _ in range(5):
        (view,) = spool.put(bytes(2_500_000))
        del view


@pytest.mark.parametrize("what", ["removed", "read-only"])
def test_a_folder_that_cannot_be_written_to_is_an_error(small_disk: Path, what: str) -> None:
    folder = small_disk / "folder"
    folder.mkdir()
    spool = Spool(str(folder / "journal.db"))
    (kept,) = spool.put(b"kept")
    if what == "removed":
        folder.rmdir()
    else:
        # What is open for writing stands in the way of that.
        del kept
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        kept = memoryview(b"kept")

    with pytest.raises(OSError, match=r"No such file|Read-only"):
        spool.put(bytes(70_000_000))

    assert bytes(kept) == b"kept"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_write_to_the_files_of_its_parent(spool: Spool) -> None:
    (before,) = spool.put(b"parent")
    child = os.fork()
    if not child:  # What fails here must not run the rest of the tests.
        try:
            (mine,) = spool.put(b"child!")
            os._exit(0 if (bytes(before), bytes(mine)) == (b"parent", b"child!") else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    (after,) = spool.put(b"again!")

    assert (bytes(before), bytes(after)) == (b"parent", b"again!")


# ---------------------------------------------------------------- batches
def test_a_batch_on_the_disk_is_the_same_batch(spool: Spool) -> None:
    (batch,) = batches_from(0, [3], width=1000)

    kept = spool.keep(batch)

    assert is_spooled(kept)
    assert not is_spooled(batch)
    assert kept == batch
    assert values_of(kept) == values_of(batch)


def test_the_newest_batches_come_back_to_memory(spool: Spool) -> None:
    batches = batches_from(0, [2, 2, 2, 2], width=100)
    spooled = [spool.keep(batch) if batch.first != 4 else batch for batch in batches]
    size = batches[0].nbytes

    moved = in_memory(spooled, 3 * size)

    assert list(moved) == batches
    assert [is_spooled(batch) for batch in moved] == [True, False, False, False]
    assert in_memory(batches, size) is batches


@pytest.mark.parametrize("cache_bytes", [1, 100, 1_000_000])
def test_a_journal_keeps_no_file_of_a_spool(
    open_sqlite: Callable[..., SqliteJournal], tmp_path: Path, cache_bytes: int
) -> None:
    journal = open_sqlite(cache_bytes=cache_bytes)
    spool = journal.open_spool()
    assert spool is not None
    batches = [spool.keep(batch) for batch in batches_from(0, [3, 4, 5])]

    journal.append(batches)
    batches.clear()

    assert nameless_files(tmp_path) == {}
    assert everything(journal) == batches_from(0, [3, 4, 5])


def test_a_journal_in_memory_has_no_spool() -> None:
    assert MemoryJournal().open_spool() is None
