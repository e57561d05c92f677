"""``penstock run`` with a dashboard and metrics: Spark's query is among the hops while it runs."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.aquifer.faults.rigs import eventually
from tests.cli import running
from tests.cli.running import Program
from tests.observe.dashboard.browsing import Watched
from tests.observe.otlp_receiver import OtlpReceiver

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = 240.0
"""Seconds: Spark takes five to start, and half a minute on a busy machine."""

APP = """
from penstock.spark import Pipeline
from penstock.streams import Flux


class Sink:
    def on_subscribe(self, subscription):
        subscription.request(2**63 - 1)

    def on_next(self, row): ...
    def on_error(self, error): ...
    def on_complete(self): ...


source = Flux.range(10**12).map(lambda n: {"n": n})
options = {"partitions": "1", "maxRecordsPerTrigger": "5000"}
pipeline = Pipeline(source, schema="n bigint", options=options).into(Sink())
"""


FILES = """
from penstock.spark import Pipeline
from penstock.streams import Flux

# More than the query takes, and no more than that: a source without a pause would keep a busy processor from
# Spark until the log is full.
ticks = Flux.interval(0.01).on_backpressure_drop()
source = ticks.flat_map_iterable(lambda tick: [{"n": n} for n in range(100)])
options = {"partitions": "1", "maxRecordsPerTrigger": "100"}
pipeline = Pipeline(source, schema="n bigint", options=options).into("parquet", path=PATH)
"""


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def is_free(url: str) -> bool:
    place = urlsplit(url)
    assert place.hostname is not None
    with socket.socket() as asker:
        return asker.connect_ex((place.hostname, place.port)) != 0


@pytest.mark.rare(35, kind="a run with a dashboard")
def test_the_query_is_on_the_page_and_in_the_metrics(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PATIENCE", LONG)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = tmp_path / "app.py"
    app.write_text(APP)
    where = ["--dashboard", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with Program("run", str(app), "--checkpoint", str(tmp_path / "state"), *where) as program:
        page = program.wait_for(r"dashboard at (\S+)")[1]
        metrics = program.wait_for(r"metrics at (\S+)")[1]
        # Spark starts now: the process is alive, and not ready.
        ready = metrics.replace("/metrics", "/readyz")
        assert fetch(metrics.replace("/metrics", "/healthz"))[0] == 200
        assert fetch(ready)[0] == 503

        program.wait_for("running ")
        # The source, the query, and what the query writes to.
        wanted = {"stage", "intake", "log", "cursor", "query", "producer"}
        eventually(lambda: wanted <= set(re.findall(r'kind="(\w+)"', fetch(metrics)[1])), timeout=LONG)
        assert fetch(ready) == (200, '{"status":"ok"}')
        logs = set(re.findall(r'penstock_records_in_total\{hop="(\S+)/log"', fetch(metrics)[1]))
        assert len(logs) == 2

        watched.page.goto(page)
        query = watched.page.locator(".hop", has=watched.page.get_by_text("query", exact=True))
        expect(query.first).to_be_visible(timeout=LONG * 1000)
        assert watched.complaints == []

        program.process.send_signal(signal.SIGTERM)
        assert program.end(LONG) == 0, program.said
    assert any(line.startswith("stopped after ") for line in program.said), program.said
    noted = json.loads((tmp_path / "cache/penstock/spark-start.json").read_text())
    assert noted["run"] > 0
    assert is_free(page)
    assert is_free(metrics)


@pytest.mark.rare(40, kind="a run with a dashboard")
def test_the_files_that_a_query_writes_are_its_last_hop_and_all_figures_go_to_a_collector(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PATIENCE", LONG)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "500")
    app, hot = tmp_path / "app.py", tmp_path / "hot"
    app.write_text(FILES.replace("PATH", repr(str(hot))))
    with OtlpReceiver() as collector:
        where = ["--dashboard", "127.0.0.1:0", "--otlp", collector.url]
        with Program("run", str(app), "--checkpoint", str(tmp_path / "state"), *where) as program:
            page = program.wait_for(r"dashboard at (\S+)")[1]
            program.wait_for("metrics and spans go to ")
            watched.page.goto(page)
            sink = watched.page.locator(".hop", has=watched.page.get_by_text("sink", exact=True))
            expect(sink.locator(".name")).to_have_text(f"files in {hot}", timeout=LONG * 1000)

            def limited() -> bool:
                verdict = json.loads(fetch(f"{page}snapshot.json")[1])["snapshot"].get("verdict") or {}
                said = str(verdict.get("sentence"))
                return "The query `" in said and f"which computes and writes to files in {hot}" in said

            eventually(limited, timeout=LONG)
            eventually(lambda: "penstock.batch" in {span.name for span in collector.spans()}, timeout=LONG)
            assert watched.complaints == []
            program.process.send_signal(signal.SIGTERM)
            assert program.end(LONG) == 0, program.said
        services = {span.resource["service.name"] for span in collector.spans()}
        assert services == {"penstock-run"}
        assert "penstock.records_in" in collector.metric_names
    assert list(hot.glob("*.parquet"))
