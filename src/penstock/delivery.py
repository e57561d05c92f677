"""What a source of records tells a log: which records belong together, where to go on, and how it is.

A source may emit plain elements. One that wants to know when its records are safe, or where to go on after a
restart, emits :class:`Delivery` objects instead::

    yield Delivery([b"20.5", b"21.0"], {"position": "2048"}, stored=lambda: acknowledge(2048))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias

__all__ = [
    "UP",
    "BadRecord",
    "ConnectionMeter",
    "Delivery",
    "FeedConnections",
    "FeedState",
    "FeedStatus",
    "SenderFigures",
]

FeedStatus: TypeAlias = Literal["connecting", "up", "down"]
"""Whether a source can give records at the moment."""

_NO_MARKS: Final[Mapping[str, str | None]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """Records that came together, and become safe together: one transaction of the log has all of them.

    The same transaction stores the ``marks``. So a source that resumes after its last mark gives each record
    exactly once.
    """

    records: Sequence[Any]
    """The elements, as a source without deliveries would emit them; none, if only the marks change."""
    marks: Mapping[str, str | None] = field(default_factory=lambda: _NO_MARKS)
    """Small texts to store with the records, by name: where to resume. None deletes a mark."""
    stored: Callable[[], None] | None = None
    """Called once, after the commit, on the log's writer thread: tell the sender, and do not block."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An element that the source could read and not understand: what happens to it is the log's choice."""

    value: bytes
    """What came."""
    reason: str
    """Why it is not a record."""
    position: str = ""
    """Where it stands in the source: a line of a file, for instance."""
    key: bytes | None = None
    """The key that the record would have."""
    size: int | None = None
    """How many bytes came, if ``value`` does not have all of them."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """Whether a feed is there, since when, and if it is down, why."""

    status: FeedStatus
    since: float = field(default_factory=time.time)
    """Seconds since 1970."""
    reason: str | None = None
    """Why it is down, or what it is waiting for."""
    attempts: int = 0
    """How many attempts to connect have failed since it was up."""
    next_attempt: float | None = None
    """When it tries again, in seconds since 1970."""

    def __str__(self) -> str:
        return self.status if self.reason is None else f"{self.status}: {self.reason}"


UP: Final = FeedState("up", 0.0)
"""The state of a source that has no connection to lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderFigures:
    """What one sender of a feed does, or all of them together; totals are since it was first seen."""

    name: str
    """Its address; empty for the sum."""
    open: int = 0
    """How many connections, or requests, it has now."""
    paused: int = 0
    """How many of them wait because the log has no space."""
    records: int = 0
    bytes: int = 0
    """0 if the feed does not count them."""
    waiting_bytes: int = 0
    capacity_bytes: int | None = None
    waiting_for_demand: float = 0.0
    """Seconds, as are the next two. Of several connections it is the mean."""
    waiting_for_data: float = 0.0
    working: float = 0.0

    def with_capacity(self, nbytes: int) -> SenderFigures:
        """The same, with one bound for all connections together."""
        return replace(self, capacity_bytes=nbytes)


@dataclass(frozen=True, slots=True)
class FeedConnections:
    """Who sends to a feed: a few senders one by one, and all of them in the sum."""

    total: SenderFigures
    few: tuple[SenderFigures, ...] = ()
    """Those that have sent most lately, ordered by name."""


class ConnectionMeter(Protocol):
    """What a feed with connections shows of them; from any thread."""

    def sample(self, now: float) -> None:
        """Note what each connection does at this moment."""
        ...

    def figures(self) -> FeedConnections:
        """What was noted so far."""
        ...
