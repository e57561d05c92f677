"""Coming to a gateway: who is let in, where it starts, and what is too much."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol import admission
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    CompleteFields,
    Control,
    Error,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnErrorFields,
    OnNext,
    OnSubscribe,
    OnSubscribeFields,
    SegmentFields,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.protocol.session import Session, SessionEvent, SessionState
from penstock.aquifer.status import GatewayStatus
from penstock.spec import UNBOUNDED
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(first=10, head=100))


def asking(**wishes: Any) -> Subscribe:
    return Subscribe(x=SubscribeFields(**{"v": 1, **wishes}))


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


# -------------------------------------------------------------------- coming
def test_the_welcome_says_everything_that_is_needed_to_read(front: FrontTable) -> None:
    answer = front.ask(asking(lease=5000))
    assert isinstance(answer, OnSubscribe)
    assert (answer.size, answer.port) == (UNBOUNDED, 5557)
    topic = welcome(answer).topic
    assert welcome(answer) == OnSubscribeFields(
        v=1,
        topic=topic,
        epoch="epoch-1",
        first=10,
        next=10,
        head=100,
        fmt="msgpack",
        ackevery=100,
        maxframe=256 * 1024,
        lease=5000,
    )
    assert bytes.fromhex(str(topic)) in front.table.by_topic


@pytest.mark.parametrize(
    ("wishes", "start"),
    [
        ({}, 10),
        ({"from_": "earliest"}, 10),
        ({"from_": "latest"}, 100),
        ({"from_": 10}, 10),
        ({"from_": 100}, 100),
    ],
)
def test_where_a_session_starts(front: FrontTable, wishes: dict[str, Any], start: int) -> None:
    assert welcome(front.ask(asking(**wishes))).next == start


@pytest.mark.parametrize(("to", "size"), [(50, 40), (10, 0), (5, 0), (2**80, UNBOUNDED)])
def test_the_size_of_a_range_is_known(front: FrontTable, to: int, size: int) -> None:
    answer = front.ask(asking(to=to))
    assert isinstance(answer, OnSubscribe)
    assert answer.size == size


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"v": 2}, "BAD"),
        ({"v": 0}, "BAD"),
        ({"epoch": "another"}, "EPOCH"),
        ({"from_": 9}, "OFFSET"),
        ({"from_": 101}, "OFFSET"),
        ({"from_": -1}, "OFFSET"),
        ({"from_": "yesterday"}, "BAD"),
        ({"to": -1}, "BAD"),
        ({"lease": 0}, "BAD"),
        ({"lease": -5}, "BAD"),
        ({"fmt": ["xml", "csv"]}, "BAD"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_there_is(
    front: FrontTable, wishes: dict[str, Any], code: str
) -> None:
    details = refused(front.ask(asking(**wishes)))
    assert details == OnErrorFields(code=code, first=10, head=100, epoch="epoch-1")
    assert front.table.sessions == {}
    assert front.table.counters == {f"refused: {code}": 1}


@pytest.mark.parametrize(
    ("formats", "chosen"),
    [([], "msgpack"), (["msgpack"], "msgpack"), (["arrow", "msgpack"], "arrow"), (["xml", "arrow"], "arrow")],
)
def test_the_first_format_that_is_known_is_chosen(front: FrontTable, formats: list[str], chosen: str) -> None:
    assert welcome(front.ask(asking(fmt=formats))).fmt == chosen


def test_arrow_is_promised_only_where_it_can_be_made(
    front: FrontTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway without pyarrow would find out when it has to send, and fail for everybody."""
    monkeypatch.setattr(admission, "find_spec", lambda name: None)
    assert welcome(front.ask(asking(fmt=["arrow", "msgpack"]))).fmt == "msgpack"
    assert refused(front.ask(asking(fmt=["arrow"]), b"other")).code == "BAD"


@pytest.mark.parametrize(("asked", "granted"), [(1, 0.1), (5000, 5.0), (10**12, 20.0), (10**400, 20.0)])
def test_a_lease_is_bounded(asked: int, granted: float) -> None:
    front = FrontTable(Limits(max_lease=20.0))
    session = front.subscribe(lease=asked)
    assert session.lease == granted


def test_a_peer_without_a_version_is_a_plain_one(front: FrontTable) -> None:
    front.say(b'{"jsonClass":"Subscribe","cancel":false,"x":{"id":"somebody else\'s"}}')
    assert front.session().dialect == "plain"


def test_the_same_request_again_changes_nothing(front: FrontTable) -> None:
    first = front.ask(asking(id="a"))
    assert front.ask(asking(id="a")) == first
    assert len(front.table.sessions) == 1
    assert front.closed == []
    assert front.table.counters == {"repeated Subscribe": 1}


def test_another_request_of_the_same_peer_takes_the_place_of_the_first(front: FrontTable) -> None:
    first = front.subscribe(from_=10)
    second = front.subscribe(from_=20)
    assert (second.cursor, len(front.table.sessions)) == (20, 1)
    assert front.closed == [(first, SessionEvent.CANCEL)]


def test_a_replayed_request_of_a_session_that_is_over_is_refused(front: FrontTable) -> None:
    front.subscribe(id="a")
    front.ask(Subscribe(cancel=True))
    assert refused(front.ask(asking(id="a"))).code == "SESSION"
    assert front.table.sessions == {}
    assert welcome(front.ask(asking(id="a"), b"a new connection")).next == 10


def test_there_is_room_for_so_many_and_no_more() -> None:
    front = FrontTable(Limits(max_subscribers=2))
    front.subscribe(b"a")
    front.subscribe_plainly(b"b")
    assert refused(front.ask(asking(), b"c")) == OnErrorFields(code="BUSY", retry=1000)
    plain = front.ask(Subscribe(), b"c")
    assert isinstance(plain, OnError)
    assert "no more can be" in plain.message
    front.ask(Subscribe(cancel=True), b"a")
    assert isinstance(front.ask(asking(), b"c"), OnSubscribe)


def test_a_port_that_cannot_be_opened_is_the_problem_of_one_peer(front: FrontTable) -> None:
    def full(session: Session) -> int:
        raise OSError(24, "Too many open files")

    front.open = full  # type: ignore[method-assign]
    answer = front.ask(b'{"jsonClass":"Subscribe","cancel":false}')
    assert isinstance(answer, OnError)
    assert "Too many open files" in answer.message
    assert front.table.sessions == {}


def test_a_probe_is_answered_without_a_session(front: FrontTable) -> None:
    answer = front.ask(asking(probe=True))
    assert (welcome(answer).epoch, read_status(welcome(answer).status, GatewayStatus).records) == (
        "epoch-1",
        100,
    )
    assert front.table.sessions == {}


def test_a_probe_does_not_wait_for_ever(front: FrontTable) -> None:
    assert front.say(asking(probe=True, beyond=100, wait=10**400)) == []
    assert front.pass_time(29) == []
    assert len(front.pass_time(2)) == 1


# -------------------------------------------------------------------- what is too much
def test_a_message_that_is_too_long_is_not_read() -> None:
    front = FrontTable(Limits(max_message=100))
    answer = front.ask(b'{"jsonClass":"Subscribe","cancel":false,"x":{"v":1}}'.ljust(101))
    assert refused(answer).code == "BAD"
    assert front.table.counters == {"oversized": 1}
    assert isinstance(front.ask(b'{"jsonClass":"Subscribe","cancel":false}'.ljust(100)), OnSubscribe)


def test_a_peer_may_ask_only_so_often() -> None:
    front = FrontTable(Limits(requests_per_second=5))
    front.subscribe()
    assert [front.grant(limit=1) for _ in range(5)] == [[]] * 5
    (answer,) = front.grant(limit=9)
    assert refused(answer) == OnErrorFields(code="BUSY", retry=1000)
    assert front.table.counters["too many requests"] == 1
    front.pass_time(0.21)
    assert front.grant(limit=2) == []
    assert len(front.grant(limit=2)) == 1


def test_a_peer_that_asks_too_often_does_not_spoil_it_for_others() -> None:
    front = FrontTable(Limits(requests_per_second=5))
    front.subscribe(b"a")
    front.subscribe(b"b")
    for _ in range(50):
        front.grant(b"a", limit=1)
        front.say(b"nonsense", b"stranger")
    assert front.grant(b"b", limit=1) == []


# -------------------------------------------------------------------- out of order
@pytest.mark.parametrize("message", [Next(1), Error("x"), Next(1, x=NextFields(limit=5))])
def test_without_a_subscription_one_has_to_subscribe_first(front: FrontTable, message: Control) -> None:
    answer = front.ask(message)
    assert isinstance(answer, OnError)
    assert "send Subscribe first" in answer.message
    if isinstance(message, Next) and extension(message.x) is not None:
        assert refused(answer).code == "SESSION"


def test_a_late_message_is_told_why_its_session_ended(front: FrontTable) -> None:
    front.subscribe()
    front.pass_time(61.0)
    (answer,) = front.grant(limit=5)

    assert isinstance(answer, OnError)
    assert "the lease of the subscription has ended" in answer.message
    assert refused(answer).code == "SESSION", "a subscriber that reads this subscribes again"


def test_what_is_not_possible_says_what_is(front: FrontTable) -> None:
    front.subscribe()
    answer = front.ask(Error("resend"))

    assert isinstance(answer, OnError)
    assert "Error is not possible while a subscription is streaming" in answer.message
    assert "send Subscribe" in answer.message
    assert refused(answer).code == "BAD"


@pytest.mark.parametrize("message", [OnSubscribe(1, 1), OnNext(1), OnError("x"), OnComplete()])
def test_what_a_gateway_says_is_not_what_it_hears(front: FrontTable, message: Control) -> None:
    front.subscribe()
    assert refused(front.ask(message)).code == "BAD"
    assert front.table.counters == {"unexpected": 1}
    assert front.session().state is SessionState.STREAMING


def test_cancelling_without_a_subscription_does_no_harm(front: FrontTable) -> None:
    answer = front.ask(Subscribe(cancel=True, x=SubscribeFields(v=1)))
    assert answer == OnComplete(x=CompleteFields(cancelled=True))


def test_envelopes_of_all_kinds_are_given_back(front: FrontTable) -> None:
    data = b'{"jsonClass":"Complete"}'
    for envelope in [(b"p",), (b"p", b""), (b"p", b"\0\0\0\1", b"")]:
        (reply,) = front.table.receive([*envelope, data], front.now)
        assert reply.envelope == envelope
    (reply,) = front.table.receive([b"p"], front.now)
    assert reply.envelope == (b"p",)


def test_an_empty_message_is_an_introduction_and_has_no_answer(front: FrontTable) -> None:
    """A REQ with ZMQ_PROBE_ROUTER sends one, and closes the connection if it is answered."""
    assert front.table.receive([b"p", b""], front.now) == []
    assert isinstance(front.ask(b"", b"p"), OnError), "with a delimiter before it, it is a bad question"


def test_only_so_many_old_sessions_are_remembered(front: FrontTable) -> None:
    for number in range(1100):
        front.now += 1
        front.subscribe(b"%d" % number)
        front.ask(Subscribe(cancel=True), b"%d" % number)
    assert len(front.table.registry.ended) == 1024
    assert len(front.table.registry.budgets) <= 1


# -------------------------------------------------------------------- shared memory
def test_who_asks_for_a_shelf_gets_one_and_nobody_else(front: FrontTable) -> None:
    assert welcome(front.ask(asking(), b"far")).shelf is UNSET
    assert welcome(front.ask(asking(shelf=""), b"near")).shelf == SegmentFields(1, 2, 3, "new")
    assert welcome(front.ask(asking(shelf="mine"), b"back again")).shelf == SegmentFields(1, 2, 3, "mine")


def test_a_gateway_without_shelves_offers_none(front: FrontTable) -> None:
    front.has_shelves = False
    assert welcome(front.ask(asking(shelf=""))).shelf is UNSET


def test_nothing_is_put_on_a_shelf_before_the_reader_has_seen_it(front: FrontTable) -> None:
    front.ask(asking(shelf=""))
    front.grant(limit=20)
    session = front.session()
    assert isinstance(session, ExtendedSession)
    assert session.segment_use is None
    front.say(Next(1, x=NextFields(limit=20, shelf=[])))
    assert session.segment_use is None
    front.say(Next(1, x=NextFields(limit=20, shelf=[3, 1])))
    assert session.segment_use == [3, 1]
