"""Who holds whom up: every hop from a sender's socket to the last subscriber, in one model."""

from penstock.observe.dashboard import BadToken, Dashboard, DashboardOptions
from penstock.observe.exposition import METRICS, MetricFamily, SnapshotCollector, exposition
from penstock.observe.judge import judge
from penstock.observe.live import LiveFigures, LiveUpdate, level
from penstock.observe.metrics import MetricsServer, metrics_app
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
from penstock.observe.observer import Observer, snapshots, why
from penstock.observe.publication import NotPublished, Publication, publish

__all__ = [
    "HOP_KINDS",
    "METRICS",
    "BadToken",
    "Dashboard",
    "DashboardOptions",
    "Hop",
    "HopRates",
    "LiveFigures",
    "LiveUpdate",
    "MetricFamily",
    "MetricsServer",
    "NotPublished",
    "Observer",
    "Publication",
    "QueryBatch",
    "RecentError",
    "Snapshot",
    "SnapshotCollector",
    "SubscriberFigures",
    "Verdict",
    "exposition",
    "judge",
    "level",
    "metrics_app",
    "publish",
    "rates",
    "snapshots",
    "why",
]
