"""What a source of records tells a log: which records belong together, where to go on, and how it is.

A source may emit plain elements. One that wants to know when its records are safe, or where to go on after a
restart, emits :class:`Delivery` objects instead::

    yield Delivery([b"20.5", b"21.0"], {"position": "2048"}, stored=lambda: acknowledge(2048))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

__all__ = ["UP", "BadRecord", "Delivery", "FeedState", "FeedStatus"]

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
