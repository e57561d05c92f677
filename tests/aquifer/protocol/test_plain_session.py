"""A peer that knows nothing but the document, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Complete,
    Error,
    Next,
    OnComplete,
    OnError,
    OnNext,
    Subscribe,
    encode,
)
from penstock.aquifer.protocol.session import SessionEvent, SessionState
from tests.aquifer.protocol.front_table import WITH_A_KEY, FrontTable, PretendedLog, send_all

SUBSCRIBE = b'{"jsonClass":"Subscribe","cancel":false}'


def with_a_key(*settings: Any, **more: Any) -> FrontTable:
    """A session table to which a peer comes whose key is proven: whoever joins its port is the one."""
    return FrontTable(*settings, caller=WITH_A_KEY, **more)


@pytest.fixture
def front() -> FrontTable:
    return with_a_key(log=PretendedLog(head=100))


def test_the_conversation_of_the_document(front: FrontTable) -> None:
    welcome = front.ask(SUBSCRIBE)
    assert encode(welcome) == b'{"jsonClass":"OnSubscribe","size":9223372036854775807,"port":5557}'
    front.happen(SessionEvent.JOINED)
    assert encode(front.ask(b'{"jsonClass":"Next","count":60}')) == b'{"jsonClass":"OnNext","count":60}'
    assert send_all(front.session()) == list(range(60))
    assert encode(front.ask(b'{"jsonClass":"Next","count":60}')) == b'{"jsonClass":"OnNext","count":40}'
    assert send_all(front.session()) == list(range(60, 100))
    front.log.finish()
    answer = front.ask(b'{"jsonClass":"Next","count":60}')
    assert encode(answer) == b'{"jsonClass":"OnComplete","complete":true}'


def test_a_batch_has_no_more_bytes_than_may_be_on_the_way() -> None:
    front = with_a_key(log=PretendedLog(head=100, record_bytes=1000), limits=Limits(bytes_in_flight=10_000))
    front.subscribe_plainly()
    assert front.ask(Next(2**63 - 1)) == OnNext(10)
    assert front.ask(Next(3)) == OnNext(3)


def test_a_failed_source_is_an_on_error(front: FrontTable) -> None:
    front.subscribe_plainly()
    front.log.finish("stuffed")
    assert front.ask(Next(100)) == OnNext(100)
    send_all(front.session())
    assert encode(front.ask(Next(100))) == b'{"jsonClass":"OnError","message":"stuffed"}'
    assert front.ask(Next(100)) == OnError("stuffed"), "and again for who asks again"


def test_nothing_is_sent_that_was_not_asked_for(front: FrontTable) -> None:
    session = front.subscribe_plainly()
    assert send_all(session) == []
    front.ask(Next(3))
    assert send_all(session) == [0, 1, 2]
    assert send_all(session) == []


def test_a_request_waits_for_records_for_a_while(front: FrontTable) -> None:
    front.log.head = 0
    front.subscribe_plainly()
    assert front.say(Next(10)) == []
    assert front.pass_time(0.05) == []
    front.log.head = 4
    assert front.pass_time(0.01) == [OnNext(4)]


def test_a_request_for_which_nothing_comes_gets_a_zero_at_the_deadline(front: FrontTable) -> None:
    front.log.head = 0
    front.subscribe_plainly()
    assert front.say(Next(10)) == []
    assert front.pass_time(0.09) == []
    assert front.pass_time(0.02) == [OnNext(0)]
    front.log.head = 4
    assert front.pass_time(1) == [], "it was answered, and asks for nothing any more"


def test_nothing_is_declared_before_the_data_connection_is_there(front: FrontTable) -> None:
    front.ask(SUBSCRIBE)
    assert front.say(Next(10)) == []
    assert send_all(front.session()) == []
    assert front.happen(SessionEvent.JOINED) == [OnNext(10)]
    assert send_all(front.session()) == list(range(10))


def test_what_was_declared_waits_while_the_data_connection_is_gone(front: FrontTable) -> None:
    session = front.subscribe_plainly()
    front.ask(Next(10))
    front.happen(SessionEvent.LEFT)
    assert send_all(session) == []
    front.happen(SessionEvent.JOINED)
    assert send_all(session) == list(range(10))


def test_one_answer_declares_no_more_than_the_limit() -> None:
    front = with_a_key(Limits(plain_batch=7), PretendedLog(head=100))
    front.subscribe_plainly()
    assert front.ask(Next(2**63 - 1)) == OnNext(7)
    assert front.ask(b'{"jsonClass":"Next","count":9223372036854776000}') == OnNext(7)


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_a_request_for_less_than_one_record_ends_the_subscription(front: FrontTable, count: int) -> None:
    front.subscribe_plainly()
    answer = front.ask(Next(count))
    assert isinstance(answer, OnError)
    assert "§3.9" in answer.message
    assert front.table.sessions == {}
    assert [event for _, event in front.closed] == [SessionEvent.VIOLATED]
    late = front.ask(Next(1))
    assert isinstance(late, OnError)
    assert "the subscription broke a rule; send Subscribe first" in late.message


def test_cancelling_twice_does_no_harm(front: FrontTable) -> None:
    front.subscribe_plainly()
    goodbye = b'{"jsonClass":"OnComplete","complete":true}'
    assert encode(front.ask(Subscribe(cancel=True))) == goodbye
    assert encode(front.ask(Subscribe(cancel=True))) == goodbye, "not a byte more than the document has"
    assert front.table.sessions == {}
    assert [event for _, event in front.closed] == [SessionEvent.CANCEL]


def test_complete_is_another_way_to_cancel(front: FrontTable) -> None:
    front.subscribe_plainly()
    assert front.ask(Complete()) == OnComplete()
    assert front.table.sessions == {}
    assert front.ask(Complete()) == OnComplete()


def test_the_next_request_acknowledges_the_batch_before(front: FrontTable) -> None:
    session = front.subscribe_plainly()
    front.ask(Next(10))
    send_all(session)
    assert (session.acknowledged, front.table.low_watermark()) == (0, 0)
    front.ask(Next(10))
    assert (session.acknowledged, front.table.low_watermark()) == (10, 10)


def test_an_error_gets_the_last_batch_once_more(front: FrontTable) -> None:
    session = front.subscribe_plainly()
    front.ask(Next(10))
    send_all(session)
    front.ask(Next(10))
    assert send_all(session) == list(range(10, 20))
    assert front.ask(Error("3 missing")) == OnError("resending data", recoverable=True)
    assert send_all(session) == [], "not before it is asked for"
    assert front.ask(Next(10)) == OnNext(10)
    assert send_all(session) == list(range(10, 20))


def test_several_requests_may_wait_at_a_time(front: FrontTable) -> None:
    front.log.head = 0
    session = front.subscribe_plainly()
    assert [front.say(Next(2)) for _ in range(3)] == [[], [], []]
    front.log.head = 5
    assert front.pass_time(0.01) == [OnNext(2), OnNext(2), OnNext(1)]
    assert send_all(session) == [0, 1, 2, 3, 4]


def test_not_any_number_of_requests_may_wait() -> None:
    front = with_a_key(Limits(requests_in_waiting=2), PretendedLog())
    front.subscribe_plainly()
    front.say(Next(1))
    front.say(Next(1))
    answer = front.ask(Next(1))
    assert isinstance(answer, OnError)
    assert "wait for OnNext before Next" in answer.message
    assert front.pass_time(1) == [OnNext(0), OnNext(0)]


def test_what_was_declared_is_sent_before_the_end_is_told(front: FrontTable) -> None:
    """Two requests at once, the first for the last records: the second must not swallow them."""
    session = front.subscribe_plainly()
    front.log.finish()
    assert front.say(Next(100)) == [OnNext(100)]
    assert front.say(Next(100)) == []
    assert send_all(session) == list(range(100))
    assert front.pass_time(0.01) == [OnComplete()]


def test_records_that_come_in_while_the_session_looks_are_not_lost() -> None:
    """The writer is another thread: between a look at the head and one at the end, both may change."""

    class Growing(PretendedLog):
        looked = 0

        def __getattribute__(self, name: str) -> object:
            if name == "head":
                Growing.looked += 1
                if Growing.looked == 2:
                    self.__dict__.update(head=5, end=5)
                    return 0
            return super().__getattribute__(name)

    log = Growing()
    front = with_a_key(log=log)
    front.subscribe_plainly()
    Growing.looked = 0
    answers = front.say(Next(10)) + front.pass_time(0.01) + front.pass_time(0.01)
    assert answers == [OnNext(5)]


def test_who_asks_after_the_end_is_told_it_again(front: FrontTable) -> None:
    front.log.head = 0
    front.subscribe_plainly()
    front.log.finish()
    assert front.ask(Next(1)) == OnComplete()
    assert front.ask(Next(1)) == OnComplete()
    assert front.session().state is SessionState.ENDED


def test_a_peer_that_is_not_kept_and_was_overtaken_is_told_and_gone() -> None:
    front = with_a_key(log=PretendedLog(head=100), keep_plain=False)
    session = front.subscribe_plainly()
    front.ask(Next(10))
    send_all(session)
    front.log.first, front.log.head = 50, 150
    answer = front.ask(Next(10))
    assert isinstance(answer, OnError)
    assert "records 10 to 49 are gone" in answer.message
    assert front.table.sessions == {}
    assert front.closed == [(session, SessionEvent.OVERTAKEN)]


def test_a_peer_that_was_overtaken_while_it_waited_is_gone_too() -> None:
    front = with_a_key(log=PretendedLog(), keep_plain=False)
    front.subscribe_plainly()
    assert front.say(Next(10)) == []
    front.log.first = front.log.head = 50
    (answer,) = front.pass_time(0.01)
    assert isinstance(answer, OnError)
    front.pass_time(0.01)
    assert front.table.sessions == {}, "its port is closed"
    assert [event for _, event in front.closed] == [SessionEvent.OVERTAKEN]


def test_subscribing_again_starts_with_the_oldest_record(front: FrontTable) -> None:
    session = front.subscribe_plainly()
    front.ask(Next(10))
    send_all(session)
    front.log.first = 5
    front.subscribe_plainly()
    front.ask(Next(3))
    assert send_all(front.session()) == [5, 6, 7]
    assert len(front.closed) == 1, "the port of the session before"


def test_a_plain_peer_that_says_nothing_for_as_long_as_the_lease_is_gone(front: FrontTable) -> None:
    front.subscribe_plainly()
    front.pass_time(60.1)
    assert front.table.sessions == {}
    assert front.table.counters["leases ended"] == 1


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b'{"jsonClass":"OnNext","count":1}',
        b'{"jsonClass":"Next","count":0}',
        b'{"jsonClass":"Subscribe","cancel":true}',
        b'{"jsonClass":"Complete","complete":true}',
        b'{"jsonClass":"Error","message":""}',
        b'{"jsonClass":"Next","count":1}',
        b" " * 70_000,
    ],
    ids=lambda data: repr(data[:40]),
)
@pytest.mark.parametrize("joined", [False, True])
def test_a_peer_that_sent_no_x_gets_none(front: FrontTable, data: bytes, joined: bool) -> None:
    if joined:
        front.subscribe_plainly()
        front.log.head = 0
        front.log.finish()
        front.ask(Next(1))
    for answer in front.say(data) + front.say(data):
        assert b'"x"' not in encode(answer)


# -------------------------------------------------------------------- who has joined its port?
@pytest.fixture
def openly() -> FrontTable:
    """A session table to which a peer comes without a key."""
    return FrontTable(log=PretendedLog(head=100))


def test_without_a_key_the_first_request_after_a_join_is_answered_with_nothing(openly: FrontTable) -> None:
    """The one who has joined may be a stranger. The subscriber has time to come, and then there are two."""
    openly.ask(SUBSCRIBE)
    openly.happen(SessionEvent.JOINED)
    openly.pass_time(10)
    assert openly.say(Next(60)) == []
    assert openly.pass_time(0.11) == [OnNext(0)]
    assert send_all(openly.session()) == []

    assert openly.ask(Next(60)) == OnNext(60)
    assert send_all(openly.session()) == list(range(60))


def test_a_request_from_before_the_join_waits_for_a_moment_after_it(openly: FrontTable) -> None:
    openly.ask(SUBSCRIBE)
    assert openly.say(Next(60)) == []
    assert openly.pass_time(0.09) == []
    assert openly.happen(SessionEvent.JOINED) == []
    assert openly.pass_time(0.09) == []
    assert openly.pass_time(0.02) == [OnNext(0)]
    assert openly.ask(Next(60)) == OnNext(60)


def test_the_first_answer_does_not_wait_for_as_long_as_one_may_wait_for_records() -> None:
    front = FrontTable(Limits(long_poll=30.0), PretendedLog())
    front.ask(SUBSCRIBE)
    front.happen(SessionEvent.JOINED)
    assert front.say(Next(60)) == []
    assert front.pass_time(0.11) == [OnNext(0)]
    assert front.say(Next(60)) == []
    assert front.pass_time(20) == []


def test_who_joins_after_the_subscriber_has_left_is_on_trial_again(openly: FrontTable) -> None:
    openly.ask(SUBSCRIBE)
    openly.happen(SessionEvent.JOINED)
    openly.say(Next(1))
    openly.pass_time(0.11)
    openly.say(Next(10))
    openly.happen(SessionEvent.LEFT)
    openly.happen(SessionEvent.JOINED)
    assert send_all(openly.session()) == [], "what was declared waits, too"
    openly.say(Next(10))
    assert openly.pass_time(0.11) == [OnNext(0)]
    assert send_all(openly.session()) == list(range(10))


def test_a_session_whose_port_has_two_is_over_and_who_waits_is_told(openly: FrontTable) -> None:
    openly.ask(SUBSCRIBE)
    openly.happen(SessionEvent.JOINED)
    openly.say(Next(60))
    openly.table.registry.end(openly.session(), SessionEvent.CONTESTED)
    (answer,) = openly.pass_time(0.02)
    assert isinstance(answer, OnError)
    assert "subscribe again" in answer.message
    assert openly.table.sessions == {}
