"""Questions to a gateway without a session: how far does the log go, and keep my place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor
from penstock.aquifer.protocol.messages import (
    Control,
    OnError,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.status import GatewayStatus
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog


def desk_with(head: int, first: int = 0, **settings: Any) -> FrontTable:
    """A session table with a log of so many records."""
    return FrontTable(log=PretendedLog(first=first, head=head), **settings)


def probe(table: FrontTable, peer: bytes = b"driver", **wishes: Any) -> list[Control]:
    """Ask; what is answered at once."""
    return table.say(Subscribe(x=SubscribeFields(v=1, probe=True, **wishes)), peer)


def state(answer: Control) -> OnSubscribeFields:
    """What an answer says about the log."""
    assert isinstance(answer, OnSubscribe), answer
    details = extension(answer.x)
    assert details is not None
    return details


def code(answer: Control) -> object:
    """The code of a refusal."""
    assert isinstance(answer, OnError), answer
    details = extension(answer.x)
    assert details is not None
    return details.code


# ---------------------------------------------------------------- how far does it go
def test_a_probe_opens_no_session_and_tells_how_the_log_is() -> None:
    table = desk_with(first=3, head=10)
    (answer,) = probe(table)

    assert isinstance(answer, OnSubscribe)
    assert answer.port == 0
    found = state(answer)
    assert (found.epoch, found.first, found.head) == ("epoch-1", 3, 10)
    assert read_status(found.status, GatewayStatus).records == 10
    assert table.table.sessions == {}


def test_a_probe_waits_until_the_log_goes_beyond_an_offset() -> None:
    table = desk_with(10)
    assert probe(table, beyond=10, wait=5000) == []
    assert table.pass_time(1) == []

    table.log.head = 11

    (answer,) = table.pass_time(0.02)
    assert state(answer).head == 11
    assert table.pass_time(60) == [], "it is answered once"


def test_a_probe_does_not_wait_if_the_log_goes_beyond_already() -> None:
    (answer,) = probe(desk_with(10), beyond=9, wait=5000)

    assert state(answer).head == 10


def test_a_probe_that_has_waited_long_enough_is_answered_all_the_same() -> None:
    table = desk_with(10)
    probe(table, beyond=10, wait=2000)

    assert table.pass_time(1.9) == []
    (answer,) = table.pass_time(0.2)
    assert state(answer).head == 10


def test_a_probe_does_not_wait_for_a_stream_that_has_ended() -> None:
    table = desk_with(10)
    probe(table, beyond=10, wait=20_000)
    table.log.finish()

    assert len(table.pass_time(0.02)) == 1
    assert len(probe(table, beyond=10, wait=20_000)) == 1


def test_without_beyond_or_without_wait_a_probe_is_answered_at_once() -> None:
    assert len(probe(desk_with(10), wait=5000)) == 1
    assert len(probe(desk_with(10), beyond=10)) == 1


def test_nobody_waits_for_more_than_half_a_minute() -> None:
    table = desk_with(10)
    probe(table, beyond=10, wait=10**30)

    assert table.pass_time(29.9) == []
    assert len(table.pass_time(0.2)) == 1


def test_who_asks_again_on_the_same_connection_is_answered_once() -> None:
    table = desk_with(10)
    probe(table, beyond=10, wait=5000)
    probe(table, beyond=20, wait=9000)
    table.log.head = 15

    assert table.pass_time(6) == []
    assert len(table.pass_time(4)) == 1


def test_several_wait_each_for_its_own_offset() -> None:
    table = desk_with(10)
    for peer, beyond in ((b"near", 10), (b"far", 100)):
        probe(table, peer, beyond=beyond, wait=20_000)
    table.log.head = 50

    table.pass_time(0.02)

    assert [peer for peer, _ in table.answers] == [b"near"]


# ---------------------------------------------------------------- keep my place
def test_records_are_kept_from_the_place_on_that_a_probe_names() -> None:
    table = desk_with(10)
    (answer,) = probe(table, id="query", ack=4)

    assert state(answer).next == 4
    assert table.table.low_watermark() == 4
    assert table.log.unsaved["query"] == Cursor(4, 60_000, 60.0, "")


def test_a_place_moves_forward_only() -> None:
    table = desk_with(10)
    probe(table, id="query", ack=7)
    (answer,) = probe(table, id="query", ack=3)

    assert state(answer).next == 7
    assert table.table.low_watermark() == 7


def test_a_probe_moves_the_place_before_it_waits() -> None:
    table = desk_with(10)
    probe(table, id="query", ack=10, beyond=10, wait=5000)

    assert table.table.low_watermark() == 10


def test_a_name_that_nobody_knows_is_not_remembered_without_a_place() -> None:
    table = desk_with(10)
    (answer,) = probe(table, id="query", lease=5000)

    assert state(answer).next is UNSET
    assert table.table.cursors.saved == {}


def test_a_place_is_known_after_a_restart_of_the_gateway() -> None:
    table = desk_with(10, cursors={"query": Cursor(6, 60_000, 60.0)})
    (answer,) = probe(table, id="query")

    assert state(answer).next == 6


def test_a_place_is_kept_for_its_lease_and_each_probe_renews_it() -> None:
    table = desk_with(10)
    probe(table, id="query", ack=4, lease=10_000)
    table.pass_time(9)
    probe(table, id="query")
    table.pass_time(9)
    assert table.table.low_watermark() == 4

    table.pass_time(2)

    assert table.table.cursors.saved == {}
    assert table.log.unsaved["query"] is None


def test_a_lease_is_bounded_by_that_of_the_gateway() -> None:
    table = desk_with(10, limits=Limits(max_lease=5.0))
    (answer,) = probe(table, id="query", ack=4, lease=10**30)

    assert table.table.cursors.saved["query"].lease_ms == 5000
    assert state(answer).lease == 5000, "whoever asked for more is told what it got"
    assert state(probe(table, id="another")[0]).lease is UNSET


@pytest.mark.parametrize(
    ("start", "within", "fits"), [(0, 450, (4, 400)), (8, 450, (2, 200)), (0, 99, (0, 0)), (10, 99, (0, 0))]
)
def test_a_probe_is_told_how_many_records_fit(start: int, within: int, fits: tuple[int, int]) -> None:
    table = desk_with(10)
    assert state(probe(table, from_=start, within=within)[0]).fits == fits
    assert state(probe(table, from_=start)[0]).fits is UNSET


def test_a_subscriber_with_the_name_goes_on_at_the_place() -> None:
    table = desk_with(10)
    probe(table, id="query", ack=4)

    assert table.subscribe(b"reader", id="query").cursor == 4


# ---------------------------------------------------------------- refused
def test_who_reads_with_the_name_keeps_its_place_itself() -> None:
    table = desk_with(10)
    session = table.subscribe(b"reader", id="query")
    (answer,) = probe(table, id="query", ack=9)

    assert code(answer) == "TAKEN"
    assert session.acknowledged == 0
    assert len(probe(table, id="another", ack=9)) == 1
    assert isinstance(probe(table)[0], OnSubscribe)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"ack": 5}, "BAD"),
        ({"id": "query", "ack": 11}, "BAD"),
        ({"id": "query", "ack": -1}, "BAD"),
        ({"id": "query", "ack": 2}, "OFFSET"),
        ({"id": "query", "ack": 5, "lease": 0}, "BAD"),
        ({"id": "query", "ack": 5, "epoch": "another"}, "EPOCH"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_moves(wishes: dict[str, Any], expected: str) -> None:
    table = desk_with(first=3, head=10)
    (answer,) = probe(table, **wishes)

    assert code(answer) == expected
    assert table.table.cursors.saved == {}


def test_another_version_of_the_dialect_is_refused() -> None:
    (answer,) = desk_with(10).say(Subscribe(x=SubscribeFields(v=2, probe=True)))

    assert code(answer) == "BAD"


def test_the_right_epoch_is_taken() -> None:
    (answer,) = probe(desk_with(10), id="query", ack=5, epoch="epoch-1")

    assert state(answer).next == 5


def test_a_refusal_tells_what_there_is() -> None:
    (answer,) = probe(desk_with(first=3, head=10), id="query", ack=2)

    assert isinstance(answer, OnError)
    details = extension(answer.x)
    assert details is not None
    assert (details.first, details.head, details.epoch) == (3, 10, "epoch-1")


# ---------------------------------------------------------------- anything
figures = st.integers(-2, 30) | st.sampled_from([2**63, 10**400, -(10**400)])
fields = {"ack": figures, "beyond": figures, "wait": figures, "lease": figures}
questions = st.fixed_dictionaries({}, optional=fields | {"id": st.sampled_from(["a", "b"])})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(questions, st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_places_never_go_back_and_everybody_is_answered(steps: list[tuple[dict[str, Any], int, int]]) -> None:
    table = desk_with(5, limits=Limits(lease=10**6, max_lease=10**6))
    reached: dict[str, int] = {}
    asked = 0
    for wishes, growth, seconds in steps:
        if 0 < wishes.get("lease", 10**9) < 10**6:
            wishes = wishes | {"lease": 10**9}
        asked += 1
        probe(table, b"peer %d" % asked, **wishes)
        table.log.head += growth
        table.pass_time(seconds)
        for name, place in table.table.cursors.saved.items():
            assert place.acknowledged >= reached.get(name, 0)
            reached[name] = place.acknowledged

    table.pass_time(31)
    assert len(table.answers) == asked
    assert table.table.counters["defects"] == 0
