"""Whether a peer may have what it asks for: its rights, its quotas, and what the log has.

For a quota, a peer is a key where there are keys, and otherwise an address. The gateway cannot tell programs
without keys on its own machine apart, so for them only the bounds on all peers together hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final, TypeAlias

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.protocol.cursors import Cursors
from penstock.aquifer.protocol.messages import (
    VERSION,
    Control,
    Subscribe,
    SubscribeFields,
    commit_in,
    extension,
    put_in,
)
from penstock.aquifer.protocol.session import Session
from penstock.aquifer.records.batch import ARROW, MSGPACK
from penstock.aquifer.security.access import Caller, Right
from penstock.token_bucket import TokenBucket

__all__ = [
    "Budgets",
    "Problem",
    "acknowledged_for",
    "format_for",
    "is_ahead",
    "problem_with",
    "start_for",
    "too_many_ids",
    "too_many_sessions",
    "why_not",
    "wrong_epoch",
    "wrong_id",
    "wrong_lease",
    "wrong_start",
    "wrong_version",
]


Problem: TypeAlias = tuple[str, ErrorCode]
"""Why something cannot be had, and the code for it."""


def problem_with(fields: SubscribeFields, log: Log, limits: Limits) -> Problem | None:
    """Why this cannot be had, and the code for it; None if it can."""
    wrong = (
        wrong_version(fields)
        or wrong_id(fields, limits)
        or wrong_epoch(fields, log)
        or wrong_start(fields, log)
    )
    if wrong is not None:
        return wrong
    if fields.ack is not UNSET and not 0 <= fields.ack <= log.head:
        return f"x.ack is {fields.ack}, and the log goes up to {log.head}", ErrorCode.BAD
    if fields.to is not UNSET and fields.to < 0:
        return f"to {fields.to}: offsets are never negative", ErrorCode.BAD
    if (wrong := wrong_lease(fields)) is not None:
        return wrong
    if fields.keys is not UNSET and not 0 < len(fields.keys) <= limits.max_keys:
        return (
            f"a subscriber asks for 1 to {limits.max_keys} keys, or for all records; this one asks for "
            f"{len(fields.keys)}",
            ErrorCode.BAD,
        )
    if format_for(fields) is None:
        known = " and ".join(_formats())
        return f"this gateway knows none of the formats {fields.fmt}; it knows {known}", ErrorCode.BAD
    return None


def wrong_version(fields: SubscribeFields) -> Problem | None:
    """Whether the peer speaks another version of the dialect."""
    if fields.v == VERSION:
        return None
    return f"version {fields.v} of the dialect; this gateway speaks {VERSION}", ErrorCode.BAD


def wrong_id(fields: SubscribeFields, limits: Limits) -> Problem | None:
    """Whether the id is empty or too long."""
    if fields.id is UNSET or 0 < len(fields.id) <= limits.max_id:
        return None
    return f"an id has 1 to {limits.max_id} characters; this one has {len(fields.id)}", ErrorCode.BAD


def wrong_epoch(fields: SubscribeFields, log: Log) -> Problem | None:
    """Whether the peer means offsets of another log."""
    if fields.epoch is UNSET or fields.epoch == log.epoch:
        return None
    return f"epoch {fields.epoch} is over, this is {log.epoch}: its offsets start anew", ErrorCode.EPOCH


def wrong_start(fields: SubscribeFields, log: Log) -> Problem | None:
    """Whether the log does not have the record to begin with."""
    start = fields.from_
    if isinstance(start, str) and start not in ("earliest", "latest"):
        return f"from {start!r}: give an offset, 'earliest' or 'latest'", ErrorCode.BAD
    if isinstance(start, int) and not log.first <= start <= log.head:
        text = f"offset {start} is not available: there are {log.first} to {log.head - 1}"
        if is_ahead(fields, log):
            text += f" in the epoch {log.epoch}; was an old copy of the journal restored?"
        return text, ErrorCode.OFFSET
    return None


def is_ahead(fields: SubscribeFields, log: Log) -> bool:
    """Whether the peer says that this very log was longer."""
    return fields.epoch == log.epoch and isinstance(fields.from_, int) and fields.from_ > log.head


def wrong_lease(fields: SubscribeFields) -> Problem | None:
    """Whether the lease has no time."""
    if fields.lease is UNSET or fields.lease > 0:
        return None
    return f"a lease of {fields.lease} ms: give at least 1", ErrorCode.BAD


def format_for(fields: SubscribeFields) -> str | None:
    """The first of the requested formats that this gateway knows; None if it knows none."""
    asked: Iterable[str] = fields.fmt if fields.fmt is not UNSET and fields.fmt else (MSGPACK,)
    known = _formats()
    return next((format for format in asked if format in known), None)


def _formats() -> tuple[str, ...]:
    # Checked before it is promised: without pyarrow the gateway could not send it.
    return (MSGPACK, ARROW) if find_spec("pyarrow") is not None else (MSGPACK,)


def start_for(fields: SubscribeFields, saved: Cursor | None, log: Log) -> int:
    """The offset of the first record to send."""
    if fields.from_ == "latest":
        return log.head
    if isinstance(fields.from_, int):
        return fields.from_
    if fields.from_ is UNSET and saved is not None:
        return min(max(saved.acknowledged, log.first), log.head)
    return log.first


def acknowledged_for(fields: SubscribeFields, start: int, kept: Iterable[int], log: Log) -> int:
    """The first offset that a subscriber that starts at ``start`` has not acknowledged yet.

    ``kept`` are the offsets that were kept for it before. Where a subscriber starts does not say what it has
    dealt with: it may have received records and crashed. Only its acknowledgement counts.
    """
    offsets = [start, *kept]
    if fields.ack is not UNSET:
        offsets.append(fields.ack)
    elif fields.id is not UNSET and isinstance(fields.from_, int) and len(offsets) == 1:
        offsets.append(log.first)
    return max(min(offsets), log.first)


_MOST_BUDGETS = 4096


class Budgets:
    """Each peer may send so many requests per second, with a burst of as many."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._buckets: OrderedDict[bytes | str, TokenBucket] = OrderedDict()

    def allow(self, who: bytes | str, now: float) -> bool:
        """Whether there is a token left, which is then taken."""
        bucket = self._buckets.pop(who, None) or TokenBucket(self._rate, self._rate, now)
        self._buckets[who] = bucket  # the peer that asked last is the last one to be forgotten
        if len(self._buckets) > _MOST_BUDGETS:
            self._buckets.popitem(last=False)
        return bucket.take(now) == 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def forget(self, who: bytes) -> None:
        """The peer is gone."""
        self._buckets.pop(who, None)


def too_many_sessions(caller: Caller, sessions: Iterable[Session], limits: Limits) -> str | None:
    """Why this peer may not have another session, if so."""
    if not caller.owner and caller.is_local:
        return None
    theirs = sum(
        session.owner == caller.owner and (bool(caller.owner) or session.address == caller.address)
        for session in sessions
    )
    if theirs < limits.max_per_peer:
        return None
    return f"{theirs} subscribers {_of(caller)} are here already, and it may have no more: try later"


def too_many_ids(
    caller: Caller, sessions: Iterable[Session], cursors: Cursors, limits: Limits, count: int = 1
) -> str | None:
    """Why this peer may not have so many more durable ids, if so."""
    if not caller.owner and caller.is_local:
        return None
    theirs = sum(
        session.name is not None
        and session.owner == caller.owner
        and (bool(caller.owner) or session.address == caller.address)
        for session in sessions
    )
    theirs += cursors.count(caller)
    if theirs + count <= limits.max_ids_per_peer:
        return None
    return f"{theirs} ids {_of(caller)} are remembered already, and it may have {limits.max_ids_per_peer}"


def _of(caller: Caller) -> str:
    return "with this key" if caller.owner else f"from {caller.address}"


_WHAT: Final = {Right.READ: "read", Right.WRITE: "write", Right.ADMIN: "administer this gateway"}


def why_not(message: Control, caller: Caller) -> str | None:
    """Why this caller may not send this message; None if it may."""
    fields = extension(message.x) if isinstance(message, Subscribe) else None
    if put_in(message) is not None or commit_in(message) is not None:
        needed = Right.WRITE
    elif fields is not None and fields.probe is True and fields.admin is not UNSET:
        needed = Right.ADMIN
    elif (
        fields is not None
        and fields.probe is True
        and fields.id is UNSET
        and fields.group is UNSET
        and caller.rights
    ):
        return None  # Any key with a right may ask for the status.
    else:
        needed = Right.READ
    return None if caller.may(needed) else _told(needed, caller)


def _told(needed: Right, caller: Caller) -> str:
    if not caller.owner:
        return f"without a key, nobody may {_WHAT[needed]} from {caller.address}"
    if not caller.rights:
        return "this key may do nothing here: it is not on the list of clients, or without any rights"
    return (
        f"this key may not {_WHAT[needed]}: its rights are {caller.rights}. "
        f'Where the gateway runs, put rights = "{caller.rights | needed}" into its .pub file'
    )
