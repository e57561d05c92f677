"""A journal has one owner, whatever becomes of the files beside it, and only its user may read them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalInUse
from penstock.aquifer.log import SqliteJournal, ownership
from tests.aquifer.log.making import everything, fill

OpenSqlite = Callable[..., SqliteJournal]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is the journal itself locked")

OPENS = """
import sys
from penstock.aquifer.log import SqliteJournal
from penstock.aquifer.errors import JournalInUse
sys.stdin.readline()
try:
    journal = SqliteJournal(sys.argv[1])
except JournalInUse:
    print("refused", flush=True)
else:
    print("open", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def openers(path: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that open the journal as soon as they get a line, and keep it until they are killed."""
    command = [sys.executable, "-c", OPENS, str(path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
    ]
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def outcome(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode().strip()


def start(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    child.stdin.flush()


@on_linux
class TestLockFileRemoved:
    def test_another_process_is_still_refused_and_the_owner_goes_on(
        self, open_sqlite: OpenSqlite, path: Path
    ) -> None:
        owner = open_sqlite()
        batches = fill(owner, [3])
        Path(f"{path}-lock").unlink()

        with openers(path, 1) as (other,):
            start(other)
            assert outcome(other) == "refused"

        batches += fill(owner, [4])
        owner.close()
        assert everything(open_sqlite()) == batches

    def test_the_same_process_is_still_refused_and_the_locks_of_sqlite_stay(
        self, open_sqlite: OpenSqlite, path: Path
    ) -> None:
        owner = open_sqlite()
        Path(f"{path}-lock").unlink()

        with pytest.raises(JournalInUse, match="is already open in this process"):
            SqliteJournal(path)

        Path(f"{path}-lock").unlink()
        with openers(path, 1) as (other,):
            start(other)
            assert outcome(other) == "refused"
        fill(owner, [1])

    def test_a_second_name_of_the_file_is_no_way_in(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite()
        second = path.with_name("second.db")
        os.link(path, second)

        with pytest.raises(JournalInUse):
            SqliteJournal(second)
        with openers(second, 1) as (other,):
            start(other)
            assert outcome(other) == "refused"


@pytest.mark.parametrize("exists", [False, True])
def test_of_many_that_open_a_journal_at_once_one_gets_it(path: Path, exists: bool) -> None:
    if exists:
        SqliteJournal(path).close()
    with openers(path, 4) as children:
        for child in children:
            start(child)

        assert sorted(map(outcome, children)) == ["open", "refused", "refused", "refused"]


def test_who_was_overtaken_stores_nothing_any_more(
    open_sqlite: OpenSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal itself cannot be locked, the file still knows who opened it last."""
    first = open_sqlite()
    fill(first, [3])
    Path(f"{path}-lock").unlink()
    monkeypatch.setattr(ownership, "_open_here", set())
    monkeypatch.setattr("sys.platform", "another")
    second = open_sqlite()
    batches = [*everything(second), *fill(second, [4])]

    with pytest.raises(JournalInUse, match="was opened by another gateway"):
        fill(first, [5])
    with pytest.raises(JournalInUse):
        first.close()

    batches += fill(second, [6])
    assert everything(second) == batches


class TestRights:
    @pytest.fixture(autouse=True)
    def permissive(self) -> Iterator[None]:
        """A umask that forbids nothing."""
        before = os.umask(0)
        yield
        os.umask(before)

    def test_all_files_of_a_new_journal_are_for_their_owner_alone(
        self, open_sqlite: OpenSqlite, path: Path
    ) -> None:
        journal = open_sqlite()
        fill(journal, [3])

        rights = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

        assert rights == {f"journal.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", "-lock")}

    def test_an_empty_file_that_everybody_may_read_does_not_stay_so(
        self, open_sqlite: OpenSqlite, path: Path
    ) -> None:
        path.touch(0o666)

        open_sqlite()

        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_what_an_administrator_allowed_stays_allowed(self, open_sqlite: OpenSqlite, path: Path) -> None:
        open_sqlite().close()
        path.chmod(0o640)

        fill(open_sqlite(), [1])

        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_a_link_in_the_place_of_the_lock_is_not_followed(self, path: Path) -> None:
        target = path.with_name("target")
        Path(f"{path}-lock").symlink_to(target)

        with pytest.raises(JournalError, match="cannot be locked"):
            SqliteJournal(path)

        assert not target.exists()


def test_a_file_system_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(ownership, "_try_lock", refuse)

    with pytest.raises(JournalError, match=r"does not support locks.* put the journal on a local disk"):
        SqliteJournal(path)


def test_a_disk_that_cannot_be_written_to_is_told_of(small_disk: Path) -> None:
    disk = small_disk
    journal = SqliteJournal(disk / "journal.db")
    batches = fill(journal, [3])
    journal.close()
    before = {file.name: file.read_bytes() for file in disk.iterdir()}
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    for name in ("journal.db", "new.db"):
        with pytest.raises(JournalError, match=r"cannot be locked \(Read-only file system\)"):
            SqliteJournal(disk / name)

    assert {file.name: file.read_bytes() for file in disk.iterdir()} == before
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    journal = SqliteJournal(disk / "journal.db")
    assert everything(journal) == batches
    journal.close()


@contextlib.contextmanager
def nobody_may_look_into(folder: Path) -> Iterator[None]:
    """The files are there, and this process has no right to see them."""
    mode, user = folder.stat().st_mode, os.geteuid()
    folder.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(mode)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="this system has other rights")
@pytest.mark.usefixtures("all_in_segments")
@pytest.mark.parametrize("suffix", ["", "-segments"])
def test_files_that_nobody_may_look_at_are_not_called_removed(path: Path, suffix: str) -> None:
    path = path.parent / "folder" / path.name
    path.parent.mkdir()
    journal = SqliteJournal(path)
    stored = fill(journal, [3], width=200)
    journal._writer.segments._listed = 0
    with nobody_may_look_into(Path(f"{path}-segments") if suffix else path.parent):
        for store in (lambda: fill(journal, [3], width=200), journal.flush):
            with pytest.raises(JournalError, match=r"Permission denied.*check the permissions") as caught:
                store()
            assert not isinstance(caught.value, JournalDamaged)

    stored += fill(journal, [3], width=200)
    journal.close()
    with contextlib.closing(SqliteJournal(path, cache_bytes=1)) as journal:
        assert everything(journal) == stored


class TestFilesGone:
    """Files that are taken away from under an open journal: it says so, and does not claim to have stored."""

    @pytest.fixture
    def owner(self, path: Path) -> SqliteJournal:
        """An open journal with three records; the test has to close it."""
        journal = SqliteJournal(path)
        fill(journal, [3])
        return journal

    @staticmethod
    def assert_noticed(journal: SqliteJournal, name: str, happened: str) -> None:
        for store in (lambda: fill(journal, [1]), journal.flush, journal.close):
            with pytest.raises(JournalDamaged, match=f"{name} was {happened} while the journal was in use"):
                store()
        assert journal.head == 3

    @pytest.mark.parametrize("suffix", ["", "-wal"])
    def test_removed(self, owner: SqliteJournal, path: Path, suffix: str) -> None:
        Path(f"{path}{suffix}").unlink()

        self.assert_noticed(owner, f"{path}{suffix}", "removed or moved away")

    def test_the_index_of_the_log_removed(self, owner: SqliteJournal, path: Path) -> None:
        Path(f"{path}-shm").unlink()

        with pytest.raises(JournalDamaged, match=f"{path}-shm was removed"):
            owner.flush()

        owner.close()

    def test_its_directory_removed(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        journal = SqliteJournal(tmp_path / "folder" / "journal.db")
        fill(journal, [3])
        shutil.rmtree(tmp_path / "folder")

        self.assert_noticed(journal, journal.path, "removed or moved away")

    def test_replaced(self, owner: SqliteJournal, path: Path) -> None:
        shutil.copy(path, f"{path}-copy")
        os.replace(f"{path}-copy", path)

        self.assert_noticed(owner, str(path), "replaced by another file")

    def test_moved_and_moved_back(self, open_sqlite: OpenSqlite, owner: SqliteJournal, path: Path) -> None:
        path.rename(f"{path}-away")
        self.assert_noticed(owner, str(path), "removed or moved away")

        Path(f"{path}-away").rename(path)

        journal = open_sqlite()
        assert journal.epoch == owner.epoch
        assert journal.head == 3
        assert len(everything(journal)) == 1

    def test_the_files_of_the_next_owner_are_left_alone(
        self, open_sqlite: OpenSqlite, owner: SqliteJournal, path: Path
    ) -> None:
        for file in list(path.parent.iterdir()):
            file.unlink()
        successor = open_sqlite()
        batches = fill(successor, [5, 6])

        with pytest.raises(JournalDamaged, match="replaced by another file"):
            owner.close()

        batches += fill(successor, [7])
        successor.close()
        assert everything(open_sqlite()) == batches
