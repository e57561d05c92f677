"""A collector of OpenTelemetry on loopback: it decodes what exporters send, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came over the wire."""

    name: str
    attributes: dict[str, Any]
    span_id: bytes
    links: tuple[bytes, ...]
    """The ids of the spans that it links to."""
    resource: dict[str, Any]
    start: int
    end: int


@dataclass
class OtlpReceiver:
    """Listens between entering and leaving a block."""

    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["content-type"] == "application/x-protobuf"
                asked: Any
                answer: Any
                if self.path == "/v1/metrics":
                    asked, answer = ExportMetricsServiceRequest(), ExportMetricsServiceResponse()
                else:
                    assert self.path == "/v1/traces", self.path
                    asked, answer = ExportTraceServiceRequest(), ExportTraceServiceResponse()
                asked.ParseFromString(body)
                with receiver.changed:
                    receiver.requests.append(asked)
                    receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
                    receiver.changed.notify_all()
                said = answer.SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def points(self, name: str) -> Iterator[tuple[dict[str, Any], float]]:
        """The attributes and the value of each point of a metric, in the order in which they came."""
        for request in self.requests:
            for group in getattr(request, "resource_metrics", ()):
                for metric in (one for scope in group.scope_metrics for one in scope.metrics):
                    if metric.name == name:
                        data = metric.sum if metric.WhichOneof("data") == "sum" else metric.gauge
                        for point in data.data_points:
                            yield _read(point.attributes), getattr(point, point.WhichOneof("value"))

    @property
    def metric_names(self) -> set[str]:
        """The names of all metrics that came."""
        return {
            metric.name
            for request in self.requests
            for group in getattr(request, "resource_metrics", ())
            for scope in group.scope_metrics
            for metric in scope.metrics
        }

    def spans(self, name: str = "") -> list[ReceivedSpan]:
        """The spans of a name, or all."""
        return [
            ReceivedSpan(
                span.name,
                _read(span.attributes),
                span.span_id,
                tuple(link.span_id for link in span.links),
                _read(group.resource.attributes),
                span.start_time_unix_nano,
                span.end_time_unix_nano,
            )
            for request in self.requests
            for group in getattr(request, "resource_spans", ())
            for scope in group.scope_spans
            for span in scope.spans
            if not name or span.name == name
        ]


def _read(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
