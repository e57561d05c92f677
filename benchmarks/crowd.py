"""A gateway with up to hundreds of subscribers: one process that serves, and one that plays all of them.

The subscribers are written after the document, so that one thread can be all of them: each has a control
connection of its own, and the records of fifty come over one data connection: ØMQ drops what waits in one
beyond a number of messages that a peer with a single session cannot reach. To the gateway they are as many
extended sessions. Every subscriber gets every record, and the gateway waits for the slowest.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain, repeat
from select import select
from typing import Any, Final

import zmq

from benchmarks.processes import RECORD, Facts, Line, now
from penstock.aquifer import Gateway, Limits, MemoryJournal
from penstock.observe import Dashboard, DashboardOptions, MetricsServer, Observer, OtlpExport
from penstock.streams import Flux

__all__ = ["follow", "serve"]

_LIST: Final = 500
"""Records in a list of the source."""
_JOURNAL_BYTES: Final = 16 * 2**20
_HEADER: Final = struct.Struct(">BBHQI")
_SHARING: Final = 50
"""Subscribers with the same data connection."""
_SERVING: Final = "penstock-gateway"
"""The name of the thread that serves the subscribers."""
_LONGEST: Final = 30_000
"""Milliseconds that a gateway may take for an answer, or for the next record."""
_LEASE: Final = 600_000
"""Milliseconds in which a subscriber that waits for its turn says nothing."""


def serve(line: Line, subscribers: int, frame: int, records: int | None = None) -> Facts:
    """A gateway with metrics; says where both are, and does what it is told until it is to stop.

    ``"show"`` starts a dashboard, which looks at the gateway every second, and ``"hide"`` ends it.
    ``("export", URL, WHAT)`` sends metrics, or metrics and spans, to a collector every second, until ``"no
    export"``. Anything else is a question: how much processor time has the serving thread had so far, and how
    much the process?
    Without a number of records there is always another one; with one, no more come, but there is no end.
    """
    over = threading.Event()
    lists = repeat([RECORD] * _LIST) if records is None else chain(_lists(records), _nothing_until(over))
    with ExitStack() as stack:
        gateway = stack.enter_context(
            Gateway(
                Flux.from_iterable(lists),
                "tcp://127.0.0.1:0",
                journal=MemoryJournal(max_bytes=_JOURNAL_BYTES),
                limits=Limits(max_subscribers=subscribers, max_frame=frame),
                batched=True,
            )
        )
        stack.callback(over.set)
        observer = Observer(gateway.endpoint, looks={gateway.endpoint: gateway.status})
        metrics = stack.enter_context(MetricsServer(observer.look, "127.0.0.1:0"))
        clock = time.pthread_getcpuclockid(_thread(_SERVING))
        line.say((gateway.endpoint, metrics.url))
        dashboard = export = None
        while (told := _told(line)) != "stop":
            if told == "show":
                looking = Observer(gateway.endpoint, looks={gateway.endpoint: gateway.status})
                dashboard = Dashboard(looking.look, DashboardOptions(listen="127.0.0.1:0"))
                dashboard.start()
            elif told == "hide" and dashboard is not None:
                dashboard.close()
            elif isinstance(told, tuple):
                export = stack.enter_context(_export(gateway, *told[1:]))
            elif told == "no export" and export is not None:
                export.close()
            line.say((time.clock_gettime_ns(clock), time.process_time_ns()))
    return {}


def _export(gateway: Gateway, url: str, what: str) -> OtlpExport:
    """What sends the figures of a gateway to a collector; the SDK takes its settings from the environment."""
    os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "1000"
    os.environ["OTEL_TRACES_EXPORTER"] = "none" if what == "metrics" else "otlp"
    looks = gateway.looks()
    return OtlpExport(Observer(*looks, looks=looks).look, url)


def _told(line: Line) -> Any:
    """What the other side says next, however long others have their turns before."""
    select([line], [], [])
    return line.hear()


def _lists(records: int) -> Iterator[list[bytes]]:
    for before in range(0, records, _LIST):
        yield [RECORD] * min(_LIST, records - before)


def _nothing_until(over: threading.Event) -> Iterator[list[bytes]]:
    over.wait()
    yield from ()


def _thread(name: str) -> int:
    (found,) = (thread.ident for thread in threading.enumerate() if thread.name == name)
    assert found is not None
    return found


def follow(line: Line, endpoint: str, subscribers: int, in_flight: int) -> Facts:
    """So many subscribers, with so many bytes on their way to each.

    When told a number of records, says when as many more have come to all of them together. They take
    nothing before, and nothing after that.
    """
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 2 * subscribers + 16)
        crowd = _Crowd(context, endpoint, subscribers, in_flight)
        try:
            line.say("here")
            while (wanted := _told(line)) != "stop":
                came = crowd.take(wanted)
                line.say((now(), came))
            return {}
        finally:
            crowd.close()


class _Crowd:
    """The subscribers, and what they have got."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, subscribers: int, in_flight: int
    ) -> None:
        self._data: list[zmq.Socket[bytes]] = []
        self._poller = zmq.Poller()
        self._in_flight = in_flight
        self._controls: dict[bytes, zmq.Socket[bytes]] = {}
        self._bytes: dict[bytes, int] = {}
        for number in range(subscribers):
            control = context.socket(zmq.DEALER)
            control.setsockopt(zmq.LINGER, 0)
            control.setsockopt(zmq.RCVTIMEO, _LONGEST)
            control.connect(endpoint)
            fields = {"v": 1, "me": f"{number:016x}", "nth": 1, "lease": _LEASE}
            _send(control, jsonClass="Subscribe", cancel=False, x=fields)
            answer = json.loads(control.recv_multipart()[-1])
            topic = bytes.fromhex(answer["x"]["topic"])
            self._controls[topic], self._bytes[topic] = control, 0
            if not number % _SHARING:
                data = context.socket(zmq.SUB)
                data.setsockopt(zmq.RCVHWM, 0)
                data.connect(f"{endpoint.rpartition(':')[0]}:{answer['port']}")
                self._data.append(data)
                self._poller.register(data, zmq.POLLIN)
            self._data[-1].setsockopt(zmq.SUBSCRIBE, topic)
        self._got = dict.fromkeys(self._controls, 0)
        for topic in self._controls:
            self._ask(topic)

    def take(self, wanted: int) -> int:
        """Wait for so many records; each subscriber that gets some asks for more."""
        came = 0
        while came < wanted:
            ready = self._poller.poll(_LONGEST)
            if not ready:
                raise TimeoutError(f"{came} of {wanted} records came, and then none for {_LONGEST} ms")
            for data, _ in ready:
                with suppress(zmq.Again):
                    while came < wanted:
                        came += self._receive(data)
        return min(came, wanted)

    def _receive(self, data: zmq.Socket[bytes]) -> int:
        """Take a frame that has come; ``zmq.Again`` if there is none."""
        topic, header, *parts = data.recv_multipart(zmq.NOBLOCK)
        _, _, _, first, count = _HEADER.unpack(header)
        if not count:
            return 0
        if first != self._got[topic]:
            raise RuntimeError(
                f"a frame at {first} follows one that ended at {self._got[topic]}: some were lost"
            )
        self._got[topic] = first + count
        self._bytes[topic] += sum(map(len, parts))
        self._ask(topic)
        return int(count)

    def _ask(self, topic: bytes) -> None:
        got = self._got[topic]
        more = {"limit": 1 << 62, "limitb": self._bytes[topic] + self._in_flight, "ack": got, "got": got}
        _send(self._controls[topic], jsonClass="Next", count=1, x=more)

    def close(self) -> None:
        """Everybody leaves."""
        for control in self._controls.values():
            control.close()
        for data in self._data:
            data.close(0)


def _send(control: zmq.Socket[bytes], **message: Any) -> None:
    control.send_multipart([b"", json.dumps(message, separators=(",", ":")).encode()])
