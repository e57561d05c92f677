"""What a gateway says of itself: the answers of :meth:`penstock.aquifer.Gateway.status` and of a probe.

On the wire a status is a JSON object. Its keys are older than the names of the attributes here, and stay:
``floor`` is the low watermark, ``absent`` are the saved cursors.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from penstock.aquifer.source_status import SourceStatus
from penstock.aquifer.status_object import HopTimes, StatusObject

__all__ = [
    "AdminAnswer",
    "CursorStatus",
    "DepartedStatus",
    "GatewayStatus",
    "GroupStatus",
    "Handover",
    "IdList",
    "IdStatus",
    "LeftOut",
    "LogFigures",
    "MemberStatus",
    "PartitionStatus",
    "ProducerStatus",
    "QueryReport",
    "SessionStatus",
    "SourceStatus",
    "StreamStatus",
]


class LogFigures(StatusObject):
    """How the log is written."""

    times: HopTimes = field(default_factory=HopTimes)
    """``working`` is the time in the journal, ``waiting_for_demand`` the time without space."""
    appended: int = 0
    appended_bytes: int = 0
    """Since the gateway was started."""
    plain_bytes: int = 0
    """What these bytes were before they were compressed, where they are."""
    commits: int = 0
    commit_seconds: float = 0.0
    """How many transactions were written, and how long that took in all."""
    full_seconds: float | None = None
    """For how long there has been no space without a break; None if there is."""
    oldest_seconds: float = 0.0
    """The age of the oldest record in the log."""


class ProducerStatus(StatusObject):
    """A program that writes to the gateway."""

    name: str = ""
    owner: str = ""
    batches: int = 0
    records: int = 0
    bytes: int = 0
    pending: int = 0
    """Records that it has committed and that are not in the log yet."""
    times: HopTimes = field(default_factory=HopTimes)
    """``waiting_for_demand`` is the time in which it waited for space, ``working`` that in the journal."""


class QueryReport(StatusObject, omit_defaults=True):
    """What a query says about its last batch, in the probes by which it keeps its cursor."""

    name: str = ""
    """The name that its user gave it, if any."""
    query: str = ""
    """Spark's id of it, which is also the name under which it writes."""
    batch: int = -1
    rows: int = 0
    at: float = 0.0
    """When the batch began, in seconds since 1970."""
    seconds: float = 0.0
    """How long the batch took, without the wait for records."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds by phase, in Spark's words."""
    sink: str = ""
    """The endpoint of the gateway that it writes to, or Spark's description of another sink."""
    sink_seconds: float = 0.0
    """How long the sink took to commit the batch, as far as is known."""
    first: int = -1
    """The offset of the first record that the batch read from this gateway; -1 if it is not known."""
    end: int = -1
    """The offset that follows the last one."""
    rows_out: int = -1
    """How many rows were written; -1 if the sink does not say."""
    errors: int = 0


class SessionStatus(StatusObject):
    """A subscriber that is here."""

    number: int = field(default=0, name="session")
    """Identifies the session for as long as the gateway runs."""
    id: str | None = None
    """The durable id, if it has one."""
    owner: str = ""
    """The public key of the subscriber, if it has one."""
    address: str = ""
    dialect: str = ""
    state: str = ""
    cursor: int = field(default=0, name="next")
    """The offset of the next record to send."""
    acknowledged: int = 0
    lag: int = 0
    """How many records it is behind."""
    required: bool = field(default=True, name="keep")
    """Whether the source waits for it."""
    records: int = 0
    bytes: int = 0
    credit: int | UnsetType = field(default=UNSET, name="limit")
    """Extended subscribers: the offset up to which it has given credit."""
    received: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    """Bytes that were sent and have not arrived yet, as far as is known."""
    format: str | UnsetType = UNSET
    repeats: int | UnsetType = UNSET
    """Requests that said nothing new."""
    keys: int | UnsetType = UNSET
    """How many keys it has asked for, if it wants only the records with those,"""
    left_out: int | UnsetType = UNSET
    """and how many others it was not sent."""
    redelivered: int | UnsetType = UNSET
    """How many records the subscriber has delivered again, because they were refused."""
    member: str | UnsetType = UNSET
    """The member of a reader group that reads this partition of it."""
    lag_seconds: float | UnsetType = UNSET
    """How long the next record to send has been in the log."""
    times: HopTimes | UnsetType = UNSET
    """``waiting_for_demand`` is the time in which the gateway had records, but no credit."""
    name: str | UnsetType = UNSET
    """In a list for an administrator: what the access list calls the owner."""


class CursorStatus(StatusObject):
    """A durable subscriber that is away: its saved cursor."""

    acknowledged: int = 0
    lease_ms: int = 0
    remaining: float = 0.0
    """Seconds until its lease ends, and its records need not be kept any more."""
    owner: str | None = None
    lag: int | UnsetType = UNSET
    lag_seconds: float | UnsetType = UNSET
    times: HopTimes | UnsetType = UNSET
    """Of one that asks for ranges, as a Spark query does; ``waiting_for_data`` is the time in which its probe
    waited for records."""
    batches: list[QueryReport] | UnsetType = UNSET
    """What it has said about its last batches, if it is a query; the newest comes last."""


class DepartedStatus(StatusObject):
    """The subscribers that have left, together."""

    subscribers: int = 0
    records: int = 0
    bytes: int = 0
    to: int = 0
    """The highest offset that one of them had acknowledged."""


class LeftOut(StatusObject):
    """How many entries a shortened status does not show."""

    subscribers: int = 0
    absent: int = 0
    groups: int = 0


class MemberStatus(StatusObject):
    """A member of a reader group that is there."""

    name: str = ""
    address: str = ""
    silent: float = 0.0
    """Seconds since it was last heard of."""
    partitions: list[int] = field(default_factory=list)
    """Those that it reads."""
    leaving: bool = False
    """Whether it leaves, and is still at work on the last records."""


class PartitionStatus(StatusObject):
    """A partition of a reader group."""

    number: int = 0
    acknowledged: int = 0
    lag: int = 0
    """How many records of the log its cursor is behind, whatever their keys are."""
    member: str | None = None
    """The member that reads it, or did until it was lost."""
    free: bool = False
    """Whether a member may take it."""
    stored: bool = True
    """Whether the journal has what is acknowledged; if not, the gateway forgets it when it is killed."""


class GroupStatus(StatusObject):
    """A reader group: its partitions, and the members that share them."""

    name: str = ""
    owner: str | None = None
    """The key that all its members have; empty if they have none."""
    timeout: float = 0.0
    """Seconds of silence after which a member is gone."""
    end: int | None = None
    """Where the stream ends, once that is known."""
    failure: str | None = None
    partitions: list[PartitionStatus] = field(default_factory=list)
    members: list[MemberStatus] = field(default_factory=list)


class StreamStatus(StatusObject):
    """One of the streams of a gateway, in a list of them."""

    name: str = ""
    """Empty for a stream that needs none."""
    default: bool = False
    """Whether readers that do not name a stream get this one."""
    epoch: str = ""
    first: int = 0
    head: int = 0
    end: int | None = None
    failure: str | None = None
    stalled: str | None = None
    durable: bool = False
    records: int = 0
    max_records: int | None = None
    bytes: int = 0
    max_bytes: int | None = None
    codec: str = ""
    subscribers: int = 0
    absent: int = 0
    """How many durable subscribers are away."""


class GatewayStatus(StatusObject):
    """The log, the source, the subscribers and the counters of a gateway at one moment.

    A gateway with several streams tells this of each; ``streams`` is the list of all.
    """

    stream: str = ""
    """The name of the stream; empty for one that needs none."""
    streams: list[StreamStatus] = field(default_factory=list)
    epoch: str = ""
    uptime: float = 0.0
    """Seconds."""
    first: int = 0
    """The oldest offset in the log."""
    head: int = 0
    """The offset that the next record will get."""
    low_watermark: int = field(default=0, name="floor")
    """The lowest offset that has to be kept."""
    end: int | None = None
    """Where the stream ends, once that is known."""
    failure: str | None = None
    """Why the source ended, if it did not complete."""
    durable: bool = False
    records: int = 0
    max_records: int | None = None
    bytes: int = 0
    max_bytes: int | None = None
    stalled: str | None = None
    """Why nothing can be written at the moment, if so."""
    codec: str = ""
    source: SourceStatus = field(default_factory=SourceStatus)
    subscribers: list[SessionStatus] = field(default_factory=list)
    saved: dict[str, CursorStatus] = field(default_factory=dict, name="absent")
    """The durable subscribers that are away, by id."""
    departed: DepartedStatus = field(default_factory=DepartedStatus)
    counters: dict[str, int] = field(default_factory=dict)
    """What came in that should not have, by kind."""
    log: LogFigures | UnsetType = UNSET
    producers: list[ProducerStatus] | UnsetType = UNSET
    """The programs that write to this gateway."""
    groups: list[GroupStatus] | UnsetType = UNSET
    """The reader groups, if there are any."""
    left_out: LeftOut | UnsetType = UNSET
    """In the answer to a probe: how much of ``subscribers`` and ``saved`` it does not show."""


class IdStatus(StatusObject):
    """A durable id in a list for an administrator: a session or a saved cursor."""

    id: str = ""
    here: bool = False
    """Whether somebody reads under it now."""
    name: str = ""
    """What the access list calls the owner."""
    owner: str | None = None
    acknowledged: int = 0
    lag: int = 0
    lease_ms: int | UnsetType = UNSET
    remaining: float | UnsetType = UNSET
    """Of an id that is away: its lease, and how many seconds of it are left."""
    number: int | UnsetType = field(default=UNSET, name="session")
    address: str | UnsetType = UNSET
    dialect: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    cursor: int | UnsetType = field(default=UNSET, name="next")
    required: bool | UnsetType = field(default=UNSET, name="keep")
    records: int | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    credit: int | UnsetType = field(default=UNSET, name="limit")
    received: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    format: str | UnsetType = UNSET
    repeats: int | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    left_out: int | UnsetType = UNSET
    redelivered: int | UnsetType = UNSET
    member: str | UnsetType = UNSET
    lag_seconds: float | UnsetType = UNSET
    """How long the next record for it has been in the log."""
    times: HopTimes | UnsetType = UNSET


class IdList(StatusObject):
    """The durable ids of a gateway, and the sessions without one."""

    ids: list[IdStatus] = field(default_factory=list)
    sessions: list[SessionStatus] = field(default_factory=list)
    left_out: int = 0
    """How many sessions without an id are not shown."""
    next: str | None = None
    """The id after which the next page of the list begins; None if this is the last page."""
    total: int | UnsetType = UNSET
    """How many ids there are in all; absent if the gateway did not send a list."""


class Handover(StatusObject):
    """An id, or the name of a writer, that belongs to another key from now on."""

    id: str | UnsetType = UNSET
    writer: str | UnsetType = UNSET
    owner: str = ""
    acknowledged: int | UnsetType = UNSET


class CursorMove(StatusObject):
    """An id that continues at another offset from now on."""

    id: str = ""
    acknowledged: int = 0
    """Where it was,"""
    offset: int = 0
    """and where it continues."""


class AdminAnswer(StatusObject):
    """What was done for an administrator: one of these."""

    evicted: SessionStatus | UnsetType = UNSET
    forgotten: IdStatus | UnsetType = UNSET
    given: Handover | UnsetType = UNSET
    moved: CursorMove | UnsetType = UNSET
