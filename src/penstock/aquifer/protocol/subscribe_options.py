"""What a subscriber asks of a gateway, whatever dialect the gateway turns out to speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.aquifer.protocol.messages import GroupFields, SegmentFields
from penstock.aquifer.records.batch import MSGPACK
from penstock.aquifer.records.compression import ZSTD, knows_zstd
from penstock.backoff import Backoff

__all__ = ["RECONNECT", "Segment", "Segments", "SubscribeOptions"]

RECONNECT: Final = Backoff(first=0.1, longest=3.2, jitter=0.0)
"""How soon a client connects again when a connection was lost before its answer.

Without jitter: the pauses are short, and a gateway that cannot serve everybody at once says when to return.
"""


class Segment(Protocol):
    """Shared memory, as far as the protocol knows about it."""

    def payload(self, place: bytes | memoryview) -> memoryview:
        """The payload at a place."""
        ...

    def in_use(self) -> list[int]:
        """How many payloads were seen, and the numbers of those that are still in use."""
        ...


class Segments(Protocol):
    """Finds shared memory."""

    @property
    def token(self) -> str:
        """The token of the segment that is mapped already, or an empty string."""
        ...

    def open(self, offer: SegmentFields) -> Segment | None:
        """The segment that a gateway offers, if this process can see it."""
        ...


@dataclass
class SubscribeOptions:
    """The options of one subscription."""

    name: str | None = None
    """The durable id, if the gateway shall keep a cursor for this subscriber."""
    stream: str = ""
    """The name of the stream; empty for the default one."""
    start: int | str | None = None
    stop: int | None = None
    epoch: str | None = None
    keys: list[bytes] | None = None
    """Only the records with one of these keys are wanted; None for all records."""
    group: GroupFields | None = None
    """The partition of a reader group that is wanted; the durable id is that of the partition then."""
    each: bool = False
    """Whether each record is acknowledged by itself, so that offsets are needed."""
    keep: bool = True
    """Whether this is a required reader: the source waits for it."""
    formats: list[str] = field(default_factory=lambda: [MSGPACK])
    compressions: list[str] = field(default_factory=lambda: [ZSTD] if knows_zstd() else [])
    """The ways of compressing a payload that this subscriber understands."""
    lease: float = 60.0
    dialect: str = "auto"
    """``"auto"``, ``"extended"`` or ``"plain"``."""
    window: int = 65_536
    max_window: int = 262_144
    window_bytes: int = 8 * 1024 * 1024
    timeout: float = 1.0
    """Seconds to wait for the next declared record before the rest counts as lost (plain dialect)."""
    patience: float = 30.0
    """Seconds without a gateway after which the subscriber gives up."""
    encrypted: bool = False
    """Whether the connection has keys, so that a wrong one may be why there is none."""
    segments: Segments | None = None
    """Finds the memory that a gateway on the same machine shares; without it none is asked for."""
    on_gap: Callable[[int, int], object] | None = None
    """Called with the first missing and the next available offset when an optional reader was overtaken;
    without it that is an error."""
    on_deficit: Callable[[int, int, int], object] | None = None
    """Called with declared, received and the new size of requests (plain dialect)."""

    @property
    def is_choosy(self) -> bool:
        """Whether some records are left out, because of their keys."""
        return self.keys is not None or self.group is not None

    @property
    def is_durable(self) -> bool:
        """Whether the gateway keeps a cursor, and this subscriber alone sees to it."""
        return self.name is not None and self.keep and self.group is None

    @property
    def needs_extended(self) -> str | None:
        """The option that a plain gateway cannot fulfil, if there is one."""
        if self.group is not None:
            return "a reader group"
        if self.name is not None:
            return "a durable id"
        if self.stream:
            return f"the name of a stream, /{self.stream}"
        if self.start not in (None, "earliest"):
            return f"start={self.start!r}"
        if self.each:
            return "acknowledge='each'"
        if self.keys is not None:
            return "keys=…"
        return "stop=…" if self.stop is not None else None
