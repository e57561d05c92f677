"""Who holds whom up: every hop from a sender's socket to the last subscriber, in one model."""

from penstock.observe.dashboard import BadToken, Dashboard, DashboardOptions
from penstock.observe.gateway_hops import GatewayObserver
from penstock.observe.live import LiveFigures, LiveUpdate, level
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
    "BadToken",
    "Dashboard",
    "DashboardOptions",
    "GatewayObserver",
    "Hop",
    "HopRates",
    "LiveFigures",
    "LiveUpdate",
    "QueryBatch",
    "RecentError",
    "Snapshot",
    "SubscriberFigures",
    "Verdict",
    "level",
    "rates",
]
