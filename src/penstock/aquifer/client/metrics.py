"""What a subscription to a gateway has seen so far."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.plain_reader import PlainReader
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide

__all__ = ["Deficit", "Metrics", "metrics_of"]


@dataclass(frozen=True, slots=True)
class Deficit:
    """A plain gateway declared more records than arrived in time (see ``on_deficit``)."""

    declared: int
    received: int
    rate: int
    """How many records each request asks for from now on."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """A snapshot of a subscription; counts are since it began."""

    dialect: str | None
    """``"extended"``, ``"plain"``, or None before a gateway has answered."""
    connected: bool
    """Whether a gateway is connected at the moment."""
    epoch: str | None
    """The log that the offsets belong to (extended dialect)."""
    records: int
    """How many records the subscriber got."""
    next: int
    """The offset of the next record to arrive (plain dialect: how many have arrived)."""
    lag: int
    """How many records the log was ahead when the gateway last said so (extended dialect)."""
    window: int
    """How many records may be on their way, or wait for demand."""
    rate: float
    """Records per second, lately."""
    subscriptions: int
    """How often a gateway has accepted this subscriber: more than once after losses and restarts."""
    gaps: int
    """How often frames were lost on the way and asked for again (extended dialect)."""
    deficits: int
    """How often fewer records arrived than were declared (plain dialect)."""
    missing: int
    """How many records were declared and never arrived (plain dialect)."""
    request_size: int
    """How many records each request asks for (plain dialect)."""


def metrics_of(side: SubscriberSide, delivered: int) -> Metrics:
    """A snapshot of this side of the protocol, whose subscriber got so many records."""
    reader = side.reader
    extended = reader if isinstance(reader, ExtendedReader) else None
    plain = reader if isinstance(reader, PlainReader) else None
    return Metrics(
        dialect=side.dialect,
        connected=side.phase is Phase.READING,
        epoch=side.epoch,
        records=delivered,
        next=reader.next if reader is not None else 0,
        lag=max(extended.head - extended.next, 0) if extended is not None else 0,
        window=side.ahead.size,
        rate=side.ahead.rate,
        subscriptions=side.subscriptions,
        gaps=extended.gaps if extended is not None else 0,
        deficits=plain.deficits if plain is not None else 0,
        missing=plain.missing if plain is not None else 0,
        request_size=plain.rate.size if plain is not None else 0,
    )
