"""Snapshots as metrics of Prometheus, with ``/healthz`` and ``/readyz`` beside them.

:data:`METRICS` has every name, its kind, its meaning and its labels: the page and a test keep to that list.
The figures of a hop are totals since it began, so Prometheus makes the rates.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.endpoint import Endpoint
from penstock.observe.model import Hop, Snapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from uvicorn import Server

__all__ = ["METRICS", "MetricFamily", "MetricsServer", "exposition", "metrics_app"]

_log = logging.getLogger("penstock.observe")

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI application."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric: what it is called, and how it is read from a hop."""

    name: str
    kind: str
    """``counter`` or ``gauge``."""
    help: str
    figure: str
    """The attribute of a hop."""


_LABELS: Final = ("hop", "kind", "name")

METRICS: Final = (
    MetricFamily("penstock_records_in", "counter", "Records that have come to the hop.", "records_in"),
    MetricFamily("penstock_records_out", "counter", "Records that have left the hop.", "records_out"),
    MetricFamily("penstock_bytes_in", "counter", "Bytes that have come to the hop.", "bytes_in"),
    MetricFamily("penstock_bytes_out", "counter", "Bytes that have left the hop.", "bytes_out"),
    MetricFamily("penstock_waiting_records", "gauge", "Records that wait in the hop.", "waiting"),
    MetricFamily("penstock_capacity_records", "gauge", "Records that may wait in the hop.", "capacity"),
    MetricFamily("penstock_waiting_bytes", "gauge", "Bytes that wait in the hop.", "waiting_bytes"),
    MetricFamily("penstock_capacity_bytes", "gauge", "Bytes that may wait in the hop.", "capacity_bytes"),
    MetricFamily(
        "penstock_waiting_for_demand_seconds",
        "counter",
        "Time in which the hop had records that nobody below wanted.",
        "waiting_for_demand",
    ),
    MetricFamily(
        "penstock_waiting_for_data_seconds",
        "counter",
        "Time in which the hop had nothing to do.",
        "waiting_for_data",
    ),
    MetricFamily("penstock_working_seconds", "counter", "Time in which the hop worked.", "working"),
    MetricFamily("penstock_lag_records", "gauge", "Records that the hop is behind.", "lag_records"),
    MetricFamily("penstock_lag_seconds", "gauge", "Seconds that the hop is behind.", "lag_seconds"),
    MetricFamily(
        "penstock_full_seconds",
        "gauge",
        "For how long the hop has been full; 0 if it is not.",
        "full_seconds",
    ),
    MetricFamily("penstock_errors", "counter", "Errors of the hop.", "errors"),
)
"""The metrics of every hop, each with the labels ``hop``, ``kind`` and ``name``. Prometheus shows a counter
with ``_total`` at its end. ``penstock_limiting`` is 1 for the hop that limits the flow."""


def _families(snapshot: Snapshot) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for each in METRICS:
        family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
            each.name, each.help, labels=_LABELS
        )
        for hop in snapshot.hops:
            value = getattr(hop, each.figure)
            if value is None and each.figure == "full_seconds" and hop.kind == "log":
                value = 0.0
            if value is not None:
                family.add_metric(_labels(hop), float(value))
        yield family
    limiting = GaugeMetricFamily("penstock_limiting", "1 for the hop that limits the flow.", labels=_LABELS)
    for hop in snapshot.hops:
        if snapshot.verdict is not None and snapshot.verdict.limiting == hop.id:
            limiting.add_metric(_labels(hop), 1.0)
    yield limiting


def _labels(hop: Hop) -> tuple[str, str, str]:
    return hop.id, hop.kind, hop.name


class _Snapshots:
    """A collector, as prometheus-client calls it, of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """The metrics of the snapshot."""
        return _families(self._snapshot)


def exposition(snapshot: Snapshot) -> bytes:
    """The snapshot in the text format of Prometheus. Needs the extra ``observe``."""
    _needs("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshots(snapshot))
    return generate_latest(registry)


def _needs(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise ImportError(
                f"metrics need {package.replace('_', '-')}: pip install 'penstock-streams[observe]'"
            )


def metrics_app(look: Callable[[], Snapshot]) -> Application:
    """An ASGI application with ``/metrics``, ``/healthz`` and ``/readyz``; ``look`` takes a snapshot.

    ``/healthz`` answers as long as the process does. ``/readyz`` answers 200 if a snapshot can be taken and
    no journal is stalled, and otherwise 503 with the reason.
    """

    mutex = threading.Lock()

    def one_at_a_time() -> Snapshot:
        with mutex:  # An observer is used by one thread at a time.
            return look()

    async def application(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await asyncio.to_thread(_answer, scope["method"], scope["path"], one_at_a_time)
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return application


_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = b"application/json"


def _answer(method: str, path: str, look: Callable[[], Snapshot]) -> tuple[int, bytes, bytes]:
    if method not in ("GET", "HEAD"):
        return 405, _JSON, b'{"error":"only GET and HEAD"}'
    if path == "/healthz":
        return 200, _JSON, b'{"status":"ok"}'
    if path not in ("/metrics", "/readyz"):
        return 404, _JSON, b'{"error":"there are /metrics, /healthz and /readyz"}'
    try:
        snapshot = look()
        if path == "/metrics":
            return 200, _TEXT, exposition(snapshot)
    except Exception as error:
        _log.warning("no snapshot could be taken for %s: %s", path, error)
        return 503, _JSON, json.dumps({"status": "unavailable", "reason": str(error)}).encode()
    stalled = [hop.name for hop in snapshot.hops if hop.state in ("stalled", "failed")]
    if stalled:
        reason = f"{stalled[0]} cannot go on"
        return 503, _JSON, json.dumps({"status": "unavailable", "reason": reason}).encode()
    return 200, _JSON, b'{"status":"ok"}'


class MetricsServer:
    """Serves :func:`metrics_app` on a thread of its own, from ``start()`` to ``close()``.

    ``address`` is ``HOST:PORT``. There is no password: let it listen on loopback, or in a network that may
    see the figures; no record and no key is among them.
    """

    def __init__(self, look: Callable[[], Snapshot], address: str) -> None:
        _needs("prometheus_client", "uvicorn")
        self._endpoint = Endpoint.parse(f"tcp://{address}")
        self._application = metrics_app(look)
        self._server: Server | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where Prometheus finds the metrics."""
        host = f"[{self._endpoint.host}]" if ":" in self._endpoint.host else self._endpoint.host
        port = self._endpoint.port if self._socket is None else self._socket.getsockname()[1]
        return f"http://{host}:{port}/metrics"

    def start(self) -> Self:
        """Begin to listen; OSError if the address cannot be used."""
        import uvicorn

        if self._socket is not None:
            raise RuntimeError("this server has been started before; make another one")
        host = "0.0.0.0" if self._endpoint.host == "*" else self._endpoint.host
        self._socket = socket.create_server(
            (host, self._endpoint.port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        settings = uvicorn.Config(
            self._application, log_config=None, access_log=False, lifespan="off", limit_concurrency=32
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="penstock-metrics",
            daemon=True,
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; it can be called again."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(10)
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
