"""Every metric: its name, its kind, its unit, its labels, and how it is read from a snapshot.

Prometheus and OpenTelemetry show the same figures from this one list: see :mod:`penstock.observe.exposition`
and :mod:`penstock.observe.telemetry`. The page and a test keep to it. The figures of a hop are totals since
it began, so the program that stores them computes the rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from penstock.observe.model import Hop, QueryBatch, Snapshot

__all__ = ["HOP_LABELS", "METRICS", "MetricFamily"]

HOP_LABELS: Final = ("hop", "kind", "name")
_UNITS: Final = {"records": "{record}", "bytes": "By", "seconds": "s", "": ""}
"""Units as OpenTelemetry writes them. What is counted stands in braces."""
_PREFIX: Final = "penstock_"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric: what it is called, and how it is read from a snapshot."""

    name: str
    """In Prometheus, which adds ``_total`` to a counter."""
    kind: str
    """``counter`` or ``gauge``."""
    unit: str
    """``records``, ``bytes``, ``seconds``, or nothing."""
    help: str
    _column: Callable[[Snapshot], list[float | None]]
    labels: tuple[str, ...] = HOP_LABELS

    @property
    def otel_name(self) -> str:
        """The name in OpenTelemetry: ``penstock.records_in``."""
        return f"penstock.{self.name.removeprefix(_PREFIX)}"

    @property
    def otel_unit(self) -> str:
        """The unit in OpenTelemetry: ``By``."""
        return _UNITS[self.unit]

    def column(self, snapshot: Snapshot) -> list[float | None]:
        """The figure of each hop, in their order; None for one that has none.

        A metric with more labels than those of a hop has :meth:`samples` alone.
        """
        return self._column(snapshot)

    def samples(self, snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        """The values of the labels, and the figure, for each hop that has one."""
        if self.labels != HOP_LABELS:
            yield from _phases(snapshot)
            return
        for hop, value in zip(snapshot.hops, self._column(snapshot), strict=True):
            if value is not None:
                yield (hop.id, hop.kind, hop.name), value


def _figure(name: str) -> Callable[[Snapshot], list[float | None]]:
    """Read an attribute of each hop."""
    get: Callable[[Hop], float | None] = attrgetter(name)
    return lambda snapshot: list(map(get, snapshot.hops))


def _plain_bytes(snapshot: Snapshot) -> list[float | None]:
    return [hop.details.get("plain_bytes") for hop in snapshot.hops]


def _full(snapshot: Snapshot) -> list[float | None]:
    return [
        0.0 if hop.full_seconds is None and hop.kind == "log" else hop.full_seconds for hop in snapshot.hops
    ]


def _limiting(snapshot: Snapshot) -> list[float | None]:
    limiting = snapshot.limiting
    return [1.0 if hop.id in limiting else None for hop in snapshot.hops]


def _batch(figure: Callable[[QueryBatch], float]) -> Callable[[Snapshot], list[float | None]]:
    """Read a figure of the last batch of each query."""

    def column(snapshot: Snapshot) -> list[float | None]:
        last = {batch.query: batch for batch in snapshot.batches}  # The newest comes last.
        return [figure(last[hop.id]) if hop.id in last else None for hop in snapshot.hops]

    return column


def _none(snapshot: Snapshot) -> list[float | None]:
    return [None] * len(snapshot.hops)


def _phases(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    last = {batch.query: batch for batch in snapshot.batches}
    for hop in snapshot.hops:
        if hop.id in last:
            for phase, seconds in last[hop.id].phases.items():
                yield (hop.id, hop.kind, hop.name, phase), seconds


METRICS: Final = (
    MetricFamily(
        "penstock_records_in",
        "counter",
        "records",
        "Records that have come to the hop.",
        _figure("records_in"),
    ),
    MetricFamily(
        "penstock_records_out",
        "counter",
        "records",
        "Records that have left the hop.",
        _figure("records_out"),
    ),
    MetricFamily(
        "penstock_bytes_in", "counter", "bytes", "Bytes that have come to the hop.", _figure("bytes_in")
    ),
    MetricFamily(
        "penstock_bytes_out", "counter", "bytes", "Bytes that have left the hop.", _figure("bytes_out")
    ),
    MetricFamily(
        "penstock_plain_bytes",
        "counter",
        "bytes",
        "Bytes that have come to a log, before they were compressed.",
        _plain_bytes,
    ),
    MetricFamily(
        "penstock_waiting_records", "gauge", "records", "Records that wait in the hop.", _figure("waiting")
    ),
    MetricFamily(
        "penstock_capacity_records",
        "gauge",
        "records",
        "Records that may wait in the hop.",
        _figure("capacity"),
    ),
    MetricFamily(
        "penstock_waiting_bytes", "gauge", "bytes", "Bytes that wait in the hop.", _figure("waiting_bytes")
    ),
    MetricFamily(
        "penstock_capacity_bytes",
        "gauge",
        "bytes",
        "Bytes that may wait in the hop.",
        _figure("capacity_bytes"),
    ),
    MetricFamily(
        "penstock_demand_records",
        "gauge",
        "records",
        "Records that the hop may still send down.",
        _figure("demand"),
    ),
    MetricFamily(
        "penstock_waiting_for_demand_seconds",
        "counter",
        "seconds",
        "Time in which the hop had records that nobody below wanted.",
        _figure("waiting_for_demand"),
    ),
    MetricFamily(
        "penstock_waiting_for_data_seconds",
        "counter",
        "seconds",
        "Time in which the hop had nothing to do.",
        _figure("waiting_for_data"),
    ),
    MetricFamily(
        "penstock_working_seconds",
        "counter",
        "seconds",
        "Time in which the hop worked.",
        _figure("working"),
    ),
    MetricFamily(
        "penstock_lag_records", "gauge", "records", "Records that the hop is behind.", _figure("lag_records")
    ),
    MetricFamily(
        "penstock_lag_seconds", "gauge", "seconds", "Seconds that the hop is behind.", _figure("lag_seconds")
    ),
    MetricFamily(
        "penstock_oldest_seconds",
        "gauge",
        "seconds",
        "The age of the oldest record that waits in the hop.",
        _figure("oldest_seconds"),
    ),
    MetricFamily(
        "penstock_full_seconds",
        "gauge",
        "seconds",
        "For how long the hop has been full; 0 if it is not.",
        _full,
    ),
    MetricFamily(
        "penstock_errors",
        "counter",
        "",
        "Errors of the hop; of an intake, elements that could not become records.",
        _figure("errors"),
    ),
    MetricFamily("penstock_limiting", "gauge", "", "1 for the hop that limits the flow.", _limiting),
    MetricFamily(
        "penstock_batches",
        "counter",
        "",
        "Batches of the query since its checkpoint was made.",
        _batch(lambda batch: batch.number + 1),
    ),
    MetricFamily(
        "penstock_batch_records",
        "gauge",
        "records",
        "Records of the last batch of the query.",
        _batch(lambda batch: batch.rows_in),
    ),
    MetricFamily(
        "penstock_batch_seconds",
        "gauge",
        "seconds",
        "How long the last batch of the query took.",
        _batch(lambda batch: batch.seconds),
    ),
    MetricFamily(
        "penstock_batch_phase_seconds",
        "gauge",
        "seconds",
        "How long a phase of the last batch took, in Spark's words.",
        _none,
        (*HOP_LABELS, "phase"),
    ),
)
"""The metrics, each with the labels ``hop``, ``kind`` and ``name``, and one with ``phase`` beside them."""
