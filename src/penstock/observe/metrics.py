"""Metrics for Prometheus over HTTP, with ``/healthz`` and ``/readyz`` beside them.

The figures of a hop are totals since it began, so Prometheus makes the rates.
:mod:`penstock.observe.exposition` has their names and writes the text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Self

from penstock.endpoint import Endpoint
from penstock.observe.exposition import Exposition
from penstock.observe.model import Snapshot
from penstock.observe.web_server import Application, Message, WebServer

__all__ = ["MetricsServer", "metrics_app"]

_log = logging.getLogger("penstock.observe")


def metrics_app(look: Callable[[], Snapshot]) -> Application:
    """An ASGI application with ``/metrics``, ``/healthz`` and ``/readyz``; ``look`` takes a snapshot.

    ``/healthz`` answers as long as the process does. ``/readyz`` answers 200 if a snapshot can be taken, no
    journal is stalled and no feed is down, and otherwise 503 with the reason.
    """

    answers = _Answers(look)

    async def application(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await asyncio.to_thread(answers.to, scope["method"], scope["path"])
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return application


_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = b"application/json"
_MOST_CONNECTIONS: Final = 32


class _Answers:
    """Looks, and writes the answers, one at a time: an observer is used by one thread at a time."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._exposition = Exposition()
        self._mutex = threading.Lock()

    def to(self, method: str, path: str) -> tuple[int, bytes, bytes]:
        """The status, the content type and the body for a request."""
        if method not in ("GET", "HEAD"):
            return 405, _JSON, b'{"error":"only GET and HEAD"}'
        if path == "/healthz":
            return 200, _JSON, b'{"status":"ok"}'
        if path not in ("/metrics", "/readyz"):
            return 404, _JSON, b'{"error":"there are /metrics, /healthz and /readyz"}'
        try:
            with self._mutex:
                snapshot = self._look()
                if path == "/metrics":
                    return 200, _TEXT, self._exposition.text(snapshot)
        except Exception as error:
            _log.warning("no snapshot could be taken for %s: %s", path, error)
            return 503, _JSON, json.dumps({"status": "unavailable", "reason": str(error)}).encode()
        stuck = next((hop for hop in snapshot.hops if hop.state in ("stalled", "failed", "down")), None)
        if stuck is not None:
            what = "is down" if stuck.state == "down" else "cannot go on"
            reason = f"{stuck.name} {what}" + (f": {stuck.reason}" if stuck.reason else "")
            return 503, _JSON, json.dumps({"status": "unavailable", "reason": reason}).encode()
        return 200, _JSON, b'{"status":"ok"}'


class MetricsServer:
    """Serves :func:`metrics_app` on a thread of its own, from ``start()`` to ``close()``.

    ``address`` is ``HOST:PORT``. There is no password: let it listen on loopback, or in a network that may
    see the figures; no record and no key is among them.
    """

    def __init__(self, look: Callable[[], Snapshot], address: str) -> None:
        if find_spec("uvicorn") is None:
            raise ImportError("metrics need uvicorn: pip install 'penstock-streams[observe]'")
        self._application = metrics_app(look)
        self._server = WebServer(
            Endpoint.parse(f"tcp://{address}"),
            thread="penstock-metrics",
            subject="the server of the metrics",
            most_connections=_MOST_CONNECTIONS,
        )

    @property
    def url(self) -> str:
        """Where Prometheus finds the metrics."""
        endpoint = self._server.endpoint
        host = f"[{endpoint.host}]" if endpoint.is_ipv6 else endpoint.host
        return f"http://{host}:{endpoint.port}/metrics"

    def start(self) -> Self:
        """Begin to listen; OSError if the address cannot be used."""
        self._server.listen()
        self._server.serve(self._application)
        return self

    def close(self) -> None:
        """Stop; it can be called again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
