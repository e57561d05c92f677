"""Snapshots in the text format of Prometheus.

A gateway with 500 subscribers has some 5500 samples, and it is scraped while it serves them: whatever a
scrape costs, its readers wait for, because all threads of a process share one lock. So the text is written
here and not by prometheus-client, which takes ten times as long for it. :data:`METRICS` has every name, its
kind and its meaning: the page and a test keep to that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from penstock.observe.model import Hop, Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["METRICS", "Exposition", "MetricFamily", "SnapshotCollector", "exposition"]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric: what it is called, and how it is read from a hop."""

    name: str
    kind: str
    """``counter`` or ``gauge``."""
    help: str
    figure: str
    """The attribute of a hop."""


METRICS: Final = (
    MetricFamily("penstock_records_in", "counter", "Records that have come to the hop.", "records_in"),
    MetricFamily("penstock_records_out", "counter", "Records that have left the hop.", "records_out"),
    MetricFamily("penstock_bytes_in", "counter", "Bytes that have come to the hop.", "bytes_in"),
    MetricFamily("penstock_bytes_out", "counter", "Bytes that have left the hop.", "bytes_out"),
    MetricFamily("penstock_waiting_records", "gauge", "Records that wait in the hop.", "waiting"),
    MetricFamily("penstock_capacity_records", "gauge", "Records that may wait in the hop.", "capacity"),
    MetricFamily("penstock_waiting_bytes", "gauge", "Bytes that wait in the hop.", "waiting_bytes"),
    MetricFamily("penstock_capacity_bytes", "gauge", "Bytes that may wait in the hop.", "capacity_bytes"),
    MetricFamily(
        "penstock_waiting_for_demand_seconds",
        "counter",
        "Time in which the hop had records that nobody below wanted.",
        "waiting_for_demand",
    ),
    MetricFamily(
        "penstock_waiting_for_data_seconds",
        "counter",
        "Time in which the hop had nothing to do.",
        "waiting_for_data",
    ),
    MetricFamily("penstock_working_seconds", "counter", "Time in which the hop worked.", "working"),
    MetricFamily("penstock_lag_records", "gauge", "Records that the hop is behind.", "lag_records"),
    MetricFamily("penstock_lag_seconds", "gauge", "Seconds that the hop is behind.", "lag_seconds"),
    MetricFamily(
        "penstock_full_seconds",
        "gauge",
        "For how long the hop has been full; 0 if it is not.",
        "full_seconds",
    ),
    MetricFamily("penstock_errors", "counter", "Errors of the hop.", "errors"),
)
"""The metrics of every hop, each with the labels ``hop``, ``kind`` and ``name``. Prometheus shows a counter
with ``_total`` at its end. ``penstock_limiting`` is 1 for the hop that limits the flow."""

_LIMITING: Final = MetricFamily("penstock_limiting", "gauge", "1 for the hop that limits the flow.", "")
_FULL: Final = [each.figure for each in METRICS].index("full_seconds")
_figures: Final[Callable[[Hop], tuple[float | None, ...]]] = attrgetter(*(each.figure for each in METRICS))

Column = tuple[MetricFamily, list[float | None]]
"""A metric, and its value for each hop; None if the hop has none."""


def _columns(snapshot: Snapshot) -> Iterator[Column]:
    hops = snapshot.hops
    columns = [list(column) for column in zip(*map(_figures, hops), strict=True)] or [[] for _ in METRICS]
    logs = [number for number, hop in enumerate(hops) if hop.kind == "log" and hop.full_seconds is None]
    for number in logs:
        columns[_FULL][number] = 0.0
    yield from zip(METRICS, columns, strict=True)
    limiting = snapshot.verdict.limiting if snapshot.verdict is not None else None
    yield _LIMITING, [1.0 if limiting is not None and hop.id == limiting else None for hop in hops]


class Exposition:
    """Writes one snapshot after the other; what it writes of a hop's labels is kept for the next one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], str] = {}

    def text(self, snapshot: Snapshot) -> bytes:
        """The snapshot in the text format. One thread at a time may call this."""
        known = self._known
        keys = [(hop.id, hop.kind, hop.name) for hop in snapshot.hops]
        # Only those of this snapshot are kept: subscribers come and go.
        self._known = {key: known.get(key) or _labels(*key) for key in keys}
        labels = [self._known[key] for key in keys]
        parts: list[str] = []
        for family, column in _columns(snapshot):
            name = f"{family.name}_total" if family.kind == "counter" else family.name
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n")
            parts += [
                f"{name}{label}{value}\n"
                for label, value in zip(labels, column, strict=True)
                if value is not None
            ]
        return "".join(parts).encode()


def _labels(hop: str, kind: str, name: str) -> str:
    return f'{{hop="{_escaped(hop)}",kind="{_escaped(kind)}",name="{_escaped(name)}"}} '


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def exposition(snapshot: Snapshot) -> bytes:
    """The snapshot in the text format of Prometheus."""
    return Exposition().text(snapshot)


class SnapshotCollector:
    """A collector for a registry of prometheus-client, for a program that has metrics of its own there.

    ::

        REGISTRY.register(SnapshotCollector(observer.look))

    ``look`` takes a snapshot, and is called for each scrape. Needs the extra ``observe``.
    """

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """The metrics without their values, so that nothing is looked at when the collector is registered."""
        return [_family(each) for each in (*METRICS, _LIMITING)]

    def collect(self) -> Iterator[Metric]:
        """The metrics of a snapshot of this moment."""
        snapshot = self._look()
        for each, column in _columns(snapshot):
            family = _family(each)
            for hop, value in zip(snapshot.hops, column, strict=True):
                if value is not None:
                    family.add_metric((hop.id, hop.kind, hop.name), value)
            yield family


def _family(family: MetricFamily) -> CounterMetricFamily | GaugeMetricFamily:
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as missing:
        raise ImportError(
            "a collector needs prometheus-client: pip install 'penstock-streams[observe]'"
        ) from missing
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return kind(family.name, family.help, labels=("hop", "kind", "name"))
