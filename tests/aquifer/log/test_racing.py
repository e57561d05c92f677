"""Readers on other threads, while the writer appends and forgets."""

from __future__ import annotations

import bisect
import random
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.aquifer.log import Journal, MemoryJournal, batch_sequence
from tests.aquifer.log.conftest import Open
from tests.aquifer.log.making import NO_WATERMARK, authors, batches_from


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    """Hand the interpreter lock over every few instructions, so that races show in a short test."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


class Reader(threading.Thread):
    """Reads until the writer is done, and keeps the first thing that should not have happened."""

    def __init__(self, journal: Journal, done: threading.Event) -> None:
        super().__init__()
        self.journal = journal
        self.done = done
        self.found = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.read()
        except BaseException as error:
            self.problem = error

    def read(self) -> None:
        raise NotImplementedError

    def look_at(self, offset: int) -> int:
        """Find an offset that is there, unless it is forgotten meanwhile; returns where to go on."""
        batch = self.journal.find(offset)
        if batch is None:
            assert offset < self.journal.first, f"{offset} is missing"
            return self.journal.first
        assert batch.first <= offset < batch.end
        assert authors(batch) == [(place, "") for place in range(batch.first, batch.end)]
        self.found += 1
        return batch.end


class FromOldestToNewest(Reader):
    offset = 0

    def read(self) -> None:
        if self.offset < self.journal.head:
            self.offset = self.look_at(self.offset)


class WhereBatchesAreForgotten(Reader):
    def read(self) -> None:
        first = self.journal.first
        if first < self.journal.head:
            self.look_at(first)


class AnywhereAtAll(Reader):
    chance = random.Random(7)

    def read(self) -> None:
        first, head = self.journal.first, self.journal.head
        if first < head:
            self.look_at(self.chance.randrange(first, head))


@pytest.mark.parametrize("kind", [FromOldestToNewest, WhereBatchesAreForgotten, AnywhereAtAll])
def test_a_reader_gets_the_right_batch_or_one_that_was_just_forgotten(
    open_any: Open, kind: type[Reader]
) -> None:
    journal = open_any(max_records=60)
    done = threading.Event()
    reader = kind(journal, done)
    reader.start()
    try:
        # Until the reader had its share, too, whoever of the two is faster.
        while (journal.head < 1600 or reader.found < 200) and reader.problem is None:
            new = batches_from(journal.head, [3, 1, 4])
            assert journal.make_space(8, sum(batch.nbytes for batch in new), NO_WATERMARK)
            journal.append(new)
    finally:
        done.set()
        reader.join()

    if reader.problem is not None:
        raise reader.problem


def test_a_reader_never_sees_the_list_of_batches_being_cut(open_any: Open) -> None:
    journal = open_any(max_records=2500)
    done = threading.Event()
    reader = AnywhereAtAll(journal, done)
    reader.start()
    try:
        while journal.head < 20_000 and reader.problem is None:
            new = batches_from(journal.head, [1] * 500)
            assert journal.make_space(500, sum(batch.nbytes for batch in new), NO_WATERMARK)
            journal.append(new)
    finally:
        done.set()
        reader.join()

    if reader.problem is not None:
        raise reader.problem


def test_a_batch_found_nowhere_because_it_is_deleted_this_moment_is_no_damage(open_sqlite: Open) -> None:
    journal = open_sqlite(max_records=10, cache_bytes=1)
    batches = batches_from(0, [5, 5])
    journal.append(batches)

    def delete_it(_: str) -> None:
        assert journal.make_space(5, 0, NO_WATERMARK)
        journal.flush()

    # Called when the reader is about to look into the file.
    journal._reader._connection.set_trace_callback(delete_it)

    assert journal.find(3) is None
    assert journal.find(5) == batches[1]


def test_a_list_that_is_cut_while_somebody_looks_into_it_is_still_whole_for_him(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = batches_from(0, [2] * 4000)
    journal = MemoryJournal()
    journal.append(batches)

    def cut_after_looking(firsts: list[int], offset: int) -> int:
        index = bisect.bisect_right(firsts, offset)
        assert journal.make_space(journal.max_records - 1500, 0, NO_WATERMARK)
        return index

    monkeypatch.setattr(batch_sequence, "bisect_right", cut_after_looking)

    assert journal.find(7901) == batches[3950]
    assert journal.first == 6500
