"""Reader groups at the gateway: who may take which partition, and that members which share come to rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from penstock.aquifer.client.assignment import Moves, is_done, moves_of
from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    Control,
    GroupFields,
    OnError,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.records import Partition, by_partition, partition_of
from penstock.aquifer.security.access import ALL_RIGHTS, Caller, Right
from penstock.aquifer.status import GroupStatus, MemberStatus, PartitionStatus
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all

ALICE = Caller("alice", "10.0.0.1", ALL_RIGHTS)
BOB = Caller("bob", "10.0.0.2", ALL_RIGHTS)


# ---------------------------------------------------------------- partitions
@given(st.integers(1, 64), st.lists(st.none() | st.binary(max_size=8), max_size=40), st.data())
def test_each_record_is_in_one_partition_and_a_key_always_in_the_same(
    partitions: int, keys: list[bytes | None], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, 1000))
    for given_keys in (keys, [key or b"" for key in keys], None):
        found = by_partition(given_keys, first, len(keys), partitions)
        assert sorted(number for numbers in found for number in numbers) == list(range(len(keys)))
        assert len(found) == partitions
        for number, numbers in enumerate(found):
            assert numbers == sorted(numbers)
            known = given_keys or [None] * len(keys)
            assert all(partition_of(known[at], first + at, partitions) == number for at in numbers)


def test_the_partition_of_a_key_is_the_same_in_every_version() -> None:
    assert partition_of(b"123456789", 0, 1000) == 0xCBF43926 % 1000, "the check value of CRC-32"
    assert partition_of(b"", 7, 8) == 0
    assert [partition_of(None, offset, 3) for offset in range(5)] == [0, 1, 2, 0, 1]


@given(st.text(max_size=8))
def test_only_the_id_of_a_partition_is_one(text: str) -> None:
    partition = Partition.of_id(text)
    assert partition is None or partition.id == text
    if text:
        assert Partition.of_id(Partition(text, 3, 8).id) == (text, 3, 8)


@pytest.mark.parametrize(
    "id", ["orders", "orders/8-of-8", "orders/03-of-8", "/1-of-2", "orders/1-of-2 ", "a/1"]
)
def test_other_ids_are_no_partitions(id: str) -> None:
    assert Partition.of_id(id) is None


# ---------------------------------------------------------------- talking to a gateway
def about(name: str = "orders", member: str = "ann", **more: Any) -> GroupFields:
    return GroupFields(name=name, member=member, **more)


def beat(front: FrontTable, member: str = "ann", peer: bytes = b"", **more: Any) -> Control:
    fields = {name: more.pop(name) for name in ("from_", "lease", "epoch") if name in more}
    group = about(member=member, **more)
    question = Subscribe(x=SubscribeFields(v=1, probe=True, group=group, **fields))
    answers = front.say(question, peer or member.encode())
    if group.leave is True and not answers:
        front.log.flush()
        answers = front.late_answers()
    (answer,) = answers
    return answer


def state(answer: Control) -> GroupStatus:
    assert isinstance(answer, OnSubscribe), answer
    known = extension(answer.x)
    assert known is not None
    assert known.status is not UNSET
    return read_status(known.status, GroupStatus)


def refused(answer: Control) -> tuple[str, str]:
    assert isinstance(answer, OnError), answer
    details = extension(answer.x)
    assert details is not None
    return str(details.code), answer.message


def begins_at(answer: Control) -> int:
    assert isinstance(answer, OnSubscribe), answer
    known = extension(answer.x)
    assert known is not None
    assert isinstance(known.next, int)
    return known.next


def take(front: FrontTable, number: int, member: str = "ann", of: int = 2, **more: Any) -> Control:
    group = about(member=member, partitions=of, partition=number)
    fields = SubscribeFields(v=1, id=f"orders/{number}-of-{of}", group=group, me=f"{member}{number}", **more)
    return front.ask(Subscribe(x=fields), f"{member}-{number}".encode())


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(first=10, head=100))


def test_a_new_group_has_all_its_cursors_at_once(front: FrontTable) -> None:
    group = state(beat(front, partitions=3, from_=50, lease=5000))
    assert [(one.number, one.acknowledged, one.member, one.free) for one in group.partitions] == [
        (number, 50, None, True) for number in range(3)
    ]
    assert [member.name for member in group.members] == ["ann"]
    assert front.table.cursors.saved["orders/1-of-3"] == Cursor(50, 5000, 5.0, "")
    assert front.table.low_watermark() == 50


@pytest.mark.parametrize(("start", "begins"), [(UNSET, 10), ("earliest", 10), ("latest", 100), (70, 70)])
def test_a_group_begins_where_its_first_member_says(front: FrontTable, start: Any, begins: int) -> None:
    for asked in (start, 20):  # The second is too late: the group is there.
        group = state(beat(front, from_=asked))
        assert {one.acknowledged for one in group.partitions} == {begins}
    assert len(group.partitions) == 8


def test_another_number_of_partitions_is_refused_with_a_reason(front: FrontTable) -> None:
    beat(front, partitions=4)
    code, text = refused(beat(front, "bob", partitions=6))
    assert code == ErrorCode.BAD
    assert "'orders' has 4 partitions, and 6 were asked for" in text
    assert len(state(beat(front, "bob")).partitions) == 4, "without a number it is what the group has"


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        ({"partitions": 0}, ErrorCode.BAD, "1 to 64 partitions"),
        ({"partitions": 65}, ErrorCode.BAD, "1 to 64 partitions"),
        ({"member": "x" * 300}, ErrorCode.BAD, "names of 1 to"),
        ({"name": ""}, ErrorCode.BAD, "names of 1 to"),
        ({"from_": 9}, ErrorCode.OFFSET, "10 to 99"),
        ({"from_": "now"}, ErrorCode.BAD, "'earliest' or 'latest'"),
        ({"lease": 0}, ErrorCode.BAD, "a lease of 0 ms"),
        ({"epoch": "another"}, ErrorCode.EPOCH, "is over"),
    ],
)
def test_what_makes_no_sense_is_refused(
    front: FrontTable, wrong: dict[str, Any], code: str, text: str
) -> None:
    assert refused(beat(front, **wrong))[0] == code
    assert text in refused(beat(front, **wrong))[1]
    assert front.table.cursors.saved == {}


def test_there_are_no_more_members_and_partitions_than_the_gateway_has_space_for() -> None:
    front = FrontTable(limits=Limits(max_subscribers=2, max_durable=10, max_per_peer=1), caller=ALICE)
    assert refused(beat(front, partitions=11))[0] == ErrorCode.BUSY
    beat(front)
    assert refused(beat(front, "bob"))[0] == ErrorCode.BUSY, "one for each key"
    front.pass_time(front.limits.member_timeout + 1)
    state(beat(front, "bob"))


def test_a_group_belongs_to_a_key(front: FrontTable) -> None:
    front.caller = ALICE
    beat(front, partitions=2)
    assert isinstance(take(front, 0), OnSubscribe)
    front.caller = BOB
    for answer in (beat(front, "bob"), take(front, 1, "bob"), take(front, 0, "bob")):
        code, text = refused(answer)
        assert code == ErrorCode.AUTH
        assert "belongs to another key" in text


def test_a_member_needs_the_right_to_read(front: FrontTable) -> None:
    front.caller = Caller("carol", "10.0.0.3", Right.WRITE)
    assert refused(beat(front))[0] == ErrorCode.AUTH
    assert front.table.cursors.saved == {}


# ---------------------------------------------------------------- taking partitions
def test_a_partition_has_one_reader_until_that_is_lost(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front.pass_time(5)
    beat(front, "bob")
    code, text = refused(take(front, 0, "bob"))
    assert (code, text) == (ErrorCode.TAKEN, "'orders/0-of-2' is read by the member 'ann'")
    front.pass_time(5.5)
    assert isinstance(take(front, 0, "bob"), OnSubscribe), "ann was not heard of for 10 s"
    assert refused(take(front, 0, "ann", ack=10, from_=10))[0] == ErrorCode.TAKEN, "and has to see it"


def test_who_reads_what_is_shown(front: FrontTable) -> None:
    beat(front, partitions=2)
    beat(front, "bob")
    take(front, 1, "bob")
    group = state(beat(front))
    assert [(one.member, one.free) for one in group.partitions] == [(None, True), ("bob", False)]
    assert [(one.name, one.partitions) for one in group.members] == [("ann", []), ("bob", [1])]
    (status,) = front.table.status().groups or []
    assert [one.to_dict() for one in status.partitions] == [one.to_dict() for one in group.partitions]
    assert {one.id: one.member for one in front.table.status().subscribers} == {"orders/1-of-2": "bob"}
    listed = front.table.administration.list()
    assert {one.id: one.member for one in listed.ids} == {"orders/0-of-2": UNSET, "orders/1-of-2": "bob"}


def test_a_group_keeps_its_cursors_as_long_as_a_member_is_there(front: FrontTable) -> None:
    beat(front, partitions=2, lease=1000)
    take(front, 0, lease=1000)
    for _ in range(10):
        front.pass_time(0.9)
        beat(front, "bob")
    assert len(state(beat(front, "bob")).partitions) == 2
    assert isinstance(take(front, 0, "bob"), OnError), "ann may be at work: 9 s are not 10"
    front.pass_time(1.5)
    assert front.table.cursors.saved == {}
    assert front.table.sessions == {}


def test_a_partition_is_read_by_members_only_while_there_are_members(front: FrontTable) -> None:
    stranger = Subscribe(x=SubscribeFields(v=1, id="orders/0-of-2"))
    assert isinstance(front.ask(stranger, b"stranger"), OnSubscribe), "an id like any other"
    front.ask(Subscribe(cancel=True), b"stranger")
    beat(front, partitions=2)
    assert "a partition of the reader group 'orders'" in refused(front.ask(stranger, b"other"))[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "orders/1-of-2"},
        {"id": "orders"},
        {"keys": [b"x"]},
        {"keep": False},
    ],
)
def test_a_partition_is_taken_as_a_whole_under_its_own_name(
    front: FrontTable, fields: dict[str, Any]
) -> None:
    beat(front, partitions=2)
    wanted = {"id": "orders/0-of-2", "group": about(partition=0, partitions=2), **fields}
    assert refused(front.ask(Subscribe(x=SubscribeFields(v=1, **wanted))))[0] == ErrorCode.BAD


def test_who_leaves_is_answered_when_the_journal_has_what_it_has_acknowledged(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front.log.flush()
    goodbye = Subscribe(x=SubscribeFields(v=1, probe=True, group=about(reads=[], acks=[(0, 5)], leave=True)))
    assert front.say(goodbye, b"ann") == []
    assert front.log.wants_flush
    assert front.say(goodbye, b"ann") == [], "it asks again"
    assert front.late_answers() == []
    front.log.flush()
    assert len(front.late_answers()) == 1
    assert front.late_answers() == [], "once"


def test_a_goodbye_that_a_journal_never_stores_is_forgotten(front: FrontTable) -> None:
    beat(front, partitions=2)
    goodbye = Subscribe(x=SubscribeFields(v=1, probe=True, group=about(leave=True)))
    assert front.say(goodbye, b"ann") == []
    front.pass_time(100)
    front.log.flush()
    assert front.late_answers() == []
    assert front.say(goodbye, b"bob") != [], "there is nothing to store"
    beat(front, "bob", partitions=2)


def test_nobody_waits_for_a_writer_that_has_ended(front: FrontTable) -> None:
    beat(front, partitions=2)
    goodbye = Subscribe(x=SubscribeFields(v=1, probe=True, group=about(leave=True)))
    assert front.say(goodbye, b"ann") == []
    front.log.stores_no_more()
    assert len(front.late_answers()) == 1


def test_who_leaves_is_counted_as_long_as_it_is_at_work(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    group = state(beat(front, leave=True))
    assert [(one.name, one.leaving) for one in group.members] == [("ann", True)]
    assert not group.partitions[0].free
    assert not front.table.groups.is_at_rest
    front.ask(Subscribe(cancel=True), b"ann-0")
    group = state(beat(front, leave=True))
    assert group.members == []
    assert group.partitions[0].free
    assert front.table.groups.is_at_rest


def test_a_session_that_its_member_has_left_unheard_ends(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    take(front, 1)
    group = state(beat(front, reads=[1]))
    assert [(one.member, one.free) for one in group.partitions] == [(None, True), ("ann", False)]


def session_of(front: FrontTable, number: int, member: str = "ann", sent: int = 0) -> ExtendedSession:
    """Let a member have a partition, and so many records of it."""
    take(front, number, member)
    session = front.session(f"{member}-{number}".encode())
    assert isinstance(session, ExtendedSession)
    session.sent(sent, 10 * sent)
    return session


def test_what_a_member_has_acknowledged_is_known_if_its_goodbye_overtakes_that(front: FrontTable) -> None:
    """A member has a connection for itself and one for each partition: these are not in step."""
    beat(front, partitions=2)
    for number in (0, 1):
        session_of(front, number, sent=50)
        front.grant(f"ann-{number}".encode(), limit=60, ack=20)
    group = state(beat(front, reads=[], acks=[(0, 47), (1, 20)], leave=True))
    assert [(one.acknowledged, one.free) for one in group.partitions] == [(47, True), (20, True)]
    assert begins_at(take(front, 0, "bob")) == 47
    # What it said over the connection of the partition comes now, and does not concern the new reader.
    (late,) = front.grant(b"ann-0", limit=60, ack=30)
    assert refused(late)[0] == ErrorCode.SESSION
    front.say(Subscribe(cancel=True), b"ann-0")
    assert [(one.acknowledged, one.member) for one in state(beat(front, "bob")).partitions] == [
        (47, "bob"),
        (20, None),
    ]


@pytest.mark.parametrize(
    ("acks", "begins"), [([(0, 61)], 20), ([(0, 60)], 60), ([(0, 19)], 20), ([(0, -5)], 20), ([(7, 40)], 20)]
)
def test_a_last_acknowledgement_is_within_what_was_sent_and_never_takes_a_cursor_back(
    front: FrontTable, acks: list[tuple[int, int]], begins: int
) -> None:
    beat(front, partitions=2)
    session_of(front, 0, sent=50)
    front.grant(b"ann-0", limit=60, ack=20)
    assert state(beat(front, reads=[], acks=acks)).partitions[0].acknowledged == begins


def test_a_last_acknowledgement_changes_nothing_that_another_reads_or_that_is_read_on(
    front: FrontTable,
) -> None:
    beat(front, partitions=2)
    beat(front, "bob")
    session_of(front, 0, sent=50)
    session_of(front, 1, "bob", sent=50)
    group = state(beat(front, reads=[0], acks=[(0, 40), (1, 40)]))
    assert [(one.acknowledged, one.member) for one in group.partitions] == [(10, "ann"), (10, "bob")]


def restarted(front: FrontTable) -> FrontTable:
    front.table.registry.note_all()
    return killed(front, {name: cursor for name, cursor in front.log.unsaved.items() if cursor is not None})


def test_after_a_restart_readers_of_before_come_first(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front = restarted(front)
    assert [one.free for one in state(beat(front, "bob")).partitions] == [False, False]
    code, text = refused(take(front, 1, "bob"))
    assert code == ErrorCode.TAKEN
    assert "may come back" in text
    assert isinstance(take(front, 0, from_=30, ack=20), OnSubscribe), "ann continues"
    assert refused(take(front, 0, "bob", from_=30, ack=20))[0] == ErrorCode.TAKEN
    front.pass_time(10)
    assert isinstance(take(front, 1, "bob"), OnSubscribe)


def test_who_is_not_sure_has_to_wait_after_a_restart(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front = restarted(front)
    group = about(partition=0, partitions=2, lapsed=True)
    fields = SubscribeFields(v=1, id="orders/0-of-2", group=group, from_=30, ack=20)
    assert refused(front.ask(Subscribe(x=fields)))[0] == ErrorCode.SESSION
    front.pass_time(10)
    assert isinstance(front.ask(Subscribe(x=fields)), OnSubscribe)


def test_what_a_member_has_begun_is_kept_for_it_after_a_restart(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front = restarted(front)
    for _ in range(12):
        front.pass_time(1)
        beat(front, reads=[0], begun=[0])
        group = state(beat(front, "bob"))
    assert [one.free for one in group.partitions] == [False, True]
    assert refused(take(front, 0, "bob"))[0] == ErrorCode.TAKEN
    lapsed = SubscribeFields(v=1, id="orders/0-of-2", from_=30, ack=20)
    lapsed.group = about(partition=0, partitions=2, lapsed=True)
    assert isinstance(front.ask(Subscribe(x=lapsed), b"again"), OnSubscribe)


def killed(front: FrontTable, stored: dict[str, Cursor]) -> FrontTable:
    """The gateway was killed, and its journal has no other cursors than these."""
    after = FrontTable(limits=front.limits, log=PretendedLog(first=10, head=100), cursors=stored)
    after.now = front.now
    after.pass_time(0.5)
    return after


STORED = {f"orders/{number}-of-2": Cursor(20, 60_000, 60.0, "") for number in range(2)}


def test_members_see_whether_the_journal_has_what_was_acknowledged(front: FrontTable) -> None:
    def stored() -> list[bool]:
        return [one.stored for one in state(beat(front)).partitions]

    beat(front, partitions=2)
    assert stored() == [False, False]
    front.log.flush()
    assert stored() == [True, True]
    session_of(front, 0, sent=50)
    front.grant(b"ann-0", limit=60, ack=40)
    assert stored() == [False, True]
    front.log.flush()
    front.table.registry.note_all()
    assert stored() == [True, True], "only a lease was saved since"


@pytest.mark.parametrize("stored", [STORED, {}], ids=["an older cursor", "no cursor"])
def test_a_gateway_that_was_killed_learns_from_members_what_they_had_acknowledged(
    front: FrontTable, stored: dict[str, Cursor]
) -> None:
    front = killed(front, stored)
    group = state(beat(front, partitions=2, reads=[], acks=[(0, 47)], epoch="epoch-1"))
    assert group.partitions[0].acknowledged == 47
    assert not group.partitions[0].stored
    assert refused(take(front, 0, "bob"))[0] == ErrorCode.TAKEN, "a reader from before may know more"
    front.pass_time(11)
    assert begins_at(take(front, 0, "bob")) == 47


def test_a_goodbye_that_a_killed_gateway_did_not_answer_counts_for_the_next_one(front: FrontTable) -> None:
    front = killed(front, STORED)
    beat(front, reads=[], acks=[(0, 47)], epoch="epoch-1", leave=True)
    assert front.log.cursors["orders/0-of-2"].acknowledged == 47, "the journal has it before the answer"


@pytest.mark.parametrize(
    ("acks", "more"),
    [
        ([(0, 19)], {"epoch": "epoch-1"}),
        ([(0, 101)], {"epoch": "epoch-1"}),
        ([(2, 47)], {"epoch": "epoch-1"}),
        ([(0, 47)], {}),
    ],
    ids=["less than is stored", "beyond the log", "no such partition", "perhaps of another log"],
)
def test_a_killed_gateway_does_not_believe_everything(
    front: FrontTable, acks: list[tuple[int, int]], more: dict[str, str]
) -> None:
    front = killed(front, STORED)
    group = state(beat(front, reads=[], acks=acks, **more))
    assert [one.acknowledged for one in group.partitions] == [20, 20]


def test_only_cursors_from_before_a_kill_are_moved_by_a_member_that_has_left(front: FrontTable) -> None:
    front = killed(front, STORED)
    assert isinstance(take(front, 0, "bob", from_=50, ack=30), OnSubscribe), "bob had it after ann"
    front.ask(Subscribe(cancel=True), b"bob-0")
    group = state(beat(front, reads=[], acks=[(0, 47)], epoch="epoch-1"))
    assert group.partitions[0].acknowledged == 20
    front = killed(front, STORED)
    for _ in range(2):
        front.pass_time(6)
        beat(front, "bob")
    group = state(beat(front, reads=[], acks=[(0, 47)], epoch="epoch-1"))
    assert group.partitions[0].acknowledged == 20, "too late: somebody may read it from there"


def test_a_reader_that_was_overtaken_by_another_does_not_take_the_cursor_back(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front.pass_time(11)
    take(front, 0, "bob")
    session = front.session(b"bob-0")
    assert isinstance(session, ExtendedSession)
    session.acknowledged = 60
    front.ask(Subscribe(cancel=True), b"bob-0")
    code, text = refused(take(front, 0, "ann", from_=40, ack=30))
    assert code == ErrorCode.TAKEN
    assert "up to 60" in text
    assert begins_at(take(front, 0, "eve")) == 60


# ---------------------------------------------------------------- who does what
def group_of(partitions: int, held: dict[str, list[int]], **more: Any) -> GroupStatus:
    reader = {number: name for name, numbers in held.items() for number in numbers}
    return GroupStatus(
        name="orders",
        timeout=10.0,
        partitions=[
            PartitionStatus(number=number, member=reader.get(number), free=number not in reader)
            for number in range(partitions)
        ],
        members=[MemberStatus(name=name, partitions=numbers) for name, numbers in held.items()],
        **more,
    )


@pytest.mark.parametrize(
    ("partitions", "held", "moves"),
    [
        (4, {"ann": []}, Moves(take=(0, 1, 2, 3))),
        (4, {"ann": [0, 1, 2, 3], "bob": []}, Moves(give_up=(2, 3))),
        (4, {"ann": [0, 1], "bob": []}, Moves()),
        (5, {"ann": [0, 1, 2], "bob": [3, 4]}, Moves()),
        (5, {"ann": [0, 1], "bob": [2, 3, 4]}, Moves()),
        (2, {"ann": [], "bob": [0], "eve": [1]}, Moves()),
        (3, {"ann": [0], "bob": [1]}, Moves(take=(2,))),
        (3, {"eve": [0], "bob": [1], "ann": []}, Moves(take=(2,))),
    ],
)
def test_what_ann_does(partitions: int, held: dict[str, list[int]], moves: Moves) -> None:
    assert moves_of(group_of(partitions, held), "ann", held["ann"]) == moves


def test_partitions_at_the_end_need_no_reader() -> None:
    group = group_of(4, {"ann": [], "bob": [3]}, end=9)
    for number in (0, 1):
        group.partitions[number].acknowledged = 9
    assert [is_done(group, number) for number in range(4)] == [True, True, False, False]
    assert moves_of(group, "ann", []) == Moves(take=(2,))


def test_those_who_leave_do_not_count() -> None:
    group = group_of(4, {"ann": [], "bob": [2, 3]})
    group.members[1].leaving = True
    assert moves_of(group, "ann", []) == Moves(take=(0, 1))
    assert moves_of(group, "bob", [2, 3]) == Moves()


# ---------------------------------------------------------------- all of it together
@dataclass(eq=False)
class Reading:
    """A partition that a member believes to read."""

    peer: bytes
    me: str
    nth: int
    sure_until: float
    next: int = -1
    acknowledged: int = -1

    @property
    def begun(self) -> bool:
        return self.next >= 0


@dataclass
class Member:
    """Follows the rules of a member; what it does and what it knows may be old."""

    name: str
    reads: dict[int, Reading] = field(default_factory=dict)
    planned: list[tuple[str, int, float]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    """What it had acknowledged of the partitions that it has left, until the gateway knows that it has."""


class GroupMachine(RuleBasedStateMachine):
    """Members that come, go, die, sleep and lose their lines, and a gateway that is restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.front = FrontTable(limits=Limits(member_timeout=4.0), log=PretendedLog(first=0, head=1000))
        self.partitions = 1
        self.members: dict[str, Member] = {}
        self.numbers = count()
        self.reached: dict[int, int] = {}

    @initialize(partitions=st.integers(1, 5))
    def begin(self, partitions: int) -> None:
        self.partitions = partitions

    # ---------------------------------------------------------------- what a member does
    def beat(self, member: Member, **more: Any) -> GroupStatus:
        reads, acks = sorted(member.reads), sorted(member.left.items())
        if acks:
            more["acks"] = acks
        held = {number: self.holder(number) for number, _ in acks}
        answer = beat(self.front, member.name, partitions=self.partitions, reads=reads, lease=600_000, **more)
        group = state(answer)
        for number, acknowledged in acks:
            if held[number] == member.name:
                assert group.partitions[number].acknowledged == acknowledged, "its successor begins there"
            assert group.partitions[number].member != member.name
        member.left.clear()
        return group

    def holder(self, number: int) -> str | None:
        groups = self.front.table.groups.all()
        return groups[0].partitions[number].member if groups else None

    def leave(self, member: Member, number: int) -> Reading:
        """Give up a partition; the gateway has to be told."""
        one = member.reads.pop(number)
        if one.begun:
            member.left[number] = one.acknowledged
        return one

    def say_goodbye(self, one: Reading) -> None:
        """Over the connection of the partition."""
        if one.begun:
            self.front.grant(one.peer, limit=one.next, ack=one.acknowledged)
        self.front.say(Subscribe(cancel=True), one.peer)

    def look(self, member: Member) -> None:
        asked_at = self.front.now
        group = self.beat(member)
        sure_until = asked_at + group.timeout
        for number, one in list(member.reads.items()):
            partition = group.partitions[number]
            if partition.member == member.name:
                one.sure_until = max(one.sure_until, sure_until)
            elif partition.member is not None and not partition.free:
                del member.reads[number]
        moves = moves_of(group, member.name, member.reads)
        member.planned = [("give up", number, sure_until) for number in moves.give_up]
        member.planned += [("take", number, sure_until) for number in moves.take]

    def act(self, member: Member, *, lost: bool = False) -> None:
        what, number, sure_until = member.planned.pop(0)
        if what == "give up" and number in member.reads:
            one = self.leave(member, number)
            if not lost:
                self.say_goodbye(one)
        elif what == "take" and number not in member.reads:
            me = f"{member.name}-{next(self.numbers)}"
            member.reads[number] = Reading(b"", me, 0, sure_until)
            member.left.pop(number, None)
            self.subscribe(member, number)

    def subscribe(self, member: Member, number: int) -> None:
        """Ask for a partition, for the first time or again, over a new connection."""
        one = member.reads[number]
        one.peer = f"{member.name}/{next(self.numbers)}".encode()
        one.nth += 1
        group = about(member=member.name, partitions=self.partitions, partition=number)
        fields = SubscribeFields(v=1, me=one.me, nth=one.nth, group=group, lease=600_000)
        fields.id = Partition("orders", number, self.partitions).id
        if one.begun:
            fields.from_, fields.ack = one.next, one.acknowledged
            if self.front.now >= one.sure_until:
                group.lapsed = True
        answer = self.front.ask(Subscribe(x=fields), one.peer)
        if isinstance(answer, OnSubscribe):
            known = extension(answer.x)
            assert known is not None
            assert isinstance(known.next, int)
            if one.begun:
                assert known.next == one.next
            else:
                one.next = one.acknowledged = known.next
        elif refused(answer)[0] == ErrorCode.TAKEN:
            del member.reads[number]
        else:
            assert refused(answer)[0] == ErrorCode.SESSION

    def read(self, member: Member, number: int, records: int, acknowledged: int, *, told: bool) -> None:
        one = member.reads[number]
        session = self.front.table.sessions.get(one.peer)
        if not one.begun or self.front.now >= one.sure_until:
            return
        if isinstance(session, ExtendedSession):
            one.next = max(one.next, min(one.next + records, self.front.log.head))
            session.credit_end = max(session.credit_end, one.next)
            session.sent(max(one.next - session.cursor, 0), 10)
        one.acknowledged = min(one.acknowledged + acknowledged, one.next)
        if told:
            self.front.grant(one.peer, limit=one.next, ack=one.acknowledged)

    # ---------------------------------------------------------------- rules
    def pick(self, data: st.DataObject) -> Member:
        return self.members[data.draw(st.sampled_from(sorted(self.members)))]

    @precondition(lambda self: len(self.members) < 4)
    @rule()
    def somebody_comes(self) -> None:
        member = Member(f"m{next(self.numbers)}")
        self.members[member.name] = member
        self.look(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def somebody_looks(self, data: st.DataObject) -> None:
        self.look(self.pick(data))

    @precondition(lambda self: any(member.planned for member in self.members.values()))
    @rule(data=st.data(), lost=st.booleans())
    def somebody_does_what_it_planned(self, data: st.DataObject, lost: bool) -> None:
        planning = sorted(name for name, member in self.members.items() if member.planned)
        self.act(self.members[data.draw(st.sampled_from(planning))], lost=lost)

    @precondition(lambda self: any(member.reads for member in self.members.values()))
    @rule(data=st.data(), records=st.integers(0, 9), acknowledged=st.integers(0, 9), told=st.booleans())
    def somebody_reads(self, data: st.DataObject, records: int, acknowledged: int, told: bool) -> None:
        reading = [(name, number) for name, member in self.members.items() for number in member.reads]
        name, number = data.draw(st.sampled_from(sorted(reading)))
        self.read(self.members[name], number, records, acknowledged, told=told)

    @precondition(lambda self: any(member.reads for member in self.members.values()))
    @rule(data=st.data())
    def a_line_is_lost_and_its_reader_asks_again(self, data: st.DataObject) -> None:
        reading = [(name, number) for name, member in self.members.items() for number in member.reads]
        name, number = data.draw(st.sampled_from(sorted(reading)))
        self.subscribe(self.members[name], number)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def somebody_dies(self, data: st.DataObject) -> None:
        del self.members[self.pick(data).name]

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        member = self.members.pop(self.pick(data).name)
        left = [self.leave(member, number) for number in list(member.reads)]
        overtaken = data.draw(st.sets(st.sampled_from(left), max_size=len(left))) if left else set()
        for one in left:
            if one not in overtaken:
                self.say_goodbye(one)
        self.beat(member, leave=True)
        for one in overtaken:
            self.say_goodbye(one)

    @rule(seconds=st.sampled_from([0.5, 1.5, 4.5]))
    def time_passes(self, seconds: float) -> None:
        self.front.pass_time(seconds)

    @rule()
    def the_gateway_is_restarted(self) -> None:
        registry = self.front.table.registry
        registry.note_all()
        log = self.front.log
        stored = {**log.journal.stored, **log.unsaved}
        kept = {name: cursor for name, cursor in stored.items() if cursor is not None}
        now = self.front.now
        self.front = FrontTable(limits=self.front.limits, log=PretendedLog(first=0, head=1000), cursors=kept)
        self.front.now = now
        self.front.pass_time(0.1)

    # ---------------------------------------------------------------- what has to hold
    @invariant()
    def nobody_reads_beside_another(self) -> None:
        for number in range(self.partitions):
            sure = [
                member.name
                for member in self.members.values()
                if (one := member.reads.get(number)) is not None
                and one.begun
                and self.front.now < one.sure_until
            ]
            assert len(sure) <= 1, f"{sure} read partition {number}"

    @invariant()
    def no_cursor_goes_back(self) -> None:
        for group in self.front.table.groups.all():
            for one in group.partitions:
                assert one.acknowledged >= self.reached.get(one.number, 0)
                self.reached[one.number] = one.acknowledged

    def teardown(self) -> None:
        """Whatever has happened: those who are there share all partitions evenly in the end."""
        if not self.members:
            return
        for _ in range(20):
            self.front.pass_time(0.5)
            for member in self.members.values():
                for number in list(member.reads):
                    if self.front.table.sessions.get(member.reads[number].peer) is None:
                        self.subscribe(member, number)
                self.look(member)
                while member.planned:
                    self.act(member)
            self.nobody_reads_beside_another()
        read = sorted(number for member in self.members.values() for number in member.reads)
        assert read == list(range(self.partitions))
        shares = [len(member.reads) for member in self.members.values()]
        assert max(shares) - min(shares) <= 1
        for member in self.members.values():
            self.look(member)
            assert not member.planned, "and then nothing moves any more"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_the_pretended_sessions_can_send() -> None:
    """What the machine above relies on."""
    front = FrontTable(log=PretendedLog(head=100))
    session = front.subscribe(id="a")
    front.grant(limit=7)
    assert send_all(session) == list(range(7))
