"""Questions from clients that are not reading: how far does the log go, and keep my cursor.

A probe is a ``Subscribe`` that opens no session. It may wait until the log goes beyond an offset, and with an
``id`` it moves that subscriber's cursor. A reader of ranges, as the tasks of a Spark query are, sends a probe
now and then so that the gateway keeps its records.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor, Log
from penstock.aquifer.protocol.admission import (
    Problem,
    too_many_ids,
    wrong_epoch,
    wrong_id,
    wrong_lease,
    wrong_version,
)
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnSubscribe,
    OnSubscribeFields,
    SubscribeFields,
    raw_status,
)
from penstock.aquifer.protocol.session import Reply, refusal
from penstock.aquifer.protocol.session_registry import SessionRegistry
from penstock.aquifer.security import Caller, Right
from penstock.aquifer.status import GatewayStatus, LeftOut
from penstock.spec import UNBOUNDED

__all__ = ["Probes", "status_for"]

_LONGEST_WAIT: Final = 30.0
"""Seconds that a probe may wait."""
_MOST_WAITING: Final = 1024
_UNTOLD: Final = "the source has failed, and only a key that may read is told why"
_UNTOLD_DOWN: Final = "only a key that may read is told why the source is down"


class _Waiting(NamedTuple):
    """A probe that has no answer yet."""

    envelope: tuple[bytes, ...]
    fields: SubscribeFields
    deadline: float
    caller: Caller


class Probes:
    """Answers probes, and keeps the cursors that they name."""

    def __init__(
        self, log: Log, limits: Limits, registry: SessionRegistry, status: Callable[[], GatewayStatus]
    ) -> None:
        self._log = log
        self._limits = limits
        self._registry = registry
        self._cursors = registry.cursors
        self._status = status
        self._waiting: list[_Waiting] = []

    def ask(
        self, fields: SubscribeFields, envelope: tuple[bytes, ...], now: float, caller: Caller
    ) -> list[Reply]:
        """A probe came."""
        problem = self._problem(fields, caller)
        if problem is not None:
            text, code = problem
            where = {"first": self._log.first, "head": self._log.head, "epoch": self._log.epoch}
            return [Reply(envelope, refusal(text, code, **where))]
        self._move(fields, caller)
        if fields.id is not UNSET:
            self._registry.watch(fields.id, fields.report if fields.report is not UNSET else None)
        if self._has_news(fields) or fields.wait is UNSET or len(self._waiting) >= _MOST_WAITING:
            return [self._answer(fields, envelope, caller)]
        # One question at a time from each peer: a new question replaces the one before.
        self._waiting = [waiting for waiting in self._waiting if waiting.envelope != envelope]
        # Bounded before it is divided: a peer may write more digits than a float can hold.
        seconds = max(0, min(fields.wait, _LONGEST_WAIT * 1000)) / 1000
        self._waiting.append(_Waiting(envelope, fields, now + seconds, caller))
        return []

    def tick(self, now: float) -> list[Reply]:
        """Answer the probes that have news, or have waited long enough."""
        if not self._waiting:
            return []
        due = [one for one in self._waiting if self._has_news(one.fields) or now >= one.deadline]
        self._waiting = [one for one in self._waiting if one not in due]
        return [self._answer(one.fields, one.envelope, one.caller) for one in due]

    def names(self) -> set[str]:
        """The ids whose probes wait for records."""
        return {one.fields.id for one in self._waiting if one.fields.id is not UNSET}

    def owners(self) -> set[str]:
        """The keys of the peers that wait for an answer."""
        return {one.caller.owner for one in self._waiting} - {""}

    def turn_away(self, owner: str) -> list[Reply]:
        """A key may not read any more: refuse what it has asked."""
        theirs = [one for one in self._waiting if one.caller.owner == owner]
        self._waiting = [one for one in self._waiting if one.caller.owner != owner]
        return [
            Reply(one.envelope, refusal("this key may not read here any more", ErrorCode.AUTH))
            for one in theirs
        ]

    def _problem(self, fields: SubscribeFields, caller: Caller) -> Problem | None:
        log = self._log
        wrong = wrong_version(fields) or wrong_id(fields, self._limits) or wrong_epoch(fields, log)
        if wrong is not None:
            return wrong
        if fields.ack is not UNSET and fields.id is UNSET:
            return "x.ack says how far a subscriber has come: x.id has to say which one", ErrorCode.BAD
        if fields.ack is not UNSET and not 0 <= fields.ack <= log.head:
            return f"x.ack is {fields.ack}, and the log goes up to {log.head}", ErrorCode.BAD
        if fields.ack is not UNSET and fields.id not in self._cursors.saved and fields.ack < log.first:
            return (
                f"offset {fields.ack} cannot be kept: the oldest still here is {log.first}",
                ErrorCode.OFFSET,
            )
        full = len(self._cursors.saved) >= self._limits.max_durable
        if fields.ack is not UNSET and fields.id not in self._cursors.saved and full:
            return f"{len(self._cursors.saved)} cursors are saved already, and no more can be", ErrorCode.BUSY
        if fields.ack is not UNSET and fields.id not in self._cursors.saved:
            text = too_many_ids(caller, (), self._cursors, self._limits)
            if text is not None:
                return text, ErrorCode.BUSY
        return wrong_lease(fields)

    def _move(self, fields: SubscribeFields, caller: Caller) -> None:
        if fields.id is UNSET:
            return
        cursor = self._cursors.saved.get(fields.id)
        if cursor is None and fields.ack is UNSET:
            return
        reached = cursor.acknowledged if cursor is not None else 0
        lease = cursor.lease_ms if cursor is not None else round(self._limits.lease * 1000)
        if fields.ack is not UNSET:
            reached = max(reached, fields.ack)
        if fields.lease is not UNSET:
            lease = min(fields.lease, round(self._limits.max_lease * 1000))
        self._cursors.leave(fields.id, Cursor(reached, lease, lease / 1000, caller.owner))
        self._cursors.came_from(fields.id, caller)

    def _has_news(self, fields: SubscribeFields) -> bool:
        return fields.beyond is UNSET or self._log.head > fields.beyond or self._log.end is not None

    def _answer(self, fields: SubscribeFields, envelope: tuple[bytes, ...], caller: Caller) -> Reply:
        cursor = self._cursors.saved.get(fields.id) if fields.id is not UNSET else None
        answer = OnSubscribeFields(
            v=VERSION,
            epoch=self._log.epoch,
            first=self._log.first,
            next=cursor.acknowledged if cursor is not None else UNSET,
            head=self._log.head,
            lease=cursor.lease_ms if cursor is not None else UNSET,
            status=raw_status(status_for(caller, self._status(), self._limits.max_listed)),
            fits=self._measured(fields),
            stream=self._registry.stream or UNSET,
        )
        return Reply(envelope, OnSubscribe(UNBOUNDED, 0, x=answer))

    def _measured(self, fields: SubscribeFields) -> tuple[int, int] | UnsetType:
        if fields.within is UNSET or not isinstance(fields.from_, int):
            return UNSET
        return self._log.measure(max(fields.from_, self._log.first), fields.within)


def status_for(caller: Caller, status: GatewayStatus, most: int) -> GatewayStatus:
    """What a caller may see of the status, and no more of it than fits into an answer.

    A caller that may not administer the gateway sees its own sessions and ids only. One that may not read
    either sees no text that can quote a record.
    """
    if not caller.may(Right.READ | Right.ADMIN):
        _leave_out_quotes(status)
    if not caller.may(Right.ADMIN):
        status.subscribers = [one for one in status.subscribers if one.owner == caller.owner]
        status.saved = {name: one for name, one in status.saved.items() if one.owner == caller.owner}
        if status.producers is not UNSET:
            status.producers = [one for one in status.producers if one.owner == caller.owner]
        if status.groups is not UNSET:
            status.groups = [one for one in status.groups if one.owner == caller.owner]
    groups = status.groups if status.groups is not UNSET else []
    left_out = [max(len(listed) - most, 0) for listed in (status.subscribers, status.saved, groups)]
    status.left_out = LeftOut(subscribers=left_out[0], absent=left_out[1], groups=left_out[2])
    status.subscribers = status.subscribers[:most]
    status.saved = dict(islice(status.saved.items(), most))
    if status.groups is not UNSET:
        status.groups = status.groups[:most]
    return status


def _leave_out_quotes(status: GatewayStatus) -> None:
    """Errors quote the elements that they are about, and the name of a source may have its first elements."""
    status.source.bad = status.source.stages = UNSET
    # A connection that breaks in the middle of a record may be down because of what came.
    status.source.reason = status.source.reason and _UNTOLD_DOWN
    status.failure = status.failure and _UNTOLD
    for stream in status.streams:
        stream.failure = stream.failure and _UNTOLD
    for group in status.groups if status.groups is not UNSET else []:
        group.failure = group.failure and _UNTOLD
