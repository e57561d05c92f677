"""Whose is an id, and who may do what: at the desk, where the key of a caller is proven already."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from penstock.aquifer.access_list import AccessList
from penstock.aquifer.journal import SavedCursor
from penstock.aquifer.keys import generate_keys
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Admin,
    Control,
    ErrorTerms,
    Grant,
    Next,
    OnComplete,
    OnError,
    OnNext,
    OnSubscribe,
    SessionTerms,
    Subscribe,
    SubscribeTerms,
    encode,
    terms,
)
from penstock.aquifer.protocol.sessions import Event
from penstock.aquifer.rights import LOCAL, Caller, Right
from tests.aquifer.protocol.at_the_desk import FrontDesk, PretendedLog, send_all
from tests.aquifer.protocol.desk_with_a_writer import DeskWithAWriter

READ = Right.READ
ALICE_KEY, BOB_KEY, ROOT_KEY = (generate_keys().public for _ in range(3))
ALICE = Caller(ALICE_KEY, "192.0.2.1", Right.READ | Right.WRITE)
BOB = Caller(BOB_KEY, "192.0.2.2", Right.READ | Right.WRITE)
ROOT = Caller(ROOT_KEY, "192.0.2.3", Right.READ | Right.ADMIN)
STRANGER = Caller("", "192.0.2.9", Right.READ | Right.WRITE)


class Desks(FrontDesk):
    """A desk to which different people come."""

    def ask_as(self, caller: Caller, message: Control | bytes, peer: bytes | None = None) -> Control:
        data = message if isinstance(message, bytes) else encode(message)
        peer = peer if peer is not None else caller.owner.encode() or caller.address.encode()
        (answer,) = self._read(self.desk.receive([peer, b"", data], self.now, caller))
        return answer

    def come(self, caller: Caller, peer: bytes | None = None, **wishes: Any) -> Control:
        return self.ask_as(caller, Subscribe(x=SubscribeTerms(v=1, **wishes)), peer)

    def probe(self, caller: Caller, **wishes: Any) -> Control:
        return self.ask_as(caller, Subscribe(x=SubscribeTerms(v=1, probe=True, **wishes)), b"probe")

    def administer(self, caller: Caller, **wanted: Any) -> Control:
        return self.probe(caller, admin=Admin(**wanted))


@pytest.fixture
def desk() -> Desks:
    return Desks(log=PretendedLog(head=100))


def code(answer: Control) -> object:
    assert isinstance(answer, OnError), answer
    details = terms(answer.x)
    assert isinstance(details, ErrorTerms)
    return details.code


def given(answer: Control) -> SessionTerms:
    assert isinstance(answer, OnSubscribe), answer
    details = terms(answer.x)
    assert details is not None
    return details


def status(answer: Control) -> dict[str, Any]:
    found = given(answer).status
    assert found is not UNSET
    return found


# ---------------------------------------------------------------- an id belongs to a key
@pytest.mark.parametrize("other", [BOB, ROOT, STRANGER, LOCAL], ids=["bob", "root", "remote", "local"])
def test_nobody_else_takes_moves_or_reads_the_place_of_a_key(desk: Desks, other: Caller) -> None:
    desk.come(ALICE, id="ledger")
    assert code(desk.come(other, id="ledger")) == "AUTH"
    assert code(desk.probe(other, id="ledger", ack=90)) == "AUTH"
    assert desk.closed == [], "she reads on"

    desk.ask_as(ALICE, Subscribe(cancel=True))
    assert code(desk.come(other, id="ledger")) == "AUTH"
    assert code(desk.probe(other, id="ledger", ack=90)) == "AUTH"
    assert code(desk.probe(other, id="ledger")) == "AUTH", "not even where it is"

    assert given(desk.come(ALICE, b"again", id="ledger")).next == 0


def test_the_same_key_takes_over_its_own_id(desk: Desks) -> None:
    desk.come(ALICE, b"one", id="ledger")
    assert given(desk.come(ALICE, b"two", id="ledger")).next == 0
    assert [event for _, event in desk.closed] == [Event.TAKEN_OVER]


def test_a_place_that_a_probe_began_belongs_to_its_key_too(desk: Desks) -> None:
    desk.probe(ALICE, id="query", ack=40)
    assert code(desk.probe(BOB, id="query", ack=50)) == "AUTH"
    assert given(desk.probe(ALICE, id="query")).next == 40


def test_an_id_that_came_without_a_key_belongs_to_those_without_one(desk: Desks) -> None:
    desk.come(LOCAL, b"one", id="ledger")
    assert code(desk.come(BOB, id="ledger")) == "AUTH"
    assert given(desk.come(STRANGER, b"two", id="ledger")).next == 0


def test_the_owner_is_stored_with_the_place_and_known_after_a_restart(desk: Desks) -> None:
    desk.come(ALICE, id="ledger")
    stored = desk.desk.cursors.changed["ledger"]
    assert stored is not None
    assert stored.owner == ALICE_KEY

    again = Desks(log=desk.log, cursors={"ledger": stored})
    assert code(again.come(BOB, id="ledger")) == "AUTH"
    assert given(again.come(ALICE, id="ledger")).next == 0


@pytest.mark.parametrize("first", [ALICE, LOCAL], ids=["with a key", "without"])
def test_an_id_of_an_earlier_version_belongs_to_who_comes_back_first(first: Caller) -> None:
    desk = Desks(log=PretendedLog(head=100), cursors={"old": SavedCursor(40, 60_000, 60.0, None)})
    assert given(desk.come(first, b"first", id="old")).next == 40
    assert code(desk.come(BOB, id="old")) == "AUTH"


def test_an_id_that_was_forgotten_is_anybodys(desk: Desks) -> None:
    desk.come(ALICE, id="ledger", lease=5000)
    desk.ask_as(ALICE, Subscribe(cancel=True, x=SubscribeTerms(v=1, keep=False)))
    assert given(desk.come(BOB, id="ledger")).next == 0


def test_a_subscriber_is_not_mistaken_for_another_keys_by_what_it_calls_itself(desk: Desks) -> None:
    desk.come(ALICE, b"one", me="same", nth=1)
    desk.come(BOB, b"two", me="same", nth=2)
    assert len(desk.desk.sessions) == 2


def test_a_routing_id_is_no_proof(desk: Desks) -> None:
    """A peer may choose it, and may choose that of another."""
    desk.come(ALICE, b"route", id="ledger")
    for message in (
        Next(5, x=Grant(limit=50, ack=0)),
        Subscribe(cancel=True),
        Subscribe(x=SubscribeTerms(v=1)),
    ):
        assert code(desk.ask_as(BOB, message, b"route")) == "AUTH"
    assert isinstance(desk.ask_as(BOB, b'{"jsonClass":"Subscribe","cancel":false}', b"route"), OnError)
    assert [session.owner for session in desk.desk.sessions.values()] == [ALICE_KEY]


# ---------------------------------------------------------------- rights
@pytest.mark.parametrize("rights", [Right.WRITE, Right.ADMIN, Right(0)], ids=str)
def test_who_may_not_read_has_no_session_and_no_place(desk: Desks, rights: Right) -> None:
    caller = ALICE._replace(rights=rights)
    assert code(desk.come(caller, id="ledger")) == "AUTH"
    assert code(desk.probe(caller, id="ledger", ack=5)) == "AUTH"
    assert isinstance(desk.ask_as(caller, b'{"jsonClass":"Subscribe","cancel":false}'), OnError)
    assert desk.desk.sessions == desk.desk.absent == {}


def test_a_refusal_says_which_right_is_missing_and_where_to_put_it(desk: Desks) -> None:
    answer = desk.come(ALICE._replace(rights=Right.WRITE))
    assert isinstance(answer, OnError)
    assert "may not read: its rights are write" in answer.message
    assert 'rights = "read, write"' in answer.message


def test_how_the_gateway_is_can_be_asked_by_who_may_do_anything_at_all(desk: Desks) -> None:
    assert status(desk.probe(ALICE._replace(rights=Right.WRITE)))["records"] == 100
    assert code(desk.probe(ALICE._replace(rights=Right(0)))) == "AUTH"


@pytest.mark.parametrize("caller", [ALICE, STRANGER], ids=["a key", "another machine without one"])
def test_only_an_administrator_administers(desk: Desks, caller: Caller) -> None:
    desk.come(ALICE, id="ledger")
    for wanted in (
        {"list": True},
        {"evict": "ledger"},
        {"forget": "ledger"},
        {"give": "ledger", "to": BOB_KEY},
    ):
        assert code(desk.administer(caller, **wanted)) == "AUTH"
    assert desk.closed == []


# ---------------------------------------------------------------- writing
def put(desk: DeskWithAWriter, caller: Caller, *values: bytes, **where: Any) -> Control:
    return desk.put(*values, caller=caller, **where)


def test_a_writers_name_belongs_to_the_key_that_first_published_under_it() -> None:
    desk = DeskWithAWriter()
    put(desk, ALICE, b"hers", batch=0)
    desk.commit(0, (0, 0, 1), caller=ALICE)
    desk.write()
    assert desk.marks == {"delivered:q": f"0 {ALICE_KEY}"}

    for other in (BOB, LOCAL):
        assert code(put(desk, other, b"his", batch=1)) == "AUTH"
        (answer,) = desk.commit(2**62, caller=other)
        assert code(answer) == "AUTH"
    put(desk, ALICE, b"more", batch=1)
    desk.commit(1, (0, 0, 1), caller=ALICE)
    desk.write()
    assert desk.written == [b"hers", b"more"]


def test_what_others_stage_under_the_same_name_is_not_published_with_it() -> None:
    desk = DeskWithAWriter()
    put(desk, BOB, b"his", batch=0)
    put(desk, ALICE, b"hers", batch=0)
    put(desk, BOB, b"his again", batch=0)
    desk.commit(0, (0, 0, 1), caller=ALICE)
    desk.write()
    assert desk.written == [b"hers"]
    (answer,) = desk.commit(0, (0, 0, 1), caller=BOB)
    assert code(answer) == "AUTH", "the name is taken now"


def test_a_name_is_taken_while_its_first_batch_waits_for_room() -> None:
    desk = DeskWithAWriter()
    for caller in (ALICE, BOB):
        put(desk, caller, b"first", batch=0)
    desk.commit(0, (0, 0, 1), caller=ALICE)
    (answer,) = desk.commit(0, (0, 0, 1), caller=BOB)
    assert code(answer) == "AUTH"


def test_a_name_of_an_earlier_version_belongs_to_who_writes_first() -> None:
    desk = DeskWithAWriter()
    desk.marks["delivered:q"] = "16"
    (answer,) = desk.commit(16, caller=ALICE)
    assert isinstance(answer, OnComplete), "that was published before"
    put(desk, ALICE, b"more", batch=17)
    desk.commit(17, (0, 0, 1), caller=ALICE)
    desk.write()
    assert desk.marks == {"delivered:q": f"17 {ALICE_KEY}"}
    assert code(put(desk, BOB, b"his", batch=18)) == "AUTH"


def test_who_may_not_write_stages_nothing() -> None:
    desk = DeskWithAWriter()
    reader = ALICE._replace(rights=READ)
    assert code(put(desk, reader, b"x", batch=0)) == "AUTH"
    (answer,) = desk.commit(0, caller=reader)
    assert code(answer) == "AUTH"
    assert desk.desk.deliveries.nbytes == 0


# ---------------------------------------------------------------- a key is revoked
def revocable(**settings: Any) -> tuple[Desks, AccessList]:
    listed = AccessList.of({ALICE_KEY: "read, write", BOB_KEY: "read, write"})
    return Desks(log=PretendedLog(head=100), access=listed, **settings), listed


def test_a_revoked_key_is_cut_off_at_the_next_look_and_nobody_else() -> None:
    desk, listed = revocable()
    desk.come(ALICE, b"one", id="ledger")
    desk.come(ALICE, b"two")
    desk.come(BOB, b"three")
    desk.come(LOCAL, b"four")

    listed.revoke(ALICE_KEY)
    desk.pass_time(0.02)

    assert sorted(desk.desk.sessions) == [b"four", b"three"]
    assert [event for _, event in desk.closed] == [Event.REVOKED] * 2
    assert desk.desk.absent["ledger"].owner == ALICE_KEY, "her place is kept, for its lease"
    nobody = ALICE._replace(rights=Right(0))
    assert code(desk.ask_as(nobody, Next(5, x=Grant(limit=50)), b"one")) == "AUTH"


def test_a_key_that_may_still_write_loses_its_sessions_all_the_same() -> None:
    desk, listed = revocable()
    desk.come(ALICE)
    listed.allow(ALICE_KEY, Right.WRITE)
    desk.pass_time(0.02)
    assert desk.desk.sessions == {}


def test_a_change_that_takes_nothing_away_ends_nothing() -> None:
    desk, listed = revocable()
    desk.come(ALICE)
    listed.allow(ALICE_KEY, Right.READ)
    listed.allow(ROOT_KEY, Right.ADMIN)
    desk.pass_time(0.02)
    assert len(desk.desk.sessions) == 1


def test_a_question_that_waits_is_not_answered_to_a_key_that_was_revoked() -> None:
    desk, listed = revocable()
    question = Subscribe(x=SubscribeTerms(v=1, probe=True, id="q", ack=5, beyond=100, wait=20_000))
    assert desk.desk.receive([b"peer", b"", encode(question)], desk.now, ALICE) == []
    listed.revoke(ALICE_KEY)
    (answer,) = desk.pass_time(0.02)
    assert code(answer) == "AUTH"


def test_what_a_revoked_key_has_staged_is_dropped_and_what_waits_is_withdrawn() -> None:
    listed = AccessList.of({ALICE_KEY: "write", BOB_KEY: "write"})
    desk = DeskWithAWriter(access=listed)
    put(desk, ALICE, b"one", batch=0)
    desk.commit(0, (0, 0, 1), caller=ALICE)
    put(desk, ALICE, b"two", batch=1)
    put(desk, BOB, b"his", query="p", batch=0)

    listed.revoke(ALICE_KEY)
    desk.pass_time(0.02)

    assert [delivery.withdrawn for delivery in desk.submitted] == [True]
    desk.commit(0, (0, 0, 1), query="p", caller=BOB)
    assert [delivery.withdrawn for delivery in desk.submitted] == [True, False]
    assert isinstance(put(desk, BOB, b"more", query="p", batch=1), OnNext)


# ---------------------------------------------------------------- what is shown
def crowd(**limits: Any) -> Desks:
    desk = Desks(Limits(**limits), log=PretendedLog(head=100))
    desk.show_everything = True
    desk.come(ALICE, b"one", id="ledger")
    desk.come(BOB, b"two", id="bobs")
    desk.come(BOB, b"three")
    desk.probe(ALICE, id="hers", ack=5)
    desk.probe(BOB, id="his", ack=5)
    return desk


def test_a_key_sees_its_own_ids_and_an_administrator_sees_all() -> None:
    desk = crowd()
    hers = status(desk.probe(ALICE))
    assert [one["id"] for one in hers["subscribers"]] == ["ledger"]
    assert list(hers["absent"]) == ["hers"]
    for caller in (ROOT, LOCAL):
        shown = status(desk.probe(caller))
        assert [one["id"] for one in shown["subscribers"]] == ["ledger", "bobs", None]
        assert list(shown["absent"]) == ["hers", "his"]
    assert status(desk.probe(STRANGER))["subscribers"] == []


def test_an_answer_names_only_so_many_and_counts_the_rest() -> None:
    desk = crowd(max_listed=1)
    shown = status(desk.probe(ROOT))
    assert (len(shown["subscribers"]), len(shown["absent"])) == (1, 1)
    assert shown["left_out"] == {"subscribers": 2, "absent": 1}


# ---------------------------------------------------------------- administering
def test_ids_and_sessions_are_listed_page_by_page() -> None:
    desk = crowd(max_listed=3)
    first = status(desk.administer(ROOT, list=True))
    assert [(one["id"], one["here"]) for one in first["ids"]] == [
        ("bobs", True),
        ("hers", False),
        ("his", False),
    ]
    assert [one["session"] for one in first["sessions"]] == [3]
    assert (first["next"], first["total"]) == ("his", 4)
    second = status(desk.administer(ROOT, list=True, after="his"))
    assert [one["id"] for one in second["ids"]] == ["ledger"]
    assert (second["next"], second["sessions"]) == (None, [])


@pytest.mark.parametrize("who", ["ledger", 1], ids=["by its id", "by its number"])
def test_an_evicted_session_ends_and_its_id_keeps_its_place(who: str | int) -> None:
    desk = crowd()
    status(desk.administer(ROOT, evict=who))
    assert [(session.name, event) for session, event in desk.closed] == [("ledger", Event.EVICTED)]
    assert "ledger" in desk.desk.absent


def test_a_session_without_an_id_is_evicted_by_its_number() -> None:
    desk = crowd()
    status(desk.administer(ROOT, evict=3))
    assert [session.name for session, _ in desk.closed] == [None]
    assert code(desk.administer(ROOT, evict=3)) == "BAD"


@pytest.mark.parametrize("name", ["ledger", "hers"], ids=["here", "away"])
def test_a_forgotten_id_holds_nothing_and_is_gone_from_the_journal(name: str) -> None:
    desk = crowd()
    assert status(desk.administer(ROOT, forget=name))["forgotten"]["acknowledged"] in (0, 5)
    assert desk.desk.owner_of(name) is None
    assert desk.desk.cursors.changed[name] is None
    assert given(desk.come(BOB, b"new", id=name)).next == 0
    assert code(desk.administer(ROOT, forget="nobody")) == "BAD"


@pytest.mark.parametrize("name", ["ledger", "hers"], ids=["here", "away"])
def test_an_id_can_be_given_to_another_key_with_its_place(name: str) -> None:
    desk = crowd()
    status(desk.administer(ROOT, give=name, to=BOB_KEY))
    assert code(desk.come(ALICE, b"new", id=name)) == "AUTH"
    assert given(desk.come(BOB, b"new", id=name)).next == (5 if name == "hers" else 0)


def test_a_writers_name_can_be_given_to_another_key() -> None:
    desk = DeskWithAWriter()
    put(desk, ALICE, b"hers", batch=0)
    desk.commit(0, (0, 0, 1), caller=ALICE)
    desk.write()
    desk.desk.administration.give_writer("q", BOB_KEY)
    desk.write()
    assert desk.marks == {"delivered:q": f"0 {BOB_KEY}"}
    assert code(put(desk, ALICE, b"x", batch=1)) == "AUTH"
    assert isinstance(put(desk, BOB, b"x", batch=1), OnNext)


def test_a_name_that_is_given_away_while_a_batch_waits_keeps_the_number_of_that_batch() -> None:
    """Otherwise the new owner could publish it a second time, or the old one take the name back."""
    desk = DeskWithAWriter()
    for batch in (0, 1):
        put(desk, ALICE, b"hers", batch=batch)
        desk.commit(batch, (0, 0, 1), caller=ALICE)
        if not batch:
            desk.write()
    desk.desk.administration.give_writer("q", BOB_KEY)
    assert code(put(desk, ALICE, b"x", batch=2)) == "AUTH"
    put(desk, BOB, b"his", batch=2)
    desk.commit(2, (0, 0, 1), caller=BOB)
    desk.write()
    assert desk.marks == {"delivered:q": f"2 {BOB_KEY}"}
    assert desk.written == [b"hers", b"hers", b"his"]

    put(desk, BOB, b"x", batch=3)
    desk.commit(3, (0, 0, 1), caller=BOB)
    desk.desk.administration.give_writer("q", ALICE.owner)
    desk.write()
    assert desk.marks == {"delivered:q": f"3 {ALICE.owner}"}


@pytest.mark.parametrize(
    "wanted", [{"give": "ledger"}, {"give": "ledger", "to": "short"}, {"give": "x", "to": ""}]
)
def test_what_cannot_be_given_is_refused(wanted: dict[str, Any]) -> None:
    assert code(crowd().administer(ROOT, **wanted)) == "BAD"


# ---------------------------------------------------------------- squatters
def test_one_key_cannot_take_all_the_room() -> None:
    desk = Desks(Limits(max_per_peer=2), log=PretendedLog(head=100))
    for number in range(2):
        given(desk.come(ALICE, b"%d" % number))
    assert code(desk.come(ALICE, b"more")) == "BUSY"
    given(desk.come(BOB))


def test_nor_can_a_machine_without_a_key_but_those_here_are_not_told_apart() -> None:
    desk = Desks(Limits(max_per_peer=2), log=PretendedLog(head=100))
    for number in range(2):
        given(desk.come(STRANGER, b"%d" % number))
    assert code(desk.come(STRANGER, b"more")) == "BUSY"
    given(desk.come(STRANGER._replace(address="192.0.2.10"), b"neighbour"))
    for number in range(5):
        given(desk.come(LOCAL, b"local %d" % number))


@pytest.mark.parametrize("caller", [ALICE, STRANGER], ids=["a key", "a machine"])
def test_one_peer_cannot_take_all_the_ids(caller: Caller) -> None:
    desk = Desks(Limits(max_ids_per_peer=3), log=PretendedLog(head=100))
    for number in range(3):
        given(desk.probe(caller, id=f"id {number}", ack=0))
    assert code(desk.probe(caller, id="more", ack=0)) == "BUSY"
    assert code(desk.come(caller, b"more", id="more")) == "BUSY"
    given(desk.probe(caller, id="id 1", ack=1))
    given(desk.probe(BOB, id="his", ack=0))


def test_a_flood_of_questions_from_one_peer_leaves_the_others_theirs() -> None:
    desk = Desks(Limits(requests_per_second=5), log=PretendedLog(head=100))
    answers = [desk.probe(ALICE) for _ in range(10)]
    assert sum(isinstance(answer, OnError) for answer in answers) == 5
    assert isinstance(desk.probe(BOB), OnSubscribe)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_an_id_has_a_name_that_is_neither_empty_nor_endless(desk: Desks, name: str) -> None:
    assert code(desk.come(ALICE, id=name)) == "BAD"
    assert code(desk.probe(ALICE, id=name, ack=0)) == "BAD"
    assert desk.desk.sessions == desk.desk.absent == {}


def test_a_session_without_an_id_that_never_joins_is_given_up_soon(desk: Desks) -> None:
    given(desk.come(ALICE, b"squatter", lease=604_800_000))
    given(desk.come(ALICE, b"reader", lease=604_800_000))
    desk.session(b"reader").handle(Event.JOINED, desk.now)
    desk.pass_time(10.1)
    assert list(desk.desk.sessions) == [b"reader"]


def test_one_that_has_lost_its_data_connection_is_kept_for_the_usual_lease(desk: Desks) -> None:
    session = desk.subscribe(b"reader", lease=604_800_000)
    desk.grant(b"reader", limit=10)
    send_all(session)
    desk.pass_time(100)
    session.handle(Event.LEFT, desk.now)
    desk.grant(b"reader", limit=10)
    desk.pass_time(59)
    assert list(desk.desk.sessions) == [b"reader"]
    desk.pass_time(2)
    assert desk.desk.sessions == {}


def test_the_lease_of_a_session_without_an_id_is_bounded(desk: Desks) -> None:
    assert given(desk.come(ALICE, lease=604_800_000)).lease == 600_000
    assert given(desk.come(ALICE, b"two", id="durable", lease=604_800_000)).lease == 604_800_000
