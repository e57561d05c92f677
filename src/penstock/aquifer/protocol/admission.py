"""Whether a gateway can give an extended subscriber what it asks for, and where it would start."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from msgspec import UNSET

from penstock.aquifer.batches import ARROW, MSGPACK
from penstock.aquifer.journal.interface import SavedCursor
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import VERSION, SubscribeTerms
from penstock.aquifer.protocol.sessions import LogView

__all__ = ["acknowledged_for", "format_for", "problem_with", "start_for"]


def problem_with(wishes: SubscribeTerms, log: LogView, limits: Limits) -> tuple[str, str] | None:
    """Why this cannot be had, and the code for it; None if it can."""
    if wishes.v != VERSION:
        return f"version {wishes.v} of the dialect; this gateway speaks {VERSION}", "BAD"
    if wishes.id is not UNSET and not 0 < len(wishes.id) <= limits.max_id:
        return f"an id has 1 to {limits.max_id} characters; this one has {len(wishes.id)}", "BAD"
    if wishes.epoch is not UNSET and wishes.epoch != log.epoch:
        return f"epoch {wishes.epoch} is over, this is {log.epoch}: its offsets start anew", "EPOCH"
    if isinstance(wishes.from_, str) and wishes.from_ not in ("earliest", "latest"):
        return f"from {wishes.from_!r}: give an offset, 'earliest' or 'latest'", "BAD"
    if isinstance(wishes.from_, int) and not log.first <= wishes.from_ <= log.head:
        return f"offset {wishes.from_} is not available: there are {log.first} to {log.head - 1}", "OFFSET"
    if wishes.ack is not UNSET and not 0 <= wishes.ack <= log.head:
        return f"x.ack is {wishes.ack}, and the log goes up to {log.head}", "BAD"
    if wishes.to is not UNSET and wishes.to < 0:
        return f"to {wishes.to}: offsets are never negative", "BAD"
    if wishes.lease is not UNSET and wishes.lease <= 0:
        return f"a lease of {wishes.lease} ms: give at least 1", "BAD"
    if format_for(wishes) is None:
        known = " and ".join(_formats())
        return f"none of the formats {wishes.fmt} is known here; known are {known}", "BAD"
    return None


def format_for(wishes: SubscribeTerms) -> str | None:
    """The best of the formats that were asked for; None if none of them can be had here."""
    asked: Iterable[str] = wishes.fmt if wishes.fmt is not UNSET and wishes.fmt else (MSGPACK,)
    known = _formats()
    return next((format for format in asked if format in known), None)


def _formats() -> tuple[str, ...]:
    # Found out before it is promised: a gateway without pyarrow would fail for everybody when it has to send.
    return (MSGPACK, ARROW) if find_spec("pyarrow") is not None else (MSGPACK,)


def start_for(wishes: SubscribeTerms, saved: SavedCursor | None, log: LogView) -> int:
    """The offset of the first record to send."""
    if wishes.from_ == "latest":
        return log.head
    if isinstance(wishes.from_, int):
        return wishes.from_
    if wishes.from_ is UNSET and saved is not None:
        return min(max(saved.acknowledged, log.first), log.head)
    return log.first


def acknowledged_for(wishes: SubscribeTerms, start: int, kept: Iterable[int], log: LogView) -> int:
    """The offset from which on records are kept for a subscriber that starts at ``start``.

    ``kept`` has what was kept for it before. Where a subscriber starts says nothing of what it has dealt
    with: it may have read further than that, and may die. Only its own word counts.
    """
    floor = [start, *kept]
    if wishes.ack is not UNSET:
        floor.append(wishes.ack)
    elif wishes.id is not UNSET and isinstance(wishes.from_, int) and len(floor) == 1:
        floor.append(log.first)
    return max(min(floor), log.first)
