"""A dashboard for Grafana that shows the metrics of :data:`penstock.observe.METRICS`, as a file to import.

It asks Prometheus, or a store that speaks its query language. The metrics may come from ``/metrics`` or,
through a collector of OpenTelemetry, over OTLP: their names and labels are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["grafana_dashboard"]

_SCHEMA: Final = 39
"""The version of Grafana's format; Grafana 10.2 and newer read it, and migrate it if need be."""
_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HOP: Final = "{{kind}} {{name}}"
_LOG: Final = 'kind="log"'


@dataclass(frozen=True)
class _Panel:
    title: str
    description: str
    queries: Mapping[str, str]
    """What the line is called, and the query."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    stacked: bool = False
    most: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def _rate(metric: str, chosen: str = 'kind=~"$kind"') -> str:
    return f"rate({metric}{{{chosen}}}[$__rate_interval])"


def _level(metric: str) -> str:
    chosen = '{kind=~"$kind"}'
    return f"penstock_waiting_{metric}{chosen} / (penstock_capacity_{metric}{chosen} > 0)"


_ROWS: Final[Sequence[tuple[str, Sequence[_Panel]]]] = (
    (
        "Who holds whom up",
        (
            _Panel(
                "The hop that limits the flow",
                "Nobody, if the source is slower than everything below it.",
                {_HOP: "penstock_limiting == 1"},
                kind="stat",
                width=8,
                height=6,
                options={"textMode": "name", "colorMode": "background", "graphMode": "none"},
            ),
            _Panel(
                "Which hop limited the flow",
                "A bar for as long as a hop limited the flow.",
                {_HOP: "penstock_limiting"},
                kind="state-timeline",
                width=16,
                height=6,
                options={"showValue": "never", "legend": {"showLegend": False}},
            ),
        ),
    ),
    (
        "Rates",
        (
            _Panel(
                "Records in",
                "Records a second that come to each hop.",
                {_HOP: _rate("penstock_records_in_total")},
                "reqps",
            ),
            _Panel(
                "Records out",
                "Records a second that leave each hop.",
                {_HOP: _rate("penstock_records_out_total")},
                "reqps",
            ),
            _Panel(
                "Bytes",
                "Bytes a second, as far as a hop counts them.",
                {
                    f"{_HOP} in": _rate("penstock_bytes_in_total"),
                    f"{_HOP} out": _rate("penstock_bytes_out_total"),
                },
                "Bps",
                width=6,
            ),
            _Panel(
                "Stored of plain bytes",
                "What a log stores, as a share of what came: below 1 it is compressed.",
                {
                    _HOP: f"{_rate('penstock_bytes_in_total', _LOG)} / "
                    f"({_rate('penstock_plain_bytes_total', _LOG)} > 0)"
                },
                "percentunit",
                width=6,
            ),
            _Panel(
                "Dead letters",
                "Elements a second that could not become records: they are dead letters, or were left out.",
                {_HOP: _rate("penstock_errors_total", 'kind="intake"')},
                "cps",
                width=6,
            ),
            _Panel(
                "Errors",
                "Errors a second of the other hops.",
                {_HOP: _rate("penstock_errors_total", 'kind!="intake"')},
                "cps",
                width=6,
            ),
        ),
    ),
    (
        "Levels",
        (
            _Panel(
                "How full",
                "What waits in a hop, as a share of its bound: by records, and by bytes.",
                {f"{_HOP}, records": _level("records"), f"{_HOP}, bytes": _level("bytes")},
                "percentunit",
                most=1.0,
            ),
            _Panel(
                "Waiting",
                "Records that wait in each hop.",
                {_HOP: 'penstock_waiting_records{kind=~"$kind"}'},
            ),
            _Panel(
                "Open demand",
                "Records that a hop may still send down. At 0 it has to wait.",
                {_HOP: 'penstock_demand_records{kind=~"$kind"}'},
            ),
            _Panel(
                "Full for",
                "How long a log has been full without a break.",
                {_HOP: "penstock_full_seconds"},
                "s",
            ),
        ),
    ),
    (
        "Lag",
        (
            _Panel(
                "Lag in records",
                "How many records a reader is behind the newest one.",
                {_HOP: "penstock_lag_records"},
                width=8,
            ),
            _Panel("Lag in seconds", "How long it is behind.", {_HOP: "penstock_lag_seconds"}, "s", width=8),
            _Panel(
                "Oldest record",
                "The age of the oldest record that waits.",
                {_HOP: 'penstock_oldest_seconds{kind=~"$kind"}'},
                "s",
                width=8,
            ),
        ),
    ),
    (
        "Where the time goes",
        tuple(
            _Panel(title, what, {_HOP: _rate(metric)}, "percentunit", width=8, most=1.0)
            for title, what, metric in (
                (
                    "Waiting for demand",
                    "A hop that waits for demand is held up by what is below it.",
                    "penstock_waiting_for_demand_seconds_total",
                ),
                (
                    "Waiting for data",
                    "A hop that waits for data is faster than what is above it.",
                    "penstock_waiting_for_data_seconds_total",
                ),
                ("Working", "A hop that always works limits the flow.", "penstock_working_seconds_total"),
            )
        ),
    ),
    (
        "Spark",
        (
            _Panel(
                "Batch by phase",
                "How long the phases of the last batch of each query took, in Spark's words.",
                {"{{name}} {{phase}}": 'penstock_batch_phase_seconds{phase!="triggerExecution"}'},
                "s",
                stacked=True,
            ),
            _Panel(
                "Batch",
                "How long the last batch of each query took, without its wait for records.",
                {"{{name}}": "penstock_batch_seconds"},
                "s",
            ),
            _Panel(
                "Records of a batch",
                "Of the last batch of each query.",
                {"{{name}}": "penstock_batch_records"},
            ),
            _Panel(
                "Batches",
                "Batches a second.",
                {"{{name}}": "rate(penstock_batches_total[$__rate_interval])"},
                "cps",
            ),
        ),
    ),
)


def grafana_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON: Dashboards, New, Import."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in _ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
                "panels": [],
            }
        )
        top, left, height = top + 1, 0, 0
        for each in row:
            if left + each.width > _COLUMNS:
                top, left, height = top + height, 0, 0
            panels.append(_described(each, len(panels) + 1, left, top))
            left, height = left + each.width, max(height, each.height)
        top += height
    return {
        "uid": "penstock",
        "title": "Penstock: who holds whom up",
        "description": "Every hop from a sender's socket to the last reader.",
        "tags": ["penstock"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "refresh": "10s",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_data_source(), _kinds()]},
        "panels": panels,
    }


def _described(panel: _Panel, number: int, left: int, top: int) -> dict[str, Any]:
    custom: dict[str, Any] = {
        "fillOpacity": 30 if panel.stacked else 0,
        "lineWidth": 1,
        "showPoints": "never",
    }
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal", "group": "A"}, "drawStyle": "bars"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": {}}
    if panel.kind == "timeseries":
        defaults["custom"] = custom
    if panel.kind == "stat":
        defaults |= {"noValue": "nobody", "color": {"mode": "fixed", "fixedColor": "orange"}}
    if panel.most is not None:
        defaults["max"] = panel.most
    legend = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend_format,
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for index, (legend_format, query) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": dict(panel.options) if panel.options else legend,
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "options": [],
    }


def _kinds() -> dict[str, Any]:
    return {
        "name": "kind",
        "label": "Kind of hop",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(penstock_records_in_total, kind)", "refId": "kinds"},
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "hide": 0,
        "refresh": 2,
        "sort": 1,
        "regex": "",
        "options": [],
    }
