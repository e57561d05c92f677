"""A process without any more files to open: a journal waits, and goes on when there are some again."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher, Batch, Gateway
from penstock.aquifer.errors import JournalError, JournalUnavailable
from penstock.aquifer.log import SqliteJournal, segments
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, has, reading, stays
from tests.aquifer.log.making import batches_from, everything, fill

if sys.platform == "win32":
    pytest.skip("the number of open files cannot be limited here", allow_module_level=True)

import resource

OpenSqlite = Callable[..., SqliteJournal]
LARGE = b"x" * (segments.INLINE_BYTES + 1)


def open_files() -> dict[int, tuple[int, int]]:
    """The open files of this process by number; no file can be opened for this."""
    found = {}
    for number in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        with suppress(OSError):
            status = os.fstat(number)
            found[number] = status.st_dev, status.st_ino
    return found


def files_in(folder: Path) -> set[tuple[int, int]]:
    """The files below a folder, as :func:`open_files` has them."""
    stats = [each.stat() for each in folder.rglob("*")]
    return {(status.st_dev, status.st_ino) for status in stats}


@contextmanager
def no_more_files(but: int = 0) -> Iterator[Callable[[], bool]]:
    """Nothing more can be opened, ``but`` so many; what is open stays so.

    A thread that another test has left may close a file all the same. The function tells whether none has.
    """
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    # All below the limit are taken. It must not be lower: poll() refuses more files than the limit says.
    limit = max(256, *(int(name) + 1 for name in os.listdir("/dev/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, usual[1]))
    taken = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(but):
        os.close(taken.pop())
    before = open_files()
    try:
        yield lambda: len(before) == limit - but and open_files() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        for each in taken:
            os.close(each)


def why_not_stored(journal: SqliteJournal, batches: list[Batch]) -> str:
    try:
        journal.append(batches)
    except JournalUnavailable as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("all_in_segments")
def test_nothing_is_stored_and_the_same_group_can_be_stored_later(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    journal = open_sqlite()
    before = fill(journal, [3], width=200)
    more = batches_from(journal.head, [5, 5], width=200)
    journal.close()
    journal = open_sqlite()
    reason, is_sure = "", False
    while not (reason or is_sure):
        with no_more_files() as all_are_open:
            reason = why_not_stored(journal, more)
            is_sure = all_are_open()
        if not reason:
            before += more
            more = batches_from(journal.head, [5, 5], width=200)
    assert "ulimit -n" in reason
    assert journal.head == before[-1].end
    journal.append(more)
    journal.close()
    journal = open_sqlite(cache_bytes=1)
    assert everything(journal) == [*before, *more]


def why_not_readable(journal: SqliteJournal) -> str:
    try:
        journal.find(0)
    except JournalUnavailable as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("all_in_segments")
def test_what_cannot_be_read_now_can_be_read_later(open_sqlite: OpenSqlite) -> None:
    journal = open_sqlite(cache_bytes=1)
    stored = fill(journal, [3, 4], width=200)
    journal.close()
    reason, is_sure = "", False
    while not (reason or is_sure):
        journal.close()
        journal = open_sqlite(cache_bytes=1)
        with no_more_files() as all_are_open:
            reason = why_not_readable(journal)
            is_sure = all_are_open()
    assert "at the moment" in reason
    assert everything(journal) == stored


def why_not_opened(path: Path) -> str:
    try:
        SqliteJournal(path).close()
    except JournalError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("all_in_segments")
def test_a_journal_that_cannot_be_opened_for_want_of_files_says_so_and_leaves_none_open(path: Path) -> None:
    journal = SqliteJournal(path)
    stored = fill(journal, [3, 4], width=200)
    journal.close()
    for enough in range(7):  # SQLite alone needs more.
        reason, is_sure = "", False
        while not (reason or is_sure):
            with no_more_files(but=enough) as all_are_open:
                reason = why_not_opened(path)
                is_sure = all_are_open()
        assert "ulimit -n" in reason
        assert set(open_files().values()).isdisjoint(files_in(path.parent))
    with closing(SqliteJournal(path, cache_bytes=1)) as journal:
        assert everything(journal) == stored


def test_a_gateway_waits_and_neither_the_source_nor_a_reader_fails(tmp_path: Path) -> None:
    attempts = count()
    while not _waits(tmp_path / f"journal-{next(attempts)}"):
        continue


def _waits(path: Path) -> bool:
    """Whether the gateway has waited; it need not if a file was closed meanwhile."""
    go_on = threading.Event()

    def values() -> Iterator[bytes]:
        yield b"first"
        go_on.wait(60)
        yield LARGE

    with Gateway(Flux.from_iterable(values()), ANYWHERE, journal=SqliteJournal(path)) as gateway:
        elements = iter(AquiferPublisher(gateway.endpoint).flux())
        assert next(elements) == b"first"
        with no_more_files() as all_are_open:
            go_on.set()

            def has_waited() -> bool:
                return "ulimit -n" in (gateway.status().stalled or "")

            eventually(lambda: has_waited() or not all_are_open())
            waited = has_waited()
        assert list(elements) == [LARGE]
    return waited


def test_a_reader_that_is_behind_waits_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    attempts = count()
    while not _waits_for_a_reader(tmp_path / f"journal-{next(attempts)}"):
        continue


def _waits_for_a_reader(path: Path) -> bool:
    """Whether the reader had to wait; it need not if a file was closed meanwhile."""
    values = [bytes([number]) * len(LARGE) for number in range(20)]
    with Gateway(
        Flux.from_iterable([[value] for value in values]),
        ANYWHERE,
        journal=SqliteJournal(path, cache_bytes=1),
        batched=True,
        prefetch=1,
    ) as gateway:
        eventually(lambda: gateway.status().head == 20)
        assert len(list(Path(f"{path}-segments").iterdir())) > 9, "a reader keeps 8 of them open"
        with reading(gateway.endpoint, 1, window=1, max_window=1) as reader:
            eventually(has(reader, 1))
            with no_more_files() as all_are_open:
                reader.request(19)
                stays(lambda: reader.error is None and (len(reader.items) < 20 or not all_are_open()))
                is_sure = all_are_open()
            eventually(has(reader, 20))
        assert reader.items == values
    return is_sure
