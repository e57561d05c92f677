"""Snapshots as metrics of OpenTelemetry: the figures of Prometheus, under names that do not change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.observe import METRICS, Hop, Observer, Snapshot, Telemetry, exposition
from penstock.streams import Flux
from tests.observe.test_metrics import COMPLETE_SNAPSHOT, GOLDEN

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text("utf-8")

GOLDEN_OTEL = {
    "penstock.batch_phase_seconds": "s",
    "penstock.batch_records": "{record}",
    "penstock.batch_seconds": "s",
    "penstock.batches": "",
    "penstock.bytes_in": "By",
    "penstock.bytes_out": "By",
    "penstock.capacity_bytes": "By",
    "penstock.capacity_records": "{record}",
    "penstock.demand_records": "{record}",
    "penstock.errors": "",
    "penstock.full_seconds": "s",
    "penstock.lag_records": "{record}",
    "penstock.lag_seconds": "s",
    "penstock.limiting": "",
    "penstock.oldest_seconds": "s",
    "penstock.plain_bytes": "By",
    "penstock.records_in": "{record}",
    "penstock.records_out": "{record}",
    "penstock.waiting_bytes": "By",
    "penstock.waiting_for_data_seconds": "s",
    "penstock.waiting_for_demand_seconds": "s",
    "penstock.waiting_records": "{record}",
    "penstock.working_seconds": "s",
}
"""Names and units: one that is here stays."""


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """The metrics by name."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    scopes = [scope for group in data.resource_metrics for scope in group.scope_metrics]
    assert {scope.scope.name for scope in scopes} <= {"penstock"}
    return {metric.name: metric for scope in scopes for metric in scope.metrics}


def points(reader: InMemoryMetricReader, name: str) -> dict[str, float]:
    """The values of a metric, by hop."""
    metric = collected(reader).get(name)
    return {} if metric is None else {one.attributes["hop"]: one.value for one in metric.data.data_points}


def test_the_names_and_units_are_those_that_were_promised(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    telemetry = Telemetry(lambda: COMPLETE_SNAPSHOT, meter_provider=provider)
    telemetry.look()

    assert {name: metric.unit for name, metric in collected(reader).items()} == GOLDEN_OTEL


def test_every_name_is_that_of_prometheus_translated(
    provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    """A Prometheus that is fed by a collector has the same names, labels and values as one that scrapes."""
    Telemetry(lambda: COMPLETE_SNAPSHOT, meter_provider=provider).look()
    sent = {
        (_in_prometheus(metric), frozenset(point.attributes.items()), float(point.value))
        for metric in collected(reader).values()
        for point in metric.data.data_points
    }
    text = exposition(COMPLETE_SNAPSHOT).decode()
    scraped = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert sent == scraped
    assert {name for name, _, _ in sent} == set(GOLDEN)


def _in_prometheus(metric: Any) -> str:
    """A name as the specification of OpenTelemetry translates it for Prometheus."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", metric.name)
    unit = {"s": "seconds", "By": "bytes"}.get(metric.unit, "")
    if unit and unit not in name.split("_"):
        name += f"_{unit}"
    return f"{name}_total" if getattr(metric.data, "is_monotonic", False) else name


def test_every_name_is_on_the_page() -> None:
    for family in METRICS:
        assert f"`{family.otel_name}`" in PAGE


def test_a_running_gateway_is_measured(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    numbers = Flux.range(10**9).map(lambda n: b"%d" % n)
    with Gateway(numbers, "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=1000)) as gateway:
        telemetry = Telemetry(Observer(gateway.endpoint).look, meter_provider=provider)
        assert list(AquiferPublisher(gateway.endpoint).flux().take(10)) == [b"%d" % n for n in range(10)]
        telemetry.look()
        before = points(reader, "penstock.records_in")[f"{gateway.endpoint}/log"]
        list(AquiferPublisher(gateway.endpoint).flux().take(1500))
        telemetry.look()
        after = points(reader, "penstock.records_in")[f"{gateway.endpoint}/log"]
    assert 10 <= before < after


def test_a_thread_looks_until_it_is_closed(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    looks: Iterator[int] = iter(range(10**9))

    def look() -> Snapshot:
        hop = Hop(id="log", kind="log", name="log", records_in=next(looks))
        return Snapshot(at=0.0, clock=0.0, hops=(hop,))

    with Telemetry(look, meter_provider=provider, interval=0.001):
        while points(reader, "penstock.records_in").get("log", 0) < 5:
            pass
    assert points(reader, "penstock.records_in") == {}, "it shows nothing any more"


def test_while_no_snapshot_can_be_taken_nothing_is_shown(
    provider: MeterProvider, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    answers: Iterator[Snapshot | OSError] = iter(
        [COMPLETE_SNAPSHOT, OSError("no gateway"), OSError("no gateway"), COMPLETE_SNAPSHOT]
    )

    def look() -> Snapshot:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    telemetry = Telemetry(look, meter_provider=provider)
    seen = []
    for _ in range(4):
        telemetry.look()
        seen.append(bool(collected(reader)))
    assert seen == [True, False, False, True]
    assert caplog.text.count("no gateway") == 1


def test_two_observers_share_a_provider(provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    def at(id: str, records: int) -> Telemetry:
        hop = Hop(id=id, kind="log", name="log", records_in=records)
        return Telemetry(lambda: Snapshot(at=0.0, clock=0.0, hops=(hop,)), meter_provider=provider)

    one, two, again = at("one", 1), at("two", 2), at("one", 1)
    for each in (one, two, again):
        each.look()
    assert points(reader, "penstock.records_in") == {"one": 1, "two": 2}, "what both see is there once"
    two.close()
    again.close()
    assert points(reader, "penstock.records_in") == {"one": 1}


def test_a_failing_provider_of_spans_does_not_end_the_metrics(
    provider: MeterProvider, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = TracerProvider()

    class Broken(SimpleSpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            raise RuntimeError("broken")

    tracers.add_span_processor(Broken(InMemorySpanExporter()))
    heads = iter(range(10))

    def look() -> Snapshot:
        head = next(heads)
        hop = Hop(id="here/log", kind="log", name="log", where="here", offset=head, records_in=head)
        return Snapshot(at=float(head), clock=float(head), hops=(hop,))

    telemetry = Telemetry(look, meter_provider=provider, tracer_provider=tracers)
    for head in range(3):
        telemetry.look()
        assert points(reader, "penstock.records_in") == {"here/log": head}
    assert "the spans of a snapshot could not be made" in caplog.text


def test_it_needs_something_to_show() -> None:
    with pytest.raises(ValueError, match="meter_provider"):
        Telemetry(lambda: COMPLETE_SNAPSHOT)


def test_without_the_packages_the_extra_is_named() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\n"
    code += "from penstock.observe import Telemetry\nTelemetry(lambda: None, meter_provider=object())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "pip install 'penstock-streams[otel]'" in done.stderr


def test_nothing_of_opentelemetry_is_imported_before_it_is_wanted() -> None:
    code = "import sys, penstock.observe, penstock.cli.gateway.server\n"
    code += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
