"""The model: every place where records can wait or take time, described by the same few figures.

A :class:`Hop` is one such place. A :class:`Snapshot` is all of them at one moment, with the
:class:`Verdict` on which one limits the flow. All figures of a hop that grow are totals since it began;
:func:`rates` makes rates and shares of two snapshots. Everything here is frozen, needs the standard library
alone, and travels as JSON: ``Snapshot.from_json(snapshot.to_json()) == snapshot``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.observe.json_form import JsonForm

__all__ = [
    "HOP_KINDS",
    "Hop",
    "HopRates",
    "QueryBatch",
    "RecentError",
    "Snapshot",
    "SubscriberFigures",
    "Verdict",
    "rates",
]

HOP_KINDS: Final = {
    "feed": "where the records of a gateway come from",
    "connection": "a socket of a sender or a receiver",
    "stage": "operators of a stream that run as one loop",
    "boundary": "a queue between two threads or event loops of a stream",
    "intake": "what has arrived at a gateway and is not in its log yet",
    "log": "the log of a gateway, and its journal",
    "cursor": "what a gateway sends to one subscriber",
    "producer": "a program that writes to a gateway",
    "query": "a streaming query of Spark",
    "sink": "where a query writes to",
    "reader": "a program that reads a gateway, from its own point of view",
}
"""The kinds of hops, from the sender to the last reader. A newer version may have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop(JsonForm):
    """One place between a sender's socket and the last subscriber where records wait or take time.

    A figure that cannot be known is None. The three times are seconds on a monotonic clock; together they
    grow by one second each second, as far as they are known.
    """

    id: str
    """Identifies the hop in its snapshot, and in the next snapshots of the same observer."""
    kind: str
    """One of :data:`HOP_KINDS`."""
    name: str
    """For people: ``map(parse)``, the id of a subscriber, the name of a query."""
    upstream: tuple[str, ...] = ()
    """The hops that records come from."""
    state: str = "running"
    """``running``, ``full``, ``paused``, ``joining``, ``away``, ``connecting``, ``down``, ``stalled``,
    ``ended`` or ``failed``."""
    reason: str = ""
    """Why it is in this state, if there is something to say."""
    where: str = ""
    """The endpoint, or the process, that the hop lives in."""
    peer: str = ""
    """Of a client: the hop at its gateway that it belongs to, as far as the client can know its id."""
    required: bool = True
    """Whether the hops above have to wait for it when it is slow."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int | None = None
    bytes_out: int | None = None

    waiting: int | None = None
    """How many records wait in it now."""
    capacity: int | None = None
    """How many may wait in it; None if there is no bound, or none is known."""
    waiting_bytes: int | None = None
    capacity_bytes: int | None = None
    demand: int | None = None
    """How many records it may still send down; None if that is not known or not limited."""

    waiting_for_demand: float | None = None
    """Seconds in which it had something to send, and nobody below wanted it."""
    waiting_for_data: float | None = None
    """Seconds in which it had nothing to do."""
    working: float | None = None
    """Seconds in which it worked."""

    lag_records: int | None = None
    """How many records it is behind the newest one."""
    lag_seconds: float | None = None
    """How long the newest record that it has passed on was behind the newest one of the log."""
    oldest_seconds: float | None = None
    """The age of the oldest record that waits in it."""
    full_seconds: float | None = None
    """For how long it has been full without a break; None if it is not."""
    offset: int | None = None
    """Of a log, a cursor or a query: the offset that follows the last record which has come through it."""
    errors: int = 0
    details: Mapping[str, float] = field(default_factory=dict)
    """Figures that only this kind of hop has, such as ``commit_seconds`` of a log."""

    @property
    def stream(self) -> str:
        """The name of the stream that it belongs to; empty if that needs none."""
        return self.where.removeprefix("tcp://").partition("/")[2] if self.where.startswith("tcp://") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBatch(JsonForm):
    """One batch of a Spark query."""

    query: str
    """The id of the query's hop."""
    number: int
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, in Spark's words: ``addBatch``, ``latestOffset``, ``walCommit``, …"""
    rows_in: int = 0
    rows_out: int | None = None
    """None if the sink does not say."""
    first: int | None = None
    """The offset of its first record, in the log of the gateway that the query's hop belongs to."""
    end: int | None = None
    """The offset that follows its last record there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberFigures(JsonForm):
    """A subscriber of a gateway, here or away."""

    hop: str
    """The id of its cursor's hop."""
    name: str
    gateway: str = ""
    state: str = ""
    address: str = ""
    required: bool = True
    cursor: int = 0
    """The offset of the next record to send to it."""
    acknowledged: int = 0
    lag_records: int = 0
    lag_seconds: float | None = None
    lease_seconds: float | None = None
    """Of one that is away: seconds until its records are not kept for it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentError(JsonForm):
    """Something that went wrong in a hop, or a hop that could not be asked."""

    at: float
    """Seconds since 1970."""
    hop: str
    message: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JsonForm):
    """Which hop limits the flow, since when, what it costs, and what to try."""

    sentence: str
    """The whole answer in plain words, without the advice."""
    limiting: str | None = None
    """The id of the hop that limits the flow; None if the source is slower than everything below it."""
    also: tuple[str, ...] = ()
    """Other hops that would limit the flow at about the same rate."""
    since: float | None = None
    """For how many seconds it has been so, as far as was seen."""
    rate: float | None = None
    """Records a second now."""
    possible: float | None = None
    """Records a second that the hops above it could do, as far as is known."""
    evidence: tuple[str, ...] = ()
    """The figures behind the sentence, each in a few words."""
    advice: str = ""
    """What to try; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(JsonForm):
    """Every hop that an observer can see at one moment."""

    at: float
    """Seconds since 1970, for people. This clock may jump."""
    clock: float
    """Seconds on the observer's monotonic clock, for differences."""
    hops: tuple[Hop, ...] = ()
    """From the sources down: a hop stands below its upstreams."""
    verdict: Verdict | None = None
    """None in the first snapshot of an observer: it takes two to see who waits for whom."""
    other_verdicts: tuple[Verdict, ...] = ()
    """Of several pipelines that share no hop: the verdicts on the others in which a hop limits the flow."""
    errors: tuple[RecentError, ...] = ()
    batches: tuple[QueryBatch, ...] = ()
    subscribers: tuple[SubscriberFigures, ...] = ()

    @property
    def limiting(self) -> frozenset[str]:
        """The ids of the hops that limit a flow: at most one for each pipeline."""
        verdicts = () if self.verdict is None else (self.verdict, *self.other_verdicts)
        return frozenset(each.limiting for each in verdicts if each.limiting is not None)

    def hop(self, id: str) -> Hop:
        """The hop with this id; KeyError if there is none."""
        for hop in self.hops:
            if hop.id == id:
                return hop
        raise KeyError(id)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopRates(JsonForm):
    """What a hop did between two snapshots: records and bytes a second, and shares of the time."""

    hop: str
    seconds: float
    """The time between the two snapshots."""
    records_in: float = 0.0
    records_out: float = 0.0
    bytes_in: float | None = None
    bytes_out: float | None = None
    waiting_for_demand: float | None = None
    """A share from 0 to 1, as are the next two."""
    waiting_for_data: float | None = None
    working: float | None = None
    errors: float = 0.0


def rates(before: Snapshot, after: Snapshot) -> dict[str, HopRates]:
    """Rates and shares between two snapshots of one observer, by the id of the hop.

    A hop that is new, or that was started anew so that its totals went back, is not among them.
    """
    seconds = after.clock - before.clock
    if seconds <= 0:
        return {}
    earlier = {hop.id: hop for hop in before.hops}
    return {
        hop.id: _change(earlier[hop.id], hop, seconds)
        for hop in after.hops
        if hop.id in earlier and not _restarted(earlier[hop.id], hop)
    }


def _restarted(before: Hop, after: Hop) -> bool:
    return after.records_in < before.records_in or after.records_out < before.records_out


def _change(before: Hop, after: Hop, seconds: float) -> HopRates:
    return HopRates(
        hop=after.id,
        seconds=seconds,
        records_in=(after.records_in - before.records_in) / seconds,
        records_out=(after.records_out - before.records_out) / seconds,
        bytes_in=_per_second(before.bytes_in, after.bytes_in, seconds),
        bytes_out=_per_second(before.bytes_out, after.bytes_out, seconds),
        waiting_for_demand=_share(before.waiting_for_demand, after.waiting_for_demand, seconds),
        waiting_for_data=_share(before.waiting_for_data, after.waiting_for_data, seconds),
        working=_share(before.working, after.working, seconds),
        errors=max(0.0, (after.errors - before.errors) / seconds),
    )


def _per_second(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    return (after - before) / seconds if after > before else 0.0


def _share(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None:
        return None
    return min(1.0, (after - before) / seconds) if after > before else 0.0
