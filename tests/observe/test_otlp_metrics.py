"""Data points of snapshots: readers come and go for ever, and the newest are always there."""

from itertools import count

import pytest
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricsData, NumberDataPoint, Sum
from opentelemetry.sdk.resources import Resource

from penstock.observe import Hop, OtlpExport, Snapshot
from penstock.observe.otlp_metrics import MetricPoints
from tests.observe.otlp_receiver import OtlpReceiver


def a_snapshot(*hops: tuple[str, int]) -> Snapshot:
    """Hops with their records."""
    made = (
        Hop(id=name, kind="cursor", name=name, records_out=records, working=1.5) for name, records in hops
    )
    return Snapshot(at=0.0, clock=0.0, hops=tuple(made))


def points_of(data: MetricsData, name: str) -> dict[str, NumberDataPoint]:
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    found = (each.data for each in scope.metrics if each.name == name)
    return {str((point.attributes or {})["hop"]): point for each in found for point in each.data_points}  # type: ignore[misc]


def test_readers_that_have_left_take_no_space_from_new_ones() -> None:
    points = MetricPoints(Resource({}))
    for number in range(100):
        names = [f"reader {number}-{each}" for each in range(50)]
        data = points.of(a_snapshot(*((name, 7) for name in names)), number)
        assert sorted(points_of(data, "penstock.records_out")) == sorted(names)
        assert len(points._counters) < 1000, "only those that are here are remembered"


def test_a_counter_has_one_beginning_until_it_is_started_anew() -> None:
    points = MetricPoints(Resource({}))
    seen = [
        points_of(points.of(a_snapshot(("a", records)), now), "penstock.records_out")["a"]
        for now, records in ((10, 5), (20, 9), (30, 2), (40, 3))
    ]
    assert [each.value for each in seen] == [5, 9, 2, 3]
    assert [each.start_time_unix_nano for each in seen] == [10, 10, 30, 30]
    assert [each.time_unix_nano for each in seen] == [10, 20, 30, 40]


def test_deltas_add_up_to_the_totals() -> None:
    points = MetricPoints(Resource({}), delta=True)
    snapshots = [a_snapshot(("a", records)) for records in (5, 9, 9, 2)]
    data = [points.of(each, now) for now, each in enumerate(snapshots)]
    assert [points_of(each, "penstock.records_out")["a"].value for each in data] == [5, 4, 0, 2]
    metric = next(
        each
        for each in data[0].resource_metrics[0].scope_metrics[0].metrics
        if each.name == "penstock.records_out"
    )
    assert isinstance(metric.data, Sum)
    assert metric.data.aggregation_temporality is AggregationTemporality.DELTA


def test_a_collector_sees_the_newest_of_thousands_of_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    numbers = count()

    def look() -> Snapshot:
        return a_snapshot(*((f"{next(numbers)}", 1) for _ in range(500)))

    with OtlpReceiver() as collector, OtlpExport(look, collector.url, interval=0.01), collector.changed:
        assert collector.changed.wait_for(
            lambda: any(
                int(labels.get("hop", 0)) > 4000 for labels, _ in collector.points("penstock.records_out")
            ),
            60,
        )


def test_an_interval_that_is_not_one_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    with OtlpReceiver() as collector, OtlpExport(lambda: a_snapshot(("a", 1)), collector.url):
        pass
    assert "OTEL_METRIC_EXPORT_INTERVAL is 'soon'" in caplog.text
    assert [value for _, value in collector.points("penstock.records_out")] == [1]
