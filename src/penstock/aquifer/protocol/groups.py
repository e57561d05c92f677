"""Reader groups, as far as a gateway knows of them: who is there, and who may take which partition.

A partition is a durable id, so its cursor, its lease and its owner are those of any id. Which member reads
which partitions is decided by the members: each looks at the state of the group, gives up what it has too
much of, and takes what is free. The gateway only sees to it that a partition has one reader at a time:

- It may be taken if nobody reads it, or if its reader has not been heard of for ``Limits.member_timeout``.
- A reader that was cut off continues where it was, unless another one has acknowledged more since.
- After a restart, for as long as a member may not know of it, only those continue that are sure to have been
  the readers before. What a member says to have read is kept for it after that, too.
- Members repeat what they have acknowledged of partitions that they have left, until the journal has it. A
  gateway that was killed before it had stored that learns it from them, before anybody else may read there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor, Log
from penstock.aquifer.protocol.admission import (
    Problem,
    too_many_ids,
    wrong_epoch,
    wrong_lease,
    wrong_start,
    wrong_version,
)
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    VERSION,
    Control,
    GroupFields,
    OnSubscribe,
    OnSubscribeFields,
    SubscribeFields,
    raw_status,
)
from penstock.aquifer.protocol.session import SessionEvent, refusal
from penstock.aquifer.protocol.session_registry import SessionRegistry
from penstock.aquifer.records import Partition
from penstock.aquifer.security import Caller
from penstock.aquifer.status import GroupStatus, MemberStatus, PartitionStatus
from penstock.spec import UNBOUNDED

__all__ = ["Groups"]

_PARTITIONS: Final = 8
"""How many partitions a new group has if its first member does not say."""

_Reader: TypeAlias = ExtendedSession | Cursor
"""The session that reads a partition, or the cursor that is saved for it."""


@dataclass(slots=True)
class _Member:
    owner: str
    address: str
    heard: float
    """When it was last heard of, on the clock of leases."""
    leaving: bool
    begun: frozenset[int]
    """The partitions that it has had sessions of, and reads on."""


class Groups:
    """The reader groups of one stream; used by the thread of the server."""

    def __init__(self, registry: SessionRegistry, log: Log, limits: Limits) -> None:
        self._registry = registry
        self._log = log
        self._limits = limits
        self._members: dict[tuple[str, str], _Member] = {}
        """By the names of the group and of the member: those that were heard of lately."""

    # ---------------------------------------------------------------- what members say
    def answer(self, fields: SubscribeFields, caller: Caller) -> Control:
        """A member says that it is there, or that it leaves; return the state of its group."""
        group = fields.group
        assert group is not UNSET, "the message is about a group"
        problem = self._problem(fields, group, caller)
        if problem is not None:
            text, code = problem
            where = {"first": self._log.first, "head": self._log.head, "epoch": self._log.epoch}
            return refusal(text, code, **where)
        self._end_others(group)
        if group.leave is not True:
            self._create_missing(fields, group, caller)
        self._recover(fields, group)
        if group.leave is not True:
            self._note(group, caller)
        elif any(_member(reader) == group.member for reader in self._look(group.name).values()):
            self._note(group, caller, leaving=True)
        else:
            self._members.pop((group.name, group.member), None)
        self._renew(group.name)
        answer = OnSubscribeFields(
            v=VERSION,
            epoch=self._log.epoch,
            first=self._log.first,
            head=self._log.head,
            status=raw_status(self._status(group.name)),
            stream=self._registry.stream or UNSET,
        )
        return OnSubscribe(UNBOUNDED, 0, x=answer)

    def _end_others(self, group: GroupFields) -> None:
        """End the sessions that a member has left without being heard: that was lost, or is on its way.

        What it acknowledged last comes over the same way. Nobody would listen to it any more, so the member
        repeats it here.
        """
        if group.reads is UNSET:
            return
        acknowledged = dict(group.acks) if group.acks is not UNSET else {}
        for partition, reader in self._look(group.name).items():
            if _member(reader) == group.member and partition.number not in group.reads:
                assert isinstance(reader, ExtendedSession), "a saved cursor has no member"
                reader.note_last_acknowledgement(acknowledged.get(partition.number, 0))
                self._registry.end(reader, SessionEvent.CANCEL)

    def _recover(self, fields: SubscribeFields, group: GroupFields) -> None:
        """Take over what a member had acknowledged, if the gateway was killed before it had stored that."""
        if group.acks is UNSET or fields.epoch is UNSET:
            return  # Without an epoch it may mean the offsets of another log.
        acknowledged = dict(group.acks)
        for partition, reader in self._look(group.name).items():
            offset = acknowledged.get(partition.number, 0)
            if (
                isinstance(reader, Cursor)
                and self._may_be_read(partition)
                and reader.acknowledged < offset <= self._log.head
            ):
                self._registry.cursors.advance(partition.id, offset)

    def _problem(self, fields: SubscribeFields, group: GroupFields, caller: Caller) -> Problem | None:
        limits, log = self._limits, self._log
        if (wrong := wrong_version(fields)) is not None:
            return wrong
        longest = Partition(group.name, limits.max_partitions, limits.max_partitions).id
        if not group.name or not group.member or max(len(longest), len(group.member)) > limits.max_id:
            return (
                f"a reader group and its members have names of 1 to {limits.max_id - 20} characters",
                ErrorCode.BAD,
            )
        if (wrong := wrong_epoch(fields, log)) is not None:
            return wrong
        known = self._look(group.name)
        if any(reader.owner not in (None, caller.owner) for reader in known.values()):
            text = (
                f"the reader group {group.name!r} belongs to another key: its members share one key; use "
                "that, or choose another group"
            )
            return text, ErrorCode.AUTH
        if (wrong := self._wrong_number(group, known)) is not None:
            return wrong
        if group.leave is True:
            return None
        if not known and (wrong := wrong_start(fields, log) or wrong_lease(fields)) is not None:
            return wrong
        full = self._too_many_members(group, caller) or self._too_many_ids(group, known, caller)
        return None if full is None else (full, ErrorCode.BUSY)

    def _wrong_number(self, group: GroupFields, known: Collection[Partition]) -> Problem | None:
        asked, most = group.partitions, self._limits.max_partitions
        if asked is not UNSET and not 1 <= asked <= most:
            return f"a reader group has 1 to {most} partitions; {asked} were asked for", ErrorCode.BAD
        there = self._number(group, known)
        if there > most:
            text = (
                f"there are ids of a reader group {group.name!r} with {there} partitions, and this gateway "
                f"allows {most}: raise Limits(max_partitions=…), or choose another group"
            )
            return text, ErrorCode.BAD
        if asked is UNSET or there == asked:
            return None
        text = (
            f"the reader group {group.name!r} has {there} partitions, and {asked} were asked for. The number "
            "cannot change, because records of a key would change their reader: ask for "
            f"{there}, or for none in particular, or begin another group"
        )
        return text, ErrorCode.BAD

    def _too_many_members(self, group: GroupFields, caller: Caller) -> str | None:
        limits = self._limits
        self._forget_lost()
        if (group.name, group.member) in self._members:
            return None
        if len(self._members) >= limits.max_subscribers:
            return f"{len(self._members)} members of groups are here already, and no more can be: try later"
        theirs = sum(
            member.owner == caller.owner and (bool(caller.owner) or member.address == caller.address)
            for member in self._members.values()
        )
        if (caller.owner or not caller.is_local) and theirs >= limits.max_per_peer:
            return f"{theirs} members of groups are here already from this peer: try later"
        return None

    def _too_many_ids(self, group: GroupFields, known: Collection[Partition], caller: Caller) -> str | None:
        limits, registry = self._limits, self._registry
        count = self._number(group, known) - len(known)
        saved = len(registry.cursors.saved)
        if count and saved + count > limits.max_durable:
            return f"{saved} durable ids are remembered already: there is no space for {count} partitions"
        return too_many_ids(caller, registry.all(), registry.cursors, limits, count) if count else None

    def _number(self, group: GroupFields, known: Collection[Partition]) -> int:
        """How many partitions a group has, or would have."""
        asked = (
            min(_PARTITIONS, self._limits.max_partitions) if group.partitions is UNSET else group.partitions
        )
        return next((partition.partitions for partition in known), asked)

    def _create_missing(self, fields: SubscribeFields, group: GroupFields, caller: Caller) -> None:
        """Save cursors for all partitions at once: what is in the log from here on is for the group."""
        known = self._look(group.name)
        count = self._number(group, known)
        if len(known) == count:
            return
        log, registry = self._log, self._registry
        start = log.first
        if not known and fields.from_ is not UNSET and fields.from_ != "earliest":
            start = log.head if isinstance(fields.from_, str) else fields.from_
        lease = round(self._limits.lease * 1000)
        if fields.lease is not UNSET:
            lease = min(fields.lease, round(self._limits.max_lease * 1000))
        for number in range(count):
            partition = Partition(group.name, number, count)
            if partition not in known:
                cursor = Cursor(start, lease, lease / 1000, caller.owner)
                registry.cursors.leave(partition.id, cursor)
                registry.cursors.came_from(partition.id, caller)
                if group.begun or group.acks:
                    # The group was there before, and the gateway was killed before it had stored that.
                    registry.cursors.inherited.add(partition.id)
        # At once: what the group was promised must not be forgotten meanwhile.
        log.set_low_watermark(registry.low_watermark(), registry.needed())

    def _renew(self, name: str) -> None:
        """The lease of a group runs while no member is there."""
        for partition, reader in self._look(name).items():
            if isinstance(reader, ExtendedSession):
                reader.heard = self._registry.clock.now
            else:
                self._registry.cursors.renew(partition.id)

    def _note(self, group: GroupFields, caller: Caller, *, leaving: bool = False) -> None:
        now = self._registry.clock.now
        key = group.name, group.member
        begun = frozenset(group.begun if group.begun is not UNSET else ())
        if group.partition is not UNSET and key in self._members:
            begun = self._members[key].begun  # It takes a partition, and says nothing of the others.
        self._members[key] = _Member(caller.owner, caller.address, now, leaving, begun)

    # ---------------------------------------------------------------- who may take a partition
    def why_not(self, fields: SubscribeFields, caller: Caller) -> Problem | None:
        """Why a subscriber may not have a session, because of a group; None if it may, and is noted."""
        named = Partition.of_id(fields.id) if fields.id is not UNSET else None
        group = fields.group
        if group is UNSET:
            return None if named is None else self._why_no_id(named, caller)
        if named is None or (group.name, group.partition, group.partitions) != named:
            return "x.group and x.id have to name the same partition of a reader group", ErrorCode.BAD
        if fields.keys is not UNSET or fields.keep is False:
            return "a member of a reader group is a required reader, and names no keys", ErrorCode.BAD
        reader = self._look(named.group).get(named)
        if reader is None:
            return f"there is no {named.id!r}: its lease has ended", ErrorCode.TAKEN
        if self._is_live(reader) and _member(reader) != group.member:
            return f"{named.id!r} is read by the member {_member(reader)!r}", ErrorCode.TAKEN
        if fields.ack is not UNSET and fields.ack < reader.acknowledged:
            text = f"another member has read {named.id!r} since, up to {reader.acknowledged}"
            return text, ErrorCode.TAKEN
        text = f"the reader of {named.id!r} may come back: the gateway was restarted"
        if fields.ack is UNSET and not self._is_settled(named):
            return text, ErrorCode.TAKEN
        if group.lapsed is True and self._may_be_read(named):
            return text, ErrorCode.SESSION
        self._note(group, caller)
        return None

    def _why_no_id(self, named: Partition, caller: Caller) -> Problem | None:
        """Why nobody but a member can use an id that names a partition; None if it is an id like any other.

        What is not in the group yet would change how many partitions that has, or whose it is.
        """
        self._forget_lost()
        known = self._look(named.group)
        is_new = named not in self._partitions(named.id)
        others = any(reader.owner not in (None, caller.owner) for reader in known.values())
        if is_new and others:
            text = f"the reader group {named.group!r} belongs to another key: choose an id with another name"
            return text, ErrorCode.AUTH
        has_members = any(name == named.group for name, _ in self._members)
        if not has_members and not (is_new and known and named.partitions != next(iter(known)).partitions):
            return None
        text = (
            f"{named.id!r} is the name of a partition of the reader group {named.group!r}: read it as a "
            "member of the group, or choose another id"
        )
        return text, ErrorCode.BAD

    def _is_live(self, reader: _Reader) -> bool:
        group = reader.fields.group if isinstance(reader, ExtendedSession) else UNSET
        member = None if group is UNSET else self._members.get((group.name, group.member))
        return member is not None and self._silent(member) <= self._limits.member_timeout

    def _may_be_read(self, partition: Partition) -> bool:
        """Whether a reader from before a restart may not know yet that it has to ask again."""
        registry = self._registry
        inherited = partition.id in registry.cursors.inherited
        return inherited and registry.clock.now <= self._limits.member_timeout

    def _is_settled(self, partition: Partition) -> bool:
        """Whether no reader from before a restart will come back."""
        return not self._may_be_read(partition) and not any(
            name == partition.group and partition.number in member.begun
            for (name, _), member in self._members.items()
            if self._silent(member) <= self._limits.member_timeout
        )

    # ---------------------------------------------------------------- what there is to know
    def all(self) -> list[GroupStatus]:
        """The state of every group."""
        self._forget_lost()
        groups: defaultdict[str, dict[Partition, _Reader]] = defaultdict(dict)
        for partition, reader in self._partitions("").items():
            groups[partition.group][partition] = reader
        members: defaultdict[str, list[tuple[str, _Member]]] = defaultdict(list)
        for (name, member), noted in self._members.items():
            members[name].append((member, noted))
        return [self._shown(name, _of_one_number(groups[name]), members[name]) for name in sorted(groups)]

    @property
    def is_at_rest(self) -> bool:
        """Whether no member is there, which may not know of the end yet."""
        self._forget_lost()
        return not self._members

    def _status(self, name: str) -> GroupStatus:
        self._forget_lost()
        members = [(member, noted) for (group, member), noted in self._members.items() if group == name]
        return self._shown(name, self._look(name), members)

    def _shown(
        self, name: str, known: Mapping[Partition, _Reader], noted_members: Sequence[tuple[str, _Member]]
    ) -> GroupStatus:
        log = self._log
        held: defaultdict[str | None, list[int]] = defaultdict(list)
        partitions = []
        for partition, reader in known.items():
            live = self._is_live(reader)
            if live:
                held[_member(reader)].append(partition.number)
            shown = PartitionStatus(
                number=partition.number,
                acknowledged=reader.acknowledged,
                lag=max(log.head - reader.acknowledged, 0),
                member=_member(reader),
                free=not live and self._is_settled(partition),
                stored=self._registry.cursors.is_stored(partition.id),
            )
            partitions.append(shown)
        members = [
            MemberStatus(
                name=member,
                address=noted.address,
                silent=round(self._silent(noted), 3),
                partitions=held[member],
                leaving=noted.leaving,
            )
            for member, noted in sorted(noted_members, key=lambda item: item[0])
        ]
        return GroupStatus(
            name=name,
            owner=next((reader.owner for reader in known.values()), None),
            timeout=self._limits.member_timeout,
            end=log.end,
            failure=log.failure,
            partitions=partitions,
            members=members,
        )

    def _silent(self, member: _Member) -> float:
        return self._registry.clock.now - member.heard

    def _forget_lost(self) -> None:
        timeout = self._limits.member_timeout
        for key in [key for key, member in self._members.items() if self._silent(member) > timeout]:
            del self._members[key]

    def _look(self, name: str) -> Mapping[Partition, _Reader]:
        """The partitions of a group in their order, and who reads them."""
        found = self._partitions(name + "/")
        return _of_one_number({one: reader for one, reader in found.items() if one.group == name})

    def _partitions(self, prefix: str) -> Mapping[Partition, _Reader]:
        readers: dict[str, _Reader] = {
            id: cursor for id, cursor in self._registry.cursors.saved.items() if id.startswith(prefix)
        }
        for session in self._registry.by_topic.values():
            if session.name is not None and session.name.startswith(prefix):
                readers[session.name] = session
        return {
            partition: reader
            for id, reader in readers.items()
            if (partition := Partition.of_id(id)) is not None
        }


def _of_one_number(found: Mapping[Partition, _Reader]) -> Mapping[Partition, _Reader]:
    """The partitions of a group in their order.

    A journal may have ids that look like those of a group with another number of partitions. The group is
    that of which most are there.
    """
    numbers = Counter(one.partitions for one in found)
    number = max(numbers, key=lambda number: (numbers[number], number), default=0)
    return {one: found[one] for one in sorted(found) if one.partitions == number}


def _member(reader: _Reader) -> str | None:
    group = reader.fields.group if isinstance(reader, ExtendedSession) else UNSET
    return None if group is UNSET else group.member
