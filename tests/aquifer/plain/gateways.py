"""Gateways that were written from the document alone: a REP, a PUB, and JSON. They import nothing of ours.

Each serves one subscriber, from one thread, and has its own way with what the document does not mention.
None looks whether anybody listens: what is published before that is lost.
"""

import json
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Self

import zmq

from tests.free_ports import free_port

FIELDS = {"Subscribe": {"jsonClass", "cancel"}, "Next": {"jsonClass", "count"}}
"""What the document knows of requests."""


def message(kind: str, **fields: Any) -> bytes:
    """A control message as the document writes it."""
    return json.dumps({"jsonClass": kind, **fields}, separators=(",", ":")).encode()


def is_plain(request: dict[str, Any]) -> bool:
    """Whether a request has the fields of the document and no other."""
    return request.keys() == FIELDS[request["jsonClass"]]


class PlainGateway:
    """Ignores what it does not know, sends what it declares, and completes."""

    reply_socket = zmq.REP

    def __init__(self, records: Iterable[bytes]) -> None:
        self.heard: list[dict[str, Any]] = []
        """Every request, in order."""
        self._records = list(records)
        self._sent = 0
        self._context = zmq.Context()
        self._control = self._context.socket(self.reply_socket)
        self.endpoint = f"tcp://127.0.0.1:{self._control.bind_to_random_port('tcp://127.0.0.1')}"
        self._data = self._context.socket(zmq.PUB)
        self._data.setsockopt(zmq.SNDHWM, 0)
        self._port = self.open_data()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plain-gateway")

    @property
    def asked(self) -> list[int]:
        """The counts of all Next requests."""
        return [request["count"] for request in self.heard if request["jsonClass"] == "Next"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy(0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._control.poll(10):
                continue
            *envelope, body = self._control.recv_multipart()
            request = json.loads(body)
            self.heard.append(request)
            reply = self.reply(request)
            if reply is not None:
                self._control.send_multipart([*envelope, reply])
                self.publish()

    # ---------------------------------------------------------------- what differs between them
    def open_data(self) -> int:
        """The data port; bound before anybody asks for it."""
        return int(self._data.bind_to_random_port("tcp://127.0.0.1"))

    def reply(self, request: dict[str, Any]) -> bytes | None:
        """What to answer; sets ``declared``, the records to publish after the answer."""
        self.declared: list[bytes] = []
        if request["jsonClass"] == "Next":
            if self._sent == len(self._records):
                return message("OnComplete", complete=True)
            self.declared = self._records[self._sent : self._sent + request["count"]]
            self._sent += len(self.declared)
            return message("OnNext", count=len(self.declared))
        if request["cancel"]:
            return message("OnComplete", complete=True)
        return message("OnSubscribe", size=2**63 - 1, port=self._port)

    def publish(self) -> None:
        """Send what was declared."""
        for record in self.declared:
            self._data.send(record)


class StrictGateway(PlainGateway):
    """Answers OnError to a message with a field that it does not know."""

    def reply(self, request: dict[str, Any]) -> bytes | None:
        if not is_plain(request):
            self.declared = []
            return message("OnError", message="unknown field")
        return super().reply(request)


class GarbageGateway(PlainGateway):
    """Answers with something that is no message of the protocol; always, or if it meets an unknown field."""

    def __init__(self, records: Iterable[bytes], garbage: bytes, *, always: bool = False) -> None:
        super().__init__(records)
        self._garbage = garbage
        self._always = always

    def reply(self, request: dict[str, Any]) -> bytes | None:
        if self._always or not is_plain(request):
            self.declared = []
            return self._garbage
        return super().reply(request)


class SilentGateway(PlainGateway):
    """Throws away a message with a field that it does not know; a ROUTER, as a REP has to answer."""

    reply_socket = zmq.ROUTER

    def reply(self, request: dict[str, Any]) -> bytes | None:
        return super().reply(request) if is_plain(request) else None


class SlowGateway(PlainGateway):
    """Takes its time for every answer, and for every record."""

    def __init__(self, records: Iterable[bytes], *, answer: float, record: float = 0.0) -> None:
        super().__init__(records)
        self._answer = answer
        self._record = record

    def reply(self, request: dict[str, Any]) -> bytes | None:
        self._stopping.wait(self._answer)
        return super().reply(request)

    def publish(self) -> None:
        for record in self.declared:
            self._stopping.wait(self._record)
            self._data.send(record)


class HoldingGateway(PlainGateway):
    """Holds its answer to one Next for a while, as if its source had no records.

    Records take a way of their own: each batch is sent ``lag`` seconds after its answer.
    """

    def __init__(self, records: Iterable[bytes], *, held: int, seconds: float, lag: float) -> None:
        super().__init__(records)
        self._held = held
        self._seconds = seconds
        self._lag = lag
        self._batches: SimpleQueue[list[bytes] | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send, name="plain-gateway-data")

    def __enter__(self) -> Self:
        self._sender.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._batches.put(None)
        self._sender.join()
        super().__exit__()

    def _send(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._stopping.wait(self._lag)
            for record in batch:
                self._data.send(record)

    def reply(self, request: dict[str, Any]) -> bytes | None:
        if request["jsonClass"] == "Next" and len(self.asked) == self._held:
            self._stopping.wait(self._seconds)
        return super().reply(request)

    def publish(self) -> None:
        self._batches.put(self.declared)


class LosingGateway(PlainGateway):
    """Declares whole batches, and loses records: ``keeps(number, batch)`` are those that it sends."""

    def __init__(self, records: Iterable[bytes], keeps: Callable[[int, list[bytes]], list[bytes]]) -> None:
        super().__init__(records)
        self._keeps = keeps
        self.sizes: list[int] = []
        """How many records each batch had when it was declared."""
        self.sent: list[bytes] = []

    def publish(self) -> None:
        if self.declared:
            self.sizes.append(len(self.declared))
            self.declared = self._keeps(len(self.sizes), self.declared)
            self.sent += self.declared
            super().publish()


class LateGateway(PlainGateway):
    """Sends the last records of its first batch only when it is asked for the next."""

    _late: list[bytes] | None = None

    def publish(self) -> None:
        late = self._late or []
        if self._late is None and self.declared:
            self._late = self.declared[-3:]
            self.declared = self.declared[:-3]
        elif late:
            self._late = []
        for record in [*late, *self.declared]:
            self._data.send(record)


class LazyGateway(PlainGateway):
    """Opens its data port a while after it has named it; until then nobody can connect."""

    def __init__(self, records: Iterable[bytes], *, after: float) -> None:
        super().__init__(records)
        self._after = after
        self.opened = False
        self.asked_early = 0

    def open_data(self) -> int:
        return free_port()

    def reply(self, request: dict[str, Any]) -> bytes | None:
        if request["jsonClass"] == "Next" and not self.opened:
            self.asked_early += 1
        return super().reply(request)

    def publish(self) -> None:
        if not self.opened:
            # Subscribe was just answered; whatever is asked meanwhile waits in the socket.
            self.asked_early += self._control.poll(self._after * 1000)
            self._data.bind(f"tcp://127.0.0.1:{self._port}")
            self.opened = True
        super().publish()
