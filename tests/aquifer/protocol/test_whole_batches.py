"""A batch that does not fit into what is granted waits if more is about to be granted, or else is cut."""

from __future__ import annotations

import pytest

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.extended_session import ExtendedSession
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog

WIDTH = 10
"""Bytes of a record."""
LITTLE, LONG = 0.01, 1.0
"""Seconds since the last frame."""


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(head=1000), limits=Limits(bytes_in_flight=100_000))


def reading(front: FrontTable, *, sent: int, limit: int, limitb: int = 100_000) -> ExtendedSession:
    """A subscriber with this credit, to which so many records are on their way."""
    session = front.subscribe()
    front.grant(limit=limit, limitb=limitb, ack=0, got=0)
    session.sent(sent, sent * WIDTH)
    session.spoke = front.now
    return session


def waits(session: ExtendedSession, front: FrontTable, records: int, after: float = LITTLE) -> bool:
    return session.better_whole(records, records * WIDTH, front.now + after)


def test_a_batch_waits_while_more_is_on_its_way_than_is_left_of_the_grant(front: FrontTable) -> None:
    session = reading(front, sent=60, limit=65)

    assert waits(session, front, 10)


def test_a_batch_does_not_wait_for_long(front: FrontTable) -> None:
    session = reading(front, sent=60, limit=65)

    assert not waits(session, front, 10, LONG)


def test_nothing_is_held_back_from_a_subscriber_that_has_dealt_with_everything(front: FrontTable) -> None:
    session = reading(front, sent=60, limit=65)
    front.grant(limit=65, ack=60, got=60)

    assert not waits(session, front, 10)


def test_most_of_a_grant_is_not_held_back(front: FrontTable) -> None:
    session = reading(front, sent=20, limit=65)

    assert not waits(session, front, 50)


def test_a_batch_that_no_window_has_room_for_is_cut_at_once(front: FrontTable) -> None:
    session = reading(front, sent=60, limit=65)

    assert not waits(session, front, 66)
    assert waits(session, front, 65)


def test_the_same_holds_for_credit_in_bytes(front: FrontTable) -> None:
    session = reading(front, sent=60, limit=1000, limitb=650)

    assert waits(session, front, 10)
    assert not waits(session, front, 10, LONG)
    assert not waits(session, front, 66)


def test_most_of_a_grant_in_bytes_is_not_held_back(front: FrontTable) -> None:
    session = reading(front, sent=20, limit=1000, limitb=650)

    assert not waits(session, front, 50)
