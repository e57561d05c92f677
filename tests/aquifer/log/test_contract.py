"""What a gateway may rely on, whichever journal it has."""

from __future__ import annotations

import pytest

from penstock.aquifer.errors import JournalError
from penstock.aquifer.log import Cursor, Held, Journal
from penstock.aquifer.records.batch import ARROW, Batch
from tests.aquifer.log.conftest import Open
from tests.aquifer.log.making import NO_WATERMARK, batch_at, batches_from, everything, fill


def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert (journal.first, journal.head) == (0, 0)
    assert journal.held == Held(0, 0)
    assert journal.find(0) is None
    assert journal.cursors == {}
    assert journal.marks == {}


def test_the_epoch_is_twelve_hexadecimal_digits(journal: Journal) -> None:
    assert len(journal.epoch) == 12
    int(journal.epoch, 16)


def test_every_offset_finds_its_batch(journal: Journal) -> None:
    batches = fill(journal, [3, 1, 5])

    found = [journal.find(offset) for offset in range(9)]

    assert found == [batches[0]] * 3 + [batches[1]] + [batches[2]] * 5
    assert (journal.first, journal.head) == (0, 9)


def test_an_offset_that_was_never_given_finds_nothing(journal: Journal) -> None:
    fill(journal, [3, 2])

    assert journal.find(-1) is None
    assert journal.find(5) is None
    assert journal.find(10**15) is None


def test_a_batch_comes_back_as_it_went_in(journal: Journal) -> None:
    batch = Batch(0, 7, bytes(range(256)), b"\x00notes\xff", ARROW)

    journal.append([batch])

    assert journal.find(6) == batch


def test_a_batch_may_have_no_bytes(journal: Journal) -> None:
    batches = [Batch(0, 2, b"", b""), Batch(2, 3, b"", b"")]

    journal.append(batches)

    assert everything(journal) == batches
    assert journal.held == Held(5, 0)
    assert journal.held_from(2) == Held(3, 0)


def test_nothing_may_be_appended(journal: Journal) -> None:
    journal.append([])

    assert journal.head == 0


@pytest.mark.parametrize(
    "wrong",
    [
        [batch_at(3)],
        [batch_at(5)],
        [batch_at(4), batch_at(4)],
        [batch_at(4), batch_at(6)],
        [batch_at(4), Batch(5, 0, b"", b"")],
        [batch_at(4), Batch(5, -1, b"", b"")],
    ],
    ids=["too early", "too late", "twice", "a hole", "no records", "fewer than none"],
)
def test_batches_that_do_not_follow_on_are_refused_as_a_whole(journal: Journal, wrong: list[Batch]) -> None:
    before = fill(journal, [4])

    with pytest.raises(ValueError, match="offset"):
        journal.append(wrong, {"source": "7"})

    assert everything(journal) == before
    assert journal.marks == {}


class TestHeldFrom:
    def test_only_whole_batches_can_be_forgotten(self, journal: Journal) -> None:
        one, two, three = fill(journal, [3, 3, 3])

        held = [journal.held_from(low_watermark) for low_watermark in range(10)]

        everything_held = Held(9, one.nbytes + two.nbytes + three.nbytes)
        assert held[0:3] == [everything_held] * 3
        assert held[3:6] == [Held(6, two.nbytes + three.nbytes)] * 3
        assert held[6:9] == [Held(3, three.nbytes)] * 3
        assert held[9] == Held(0, 0)

    def test_a_floor_outside_counts_as_the_nearest_end(self, journal: Journal) -> None:
        fill(journal, [50, 50])
        assert journal.make_space(50, 0, NO_WATERMARK)

        assert journal.held_from(-5) == journal.held_from(10) == journal.held
        assert journal.held_from(NO_WATERMARK) == Held(0, 0)


class TestMakeRoom:
    def test_nothing_is_forgotten_while_there_is_room(self, journal: Journal) -> None:
        fill(journal, [40, 40])

        assert journal.make_space(20, 0, NO_WATERMARK)
        assert journal.first == 0

    def test_the_oldest_batches_make_room_for_records_and_no_more_than_needed(self, journal: Journal) -> None:
        batches = fill(journal, [30, 30, 40])

        assert journal.make_space(31, 0, NO_WATERMARK)

        assert journal.first == 60
        assert everything(journal) == batches[2:]
        assert [journal.find(offset) for offset in (0, 29, 30, 59)] == [None] * 4

    def test_the_oldest_batches_make_room_for_bytes_and_no_more_than_needed(self, journal: Journal) -> None:
        batches = fill(journal, [1] * 9, width=1000)
        size = batches[0].nbytes

        assert journal.make_space(1, 10_000 - 7 * size + 1, NO_WATERMARK)

        assert journal.first == 3
        assert journal.held == Held(6, 6 * size)

    def test_a_batch_that_ends_after_the_floor_stays(self, journal: Journal) -> None:
        fill(journal, [50, 50])

        assert not journal.make_space(1, 0, 49)
        assert journal.first == 0
        assert journal.make_space(1, 0, 50)
        assert journal.first == 50

    def test_nothing_is_forgotten_if_that_would_not_be_enough(self, journal: Journal) -> None:
        fill(journal, [50, 50])

        assert not journal.make_space(51, 0, 99)
        assert not journal.make_space(1, 10_000, 99)

        assert journal.first == 0

    def test_a_floor_before_the_first_record_forbids_only_forgetting(self, journal: Journal) -> None:
        fill(journal, [50, 50])
        assert journal.make_space(50, 0, 50)

        assert journal.make_space(50, 0, 3)
        assert not journal.make_space(51, 0, 3)

    def test_an_empty_journal_takes_a_batch_of_any_size(self, journal: Journal) -> None:
        giant = batch_at(0, 500, width=100)

        assert journal.make_space(giant.count, giant.nbytes, 0)
        journal.append([giant])

        assert journal.find(499) == giant
        assert journal.held == Held(500, giant.nbytes)

    def test_a_giant_batch_waits_until_everything_else_may_go(self, journal: Journal) -> None:
        fill(journal, [5, 5])

        assert not journal.make_space(500, 50_000, 9)
        assert journal.first == 0
        assert journal.make_space(500, 50_000, 10)
        assert (journal.first, journal.head) == (10, 10)

    def test_offsets_go_on_when_everything_is_gone(self, journal: Journal) -> None:
        fill(journal, [100])
        assert journal.make_space(100, 0, NO_WATERMARK)
        assert journal.held == Held(0, 0)

        (batch,) = fill(journal, [1])

        assert batch.first == 100
        assert everything(journal) == [batch]


def test_many_times_its_bounds_goes_through_a_journal(journal: Journal) -> None:
    last: list[Batch] = []
    for _ in range(150):
        new = batches_from(journal.head, [10, 7])
        assert journal.make_space(17, sum(batch.nbytes for batch in new), NO_WATERMARK)
        journal.append(new)
        last = [*last, *new][-11:]
        assert journal.held.records <= 100

    assert journal.head == 150 * 17
    assert everything(journal) == last


class TestMarks:
    def test_marks_are_kept_with_the_batches(self, journal: Journal) -> None:
        journal.append([batch_at(0)], {"a": "1", "b": "2"})
        journal.append([batch_at(1)], {"b": "3"})
        journal.append([batch_at(2)])

        assert journal.marks == {"a": "1", "b": "3"}

    def test_marks_may_come_alone(self, journal: Journal) -> None:
        journal.append([], {"topic/é": ""})

        assert journal.marks == {"topic/é": ""}


class TestCursors:
    def test_a_cursor_is_saved_changed_and_forgotten(self, journal: Journal) -> None:
        journal.save_cursor("ann", Cursor(1, 2000, 3.5))
        journal.save_cursor("bob", Cursor(0, 1, 1.0))
        journal.flush()
        journal.save_cursor("ann", Cursor(7, 2000, 4.5))
        journal.save_cursor("bob", None)

        assert journal.cursors == {"ann": Cursor(7, 2000, 4.5)}

    def test_a_cursor_that_is_not_there_may_be_forgotten(self, journal: Journal) -> None:
        journal.save_cursor("nobody", None)
        journal.flush()

        assert journal.cursors == {}

    def test_cursors_may_be_forgotten_while_going_through_them(self, journal: Journal) -> None:
        for name in ("ann", "bob", "eve"):
            journal.save_cursor(name, Cursor(0, 1, 1.0))

        for name in journal.cursors:
            journal.save_cursor(name, None)

        assert journal.cursors == {}


class TestClose:
    def test_it_may_be_called_again(self, journal: Journal) -> None:
        journal.close()
        journal.close()

    def test_a_closed_journal_takes_nothing(self, journal: Journal) -> None:
        journal.close()

        with pytest.raises(JournalError, match="closed"):
            journal.append([batch_at(0)])
        with pytest.raises(JournalError, match="closed"):
            journal.save_cursor("ann", None)
        with pytest.raises(JournalError, match="closed"):
            journal.make_space(1, 1, 0)


def test_the_epoch_outlives_the_journal_if_its_records_do(open_any: Open) -> None:
    first = open_any()
    first.close()
    second = open_any()

    assert (first.epoch == second.epoch) is first.durable
