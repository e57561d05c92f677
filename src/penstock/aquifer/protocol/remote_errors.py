"""What a gateway said with ``OnError``, as the exception that a subscriber gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET

from penstock.aquifer.errors import (
    AquiferError,
    EpochChanged,
    Evicted,
    LeaseEnded,
    OffsetGone,
    Overtaken,
    ProtocolViolation,
    Refused,
    SourceFailed,
    TakenOver,
    Unreadable,
)
from penstock.aquifer.protocol.messages import OnError, OnErrorFields, extension

__all__ = ["error_from"]

_ERRORS: Final[Mapping[str, type[AquiferError]]] = {
    kind.code: kind
    for kind in (
        ProtocolViolation,
        OffsetGone,
        Overtaken,
        EpochChanged,
        Evicted,
        LeaseEnded,
        TakenOver,
        Refused,
        SourceFailed,
        Unreadable,
    )
}


def error_from(message: OnError) -> AquiferError:
    """The exception for what a gateway said."""
    details = extension(message.x) or OnErrorFields()
    kind = _ERRORS.get(details.code if details.code is not UNSET else "", AquiferError)
    if issubclass(kind, OffsetGone):
        first = details.first if details.first is not UNSET else None
        head = details.head if details.head is not UNSET else None
        return kind(message.message, first=first, head=head)
    return kind(message.message)
