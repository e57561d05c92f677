"""The dashboard for Grafana: what it asks for exists, and its file has what Grafana needs."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from penstock.cli import main
from penstock.observe import METRICS, grafana_dashboard
from tests.observe.test_metrics import GOLDEN

LABELS = {family.name: set(family.labels) for family in METRICS}
COUNTERS = {f"{family.name}_total" for family in METRICS if family.kind == "counter"}
DASHBOARD = grafana_dashboard()
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
QUERIES = [target["expr"] for _, target in TARGETS]
SELECTOR = re.compile(r"(penstock_\w+)(?:\{([^}]*)\})?(\[[^\]]*\])?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_only_names_and_labels_that_were_promised(query: str) -> None:
    found = SELECTOR.findall(query)
    assert found
    for name, matchers, _ in found:
        assert name in GOLDEN
        assert re.sub(MATCHER, "", matchers).strip(", ") == ""
        assert set(MATCHER.findall(matchers)) <= LABELS[name.removesuffix("_total")]
    rest = SELECTOR.sub("", query)
    assert set(re.findall(r"[a-z_]\w*", rest)) <= {"rate"}
    assert rest.count("(") == rest.count(")")


@pytest.mark.parametrize("query", QUERIES)
def test_counters_have_rates_and_gauges_have_none(query: str) -> None:
    for name, _, window in SELECTOR.findall(query):
        assert (name in COUNTERS) == (window == "[$__rate_interval]")
    assert query.count("rate(") == query.count("[$__rate_interval]")


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_a_legend_has_only_labels_that_its_metric_has(title: str, target: dict[str, Any]) -> None:
    name = SELECTOR.findall(target["expr"])[0][0].removesuffix("_total")
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= LABELS[name], title


def test_every_metric_is_on_it() -> None:
    assert {name for query in QUERIES for name, _, _ in SELECTOR.findall(query)} == set(GOLDEN)


def test_it_has_the_keys_that_grafana_needs() -> None:
    assert DASHBOARD.keys() >= {"title", "uid", "schemaVersion", "panels", "templating", "time", "refresh"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        assert panel.keys() >= {"id", "type", "title", "gridPos"}
    for panel in PANELS:
        assert panel["type"] in ("timeseries", "stat", "state-timeline")
        assert panel.keys() >= {"datasource", "targets", "fieldConfig", "options", "description"}
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        assert [target["refId"] for target in panel["targets"]] == ["A", "B"][: len(panel["targets"])]
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == names


def test_no_panel_covers_another() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        across = range(place["x"], place["x"] + place["w"])
        return {(x, y) for x in across for y in range(place["y"], place["y"] + place["h"])}

    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


def test_the_command_prints_it_and_needs_no_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--grafana"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == DASHBOARD
    assert shown.err == ""
