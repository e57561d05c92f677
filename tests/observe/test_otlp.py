"""Metrics and spans for a collector: a gateway that runs as a process, and a real receiver on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher
from penstock.cli import main
from penstock.observe import Hop, OtlpExport, Snapshot, otlp_endpoint
from tests.observe.otlp_receiver import OtlpReceiver

FAST = {"OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_BSP_SCHEDULE_DELAY": "200"}


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    return file


@contextmanager
def gateway(
    source: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that has begun to serve, and its endpoint."""
    command = [sys.executable, "-m", "penstock", "gateway", "--source", f"file:{source}", "--stay"]
    command += ["--control", "tcp://127.0.0.1:0", "--json", *options]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["control"]
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    """Let it end by SIGTERM; what it has said on standard error."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def wait_until(receiver: OtlpReceiver, holds: Callable[[], bool]) -> None:
    with receiver.changed:
        assert receiver.changed.wait_for(holds, 50)


def test_a_gateway_sends_metrics_and_spans_to_a_collector(collector: OtlpReceiver, lines: Path) -> None:
    with gateway(lines, "--otlp", collector.url, environment=FAST) as (process, endpoint):
        read = AquiferPublisher(endpoint, id="mine").flux().take(60)
        assert len(list(read)) == 60
        log = f"{endpoint}/log"

        def all_came() -> bool:
            return any(
                value == 100 and attributes == {"hop": log, "kind": "log", "name": "log"}
                for attributes, value in collector.points("penstock.records_in")
            )

        wait_until(collector, all_came)
        said = ended(process)
    assert f"metrics and spans go to {collector.url}" in said
    (intake,) = collector.spans("penstock.intake")
    assert intake.attributes["penstock.stream"] == endpoint
    assert intake.attributes["penstock.offset.first"] == 0
    assert intake.attributes["penstock.offset.last"] == 99
    assert intake.resource["service.name"] == "penstock-gateway"
    assert intake.start <= intake.end
    for read_span in collector.spans("penstock.read"):
        assert read_span.attributes["penstock.subscriber"] == "mine"
        assert read_span.links == (intake.span_id,)


def test_the_environment_alone_is_enough(collector: OtlpReceiver, lines: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abcdef0123456789",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "orders",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        "OTEL_TRACES_EXPORTER": "none",
    }
    with gateway(lines, environment=environment) as (process, _):
        said = ended(process)
    assert list(collector.points("penstock.records_in")), "the last figures are sent at the end"
    assert not collector.spans()
    assert collector.headers[0]["authorization"] == "Bearer abcdef0123456789"
    assert "abcdef0123456789" not in said
    group = collector.requests[0].resource_metrics[0]
    resource = {one.key: one.value.string_value for one in group.resource.attributes}
    assert resource["service.name"] == "orders"
    assert resource["deployment.environment"] == "test"


def test_nothing_is_sent_and_nothing_imported_without_the_option(lines: Path) -> None:
    code = (
        "import sys, threading\n"
        "from penstock.cli import main\n"
        f"code = main(['gateway', '--source', 'file:{lines}', '--control', 'tcp://127.0.0.1:0', '--quiet'])\n"
        "print(code, [name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    ) as process:
        assert process.stderr is not None
        endpoint = process.stderr.readline().split()[-1]
        assert len(list(AquiferPublisher(endpoint).flux())) == 100
        shown, _ = process.communicate(timeout=60)
    assert shown == "0 []\n"


def test_a_collector_that_is_not_there_does_not_keep_a_gateway_from_anything(lines: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with gateway(lines, "--otlp", f"http://127.0.0.1:{port}", environment=FAST) as (process, endpoint):
        assert len(list(AquiferPublisher(endpoint).flux().take(100))) == 100
        said = ended(process)
    assert "Traceback" not in said


def test_a_collector_that_accepts_and_is_silent_does_not_keep_a_gateway_from_its_end(lines: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with gateway(lines, "--otlp", url, environment=FAST) as (process, _):
            connection, _ = silent.accept()
            with connection:
                ended(process)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("collector:4318", "is not the address of a collector"),
        ("ftp://collector", "write http://HOST:4318"),
        ("http://me:secret@127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://127.0.0.1:1/?token=secret", "ends before the ?"),
    ],
)
def test_a_wrong_address_is_refused_without_a_secret(
    capsys: pytest.CaptureFixture[str], url: str, said: str
) -> None:
    assert main(["gateway", "--source", "stdin", "--otlp", url]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "secret" not in shown
    assert shown.count("\n") == 1


def test_a_variable_that_cannot_be_used_is_told_and_the_gateway_runs(lines: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    with gateway(lines, environment=environment) as (process, endpoint):
        assert len(list(AquiferPublisher(endpoint).flux().take(100))) == 100
        said = ended(process)
    assert "nothing is sent to OpenTelemetry: OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in said


def test_the_environment_can_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    assert otlp_endpoint() == "http://127.0.0.1:1/v1/traces"
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert otlp_endpoint() is None


def test_the_export_of_a_program_ends_with_its_last_figures(collector: OtlpReceiver) -> None:
    began = time.time()

    def look() -> Snapshot:
        hop = Hop(id="here/log", kind="log", name="log", where="here", records_in=7, offset=7)
        return Snapshot(at=began, clock=0.0, hops=(hop,))

    export = OtlpExport(look, collector.url, heads={"here": 0})
    with export:
        pass
    export.close()
    assert [value for _, value in collector.points("penstock.records_in")] == [7]
    (span,) = collector.spans()
    assert span.attributes["penstock.records"] == 7
