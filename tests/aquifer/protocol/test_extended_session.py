"""The gateway's side of an extended subscription: credit, acknowledgement, ranges, ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    CompleteFields,
    Control,
    Error,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnNext,
    OnNextFields,
    Subscribe,
    extension,
)
from penstock.aquifer.protocol.session import SessionEvent, SessionState
from penstock.spec import UNBOUNDED
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(head=1000))


def code_of(answer: Control) -> object:
    assert isinstance(answer, OnError)
    details = extension(answer.x)
    assert details is not None
    return details.code


# -------------------------------------------------------------------- credit
def test_a_grant_has_no_answer_but_the_data(front: FrontTable) -> None:
    session = front.subscribe()
    assert send_all(session) == []
    assert front.grant(limit=5) == []
    assert send_all(session) == [0, 1, 2, 3, 4]


def test_a_grant_can_be_repeated_and_overtaken(front: FrontTable) -> None:
    session = front.subscribe()
    for limit in (5, 5, 3, 5):
        front.grant(limit=limit)
    assert send_all(session) == [0, 1, 2, 3, 4]
    front.grant(limit=5)
    assert send_all(session) == []
    assert session.repeats == 4


@settings(deadline=None)
@given(st.permutations([1, 2, 2, 5, 8, 8, 13]), st.data())
def test_in_whatever_order_grants_arrive_the_highest_counts(limits: list[int], data: st.DataObject) -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    session = front.subscribe()
    sent: list[int] = []
    for index, limit in enumerate(limits):
        front.grant(limit=limit, limitb=limit * 100, ack=0, got=0)
        if data.draw(st.booleans()):
            sent += send_all(session)
        assert len(sent) <= max(limits[: index + 1])
    sent += send_all(session)
    assert sent == list(range(13))


def test_without_bounds_everything_may_be_sent(front: FrontTable) -> None:
    session = front.subscribe()
    front.grant(limit=9223372036854776000)
    assert session.credit_end == UNBOUNDED
    assert len(send_all(session)) == 1000


def test_bytes_are_granted_too(front: FrontTable) -> None:
    session = front.subscribe()
    front.grant(limit=100, limitb=25)
    assert send_all(session, frame=1, width=10) == [0, 1, 2], "while there is a byte, one record may go"
    front.grant(limit=100, limitb=20)
    assert send_all(session, frame=1) == [], "an old grant takes nothing back and gives nothing"
    front.grant(limit=100, limitb=35)
    assert send_all(session, frame=1) == [3]


def test_no_bytes_at_all_are_a_grant_of_none(front: FrontTable) -> None:
    """From a subscriber whose queue is full of what came in a session before."""
    session = front.subscribe()
    front.grant(limit=100, limitb=0)
    assert send_all(session) == []
    front.grant(limit=100, limitb=1)
    assert send_all(session, frame=1) == [0]


@pytest.mark.parametrize("name", ["ack", "got"])
def test_what_was_never_sent_cannot_have_arrived(front: FrontTable, name: str) -> None:
    session = front.subscribe()
    front.grant(limit=5)
    send_all(session)
    (answer,) = front.grant(limit=10, **{name: 6})
    assert code_of(answer) == "BAD"
    assert session.credit_end == 5, "nothing of a bad message is believed"
    assert front.table.counters["out of order"] == 1
    assert front.grant(limit=10, **{name: 5}) == []


@pytest.mark.parametrize("name", ["limit", "limitb", "ack", "got"])
def test_nothing_is_negative(front: FrontTable, name: str) -> None:
    front.subscribe()
    (answer,) = front.grant(**{"limit": 5, name: -1})
    assert code_of(answer) == "BAD"


# -------------------------------------------------------------------- acknowledgement, and what is in flight
def test_acknowledged_records_need_not_be_kept(front: FrontTable) -> None:
    session = front.subscribe()
    front.grant(limit=10)
    send_all(session)
    assert front.table.low_watermark() == 0
    front.grant(limit=10, ack=7)
    assert front.table.low_watermark() == 7
    front.grant(limit=10, ack=3)
    assert front.table.low_watermark() == 7, "an old message takes nothing back"


def test_what_has_arrived_need_not_be_dealt_with() -> None:
    front = FrontTable(Limits(frames_in_flight=2), PretendedLog(head=100))
    session = front.subscribe()
    front.grant(limit=100)
    assert send_all(session, frame=3) == list(range(6))
    front.grant(limit=100, ack=0, got=6)
    assert session.acknowledged == 0
    assert send_all(session, frame=3) == list(range(6, 12))


def test_ack_stands_for_got_where_that_is_missing() -> None:
    front = FrontTable(Limits(frames_in_flight=2), PretendedLog(head=100))
    session = front.subscribe()
    front.grant(limit=100)
    send_all(session, frame=3)
    front.grant(limit=100, ack=3)
    assert send_all(session, frame=3) == [6, 7, 8], "one frame has made room for one"


def test_bytes_in_flight_are_bounded_whatever_was_granted() -> None:
    front = FrontTable(Limits(bytes_in_flight=50), PretendedLog(head=100))
    session = front.subscribe()
    front.grant(limit=2**63 - 1)
    assert send_all(session, frame=2) == list(range(6)), "the last frame may go over the edge"
    front.grant(limit=2**63 - 1, got=2)
    assert send_all(session, frame=1) == [6]
    assert session.status()["in_flight"] == 50


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 200), st.integers(1, 50), st.integers(1, 300), st.integers(1, 20))
def test_a_sign_is_asked_for_before_anything_can_stall(
    frames: int, nbytes: int, every: int, every_bytes: int, size: int
) -> None:
    """Whatever stops the gateway, the subscriber was asked to speak in a frame before that."""
    limits = Limits(frames_in_flight=frames, bytes_in_flight=nbytes)
    log = PretendedLog(head=200, ack_every_records=every, ack_every_bytes=every_bytes)
    session = FrontTable(limits, log).subscribe()
    session.credit_end = UNBOUNDED
    asked, records, sent_bytes = False, 0, 0
    while session.credit() and session.credit_bytes() > 0:
        count = min(session.credit(), size)
        asked = session.wants_acknowledgement(count, count * 10)
        records, sent_bytes = (0, 0) if asked else (records + count, sent_bytes + count * 10)
        assert records < every, "the log may be full with these"
        assert sent_bytes < every_bytes
        session.sent(count, count * 10)
    if session.cursor < log.head:
        assert asked or session._flagged_records > 0


# -------------------------------------------------------------------- ranges and ends
def test_a_range_ends_before_its_end(front: FrontTable) -> None:
    session = front.subscribe(from_=10, to=13)
    front.grant(limit=100)
    assert not session.exhausted
    assert send_all(session) == [10, 11, 12]
    assert session.exhausted
    assert not session.failed


@pytest.mark.parametrize("failure", [None, "broken"])
def test_a_range_beyond_the_end_of_the_stream_ends_with_it(front: FrontTable, failure: str | None) -> None:
    session = front.subscribe(from_=990, to=2000)
    front.grant(limit=5000)
    send_all(session)
    assert not session.exhausted, "more may come"
    front.log.finish(failure)
    assert session.exhausted
    assert session.failed is (failure is not None)


def test_a_range_that_was_delivered_has_not_failed(front: FrontTable) -> None:
    session = front.subscribe(to=1000)
    front.grant(limit=5000)
    send_all(session)
    front.log.finish("broken, but later")
    assert session.exhausted
    assert not session.failed


def test_an_empty_range_is_over_at_once(front: FrontTable) -> None:
    assert front.subscribe(from_=20, to=10).exhausted


def test_the_end_needs_no_credit(front: FrontTable) -> None:
    front.log.head = 0
    session = front.subscribe()
    front.log.finish()
    assert session.exhausted


def test_the_end_is_told_again_to_who_missed_it(front: FrontTable) -> None:
    session = front.subscribe(from_=998)
    front.grant(limit=1000)
    send_all(session)
    front.log.finish()
    session.handle(SessionEvent.END_TOLD, 0.0)
    front.grant(limit=1002, ack=1000, got=1000)
    assert session.state is SessionState.ENDED, "it says something new, so it may still be reading"
    front.grant(limit=1002, ack=1000, got=1000)
    assert session.state is SessionState.STREAMING
    assert session.exhausted


def test_the_end_is_told_again_after_the_connection_broke(front: FrontTable) -> None:
    session = front.subscribe(from_=1000)
    front.log.finish()
    session.handle(SessionEvent.END_TOLD, 0.0)
    front.happen(SessionEvent.LEFT)
    assert not session.exhausted, "nobody would hear it"
    front.happen(SessionEvent.JOINED)
    assert session.exhausted


def test_nothing_is_sent_while_the_connection_is_gone(front: FrontTable) -> None:
    session = front.subscribe()
    front.grant(limit=10)
    front.happen(SessionEvent.LEFT)
    assert send_all(session) == []
    assert session.state is SessionState.JOINING


def test_leaving_is_answered_with_the_place(front: FrontTable) -> None:
    session = front.subscribe()
    front.grant(limit=10)
    send_all(session)
    answer = front.ask(Subscribe(cancel=True))
    assert answer == OnComplete(x=CompleteFields(end=10, cancelled=True))
    assert session.state is SessionState.CLOSED
    assert front.table.by_topic == {}


def test_an_extended_subscriber_does_not_ask_for_the_last_batch(front: FrontTable) -> None:
    front.subscribe()
    assert code_of(front.ask(Error("missing"))) == "BAD"


# -------------------------------------------------------------------- counted batches
def test_a_request_without_limit_is_answered_as_in_the_document_and_with_offsets(front: FrontTable) -> None:
    session = front.subscribe(from_=100)
    assert front.ask(Next(10)) == OnNext(10, x=OnNextFields(first=100, head=1000))
    assert send_all(session) == list(range(100, 110))
    assert front.ask(Next(5, x=NextFields(ack=110))) == OnNext(5, x=OnNextFields(first=110, head=1000))
    assert session.acknowledged == 110


def test_a_request_without_limit_waits_for_records(front: FrontTable) -> None:
    front.subscribe(from_=1000)
    assert front.say(Next(10)) == []
    assert front.pass_time(0.05) == []
    front.log.head = 1002
    assert front.pass_time(0.01) == [OnNext(2, x=OnNextFields(first=1000, head=1002))]
    assert front.say(Next(10)) == []


def test_a_request_without_limit_gets_a_zero_at_the_deadline(front: FrontTable) -> None:
    front.subscribe(from_=1000)
    front.say(Next(10))
    assert front.pass_time(0.11) == [OnNext(0, x=OnNextFields(first=1000, head=1000))]


def test_a_request_without_limit_is_told_the_end(front: FrontTable) -> None:
    session = front.subscribe(from_=1000)
    front.log.finish()
    session.handle(SessionEvent.END_TOLD, 0.0)
    assert front.ask(Next(10)) == OnComplete(x=CompleteFields(end=1000))


def test_a_request_without_limit_is_told_the_failure(front: FrontTable) -> None:
    session = front.subscribe(from_=1000)
    front.log.finish("broken")
    session.handle(SessionEvent.END_TOLD, 0.0)
    assert code_of(front.ask(Next(10))) == "SOURCE"


@pytest.mark.parametrize("count", [0, -1])
def test_a_request_without_limit_asks_for_one_record_at_least(front: FrontTable, count: int) -> None:
    front.subscribe()
    answer = front.ask(Next(count))
    assert code_of(answer) == "BAD"
    assert isinstance(answer, OnError)
    assert "§3.9" in answer.message


def test_what_was_declared_and_is_still_to_be_sent_is_not_declared_again(front: FrontTable) -> None:
    session = front.subscribe()
    assert front.ask(Next(10)) == OnNext(10, x=OnNextFields(first=0, head=1000))
    session.sent(4, 40)
    assert front.ask(Next(10)) == OnNext(10, x=OnNextFields(first=10, head=1000))
    assert send_all(session) == list(range(4, 20))


def test_what_is_gone_from_the_log_is_not_declared(front: FrontTable) -> None:
    session = front.subscribe(keep=False)
    front.log.first = 300
    assert session.overtaken
    assert front.ask(Next(10)) == OnNext(10, x=OnNextFields(first=300, head=1000))
    session.skip_to(300)
    assert send_all(session) == list(range(300, 310))


def test_a_second_request_gets_the_first_one_its_answer(front: FrontTable) -> None:
    front.subscribe(from_=1000)
    assert front.say(Next(10)) == []
    assert front.say(Next(20)) == [OnNext(0, x=OnNextFields(first=1000, head=1000))]
    front.log.head = 1100
    assert front.pass_time(0.01) == [OnNext(20, x=OnNextFields(first=1000, head=1100))]


# -------------------------------------------------------------------- best effort
def test_who_is_not_kept_may_be_overtaken_and_goes_on(front: FrontTable) -> None:
    session = front.subscribe(keep=False)
    front.grant(limit=500)
    assert front.table.low_watermark() == 0, "it may only be having a look"
    front.pass_time(front.limits.look)
    assert front.table.low_watermark() == 1000, "the source does not wait for it"
    front.log.first = 200
    assert session.overtaken
    session.skip_to(200)
    assert not session.overtaken
    assert send_all(session) == list(range(200, 500))
    assert session.acknowledged == 200


def test_the_state_of_a_session_can_be_shown(front: FrontTable) -> None:
    session = front.subscribe(id="me", from_=5, ack=5)
    front.grant(limit=10)
    send_all(session, width=3)
    assert isinstance(session, ExtendedSession)
    shown = session.status().to_dict()
    assert set(shown.pop("times")) == {"waiting_for_demand", "waiting_for_data", "working"}
    assert shown.pop("lag_seconds") >= 0
    assert shown == {
        "session": 1,
        "id": "me",
        "owner": "",
        "address": "127.0.0.1",
        "dialect": "extended",
        "state": "streaming",
        "next": 10,
        "acknowledged": 5,
        "lag": 990,
        "keep": True,
        "records": 5,
        "bytes": 15,
        "limit": 10,
        "received": 5,
        "in_flight": 15,
        "format": "msgpack",
        "repeats": 0,
    }
