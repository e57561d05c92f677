"""Metrics for Prometheus: their names do not change, and a running gateway can be scraped."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.observe import (
    METRICS,
    Hop,
    MetricsServer,
    Observer,
    QueryBatch,
    Snapshot,
    SnapshotCollector,
    Verdict,
    exposition,
)
from penstock.observe.exposition import Exposition
from penstock.streams import Flux

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text("utf-8")

GOLDEN = [
    "penstock_batch_phase_seconds",
    "penstock_batch_records",
    "penstock_batch_seconds",
    "penstock_batches_total",
    "penstock_bytes_in_total",
    "penstock_bytes_out_total",
    "penstock_capacity_bytes",
    "penstock_capacity_records",
    "penstock_demand_records",
    "penstock_errors_total",
    "penstock_full_seconds",
    "penstock_lag_records",
    "penstock_lag_seconds",
    "penstock_limiting",
    "penstock_oldest_seconds",
    "penstock_plain_bytes_total",
    "penstock_records_in_total",
    "penstock_records_out_total",
    "penstock_waiting_bytes",
    "penstock_waiting_for_data_seconds_total",
    "penstock_waiting_for_demand_seconds_total",
    "penstock_waiting_records",
    "penstock_working_seconds_total",
]
"""Dashboards and alarms use these names: one that is here stays."""

COMPLETE = Hop(
    id="gateway/log",
    kind="log",
    name='a "log"',
    bytes_in=1,
    bytes_out=2,
    waiting=3,
    capacity=4,
    waiting_bytes=5,
    capacity_bytes=6,
    demand=13,
    waiting_for_demand=7.0,
    waiting_for_data=8.0,
    working=9.5,
    lag_records=10,
    lag_seconds=11.0,
    oldest_seconds=14.0,
    full_seconds=12.0,
    details={"plain_bytes": 15.0},
)

_BATCHES = tuple(
    QueryBatch(
        query="query", number=number, at=0.0, seconds=number / 2, rows_in=number, phases={"addBatch": 2.5}
    )
    for number in (6, 7)
)
COMPLETE_SNAPSHOT = Snapshot(
    at=0.0,
    clock=0.0,
    hops=(COMPLETE, Hop(id="query", kind="query", name="rollup")),
    verdict=Verdict(sentence="", limiting="gateway/log"),
    batches=_BATCHES,
)
"""It has a value for every metric."""


def test_the_names_and_labels_are_those_that_were_promised() -> None:
    text = exposition(COMPLETE_SNAPSHOT).decode()
    samples = re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
    query = 'hop="query",kind="query",name="rollup"'

    assert sorted({name for name, _, _ in samples}) == GOLDEN
    assert {labels for _, labels, _ in samples} == {
        r'hop="gateway/log",kind="log",name="a \"log\""',
        query,
        'hop="query",kind="query",name="rollup",phase="addBatch"',
    }
    assert ("penstock_working_seconds_total", "9.5") in {(name, value) for name, _, value in samples}
    assert ("penstock_batches_total", query, "8") in samples
    assert ("penstock_batch_seconds", query, "3.5") in samples


def test_every_metric_is_on_the_page() -> None:
    for name in GOLDEN:
        assert f"`{name}`" in PAGE
    assert len(METRICS) == len(GOLDEN)


totals = st.integers(0, 2**63)
seconds = st.floats(0, 1e9)
hops = st.builds(
    Hop,
    id=st.text(),
    kind=st.sampled_from(["log", "cursor"]),
    name=st.text(),
    records_in=totals,
    bytes_out=st.none() | totals,
    working=st.none() | seconds,
    full_seconds=st.none() | seconds,
)


def samples(families: object) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in families  # type: ignore[attr-defined]
        for sample in family.samples
    ]


@given(st.lists(hops, unique_by=lambda hop: hop.id, max_size=4), st.booleans())
def test_the_text_says_what_the_library_of_prometheus_says(some: list[Hop], limits: bool) -> None:
    verdict = Verdict(sentence="", limiting=some[0].id) if some and limits else None
    snapshot = Snapshot(at=0.0, clock=0.0, hops=tuple(some), verdict=verdict)
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshot))

    text = exposition(snapshot).decode()
    read = list(text_string_to_metric_families(text))

    collected = list(registry.collect())
    assert samples(read) == samples(collected)
    kinds = {family.name: (family.type, family.documentation) for family in collected}
    assert {family.name: (family.type, family.documentation) for family in read} == kinds


def test_a_hop_that_is_renamed_or_gone_is_so_in_the_next_text() -> None:
    exposed = Exposition()

    def told(*names: str) -> set[str]:
        found = tuple(Hop(id=f"hop {number}", kind="cursor", name=name) for number, name in enumerate(names))
        text = exposed.text(Snapshot(at=0.0, clock=0.0, hops=found)).decode()
        return set(re.findall(r'name="(.*?)"', text))

    assert told("3 senders", "reader") == {"3 senders", "reader"}
    assert told("4 senders", "reader") == {"4 senders", "reader"}
    assert told("4 senders") == {"4 senders"}
    assert told() == set()


def test_a_registry_asks_for_a_snapshot_when_it_is_scraped_and_not_before() -> None:
    looks: list[Snapshot] = []

    def look() -> Snapshot:
        looks.append(Snapshot(at=0.0, clock=0.0, hops=(COMPLETE,)))
        return looks[-1]

    registry = CollectorRegistry(auto_describe=True)
    registry.register(SnapshotCollector(look))
    assert looks == []
    labels = {"hop": "gateway/log", "kind": "log", "name": 'a "log"'}
    assert registry.get_sample_value("penstock_records_in_total", labels) == 0
    assert len(looks) == 1


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_running_gateway_is_scraped_over_http() -> None:
    numbers = Flux.range(10**9).map(lambda n: b"%d" % n)
    with (
        Gateway(numbers, "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=1000)) as gateway,
        MetricsServer(Observer(gateway.endpoint).look, "127.0.0.1:0") as server,
    ):
        assert list(AquiferPublisher(gateway.endpoint).flux().take(10)) == [b"%d" % n for n in range(10)]
        status, text = fetch(server.url)
        assert status == 200
        assert re.search(r'^penstock_records_in_total\{.*kind="log".*\} [1-9]', text, re.MULTILINE)
        base = server.url.removesuffix("/metrics")
        assert fetch(f"{base}/healthz") == (200, '{"status":"ok"}')
        assert fetch(f"{base}/readyz") == (200, '{"status":"ok"}')
        assert fetch(f"{base}/elsewhere")[0] == 404


def test_a_gateway_that_is_gone_is_not_ready_but_the_process_is_alive() -> None:
    with MetricsServer(Observer("tcp://127.0.0.1:1", timeout=0.2).look, "127.0.0.1:0") as server:
        base = server.url.removesuffix("/metrics")
        assert fetch(f"{base}/readyz")[0] == 503
        assert fetch(f"{base}/metrics")[0] == 503
        assert fetch(f"{base}/healthz")[0] == 200


def test_a_stalled_journal_is_not_ready() -> None:
    stalled = Snapshot(at=0.0, clock=0.0, hops=(Hop(id="log", kind="log", name="journal", state="stalled"),))
    with MetricsServer(lambda: stalled, "127.0.0.1:0") as server:
        status, text = fetch(server.url.replace("/metrics", "/readyz"))
    assert status == 503
    assert "journal cannot go on" in text


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(ValueError, match="the port is missing"):
        MetricsServer(lambda: Snapshot(at=0.0, clock=0.0), "nowhere")


def test_the_command_serves_metrics(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    command = [sys.executable, "-m", "penstock", "gateway", "--source", f"file:{lines}", "--stay"]
    command += ["--control", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = next(line for line in process.stderr if "metrics at " in line)
            url = said.partition("metrics at ")[2].strip()
            status, text = fetch(url)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert status == 200
    assert 'kind="log"' in text
