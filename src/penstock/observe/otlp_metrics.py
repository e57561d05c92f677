"""The metrics of snapshots, as data points for an exporter of OpenTelemetry.

The instruments of the SDK remember every set of labels that they have ever seen, and put all that come after
the first 2000 into one. Readers and senders come and go, so a gateway would come to that limit one day, and
its newest readers would be missing. Here a set of labels is remembered for as long as a snapshot has it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from opentelemetry.context import attach, set_value
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock import __version__
from penstock.observe.metric_families import METRICS, MetricFamily
from penstock.observe.model import Snapshot

__all__ = ["MetricExport", "MetricPoints"]

_log = logging.getLogger("penstock.observe")

_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"

Series = tuple[str, tuple[str, ...]]
"""The name of a metric, and the values of its labels."""


class MetricPoints:
    """Makes data points of one snapshot after the other; with ``delta``, counters say what has been added."""

    def __init__(self, resource: Resource, *, delta: bool = False) -> None:
        self._resource = resource
        self._temporality = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE
        self._counters: dict[Series, tuple[int, int, float]] = {}
        """For each counter of the last snapshot: when it began, when it was seen, and its value."""

    def of(self, snapshot: Snapshot, now: int) -> MetricsData:
        """The metrics of a snapshot at this moment, in nanoseconds since 1970."""
        before, self._counters = self._counters, {}
        metrics = [
            Metric(family.otel_name, family.help, family.otel_unit, data)
            for family in METRICS
            if (data := self._data(family, snapshot, now, before)).data_points
        ]
        scope = ScopeMetrics(InstrumentationScope("penstock", __version__), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _data(
        self,
        family: MetricFamily,
        snapshot: Snapshot,
        now: int,
        before: dict[Series, tuple[int, int, float]],
    ) -> Sum | Gauge:
        # A set of labels comes once, whatever two gateways call their hops.
        found = dict(family.samples(snapshot))
        if family.kind != "counter":
            return Gauge([_point(family, labels, value, 0, now) for labels, value in found.items()])
        return Sum(list(self._counted(family, found, now, before)), self._temporality, is_monotonic=True)

    def _counted(
        self,
        family: MetricFamily,
        found: dict[tuple[str, ...], float],
        now: int,
        before: dict[Series, tuple[int, int, float]],
    ) -> Iterator[NumberDataPoint]:
        for labels, value in found.items():
            series = family.name, labels
            began, seen, last = before.get(series, (now, now, 0.0))
            if value < last:
                began, seen, last = now, now, 0.0  # It was started anew.
            self._counters[series] = began, now, value
            if self._temporality is AggregationTemporality.DELTA:
                yield _point(family, labels, value - last, seen, now)
            else:
                yield _point(family, labels, value, began, now)


def _point(
    family: MetricFamily, labels: tuple[str, ...], value: float, began: int, now: int
) -> NumberDataPoint:
    figure = value if family.unit == "seconds" else int(value)
    return NumberDataPoint(dict(zip(family.labels, labels, strict=True)), began, now, figure)


class MetricExport:
    """A thread that exports the metrics of the newest snapshot, as often as the environment says."""

    def __init__(
        self, exporter: MetricExporter, snapshot: Callable[[], Snapshot | None], resource: Resource
    ) -> None:
        delta = os.environ.get(_TEMPORALITY, "").strip().upper() == "DELTA"
        self._points = MetricPoints(resource, delta=delta)
        self._exporter = exporter
        self._snapshot = snapshot
        self._interval = _milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000.0)
        self._timeout = _milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", 30_000.0)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-otlp-metrics", daemon=True)

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def _run(self) -> None:
        # The library that sends may be one that is observed itself.
        attach(set_value("suppress_instrumentation", True))
        while not self._closing.wait(self._interval / 1000):
            self._export()
        self._export()

    def _export(self) -> None:
        """Export what there is to see; nothing if no snapshot can be taken."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        try:
            self._exporter.export(self._points.of(snapshot, time.time_ns()), timeout_millis=self._timeout)
        except Exception:
            _log.exception("metrics could not be exported")

    def shutdown(self) -> None:
        """Export once more, and stop."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._exporter.shutdown()


def _milliseconds(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        _log.warning("%s is %r, and has to be a number of milliseconds: taking %d", name, text, default)
        return default
    return value
