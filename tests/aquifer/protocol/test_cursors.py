"""Where subscribers stand: what is kept for them, for how long, and who takes whose place."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.aquifer.log import Cursor
from penstock.aquifer.protocol.messages import (
    Control,
    OnError,
    OnErrorFields,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    extension,
)
from penstock.aquifer.protocol.session import Session, SessionEvent, SessionState
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(first=10, head=100))


def asking(**wishes: Any) -> Subscribe:
    return Subscribe(x=SubscribeFields(v=1, **wishes))


def welcome(answer: Control) -> OnSubscribeFields:
    assert isinstance(answer, OnSubscribe), answer
    known = extension(answer.x)
    assert known is not None
    return known


def refused(answer: Control) -> OnErrorFields:
    assert isinstance(answer, OnError), answer
    known = extension(answer.x)
    assert known is not None
    return known


# -------------------------------------------------------------------- names that last
def read_and_acknowledge(front: FrontTable, upto: int, peer: bytes = b"peer", **wishes: Any) -> Session:
    session = front.subscribe(peer, **wishes)
    front.grant(peer, limit=upto)
    send_all(session)
    front.grant(peer, limit=upto, ack=upto)
    return session


def test_a_durable_subscriber_goes_on_where_it_was(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, id="a")
    front.ask(Subscribe(cancel=True))
    assert front.table.cursors.saved == {"a": Cursor(40, 60_000, 60.0, "")}
    assert front.log.unsaved == front.table.cursors.saved
    assert front.table.low_watermark() == 40, "what it has not read is kept for it"
    assert welcome(front.ask(asking(id="a"), b"new")).next == 40
    assert front.table.cursors.saved == {}


def test_a_durable_subscriber_can_start_elsewhere(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, id="a")
    front.ask(Subscribe(cancel=True))
    assert welcome(front.ask(asking(id="a", from_="earliest"), b"b")).next == 10
    assert welcome(front.ask(asking(id="a", from_=70), b"c")).next == 70


def test_what_was_read_but_not_acknowledged_is_kept_when_the_reader_goes_on_further(
    front: FrontTable,
) -> None:
    read_and_acknowledge(front, 40, id="a")
    session = front.subscribe(b"new", id="a", from_=70)
    assert (session.cursor, session.acknowledged, front.table.low_watermark()) == (70, 40, 40)


def test_a_goodbye_for_good_forgets_the_place(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, id="a")
    front.ask(Subscribe(cancel=True, x=SubscribeFields(v=1, keep=False)))
    assert front.table.cursors.saved == {}
    assert front.log.unsaved == {"a": None}
    assert welcome(front.ask(asking(id="a"), b"new")).next == 10


def test_the_place_is_kept_for_as_long_as_the_lease(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, id="a", lease=5000)
    front.ask(Subscribe(cancel=True))
    front.pass_time(4.9)
    assert front.table.low_watermark() == 40
    front.log.unsaved.clear()
    front.pass_time(0.2)
    assert front.table.cursors.saved == {}
    assert front.log.unsaved == {"a": None}
    assert front.table.counters["leases ended"] == 1


def test_a_subscriber_that_is_silent_for_longer_than_its_lease_is_gone(front: FrontTable) -> None:
    session = front.subscribe(id="a", lease=5000)
    front.pass_time(4.9)
    front.grant(limit=1)
    front.pass_time(4.9)
    assert front.table.sessions
    front.pass_time(0.2)
    assert front.table.sessions == front.table.cursors.saved == {}
    assert session.state is SessionState.CLOSED
    assert front.closed == [(session, SessionEvent.EXPIRED)]
    assert front.log.unsaved == {"a": None}


def test_a_restarted_gateway_knows_who_was_there(front: FrontTable) -> None:
    again = FrontTable(log=front.log, cursors={"a": Cursor(40, 5000, 5.0)})
    assert again.table.low_watermark() == 40
    again.pass_time(4.9)
    assert welcome(again.ask(asking(id="a"))).next == 40


def test_a_lease_goes_on_after_a_restart_with_what_was_left_of_it(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, id="a", lease=20_000)
    front.ask(Subscribe(cancel=True))
    front.pass_time(15)
    front.table.registry.note_all()
    stored = front.log.unsaved["a"]
    assert stored is not None
    assert stored.remaining == pytest.approx(5.0)

    again = FrontTable(log=front.log, cursors={"a": stored})  # However long it was down.
    again.pass_time(4.9)
    assert list(again.table.cursors.saved) == ["a"]
    again.pass_time(0.2)
    assert again.table.cursors.saved == {}


def test_what_is_left_of_a_lease_is_stored_now_and_then_in_case_the_gateway_is_killed(
    front: FrontTable,
) -> None:
    read_and_acknowledge(front, 40, id="a", lease=400_000)
    front.ask(Subscribe(cancel=True))
    written = []
    for _ in range(400):
        front.log.unsaved.clear()
        front.pass_time(1)
        written += [cursor.remaining for cursor in front.log.unsaved.values() if cursor is not None]
    assert written == pytest.approx([350, 300, 250, 200, 150, 100, 50, 0], abs=5)


def test_a_gateway_that_stood_still_forgets_nobody(front: FrontTable) -> None:
    """Its process was stopped, its disk did not answer, or its machine was asleep: who could have spoken?"""
    read_and_acknowledge(front, 40, b"away", id="away", lease=5000)
    front.ask(Subscribe(cancel=True), b"away")
    front.subscribe(b"here", id="here", lease=5000)
    front.stand_still(3600)
    assert list(front.table.cursors.saved) == ["away"]
    assert list(front.table.sessions) == [b"here"]
    front.pass_time(5.1)
    assert front.table.cursors.saved == front.table.sessions == {}


def test_a_clock_that_goes_back_ends_no_lease_and_stops_none(front: FrontTable) -> None:
    front.subscribe(b"here", id="here", lease=5000)
    front.stand_still(-1000)
    assert list(front.table.sessions) == [b"here"]
    front.pass_time(5.1)
    assert front.table.sessions == {}


def test_a_subscriber_that_is_here_without_anything_to_read_does_not_look_absent(front: FrontTable) -> None:
    """Its cursor is written again now and then: a restart would take it for long gone."""
    read_and_acknowledge(front, 100, id="a", lease=10_000)
    for _ in range(20):
        front.grant(limit=200)
        front.pass_time(1.0)
    written = front.log.unsaved["a"]
    assert written is not None
    assert written.remaining > 10_000 / 1000 * 2 / 3


def test_a_cursor_from_another_time_is_brought_into_the_log(front: FrontTable) -> None:
    for acknowledged, start in ((3, 10), (500, 100)):
        again = FrontTable(log=front.log, cursors={"a": Cursor(acknowledged, 5000, 5.0)})
        assert welcome(again.ask(asking(id="a"))).next == start


def test_an_id_has_one_reader_and_the_last_one_is_it(front: FrontTable) -> None:
    first = read_and_acknowledge(front, 40, b"first", id="a")
    answer = welcome(front.ask(asking(id="a"), b"second"))
    assert answer.next == 40
    assert first.state is SessionState.CLOSED
    assert front.closed == [(first, SessionEvent.TAKEN_OVER)]
    assert list(front.table.sessions) == [b"second"]
    assert front.table.cursors.saved == {}


def test_who_is_refused_takes_nothing_over(front: FrontTable) -> None:
    front.subscribe(b"first", id="a")
    assert refused(front.ask(asking(id="a", epoch="another"), b"second")).code == "EPOCH"
    assert list(front.table.sessions) == [b"first"]


def test_a_subscriber_on_a_new_connection_takes_the_place_of_itself(front: FrontTable) -> None:
    first = read_and_acknowledge(front, 40, b"first", me="abc", nth=1)
    second = front.subscribe(b"second", me="abc", nth=2, from_=70)
    assert front.closed == [(first, SessionEvent.CANCEL)]
    assert (second.cursor, second.acknowledged) == (70, 40), "what it has not dealt with is kept"
    assert front.table.low_watermark() == 40


def test_a_request_that_was_overtaken_by_a_later_one_of_the_same_subscriber_is_refused(
    front: FrontTable,
) -> None:
    front.subscribe(b"second", id="a", me="abc", nth=2)
    assert refused(front.ask(asking(id="a", me="abc", nth=1), b"first")).code == "SESSION"
    assert list(front.table.sessions) == [b"second"]
    assert isinstance(front.ask(asking(id="a", me="other", nth=1), b"third"), OnSubscribe)


# -------------------------------------------------------------------- what has to be kept
def test_the_slowest_that_is_kept_decides_what_is_kept(front: FrontTable) -> None:
    assert front.table.low_watermark() == 10, "with nobody there, nothing is forgotten"
    read_and_acknowledge(front, 40, b"a")
    read_and_acknowledge(front, 30, b"b")
    assert front.table.low_watermark() == 30
    front.subscribe(b"c", keep=False)
    assert front.table.low_watermark() == 30
    front.ask(Subscribe(cancel=True), b"b")
    assert front.table.low_watermark() == 40
    front.ask(Subscribe(cancel=True), b"a")
    assert front.table.low_watermark() == 100, "nobody is left that has to be waited for"


def test_a_look_by_an_optional_reader_does_not_let_the_source_run(front: FrontTable) -> None:
    for peer in (b"a", b"b", b"c", b"d"):
        assert front.table.low_watermark() == 10
        front.subscribe(peer, keep=False)
        front.pass_time(1.0)
        assert front.table.low_watermark() == 10
        front.ask(Subscribe(cancel=True), peer)
        assert front.table.low_watermark() == 10, "and when it has left, the source still waits for the first"


def test_while_it_looks_the_source_goes_on_as_far_as_it_has_read(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, keep=False)
    assert front.table.low_watermark() == 40


def test_an_optional_reader_that_stays_is_not_waited_for(front: FrontTable) -> None:
    read_and_acknowledge(front, 40, keep=False)
    assert front.table.low_watermark() == 40
    front.pass_time(front.limits.look + 0.1)
    assert front.table.low_watermark() == 100


def test_several_looks_at_the_same_time_are_one(front: FrontTable) -> None:
    read_and_acknowledge(front, 20, b"a", keep=False)
    read_and_acknowledge(front, 40, b"b", keep=False)
    assert front.table.low_watermark() == 40, "the one that has read furthest"
