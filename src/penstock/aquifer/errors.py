"""What can go wrong between a gateway and its clients: the codes on the wire, and the exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "AlreadyReplayed",
    "AquiferError",
    "BatchMissing",
    "EpochChanged",
    "ErrorCode",
    "Evicted",
    "GatewayUnreachable",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalInUse",
    "JournalLocked",
    "JournalTooNew",
    "JournalUnavailable",
    "LeaseEnded",
    "OffsetGone",
    "Overtaken",
    "ProtocolViolation",
    "Refused",
    "RefusedTooOften",
    "SourceFailed",
    "TakenOver",
    "TransactionLost",
    "UnknownStream",
    "Unreadable",
]


class ErrorCode(StrEnum):
    """The code of an error that a gateway sends; a later version may send others."""

    BAD = "BAD"
    """The request is malformed, or does not fit the state of the session."""
    OFFSET = "OFFSET"
    """The offset is not in the log."""
    LAG = "LAG"
    """An optional reader was so slow that records are gone."""
    EPOCH = "EPOCH"
    """The offsets belong to another log."""
    LEASE = "LEASE"
    """The lease has ended."""
    TAKEN = "TAKEN"
    """Another subscriber has the id."""
    AUTH = "AUTH"
    """The key may not do this."""
    EVICTED = "EVICTED"
    """An administrator has ended the session."""
    JOURNAL = "JOURNAL"
    """The journal cannot be read or written."""
    SOURCE = "SOURCE"
    """The source of the gateway failed."""
    SESSION = "SESSION"
    """There is no such session: subscribe again."""
    BUSY = "BUSY"
    """The gateway has no capacity at the moment: try again later."""
    CLOSING = "CLOSING"
    """The gateway is shutting down."""
    FULL = "FULL"
    """Too much is staged."""
    STAGED = "STAGED"
    """What should be published is not staged: run the batch again."""
    MISSING = "MISSING"
    """The log does not have the batch that should be before this one."""
    STREAM = "STREAM"
    """The gateway has no stream of this name."""


class AquiferError(Exception):
    """Something between a gateway and a subscriber failed; the text says what, and what to do about it."""

    code: ClassVar[ErrorCode | None] = None
    """The code of this error on the wire."""


class GatewayUnreachable(AquiferError):
    """No gateway answered at the endpoint for as long as the subscriber was told to try."""

    reached = False
    """Whether something listens at the endpoint, which may be another server, or need other keys."""


class ProtocolViolation(AquiferError):
    """The peer sent something that the protocol does not allow."""

    code = ErrorCode.BAD


class OffsetGone(AquiferError):
    """The gateway no longer has, or does not have yet, the offset that a subscriber asked for."""

    code = ErrorCode.OFFSET

    def __init__(self, message: str, *, first: int | None = None, head: int | None = None) -> None:
        super().__init__(message)
        self.first = first
        """The oldest offset that the gateway still has."""
        self.head = head
        """The offset that its next record will get."""


class Overtaken(OffsetGone):
    """An optional reader was so slow that the log went on without it: records are missing."""

    code = ErrorCode.LAG


class EpochChanged(AquiferError):
    """The gateway started a new log: offsets of the old one mean nothing in it."""

    code = ErrorCode.EPOCH


class LeaseEnded(AquiferError):
    """The subscriber was silent for longer than its lease, and the gateway no longer keeps records for it."""

    code = ErrorCode.LEASE


class TakenOver(AquiferError):
    """Another subscriber came with the same id; an id has one reader at a time."""

    code = ErrorCode.TAKEN


class TransactionLost(AquiferError):
    """The gateway no longer has the records that a transaction wrote, so it cannot be committed.

    The gateway was restarted, or had to free memory. Nothing was published: run the transaction again, with
    the same batch id.
    """

    code = ErrorCode.STAGED


class BatchMissing(AquiferError):
    """The log does not have the batch that a producer has published before this one: nothing was published.

    The gateway has another journal than before, or an older copy of it.
    """

    code = ErrorCode.MISSING

    def __init__(self, message: str, *, published: int | None = None) -> None:
        super().__init__(message)
        self.published = published
        """The last batch of the producer that the log has; None if there is none."""


class AlreadyReplayed(AquiferError):
    """Some of the dead letters of a batch were replayed before: nothing of the batch was published."""

    def __init__(self, offsets: Sequence[int]) -> None:
        super().__init__(f"{len(offsets)} of these dead letters were replayed before: nothing was published")
        self.offsets = tuple(offsets)
        """The letters that were, by their offsets."""


class Refused(AquiferError):
    """The gateway refused this: the key is unknown, lacks the right, or does not own the id or name."""

    code = ErrorCode.AUTH


class RefusedTooOften(AquiferError):
    """A record was refused as often as it may be delivered, and there is no stream for dead letters."""


class Evicted(AquiferError):
    """An administrator of the gateway has ended this session."""

    code = ErrorCode.EVICTED


class UnknownStream(AquiferError):
    """The gateway has no stream of this name; the text lists those that it has."""

    code = ErrorCode.STREAM


class Unreadable(AquiferError):
    """The gateway cannot read this part of its journal."""

    code = ErrorCode.JOURNAL


class SourceFailed(AquiferError):
    """The source of the gateway failed; every record before the failure was delivered."""

    code = ErrorCode.SOURCE


class JournalError(Exception):
    """The journal of a gateway cannot be used as it is."""


class JournalInUse(JournalError):
    """Another process has the journal open, or another gateway of this one."""


class JournalLocked(JournalInUse):
    """Another program has locked the journal at the moment; try again."""


class JournalUnavailable(JournalError):
    """The journal cannot be reached at the moment; try again.

    The brokers that keep it do not answer, or the process has too many files open.
    """


class BatchTooLarge(JournalError):
    """Nothing was stored, because the journal cannot store a batch of this size; smaller ones it can."""


class OutcomeUnknown(JournalUnavailable):
    """Nobody has answered, so what was to be stored may be stored; try again with the same."""


class JournalDamaged(JournalError):
    """The file is not a journal, or a part of it is no longer readable."""

    finding: str = ""
    """What is wrong with it, in a few words, if its contents are."""


class JournalTooNew(JournalError):
    """The journal was written by a later version of Penstock."""


class JournalFull(JournalError):
    """The disk is full. What was appended before is safe, and appending can be tried again."""
