"""Ids that look like those of a reader group, and strangers that use them: the group stays what it is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor
from penstock.aquifer.protocol.messages import Control, GroupFields, OnSubscribe, Subscribe, SubscribeFields
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.aquifer.protocol.test_groups import ALICE, BOB, beat, refused, state, take


@pytest.fixture
def front() -> FrontTable:
    return FrontTable(log=PretendedLog(first=10, head=100), caller=ALICE)


def subscribe(front: FrontTable, id: str) -> Control:
    return front.ask(Subscribe(x=SubscribeFields(v=1, id=id)), b"plain")


def keep(front: FrontTable, id: str) -> Control:
    """A reader of ranges keeps a cursor, as a Spark query does."""
    return front.ask(Subscribe(x=SubscribeFields(v=1, probe=True, id=id, ack=50)), b"probe")


@pytest.mark.parametrize("use", [subscribe, keep])
@pytest.mark.parametrize("id", ["orders/0-of-1", "orders/0-of-5", "orders/1-of-64"])
@pytest.mark.parametrize("members", [True, False])
def test_another_key_cannot_change_a_group_by_ids_that_look_like_its_own(
    front: FrontTable, use: Any, id: str, members: bool
) -> None:
    beat(front, partitions=8)
    if not members:
        front.pass_time(front.limits.member_timeout + 1)
    front.caller = BOB
    code, text = refused(use(front, id))
    assert code == ErrorCode.AUTH
    assert "'orders' belongs to another key" in text
    front.caller = ALICE
    assert len(state(beat(front)).partitions) == 8


@pytest.mark.parametrize("use", [subscribe, keep])
def test_the_same_key_is_told_that_an_id_would_be_another_number_of_partitions(
    front: FrontTable, use: Any
) -> None:
    beat(front, partitions=8)
    front.pass_time(front.limits.member_timeout + 1)
    assert refused(use(front, "orders/0-of-5"))[0] == ErrorCode.BAD
    assert isinstance(use(front, "orders/0-of-8"), OnSubscribe), "nobody is there: it is an id like any other"


def test_the_cursor_of_a_partition_is_moved_by_members_alone(front: FrontTable) -> None:
    beat(front, partitions=2)
    code, text = refused(keep(front, "orders/0-of-2"))
    assert code == ErrorCode.BAD
    assert "read it as a member of the group" in text
    assert {one.acknowledged for one in state(beat(front)).partitions} == {10}


def test_a_journal_that_has_both_numbers_has_the_group_with_more_partitions() -> None:
    saved = {f"orders/{number}-of-4": Cursor(20, 60_000, 60.0, "alice") for number in range(4)}
    saved["orders/0-of-1"] = Cursor(30, 60_000, 60.0, "bob")
    front = FrontTable(log=PretendedLog(first=10, head=100), cursors=saved, caller=ALICE)
    assert [one.number for one in state(beat(front)).partitions] == [0, 1, 2, 3]
    (shown,) = front.table.status().groups or []
    assert shown.owner == "alice"
    assert len(shown.partitions) == 4


def test_an_id_with_a_huge_number_makes_no_huge_group(front: FrontTable) -> None:
    assert isinstance(subscribe(front, "orders/0-of-999999999"), OnSubscribe)
    code, text = refused(beat(front))
    assert code == ErrorCode.BAD
    assert "with 999999999 partitions, and this gateway allows 64" in text
    assert front.table.cursors.saved == {}


def test_partitions_of_a_group_that_is_there_in_part_need_space_as_well() -> None:
    front = FrontTable(log=PretendedLog(first=10, head=100), limits=Limits(max_durable=10), caller=ALICE)
    beat(front, partitions=8)
    for number in range(1, 8):
        front.table.administration.forget(f"orders/{number}-of-8")
    for number in range(7):
        keep(front, f"other-{number}")
    code, text = refused(beat(front))
    assert code == ErrorCode.BUSY
    assert "no space for 7 partitions" in text


def test_one_key_has_no_more_ids_in_groups_than_it_may_have() -> None:
    front = FrontTable(log=PretendedLog(first=10, head=100), limits=Limits(max_ids_per_peer=20), caller=BOB)
    for name in ("a", "b", "c"):
        about = GroupFields(name=name, member="bob", partitions=8)
        answer = front.ask(Subscribe(x=SubscribeFields(v=1, probe=True, group=about)), name.encode())
    code, text = refused(answer)
    assert code == ErrorCode.BUSY
    assert "16 ids with this key are remembered already, and it may have 20" in text
    front.caller = ALICE
    state(beat(front))


def test_a_group_of_another_key_is_not_shown(front: FrontTable) -> None:
    beat(front, partitions=2)
    take(front, 0)
    front.caller = BOB
    assert "ann" not in str(front.ask(Subscribe(x=SubscribeFields(v=1, probe=True)), b"looks"))
