"""A client that was written from the document alone: a REQ, a SUB, and JSON. It imports nothing of ours.

As a program it subscribes, takes one batch, says so, and then keeps still until it is killed::

    python -m tests.aquifer.plain.reference tcp://127.0.0.1:5556 10
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Self

import zmq

PATIENCE = 60_000
"""Milliseconds; only a test that fails waits for so long."""


class ReferenceClient:
    """One subscriber; every method sends a request and waits for its answer, as a REQ has to."""

    def __init__(self, control: str, *, options: dict[int, int] | None = None) -> None:
        self._host = control.rpartition(":")[0]
        self._context = zmq.Context()
        self.control = self._context.socket(zmq.REQ)
        for option, value in (options or {}).items():
            self.control.setsockopt(option, value)
        self.control.connect(control)
        self.data: zmq.Socket[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(0)

    def send(self, request: bytes) -> bytes:
        """The gateway's answer, as it came."""
        self.control.send(request)
        assert self.control.poll(PATIENCE), f"no answer to {request!r}"
        return self.control.recv()

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The gateway's answer."""
        request = json.dumps({"jsonClass": kind, **fields}, separators=(",", ":"))
        answer: dict[str, Any] = json.loads(self.send(request.encode()))
        return answer

    def subscribe(self) -> int:
        """Subscribe, and connect to the port that is named in the answer, which is returned."""
        welcome = self.ask("Subscribe", cancel=False)
        assert welcome["jsonClass"] == "OnSubscribe", welcome
        if self.data is not None:
            self.data.close(0)
        self.data = self._context.socket(zmq.SUB)
        self.data.subscribe(b"")
        self.data.connect(f"{self._host}:{welcome['port']}")
        return int(welcome["port"])

    def next(self, count: int) -> dict[str, Any]:
        """Say that so many records can be taken."""
        return self.ask("Next", count=count)

    def declared(self, count: int) -> dict[str, Any]:
        """The same, as often as the answer is that there is nothing: it always may be."""
        while (answer := self.next(count)) == {"jsonClass": "OnNext", "count": 0}:
            pass
        return answer

    def take(self, count: int) -> list[bytes]:
        """So many records, each of which has to be a message of one part."""
        records = []
        for _ in range(count):
            assert self.data is not None
            assert self.data.poll(PATIENCE), f"{count} records were declared, and {len(records)} came"
            (record,) = self.data.recv_multipart()
            records.append(record)
        return records

    def undeclared(self) -> list[bytes]:
        """What lies there although it was not declared, or was not taken yet."""
        records = []
        while self.data is not None and self.data.poll(0):
            records.append(self.data.recv())
        return records

    def batches(self, count: int) -> Iterator[list[bytes]]:
        """Ask for so many at a time until the gateway says OnComplete; then nothing may be left over."""
        while (answer := self.next(count))["jsonClass"] == "OnNext":
            assert 0 <= answer["count"] <= count, answer
            yield self.take(answer["count"])
        assert answer == {"jsonClass": "OnComplete", "complete": True}
        assert self.undeclared() == []

    def everything(self, count: int) -> list[bytes]:
        """All records, asked for so many at a time."""
        return [record for batch in self.batches(count) for record in batch]

    def cancel(self) -> dict[str, Any]:
        """No more, please."""
        return self.ask("Subscribe", cancel=True)


if __name__ == "__main__":
    with ReferenceClient(sys.argv[1]) as client:
        port = client.subscribe()
        taken = client.take(client.declared(int(sys.argv[2]))["count"])
        print(json.dumps({"port": port, "taken": len(taken)}), flush=True)
        sys.stdin.read()
