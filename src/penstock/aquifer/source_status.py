"""What a gateway says of its source: how far it has come, its stages, and the connections of its senders."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from penstock.aquifer.status_object import HopTimes, StatusObject
from penstock.delivery import FeedState

__all__ = ["BadElements", "ConnectionFigures", "SenderStatus", "SourceStatus", "StageStatus"]


class StageStatus(StatusObject):
    """A stage of the stream that feeds the gateway."""

    number: int = 0
    name: str = ""
    kind: str = "stage"
    """``stage``, ``boundary`` if it has a queue, ``connection`` or ``reader``."""
    upstreams: list[int] = field(default_factory=list)
    requested: int = 0
    emitted: int = 0
    queued: int = 0
    capacity: int | None = None
    queued_bytes: int | None = None
    capacity_bytes: int | None = None
    runs_on: str = ""
    times: HopTimes = field(default_factory=HopTimes)
    by_operator: dict[str, float] = field(default_factory=dict)
    """Seconds of work, by operator."""
    peer: str = ""
    """Of a reader of another gateway: its cursor there."""


class BadElements(StatusObject):
    """Elements that could not become records for the same reason."""

    reason: str = ""
    count: int = 0
    at: float = 0.0
    """When the last of them came, in seconds since 1970."""
    kept: bool = False
    """Whether they are dead letters; otherwise they were left out."""


class SenderStatus(StatusObject):
    """One sender of a feed."""

    name: str = ""
    open: int = 0
    """How many connections, or requests, it has now."""
    paused: int = 0
    """How many of them are not read at the moment, because the gateway has no space."""
    records: int = 0
    bytes: int = 0
    waiting_bytes: int = 0
    capacity_bytes: int = 0
    times: HopTimes = field(default_factory=HopTimes)


class ConnectionFigures(StatusObject):
    """The connections of a feed, all together."""

    open: int = 0
    paused: int = 0
    """How many are not read at the moment, because the gateway has no space."""
    records: int = 0
    bytes: int = 0
    """What they have sent, 0 if the feed does not count it."""
    waiting_bytes: int = 0
    capacity_bytes: int = 0
    times: HopTimes = field(default_factory=HopTimes)
    """The mean of all: ``waiting_for_demand`` is the time in which a socket was paused."""
    senders: list[SenderStatus] = field(default_factory=list)
    """The few that have sent most lately."""


class SourceStatus(StatusObject):
    """How far the source of a gateway has come."""

    requested: int = 0
    """How many elements the gateway has asked for."""
    received: int = 0
    skipped: int = 0
    """How many elements the source has left out, because they could not become records."""
    state: str | UnsetType = UNSET
    """Of a feed: connecting, up or down."""
    since: float | UnsetType = UNSET
    """When the state began, in seconds since 1970."""
    reason: str | UnsetType | None = UNSET
    """Why the feed is down."""
    attempts: int | UnsetType = UNSET
    """How many attempts to connect have failed since the feed was up."""
    bad: list[BadElements] | UnsetType = UNSET
    """The newest reasons why elements could not become records."""
    waiting: int | UnsetType = UNSET
    """How many elements have arrived and are not in the log yet."""
    times: HopTimes | UnsetType = UNSET
    stages: list[StageStatus] | UnsetType = UNSET
    """The stages of the stream that the gateway subscribes to, from its source down."""
    connections: ConnectionFigures | UnsetType = UNSET
    """The sockets of the senders, if the source is a feed that listens."""

    @classmethod
    def of(cls, requested: int, received: int, skipped: int, state: FeedState | None) -> SourceStatus:
        """The figures of a source and, if it is a feed, its state."""
        shown = cls(requested=requested, received=received, skipped=skipped)
        if state is not None:
            shown.state, shown.since, shown.reason = state.status, state.since, state.reason
            shown.attempts = state.attempts
        return shown
