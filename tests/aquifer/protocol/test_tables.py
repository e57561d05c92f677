"""The tables of the protocol: complete where they have to be, closed where they have to be."""

from __future__ import annotations

import pytest

from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import OnComplete, OnError, OnNext, OnSubscribe, Subscribe
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import WHY_ENDED, Session, SessionEvent, SessionState
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.aquifer.protocol.state_table import PAGE, with_table

DIALECTS = [PlainSession, ExtendedSession]
MAKES_NO_SENSE = {
    (ExtendedSession, SessionEvent.ERROR): "it says what it lacks by subscribing from there",
    (ExtendedSession, SessionEvent.VIOLATED): "it is told, and its session goes on",
    (ExtendedSession, SessionEvent.OVERTAKEN): "it is told of the gap, and its session goes on",
    (PlainSession, SessionEvent.END_MISSED): "whoever asks after the end is told",
    (PlainSession, SessionState.JOINING, SessionEvent.END_TOLD): "nothing is told before it has joined",
    (ExtendedSession, SessionState.JOINING, SessionEvent.END_TOLD): "nothing is told before it has joined",
    (PlainSession, SessionState.ENDED, SessionEvent.END_TOLD): "it was told",
    (ExtendedSession, SessionState.ENDED, SessionEvent.END_TOLD): "it was told",
    (ExtendedSession, SessionState.JOINING, SessionEvent.END_MISSED): "it was not told yet",
    (ExtendedSession, SessionState.STREAMING, SessionEvent.END_MISSED): "it was not told yet",
    (PlainSession, SessionState.ENDED, SessionEvent.VIOLATED): "what it asks for does not matter any more",
    (PlainSession, SessionState.ENDED, SessionEvent.OVERTAKEN): "it has everything",
    (PlainSession, SessionState.ENDED, SessionEvent.ERROR): "after the end nothing is sent again",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("state", SessionState)
def test_every_state_knows_every_event_that_can_happen_in_it(
    dialect: type[Session], state: SessionState
) -> None:
    if state is SessionState.CLOSED:
        assert dialect.table[state] == {}, "nothing leads out of CLOSED"
        return
    missing = {
        event
        for event in SessionEvent
        if event not in dialect.table[state]
        and (dialect, event) not in MAKES_NO_SENSE
        and (dialect, state, event) not in MAKES_NO_SENSE
    }
    assert missing == set()


def test_the_page_has_the_table_of_the_code() -> None:
    page = PAGE.read_text("utf-8")

    assert page == with_table(page), "python -m tests.aquifer.protocol.state_table"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_handler_exists(dialect: type[Session]) -> None:
    for events in dialect.table.values():
        for handler, _ in events.values():
            assert handler is None or getattr(dialect, handler.__name__) is handler


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "event", [SessionEvent.CANCEL, SessionEvent.COMPLETE, SessionEvent.EXPIRED, SessionEvent.TAKEN_OVER]
)
def test_the_ways_out_lead_out_of_every_state(dialect: type[Session], event: SessionEvent) -> None:
    for state in (SessionState.JOINING, SessionState.STREAMING, SessionState.ENDED):
        assert dialect.table[state][event][1] is SessionState.CLOSED


def test_every_way_out_has_a_reason_that_a_peer_can_read() -> None:
    ways_out = {
        event
        for dialect in DIALECTS
        for events in dialect.table.values()
        for event, (_, following) in events.items()
        if following is SessionState.CLOSED
    }

    assert set(WHY_ENDED) == ways_out


@pytest.mark.parametrize("event", [SessionEvent.END_TOLD, SessionEvent.END_MISSED, SessionEvent.VIOLATED])
def test_what_a_session_cannot_find_out_by_itself_is_a_defect(event: SessionEvent) -> None:
    front = FrontTable(log=PretendedLog(head=10))
    session = front.subscribe()
    session.handle(SessionEvent.LEFT, front.now)

    with pytest.raises(AssertionError, match=f"{event.name} cannot happen in state JOINING"):
        session.handle(event, front.now)
    assert session.state is SessionState.JOINING


def test_what_happens_to_a_session_that_is_closed_changes_nothing() -> None:
    front = FrontTable(log=PretendedLog(head=10))
    session = front.subscribe()
    assert session.ended_by is None
    session.handle(SessionEvent.EXPIRED, front.now)

    assert session.handle(SessionEvent.LEFT, front.now) == []
    assert session.handle(SessionEvent.CANCEL, front.now) == []
    assert (session.state, session.ended_by) == (SessionState.CLOSED, SessionEvent.EXPIRED)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_is_sent_before_the_data_connection_is_there(dialect: type[Session]) -> None:
    assert dialect.table[SessionState.JOINING][SessionEvent.JOINED][1] is SessionState.STREAMING
    assert dialect.table[SessionState.STREAMING][SessionEvent.LEFT][1] is SessionState.JOINING


def test_the_subscriber_side_knows_every_answer_while_it_waits_for_one() -> None:
    assert set(SubscriberSide.table) == set(Phase)
    answers, its_own_question = {OnSubscribe, OnError, OnNext, OnComplete}, {Subscribe}
    assert set(SubscriberSide.table[Phase.ASKING]) == answers | its_own_question, "and no answer but an echo"
    assert SubscriberSide.table[Phase.OVER] == {}
    for handlers in SubscriberSide.table.values():
        for handler in handlers.values():
            assert callable(handler)


def test_a_subscriber_that_is_over_stays_over_and_every_other_phase_can_end() -> None:
    assert set(SubscriberSide.moves) == set(Phase)
    assert SubscriberSide.moves[Phase.OVER] == {Phase.OVER}
    assert all(Phase.OVER in phases for phases in SubscriberSide.moves.values())
    assert not any(Phase.NEW in phases for phases in SubscriberSide.moves.values())


def test_a_move_that_the_table_does_not_have_is_refused() -> None:
    side = SubscriberSide("tcp://gateway:5556", SubscribeOptions())
    side.leave()

    with pytest.raises(AssertionError, match="cannot go from OVER to ASKING"):
        side.start(0.0)
