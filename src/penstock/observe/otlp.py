"""Sends metrics and spans to a collector of OpenTelemetry, over OTLP with HTTP.

The standard variables ``OTEL_*`` hold: the exporters and the resource of the SDK read them. What is made here
is not global, so nothing else in the process exports through it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from penstock import __version__
from penstock.observe.model import Snapshot
from penstock.observe.telemetry import Telemetry, needs_opentelemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from penstock.observe.otlp_metrics import MetricExport

__all__ = ["OtlpExport", "otlp_endpoint", "parse_otlp_url"]

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_METRICS: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_SIGNALS: Final = ("METRICS", "TRACES")
_SPOKEN: Final = "http/protobuf"
_PATIENCE: Final = 5.0
"""Seconds for the last export. A collector that does not answer must not keep a program from its end."""


def otlp_endpoint() -> str | None:
    """The collector that the environment names; None if it names none, or wants none."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    return next((os.environ[name] for name in (_ENDPOINT, _METRICS, _TRACES) if os.environ.get(name)), None)


class OtlpExport:
    """Exports snapshots from ``start()`` to ``close()``; needs the extra ``otel``.

    ``url`` is the collector, such as ``http://localhost:4318``; metrics go to ``/v1/metrics`` below it and
    spans to ``/v1/traces``. Without it the environment names the collector, for each of the two if need be.
    ``OTEL_METRICS_EXPORTER=none`` and ``OTEL_TRACES_EXPORTER=none`` switch one of them off. Headers, such as
    a token, belong into ``OTEL_EXPORTER_OTLP_HEADERS``. ``service`` is the name of the service if the
    environment has none.

    Another thread exports. If the collector is not there, the SDK says so in the log of ``opentelemetry``,
    tries again, and drops what is too much for its queues; the program goes on.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        url: str | None = None,
        *,
        service: str = "penstock",
        interval: float = 1.0,
        heads: Mapping[str, int] | None = None,
    ) -> None:
        if url is None:
            _check_protocol()
        base = None if url is None else parse_otlp_url(url)
        needs_opentelemetry("opentelemetry.sdk.resources")
        needs_opentelemetry("opentelemetry.exporter.otlp.proto.http")
        resource = _resource(service)
        self._tracers = _tracers(base, resource) if _is_wanted("TRACES") else None
        self._metrics: MetricExport | None = None
        self._telemetry: Telemetry | None = None
        if self._tracers is not None or _is_wanted("METRICS"):
            from opentelemetry.trace import NoOpTracerProvider

            telemetry = self._telemetry = Telemetry(
                look,
                tracer_provider=self._tracers if self._tracers is not None else NoOpTracerProvider(),
                interval=interval,
                heads=heads,
            )
            if _is_wanted("METRICS"):
                self._metrics = _metrics(base, resource, lambda: telemetry.snapshot)

    def start(self) -> Self:
        """Begin to look and to export."""
        if self._telemetry is not None:
            self._telemetry.start()
        if self._metrics is not None:
            self._metrics.start()
        return self

    def close(self) -> None:
        """Export the last figures and spans, within a few seconds, and stop; it can be called again."""
        if self._telemetry is not None:
            self._telemetry.stop()
        threads = [
            threading.Thread(target=provider.shutdown, name="penstock-otlp-end", daemon=True)
            for provider in (self._metrics, self._tracers)
            if provider is not None
        ]
        self._metrics = self._tracers = None
        until = time.monotonic() + _PATIENCE
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._telemetry is not None:
            self._telemetry.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_protocol() -> None:
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_EXPORTER_OTLP_{one}_PROTOCOL" for one in _SIGNALS)):
        wanted = os.environ.get(name) or _SPOKEN
        if wanted != _SPOKEN:
            raise ValueError(
                f"{name} is {wanted}, and only {_SPOKEN} is spoken here: set it to that, and name the "
                "collector's port for HTTP"
            )


def parse_otlp_url(url: str) -> str:
    """Check the address of a collector; a ValueError shows one that is right, and no secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not the address of a collector; write http://HOST:4318")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "the address of a collector must not have a password in it: put a header into the variable "
            "OTEL_EXPORTER_OTLP_HEADERS"
        )
    if parts.query or parts.fragment:
        raise ValueError("the address of a collector ends before the ? or the #: write http://HOST:4318")
    return url.rstrip("/")


def _is_wanted(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _resource(service: str) -> Resource:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: service, "service.version": __version__}))
    return found


def _metrics(base: str | None, resource: Resource, snapshot: Callable[[], Snapshot | None]) -> MetricExport:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    from penstock.observe.otlp_metrics import MetricExport

    exporter = OTLPMetricExporter(None if base is None else f"{base}/v1/metrics")
    return MetricExport(exporter, snapshot, resource)


def _tracers(base: str | None, resource: Resource) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(None if base is None else f"{base}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
