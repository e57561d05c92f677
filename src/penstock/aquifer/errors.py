"""What can go wrong between a gateway and its subscribers, by the code that travels on the wire."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AquiferError",
    "EpochChanged",
    "Evicted",
    "GatewayUnreachable",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalInUse",
    "JournalLocked",
    "JournalTooNew",
    "LeaseEnded",
    "OffsetGone",
    "Overtaken",
    "ProtocolViolation",
    "Refused",
    "SourceFailed",
    "TakenOver",
    "TransactionLost",
    "Unreadable",
]


class AquiferError(Exception):
    """Something between a gateway and a subscriber failed; the text says what, and what to do about it."""

    code: ClassVar[str] = ""
    """What an ``OnError`` with this cause carries in ``x.code``."""


class GatewayUnreachable(AquiferError):
    """Nobody answered at the endpoint for as long as the subscriber was told to try."""


class ProtocolViolation(AquiferError):
    """The peer said something that the protocol has no place for."""

    code = "BAD"


class OffsetGone(AquiferError):
    """The gateway no longer has, or does not have yet, the offset that a subscriber asked for."""

    code = "OFFSET"

    def __init__(self, message: str, *, first: int | None = None, head: int | None = None) -> None:
        super().__init__(message)
        self.first = first
        """The oldest offset that the gateway still has."""
        self.head = head
        """The offset that its next record will get."""


class Overtaken(OffsetGone):
    """A best-effort subscriber was so slow that the log went on without it: records are missing."""

    code = "LAG"


class EpochChanged(AquiferError):
    """The gateway started a new log: offsets of the old one mean nothing in it."""

    code = "EPOCH"


class LeaseEnded(AquiferError):
    """The subscriber was silent for longer than its lease, and the gateway no longer keeps records for it."""

    code = "LEASE"


class TakenOver(AquiferError):
    """Another subscriber came with the same id; an id has one reader at a time."""

    code = "TAKEN"


class TransactionLost(AquiferError):
    """The gateway no longer has the records that a transaction wrote, so it cannot be committed.

    The gateway was restarted, or had to free memory. Nothing was published: run the transaction again, with
    the same batch id.
    """

    code = "STAGED"


class Refused(AquiferError):
    """The gateway does not let this key in, or it may not do this, or the id or name belongs to another."""

    code = "AUTH"


class Evicted(AquiferError):
    """Somebody who administers the gateway has ended this session."""

    code = "EVICTED"


class Unreadable(AquiferError):
    """The gateway cannot read this place of its journal."""

    code = "JOURNAL"


class SourceFailed(AquiferError):
    """What the gateway reads from failed; everything before that was delivered."""

    code = "SOURCE"


class JournalError(Exception):
    """The journal of a gateway cannot be used as it is."""


class JournalInUse(JournalError):
    """Another process has the journal open."""


class JournalLocked(JournalInUse):
    """Another program has a lock on the journal at the moment; trying again may help."""


class JournalDamaged(JournalError):
    """The file is no journal, or a part of it that was once written is no longer readable."""


class JournalTooNew(JournalError):
    """The journal was written by a later version of Penstock."""


class JournalFull(JournalError):
    """There is no room on the disk; what was appended before is safe, and appending may be tried again."""
