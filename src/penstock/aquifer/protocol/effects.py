"""What the subscriber's side wants done: the protocol decides, and the driver acts."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.messages import Control, OnComplete, OnError, OnNext

__all__ = ["Connect", "Effect", "Finish", "Join", "Reader", "ReaderMessage", "Send", "Take"]


class Connect(NamedTuple):
    """Open a new control connection in place of the old one; close the data connection unless kept."""

    keep_data: bool = False


class Send(NamedTuple):
    """Send a control message."""

    message: Control


class Join(NamedTuple):
    """Open the data connection: to this port, for this topic (empty: for everything)."""

    port: int
    topic: bytes


class Take(NamedTuple):
    """Hand these records to the subscriber: they are in order, and nothing is missing before them."""

    frame: Frame


class Finish(NamedTuple):
    """The subscription is over; without an error it completed."""

    error: BaseException | None


Effect: TypeAlias = Connect | Send | Join | Take | Finish
ReaderMessage: TypeAlias = OnNext | OnComplete | OnError
"""The control messages that can arrive while records flow."""


class Reader(Protocol):
    """What the readers of the two dialects have in common."""

    dialect: ClassVar[str]
    next: int
    """How many records have arrived (plain), or the offset of the next one (extended)."""
    acknowledged: int
    """Records before this offset are done with."""
    ended: bool
    """Whether everything has arrived."""

    def message(self, message: ReaderMessage, now: float) -> list[Effect]:
        """A control message arrived."""
        ...

    def bytes_came(self, now: float) -> None:
        """A part of a message arrived."""
        ...

    def tick(self, now: float) -> list[Effect]:
        """Time has passed, or the subscriber has taken records."""
        ...

    def deadline(self) -> float:
        """When to call :meth:`tick` next."""
        ...

    def goodbye(self) -> list[Effect]:
        """Leave the gateway."""
        ...
