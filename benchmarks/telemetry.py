"""What does OpenTelemetry cost a gateway?

A gateway with one subscriber delivers as fast as it can. Its figures go to a collector on loopback, metrics
alone or metrics and spans, as ``penstock gateway --otlp`` sends them, but every second: sixty times as often
as by default. What counts is the processor time of the gateway's process for a delivery, with all threads of
the exporters in it; the collector is another process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from typing import Final

from benchmarks.crowd import follow, serve
from benchmarks.measuring import Alternative, Question, Timed, WrongResult
from benchmarks.processes import Facts, Line, beside

__all__ = ["question"]

_FRAME: Final = 256 * 2**10
_FRAMES: Final = 4
"""How many of them are on their way to the subscriber."""
_WITHOUT: Final = "without OpenTelemetry"


class _Exporting:
    """A gateway, its subscriber, and a collector."""

    def __init__(self, gateway: Line, reader: Line, collector: Line, url: str) -> None:
        self._gateway, self._reader, self._collector, self._url = gateway, reader, collector, url

    def alone(self, records: int) -> Timed:
        """The processor time of the gateway until so many more records have come to the subscriber."""
        before = self._ask("how long?")
        self._reader.say(records)
        _, came = self._reader.hear()
        return Timed(came, self._ask("how long?") - before)

    def metrics(self, records: int) -> Timed:
        """The same while metrics are exported."""
        return self._exported(records, "metrics")

    def everything(self, records: int) -> Timed:
        """The same while metrics and spans are exported."""
        return self._exported(records, "metrics and spans")

    def _exported(self, records: int, what: str) -> Timed:
        self._ask(("export", self._url, what))
        try:
            timed = self.alone(records)
        finally:
            self._ask("no export")
        self._collector.say("how many?")
        came = self._collector.hear()
        if not came.get("/v1/metrics") or (what != "metrics") != bool(came.get("/v1/traces")):
            raise WrongResult(f"the collector got {came}, and should have got {what}")
        return timed

    def _ask(self, what: object) -> int:
        self._gateway.say(what)
        _, process = self._gateway.hear()
        return int(process)


def collect(line: Line) -> Facts:
    """A collector that takes whatever comes; says how many requests came to each path since the last time."""
    came: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            came[self.path] = came.get(self.path, 0) + 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    line.say(f"http://127.0.0.1:{server.server_address[1]}")
    while select([line], [], []) and line.hear() != "stop":
        line.say(dict(came))
        came.clear()
    server.shutdown()
    return {}


@contextmanager
def _exporting() -> Iterator[_Exporting]:
    with beside(serve, 1, _FRAME) as gateway, beside(collect) as collector:
        endpoint, _ = gateway.hear()
        url = collector.hear()
        with beside(follow, endpoint, 1, _FRAMES * _FRAME) as reader:
            reader.hear()
            exporting = _Exporting(gateway, reader, collector, url)
            exporting.everything(2_000_000)  # Whatever is imported or cached at first.
            yield exporting


@contextmanager
def question() -> Iterator[Question]:
    """Records to one subscriber, with and without OpenTelemetry."""
    with ExitStack() as stack:
        # Nobody starts before the first run: a question may be asked for the names of its alternatives only.
        gateway = cache(lambda: stack.enter_context(_exporting()))
        yield Question(
            name="telemetry",
            title="records of 100 bytes from a gateway that exports to OpenTelemetry every second, or not",
            elements=24_000_000,
            base=_WITHOUT,
            expected=lambda n: n,
            unit="delivery",
            alternatives=(
                Alternative(_WITHOUT, lambda n: gateway().alone(n)),
                Alternative("metrics", lambda n: gateway().metrics(n)),
                Alternative("metrics and spans", lambda n: gateway().everything(n)),
            ),
        )
