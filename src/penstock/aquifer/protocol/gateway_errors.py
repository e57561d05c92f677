"""The errors that a client raises about a gateway: what the gateway said, or that it said nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, UnsetType

from penstock.aquifer.errors import (
    AquiferError,
    BatchMissing,
    EpochChanged,
    Evicted,
    GatewayUnreachable,
    LeaseEnded,
    OffsetGone,
    Overtaken,
    ProtocolViolation,
    Refused,
    SourceFailed,
    TakenOver,
    TransactionLost,
    UnknownStream,
    Unreadable,
)
from penstock.aquifer.protocol.messages import OnError, OnErrorFields, extension

__all__ = ["another_stream", "error_from", "key_refused", "put_off", "unreachable"]

_ERRORS: Final[Mapping[str, type[AquiferError]]] = {
    kind.code: kind
    for kind in (
        ProtocolViolation,
        BatchMissing,
        OffsetGone,
        Overtaken,
        EpochChanged,
        Evicted,
        LeaseEnded,
        TakenOver,
        TransactionLost,
        Refused,
        SourceFailed,
        UnknownStream,
        Unreadable,
    )
}


def error_from(message: OnError) -> AquiferError:
    """The exception for an ``OnError`` of the gateway."""
    details = extension(message.x) or OnErrorFields()
    kind = _ERRORS.get(details.code if details.code is not UNSET else "", AquiferError)
    if issubclass(kind, OffsetGone):
        first = details.first if details.first is not UNSET else None
        head = details.head if details.head is not UNSET else None
        return kind(message.message, first=first, head=head)
    if issubclass(kind, BatchMissing):
        return kind(message.message, published=details.published if details.published is not UNSET else None)
    return kind(message.message)


def another_stream(endpoint: object, wanted: str, served: str | UnsetType) -> UnknownStream | None:
    """The error if a gateway has answered for another stream than the one that was named.

    A gateway that knows nothing of names answers for its only stream, and nobody would notice.
    """
    if not wanted or served == wanted:
        return None
    return UnknownStream(
        f"the gateway at {endpoint} serves one stream without a name: leave /{wanted} out of the endpoint"
    )


def key_refused(endpoint: object) -> Refused:
    """The gateway has a list of keys, and ours is not on it."""
    return Refused(
        f"the gateway at {endpoint} does not let this key in; add the public key to its list of allowed "
        "clients"
    )


def unreachable(
    endpoint: object,
    patience: float,
    *,
    connected: bool,
    reached: bool,
    encrypted: bool,
    advice: str = "",
) -> GatewayUnreachable:
    """There was no answer; ``connected`` says whether a ØMQ socket listens at the endpoint.

    If a connection was ``reached``, but its handshake does not succeed, the keys are wrong: with an
    ``encrypted`` one that of the gateway.
    """
    text = _unreachable_text(endpoint, patience, connected, reached, encrypted, advice)
    error = GatewayUnreachable(text)
    error.reached = connected or reached
    return error


def _unreachable_text(
    endpoint: object, patience: float, connected: bool, reached: bool, encrypted: bool, advice: str
) -> str:
    if connected and advice:
        return f"the gateway at {endpoint} has not answered for {patience:g} s; {advice}"
    if connected:
        return (
            f"something listens at {endpoint}, but no gateway answers after {patience:g} s; is this the "
            "control endpoint of a gateway, and is the gateway healthy?"
        )
    if reached and encrypted:
        return (
            f"something listens at {endpoint}, but for {patience:g} s no encrypted connection could be made: "
            "the server key is probably wrong, or this endpoint is one without keys. Compare the server key "
            "with the .pub file of the gateway, and name the endpoint of its --curve-control"
        )
    if reached:
        return (
            f"something listens at {endpoint}, but for {patience:g} s no connection could be made: if this "
            "is the encrypted endpoint of a gateway, give your keys and its public key; otherwise it is "
            "something else"
        )
    hint = (
        "with keys, and is its public key right?" if encrypted else "and do both sides use keys or neither?"
    )
    return f"no gateway answers at {endpoint} after {patience:g} s; is it running there, {hint}"


def put_off(endpoint: object, patience: float, message: OnError) -> GatewayUnreachable:
    """The gateway answered, but each time only that we should come back later."""
    return GatewayUnreachable(
        f"the gateway at {endpoint} has told this client to come back later for {patience:g} s; it says: "
        f"{message.message}"
    )
