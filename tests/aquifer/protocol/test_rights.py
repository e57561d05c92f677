"""Whose is an id, and who may do what: at the table, where the key of a caller is proven already."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor
from penstock.aquifer.protocol.messages import (
    AdminRequest,
    Control,
    GroupFields,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnErrorFields,
    OnNext,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    encode,
    extension,
)
from penstock.aquifer.protocol.probes import status_for
from penstock.aquifer.protocol.session import SessionEvent
from penstock.aquifer.security.access import LOCAL, AccessList, Caller, Right
from penstock.aquifer.security.keys import generate_keys
from penstock.aquifer.status import GatewayStatus, SourceStatus
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all
from tests.aquifer.protocol.writable_table import WritableTable

READ = Right.READ
ALICE_KEY, BOB_KEY, ROOT_KEY = (generate_keys().public for _ in range(3))
ALICE = Caller(ALICE_KEY, "192.0.2.1", Right.READ | Right.WRITE)
BOB = Caller(BOB_KEY, "192.0.2.2", Right.READ | Right.WRITE)
ROOT = Caller(ROOT_KEY, "192.0.2.3", Right.READ | Right.ADMIN)
STRANGER = Caller("", "192.0.2.9", Right.READ | Right.WRITE)


class Tables(FrontTable):
    """A session table to which different people come."""

    def ask_as(self, caller: Caller, message: Control | bytes, peer: bytes | None = None) -> Control:
        data = message if isinstance(message, bytes) else encode(message)
        peer = peer if peer is not None else caller.owner.encode() or caller.address.encode()
        (answer,) = self._read(self.table.receive([peer, b"", data], self.now, caller))
        return answer

    def come(self, caller: Caller, peer: bytes | None = None, **wishes: Any) -> Control:
        return self.ask_as(caller, Subscribe(x=SubscribeFields(v=1, **wishes)), peer)

    def probe(self, caller: Caller, **wishes: Any) -> Control:
        return self.ask_as(caller, Subscribe(x=SubscribeFields(v=1, probe=True, **wishes)), b"probe")

    def administer(self, caller: Caller, **wanted: Any) -> Control:
        return self.probe(caller, admin=AdminRequest(**wanted))


@pytest.fixture
def table() -> Tables:
    return Tables(log=PretendedLog(head=100))


def code(answer: Control) -> object:
    assert isinstance(answer, OnError), answer
    details = extension(answer.x)
    assert isinstance(details, OnErrorFields)
    return details.code


def given(answer: Control) -> OnSubscribeFields:
    assert isinstance(answer, OnSubscribe), answer
    details = extension(answer.x)
    assert details is not None
    return details


def status(answer: Control) -> dict[str, Any]:
    found = given(answer).status
    assert found is not UNSET
    shown: dict[str, Any] = msgspec.json.decode(found)
    return shown


# ---------------------------------------------------------------- an id belongs to a key
@pytest.mark.parametrize("other", [BOB, ROOT, STRANGER, LOCAL], ids=["bob", "root", "remote", "local"])
def test_nobody_else_takes_moves_or_reads_the_place_of_a_key(table: Tables, other: Caller) -> None:
    table.come(ALICE, id="ledger")
    assert code(table.come(other, id="ledger")) == "AUTH"
    assert code(table.probe(other, id="ledger", ack=90)) == "AUTH"
    assert table.closed == [], "she reads on"

    table.ask_as(ALICE, Subscribe(cancel=True))
    assert code(table.come(other, id="ledger")) == "AUTH"
    assert code(table.probe(other, id="ledger", ack=90)) == "AUTH"
    assert code(table.probe(other, id="ledger")) == "AUTH", "not even where it is"

    assert given(table.come(ALICE, b"again", id="ledger")).next == 0


def test_the_same_key_takes_over_its_own_id(table: Tables) -> None:
    table.come(ALICE, b"one", id="ledger")
    assert given(table.come(ALICE, b"two", id="ledger")).next == 0
    assert [event for _, event in table.closed] == [SessionEvent.TAKEN_OVER]


def test_a_place_that_a_probe_began_belongs_to_its_key_too(table: Tables) -> None:
    table.probe(ALICE, id="query", ack=40)
    assert code(table.probe(BOB, id="query", ack=50)) == "AUTH"
    assert given(table.probe(ALICE, id="query")).next == 40


def test_an_id_that_came_without_a_key_belongs_to_those_without_one(table: Tables) -> None:
    table.come(LOCAL, b"one", id="ledger")
    assert code(table.come(BOB, id="ledger")) == "AUTH"
    assert given(table.come(STRANGER, b"two", id="ledger")).next == 0


def test_the_owner_is_stored_with_the_place_and_known_after_a_restart(table: Tables) -> None:
    table.come(ALICE, id="ledger")
    stored = table.log.unsaved["ledger"]
    assert stored is not None
    assert stored.owner == ALICE_KEY

    again = Tables(log=table.log, cursors={"ledger": stored})
    assert code(again.come(BOB, id="ledger")) == "AUTH"
    assert given(again.come(ALICE, id="ledger")).next == 0


@pytest.mark.parametrize("first", [ALICE, LOCAL], ids=["with a key", "without"])
def test_an_id_of_an_earlier_version_belongs_to_who_comes_back_first(first: Caller) -> None:
    table = Tables(log=PretendedLog(head=100), cursors={"old": Cursor(40, 60_000, 60.0, None)})
    assert given(table.come(first, b"first", id="old")).next == 40
    assert code(table.come(BOB, id="old")) == "AUTH"


def test_an_id_that_was_forgotten_is_anybodys(table: Tables) -> None:
    table.come(ALICE, id="ledger", lease=5000)
    table.ask_as(ALICE, Subscribe(cancel=True, x=SubscribeFields(v=1, keep=False)))
    assert given(table.come(BOB, id="ledger")).next == 0


def test_a_subscriber_is_not_mistaken_for_another_keys_by_what_it_calls_itself(table: Tables) -> None:
    table.come(ALICE, b"one", me="same", nth=1)
    table.come(BOB, b"two", me="same", nth=2)
    assert len(table.table.sessions) == 2


def test_a_routing_id_is_no_proof(table: Tables) -> None:
    """A peer may choose it, and may choose that of another."""
    table.come(ALICE, b"route", id="ledger")
    for message in (
        Next(5, x=NextFields(limit=50, ack=0)),
        Subscribe(cancel=True),
        Subscribe(x=SubscribeFields(v=1)),
    ):
        assert code(table.ask_as(BOB, message, b"route")) == "AUTH"
    assert isinstance(table.ask_as(BOB, b'{"jsonClass":"Subscribe","cancel":false}', b"route"), OnError)
    assert [session.owner for session in table.table.sessions.values()] == [ALICE_KEY]


# ---------------------------------------------------------------- rights
@pytest.mark.parametrize("rights", [Right.WRITE, Right.ADMIN, Right(0)], ids=str)
def test_who_may_not_read_has_no_session_and_no_place(table: Tables, rights: Right) -> None:
    caller = ALICE._replace(rights=rights)
    assert code(table.come(caller, id="ledger")) == "AUTH"
    assert code(table.probe(caller, id="ledger", ack=5)) == "AUTH"
    assert isinstance(table.ask_as(caller, b'{"jsonClass":"Subscribe","cancel":false}'), OnError)
    assert table.table.sessions == table.table.cursors.saved == {}


def test_a_refusal_says_which_right_is_missing_and_where_to_put_it(table: Tables) -> None:
    answer = table.come(ALICE._replace(rights=Right.WRITE))
    assert isinstance(answer, OnError)
    assert "may not read: its rights are write" in answer.message
    assert 'rights = "read, write"' in answer.message


def test_how_the_gateway_is_can_be_asked_by_who_may_do_anything_at_all(table: Tables) -> None:
    assert status(table.probe(ALICE._replace(rights=Right.WRITE)))["records"] == 100
    assert code(table.probe(ALICE._replace(rights=Right(0)))) == "AUTH"


@pytest.mark.parametrize("caller", [ALICE, STRANGER], ids=["a key", "another machine without one"])
def test_only_an_administrator_administers(table: Tables, caller: Caller) -> None:
    table.come(ALICE, id="ledger")
    for wanted in (
        {"list": True},
        {"evict": "ledger"},
        {"forget": "ledger"},
        {"give": "ledger", "to": BOB_KEY},
    ):
        assert code(table.administer(caller, **wanted)) == "AUTH"
    assert table.closed == []


# ---------------------------------------------------------------- writing
def put(table: WritableTable, caller: Caller, *values: bytes, **where: Any) -> Control:
    return table.put(*values, caller=caller, **where)


def test_a_writers_name_belongs_to_the_key_that_first_published_under_it() -> None:
    table = WritableTable()
    put(table, ALICE, b"hers", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    table.write()
    assert table.marks == {"delivered:q": f"0 {ALICE_KEY}"}

    for other in (BOB, LOCAL):
        assert code(put(table, other, b"his", batch=1)) == "AUTH"
        (answer,) = table.commit(2**62, caller=other)
        assert code(answer) == "AUTH"
    put(table, ALICE, b"more", batch=1)
    table.commit(1, (0, 0, 1), caller=ALICE)
    table.write()
    assert table.written == [b"hers", b"more"]


def test_what_others_stage_under_the_same_name_is_not_published_with_it() -> None:
    table = WritableTable()
    put(table, BOB, b"his", batch=0)
    put(table, ALICE, b"hers", batch=0)
    put(table, BOB, b"his again", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    table.write()
    assert table.written == [b"hers"]
    (answer,) = table.commit(0, (0, 0, 1), caller=BOB)
    assert code(answer) == "AUTH", "the name is taken now"


def test_a_name_is_taken_while_its_first_batch_waits_for_room() -> None:
    table = WritableTable()
    for caller in (ALICE, BOB):
        put(table, caller, b"first", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    (answer,) = table.commit(0, (0, 0, 1), caller=BOB)
    assert code(answer) == "AUTH"


def test_a_name_of_an_earlier_version_belongs_to_who_writes_first() -> None:
    table = WritableTable()
    table.marks["delivered:q"] = "16"
    (answer,) = table.commit(16, caller=ALICE)
    assert isinstance(answer, OnComplete), "that was published before"
    put(table, ALICE, b"more", batch=17)
    table.commit(17, (0, 0, 1), caller=ALICE)
    table.write()
    assert table.marks == {"delivered:q": f"17 {ALICE_KEY}"}
    assert code(put(table, BOB, b"his", batch=18)) == "AUTH"


def test_who_may_not_write_stages_nothing() -> None:
    table = WritableTable()
    reader = ALICE._replace(rights=READ)
    assert code(put(table, reader, b"x", batch=0)) == "AUTH"
    (answer,) = table.commit(0, caller=reader)
    assert code(answer) == "AUTH"
    assert table.table.transactions.nbytes == 0


# ---------------------------------------------------------------- a key is revoked
def revocable(**settings: Any) -> tuple[Tables, AccessList]:
    listed = AccessList.of({ALICE_KEY: "read, write", BOB_KEY: "read, write"})
    return Tables(log=PretendedLog(head=100), access=listed, **settings), listed


def test_a_revoked_key_is_cut_off_at_the_next_look_and_nobody_else() -> None:
    table, listed = revocable()
    table.come(ALICE, b"one", id="ledger")
    table.come(ALICE, b"two")
    table.come(BOB, b"three")
    table.come(LOCAL, b"four")

    listed.revoke(ALICE_KEY)
    table.pass_time(0.02)

    assert sorted(table.table.sessions) == [b"four", b"three"]
    assert [event for _, event in table.closed] == [SessionEvent.REVOKED] * 2
    assert table.table.cursors.saved["ledger"].owner == ALICE_KEY, "her place is kept, for its lease"
    nobody = ALICE._replace(rights=Right(0))
    assert code(table.ask_as(nobody, Next(5, x=NextFields(limit=50)), b"one")) == "AUTH"


def test_a_key_that_may_still_write_loses_its_sessions_all_the_same() -> None:
    table, listed = revocable()
    table.come(ALICE)
    listed.allow(ALICE_KEY, Right.WRITE)
    table.pass_time(0.02)
    assert table.table.sessions == {}


def test_a_change_that_takes_nothing_away_ends_nothing() -> None:
    table, listed = revocable()
    table.come(ALICE)
    listed.allow(ALICE_KEY, Right.READ)
    listed.allow(ROOT_KEY, Right.ADMIN)
    table.pass_time(0.02)
    assert len(table.table.sessions) == 1


def test_a_question_that_waits_is_not_answered_to_a_key_that_was_revoked() -> None:
    table, listed = revocable()
    question = Subscribe(x=SubscribeFields(v=1, probe=True, id="q", ack=5, beyond=100, wait=20_000))
    assert table.table.receive([b"peer", b"", encode(question)], table.now, ALICE) == []
    listed.revoke(ALICE_KEY)
    (answer,) = table.pass_time(0.02)
    assert code(answer) == "AUTH"


def test_what_a_revoked_key_has_staged_is_dropped_and_what_waits_is_withdrawn() -> None:
    listed = AccessList.of({ALICE_KEY: "write", BOB_KEY: "write"})
    table = WritableTable(access=listed)
    put(table, ALICE, b"one", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    put(table, ALICE, b"two", batch=1)
    put(table, BOB, b"his", query="p", batch=0)

    listed.revoke(ALICE_KEY)
    table.pass_time(0.02)

    assert [delivery.withdrawn for delivery in table.submitted] == [True]
    table.commit(0, (0, 0, 1), query="p", caller=BOB)
    assert [delivery.withdrawn for delivery in table.submitted] == [True, False]
    assert isinstance(put(table, BOB, b"more", query="p", batch=1), OnNext)


# ---------------------------------------------------------------- what is shown
def crowd(**limits: Any) -> Tables:
    table = Tables(Limits(**limits), log=PretendedLog(head=100))
    table.come(ALICE, b"one", id="ledger")
    table.come(BOB, b"two", id="bobs")
    table.come(BOB, b"three")
    table.probe(ALICE, id="hers", ack=5)
    table.probe(BOB, id="his", ack=5)
    return table


def test_a_key_sees_its_own_ids_and_an_administrator_sees_all() -> None:
    table = crowd()
    hers = status(table.probe(ALICE))
    assert [one["id"] for one in hers["subscribers"]] == ["ledger"]
    assert list(hers["absent"]) == ["hers"]
    for caller in (ROOT, LOCAL):
        shown = status(table.probe(caller))
        assert [one["id"] for one in shown["subscribers"]] == ["ledger", "bobs", None]
        assert list(shown["absent"]) == ["hers", "his"]
    assert status(table.probe(STRANGER))["subscribers"] == []


def test_an_answer_names_only_so_many_and_counts_the_rest() -> None:
    table = crowd(max_listed=1)
    shown = status(table.probe(ROOT))
    assert (len(shown["subscribers"]), len(shown["absent"])) == (1, 1)
    assert shown["left_out"] == {"subscribers": 2, "absent": 1, "groups": 0}


# ---------------------------------------------------------------- administering
def test_ids_and_sessions_are_listed_page_by_page() -> None:
    table = crowd(max_listed=3)
    first = status(table.administer(ROOT, list=True))
    assert [(one["id"], one["here"]) for one in first["ids"]] == [
        ("bobs", True),
        ("hers", False),
        ("his", False),
    ]
    assert [one["session"] for one in first["sessions"]] == [3]
    assert (first["next"], first["total"]) == ("his", 4)
    second = status(table.administer(ROOT, list=True, after="his"))
    assert [one["id"] for one in second["ids"]] == ["ledger"]
    assert (second["next"], second["sessions"]) == (None, [])


@pytest.mark.parametrize("who", ["ledger", 1], ids=["by its id", "by its number"])
def test_an_evicted_session_ends_and_its_id_keeps_its_place(who: str | int) -> None:
    table = crowd()
    status(table.administer(ROOT, evict=who))
    assert [(session.name, event) for session, event in table.closed] == [("ledger", SessionEvent.EVICTED)]
    assert "ledger" in table.table.cursors.saved


def test_a_session_without_an_id_is_evicted_by_its_number() -> None:
    table = crowd()
    status(table.administer(ROOT, evict=3))
    assert [session.name for session, _ in table.closed] == [None]
    assert code(table.administer(ROOT, evict=3)) == "BAD"


def test_a_key_that_may_not_read_any_more_is_not_told_by_its_group_why_the_source_failed(
    table: Tables,
) -> None:
    table.probe(ALICE, group=GroupFields(name="hers", member="ann", partitions=1))
    table.log.failure = "'4111' is not a card"

    assert "4111" in str(status(table.probe(ALICE))["groups"])
    shown = status(table.probe(ALICE._replace(rights=Right.WRITE)))

    assert [group["name"] for group in shown["groups"]] == ["hers"]
    assert "4111" not in str(shown)


@pytest.mark.parametrize(
    ("rights", "told"),
    [(Right.WRITE, False), (Right.READ, True), (Right.ADMIN, True), (Right.READ | Right.WRITE, True)],
)
def test_only_a_key_that_may_read_or_administer_is_told_why_a_source_is_down(
    rights: Right, told: bool
) -> None:
    reason = "illegal chunk header: bytearray(b'4111')"
    down = GatewayStatus(source=SourceStatus(state="down", reason=reason))

    shown = status_for(ALICE._replace(rights=rights), down, 10).source

    assert shown.state == "down"
    assert (shown.reason == reason) is told
    assert ("4111" in str(shown)) is told


def test_nothing_is_said_of_a_source_that_is_up() -> None:
    shown = status_for(ALICE._replace(rights=Right.WRITE), GatewayStatus(), 10)

    assert shown.source.reason is UNSET
    assert shown.failure is None


def test_an_evicted_subscriber_that_comes_over_another_connection_is_told() -> None:
    table = crowd()
    table.come(ALICE, b"four", id="mine", me="m", nth=1)
    status(table.administer(ROOT, evict="mine"))
    assert code(table.come(ALICE, b"five", id="mine", me="m", nth=2)) == "EVICTED"
    assert given(table.come(ALICE, b"six", id="mine", me="another", nth=1)).next == 0


@pytest.mark.parametrize("name", ["ledger", "hers"], ids=["here", "away"])
def test_a_forgotten_id_holds_nothing_and_is_gone_from_the_journal(name: str) -> None:
    table = crowd()
    assert status(table.administer(ROOT, forget=name))["forgotten"]["acknowledged"] in (0, 5)
    assert table.table.registry.owner_of(name) is None
    assert table.log.unsaved[name] is None
    assert given(table.come(BOB, b"new", id=name)).next == 0
    assert code(table.administer(ROOT, forget="nobody")) == "BAD"


@pytest.mark.parametrize("name", ["ledger", "hers"], ids=["here", "away"])
def test_an_id_can_be_given_to_another_key_with_its_place(name: str) -> None:
    table = crowd()
    status(table.administer(ROOT, give=name, to=BOB_KEY))
    assert code(table.come(ALICE, b"new", id=name)) == "AUTH"
    assert given(table.come(BOB, b"new", id=name)).next == (5 if name == "hers" else 0)


def test_a_writers_name_can_be_given_to_another_key() -> None:
    table = WritableTable()
    put(table, ALICE, b"hers", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    table.write()
    table.table.administration.give_writer("q", BOB_KEY)
    table.write()
    assert table.marks == {"delivered:q": f"0 {BOB_KEY}"}
    assert code(put(table, ALICE, b"x", batch=1)) == "AUTH"
    assert isinstance(put(table, BOB, b"x", batch=1), OnNext)


def test_a_name_that_is_given_away_while_a_batch_waits_keeps_the_number_of_that_batch() -> None:
    """Otherwise the new owner could publish it a second time, or the old one take the name back."""
    table = WritableTable()
    for batch in (0, 1):
        put(table, ALICE, b"hers", batch=batch)
        table.commit(batch, (0, 0, 1), caller=ALICE)
        if not batch:
            table.write()
    table.table.administration.give_writer("q", BOB_KEY)
    assert code(put(table, ALICE, b"x", batch=2)) == "AUTH"
    put(table, BOB, b"his", batch=2)
    table.commit(2, (0, 0, 1), caller=BOB)
    table.write()
    assert table.marks == {"delivered:q": f"2 {BOB_KEY}"}
    assert table.written == [b"hers", b"hers", b"his"]

    put(table, BOB, b"x", batch=3)
    table.commit(3, (0, 0, 1), caller=BOB)
    table.table.administration.give_writer("q", ALICE.owner)
    table.write()
    assert table.marks == {"delivered:q": f"3 {ALICE.owner}"}


def test_a_name_is_not_given_away_when_that_cannot_be_stored_any_more() -> None:
    table = WritableTable()
    put(table, ALICE, b"hers", batch=0)
    table.commit(0, (0, 0, 1), caller=ALICE)
    table.write()
    table.log.end = table.log.head

    with pytest.raises(ValueError, match="start the gateway again"):
        table.table.administration.give_writer("q", BOB_KEY)

    assert table.submitted == []
    assert code(put(table, BOB, b"x", batch=1)) == "AUTH"


@pytest.mark.parametrize(
    "wanted", [{"give": "ledger"}, {"give": "ledger", "to": "short"}, {"give": "x", "to": ""}]
)
def test_what_cannot_be_given_is_refused(wanted: dict[str, Any]) -> None:
    assert code(crowd().administer(ROOT, **wanted)) == "BAD"


# ---------------------------------------------------------------- squatters
def test_one_key_cannot_take_all_the_room() -> None:
    table = Tables(Limits(max_per_peer=2), log=PretendedLog(head=100))
    for number in range(2):
        given(table.come(ALICE, b"%d" % number))
    assert code(table.come(ALICE, b"more")) == "BUSY"
    given(table.come(BOB))


def test_nor_can_a_machine_without_a_key_but_those_here_are_not_told_apart() -> None:
    table = Tables(Limits(max_per_peer=2), log=PretendedLog(head=100))
    for number in range(2):
        given(table.come(STRANGER, b"%d" % number))
    assert code(table.come(STRANGER, b"more")) == "BUSY"
    given(table.come(STRANGER._replace(address="192.0.2.10"), b"neighbour"))
    for number in range(5):
        given(table.come(LOCAL, b"local %d" % number))


@pytest.mark.parametrize("caller", [ALICE, STRANGER], ids=["a key", "a machine"])
def test_one_peer_cannot_take_all_the_ids(caller: Caller) -> None:
    table = Tables(Limits(max_ids_per_peer=3), log=PretendedLog(head=100))
    for number in range(3):
        given(table.probe(caller, id=f"id {number}", ack=0))
    assert code(table.probe(caller, id="more", ack=0)) == "BUSY"
    assert code(table.come(caller, b"more", id="more")) == "BUSY"
    given(table.probe(caller, id="id 1", ack=1))
    given(table.probe(BOB, id="his", ack=0))


def test_a_flood_of_questions_from_one_peer_leaves_the_others_theirs() -> None:
    table = Tables(Limits(requests_per_second=5), log=PretendedLog(head=100))
    answers = [table.probe(ALICE) for _ in range(10)]
    assert sum(isinstance(answer, OnError) for answer in answers) == 5
    assert isinstance(table.probe(BOB), OnSubscribe)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_an_id_has_a_name_that_is_neither_empty_nor_endless(table: Tables, name: str) -> None:
    assert code(table.come(ALICE, id=name)) == "BAD"
    assert code(table.probe(ALICE, id=name, ack=0)) == "BAD"
    assert table.table.sessions == table.table.cursors.saved == {}


def test_a_session_without_an_id_that_never_joins_is_given_up_soon(table: Tables) -> None:
    given(table.come(ALICE, b"squatter", lease=604_800_000))
    given(table.come(ALICE, b"reader", lease=604_800_000))
    table.session(b"reader").handle(SessionEvent.JOINED, table.now)
    table.pass_time(10.1)
    assert list(table.table.sessions) == [b"reader"]


def test_one_that_has_lost_its_data_connection_is_kept_for_the_usual_lease(table: Tables) -> None:
    session = table.subscribe(b"reader", lease=604_800_000)
    table.grant(b"reader", limit=10)
    send_all(session)
    table.pass_time(100)
    session.handle(SessionEvent.LEFT, table.now)
    table.grant(b"reader", limit=10)
    table.pass_time(59)
    assert list(table.table.sessions) == [b"reader"]
    table.pass_time(2)
    assert table.table.sessions == {}


def test_the_lease_of_a_session_without_an_id_is_bounded(table: Tables) -> None:
    assert given(table.come(ALICE, lease=604_800_000)).lease == 600_000
    assert given(table.come(ALICE, b"two", id="durable", lease=604_800_000)).lease == 604_800_000
