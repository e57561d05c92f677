"""Snapshots in the text format of Prometheus.

A gateway with 500 subscribers has some 6000 samples, and it is scraped while it serves them: whatever a
scrape costs, its readers wait for, because all threads of a process share one lock. So the text is written
here and not by prometheus-client, which takes ten times as long for it.
:mod:`penstock.observe.metric_families` has the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.observe.metric_families import HOP_LABELS, METRICS, MetricFamily
from penstock.observe.model import Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Exposition", "SnapshotCollector", "exposition"]


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
        for family in METRICS:
            name = f"{family.name}_total" if family.kind == "counter" else family.name
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n")
            if family.labels == HOP_LABELS:
                parts += [
                    f"{name}{label}{value}\n"
                    for label, value in zip(labels, family.column(snapshot), strict=True)
                    if value is not None
                ]
            else:
                parts += [
                    f"{name}{_labels(*key, names=family.labels)}{value}\n"
                    for key, value in family.samples(snapshot)
                ]
        return "".join(parts).encode()


def _labels(*values: str, names: Iterable[str] = HOP_LABELS) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{shown}}} "


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
        return [_family(each) for each in METRICS]

    def collect(self) -> Iterator[Metric]:
        """The metrics of a snapshot of this moment."""
        snapshot = self._look()
        for each in METRICS:
            family = _family(each)
            for labels, value in each.samples(snapshot):
                family.add_metric(labels, value)
            yield family


def _family(family: MetricFamily) -> CounterMetricFamily | GaugeMetricFamily:
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError as missing:
        raise ImportError(
            "a collector needs prometheus-client: pip install 'penstock-streams[observe]'"
        ) from missing
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return kind(family.name, family.help, labels=family.labels)
