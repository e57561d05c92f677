"""Who holds whom up: every hop from a sender's socket to the last subscriber, in one model."""

from penstock.observe.model import (
    HOP_KINDS,
    Hop,
    HopRates,
    QueryBatch,
    RecentError,
    Snapshot,
    SubscriberFigures,
    Verdict,
    rates,
)

__all__ = [
    "HOP_KINDS",
    "Hop",
    "HopRates",
    "QueryBatch",
    "RecentError",
    "Snapshot",
    "SubscriberFigures",
    "Verdict",
    "rates",
]
