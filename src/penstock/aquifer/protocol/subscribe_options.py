"""What a subscriber wants of a gateway, whatever dialect it will turn out to speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.aquifer.protocol.messages import SegmentFields
from penstock.aquifer.records.batch import MSGPACK

__all__ = ["Shelf", "Shelves", "SubscribeOptions"]


class Shelf(Protocol):
    """Shared memory, as far as the protocol has to know."""

    def payload(self, place: bytes | memoryview) -> memoryview:
        """What stands at a place."""
        ...

    def in_use(self) -> list[int]:
        """How many payloads were seen, and the numbers of those that are still in use."""
        ...


class Shelves(Protocol):
    """Who finds it."""

    @property
    def token(self) -> str:
        """Of the shelf that is there already, or nothing."""
        ...

    def open(self, terms: SegmentFields) -> Shelf | None:
        """The shelf that a gateway offers, if it can be seen from here."""
        ...


@dataclass
class SubscribeOptions:
    """What a subscriber wants of a gateway."""

    name: str | None = None
    start: int | str | None = None
    stop: int | None = None
    epoch: str | None = None
    keep: bool = True
    formats: list[str] = field(default_factory=lambda: [MSGPACK])
    lease: float = 60.0
    dialect: str = "auto"
    """``"auto"``, ``"extended"`` or ``"plain"``."""
    window: int = 65_536
    max_window: int = 262_144
    window_bytes: int = 8 * 1024 * 1024
    timeout: float = 1.0
    """Seconds without a record after which declared ones are given up (plain dialect)."""
    patience: float = 30.0
    """Seconds without a gateway after which the subscriber gives up."""
    shelves: Shelves | None = None
    """Finds the memory that a gateway on the same machine shares; without it none is asked for."""
    on_gap: Callable[[int, int], object] | None = None
    """Called with the first missing and the next available offset when a best-effort subscriber was
    overtaken; without it that is an error."""
    on_deficit: Callable[[int, int, int], object] | None = None
    """Called with declared, received and the new size of requests (plain dialect)."""

    @property
    def needs_extended(self) -> str | None:
        """What was asked for that a plain gateway cannot give."""
        if self.name is not None:
            return "a durable id"
        if self.start not in (None, "earliest"):
            return f"start={self.start!r}"
        return "stop=…" if self.stop is not None else None
