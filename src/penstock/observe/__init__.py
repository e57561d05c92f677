"""Who holds whom up: every hop from a sender's socket to the last subscriber, in one model."""

from penstock.observe.dashboard import BadToken, Dashboard, DashboardOptions
from penstock.observe.exposition import SnapshotCollector, exposition
from penstock.observe.grafana import grafana_dashboard
from penstock.observe.judge import judge
from penstock.observe.live import LiveFigures, LiveUpdate, level
from penstock.observe.metric_families import METRICS, MetricFamily
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
from penstock.observe.otlp import OtlpExport, otlp_endpoint, parse_otlp_url
from penstock.observe.publication import NotPublished, Publication, publish
from penstock.observe.telemetry import Telemetry

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
    "OtlpExport",
    "Publication",
    "QueryBatch",
    "RecentError",
    "Snapshot",
    "SnapshotCollector",
    "SubscriberFigures",
    "Telemetry",
    "Verdict",
    "exposition",
    "grafana_dashboard",
    "judge",
    "level",
    "metrics_app",
    "otlp_endpoint",
    "parse_otlp_url",
    "publish",
    "rates",
    "snapshots",
    "why",
]
