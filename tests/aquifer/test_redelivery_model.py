"""The records that a reader has not settled, against a model that is a dict."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.aquifer import Record, Redelivery
from penstock.aquifer.client.redelivery import PendingRecords

LIMIT, ROOM, DELAY = 3, 6, 10.0


class Settling(RuleBasedStateMachine):
    """Whatever is settled in whatever order: the cursor stays before the oldest record that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingRecords(Redelivery(delay=DELAY, limit=LIMIT, max_pending=ROOM))
        self.now = 0.0
        self.next = 0
        self.out: dict[int, int] = {}
        """The records that the reader has, and how often they were delivered."""
        self.refused: dict[int, tuple[float, int]] = {}
        self.dead: dict[int, str] = {}

    @rule(skipped=st.integers(0, 3))
    def deliver(self, skipped: int) -> None:
        if not self.pending.room:
            return
        offset = self.next + skipped
        self.pending.deliver([Record(b"x", offset=offset)], 10)
        self.out[offset] = 1
        self.next = offset + 1

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        self.pending.ack(offset)
        del self.out[offset]
        self.pending.ack(offset)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        self.pending.nack(offset, f"because {offset}", self.now)
        deliveries = self.out.pop(offset)
        if deliveries == LIMIT:
            self.dead[offset] = f"because {offset}"
        else:
            self.refused[offset] = self.now + DELAY, deliveries
        self.pending.nack(offset, "again", self.now + 100)

    @precondition(lambda self: self.refused)
    @rule(data=st.data())
    def ack_what_was_refused(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.refused)))
        self.pending.ack(offset)
        del self.refused[offset]

    @rule(seconds=st.floats(0, 15), most=st.integers(1, 4))
    def pass_time(self, seconds: float, most: int) -> None:
        self.now += seconds
        due = [offset for offset, (when, _) in self.refused.items() if when <= self.now][:most]
        assert [record.offset for record in self.pending.take_due(self.now, most)] == due
        for offset in due:
            self.out[offset] = self.refused.pop(offset)[1] + 1

    @precondition(lambda self: self.dead)
    @rule()
    def store(self) -> None:
        found = self.pending.dead()
        assert [(each.record.offset, each.reason) for each in found] == sorted(self.dead.items())
        assert all(each.deliveries == LIMIT for each in found)
        self.pending.ack(found[0].record.offset or 0)  # Too late: it is being stored.
        assert len(self.pending.dead()) == len(found)
        self.pending.stored([each.record.offset for each in found])
        self.dead.clear()

    @invariant()
    def the_cursor_is_before_what_is_not_settled(self) -> None:
        unsettled = [*self.out, *self.refused, *self.dead]
        assert self.pending.lowest() == min(unsettled, default=None)
        assert len(self.pending) == len(unsettled) <= ROOM
        assert self.pending.room == ROOM - len(unsettled)
        assert self.pending.next_due() == min(
            (when for when, _ in self.refused.values()), default=float("inf")
        )


TestSettling = Settling.TestCase
TestSettling.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_bytes_bound_what_is_not_settled() -> None:
    pending = PendingRecords(Redelivery(max_pending_bytes=100))
    pending.deliver([Record(b"x", offset=0)], 1000)
    assert not pending.room
    pending.ack(0)
    assert pending.room == 1000


def test_threads_may_settle_at_once() -> None:
    pending = PendingRecords(Redelivery(max_pending=8000, delay=0))
    pending.deliver([Record(b"x", offset=offset) for offset in range(8000)], 1)
    start = threading.Barrier(4)

    def settle(first: int) -> None:
        start.wait()
        for offset in range(first, 8000, 4):
            if offset % 8:
                pending.ack(offset)
            else:
                pending.nack(offset, "", 0.0)

    threads = [threading.Thread(target=settle, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pending.take_due(1.0, 10_000)) == len(pending) == 1000


@pytest.mark.parametrize("offset", [5, -1, None, "0", True])
def test_only_records_that_were_delivered_can_be_settled(offset: int) -> None:
    pending = PendingRecords(Redelivery())
    pending.deliver([Record(b"x", offset=4)], 1)
    with pytest.raises(ValueError, match="was delivered"):
        pending.nack(offset, "", 0.0)


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"delay": -1}, {"max_pending": 0}, {"dead_letters": "nowhere"}]
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"Redelivery|nowhere"):
        Redelivery(**wrong)  # type: ignore[arg-type]
