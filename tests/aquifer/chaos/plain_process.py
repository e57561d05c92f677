"""A plain subscriber, as a process: ``python -m tests.aquifer.chaos.plain_process SETTINGS``.

It knows the document and nothing else: a REQ socket with six JSON messages, a SUB socket with one record in
each message, and a count that says how many will come. Nothing of ours is used but the records' digests.

The document has no offsets. So when the connection breaks, or an answer or a record does not come in time, it
starts over, with new sockets and a new file: ``OUTPUT.0``, ``OUTPUT.1`` and so on. Records that were declared
and do not come although the gateway is there are a different matter: that is a loss, and ends the process.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from tests.aquifer.chaos.records import Output

CANCEL: Final = b'{"jsonClass":"Subscribe","cancel":true}'
SUBSCRIBE: Final = b'{"jsonClass":"Subscribe","cancel":false}'


class PlainSettings(msgspec.Struct):
    """What the test tells the process."""

    name: str
    endpoint: str
    output: str
    summary: str
    expected: str
    count: int
    """How many records to ask for at a time."""
    pause: float = 0.0
    """Seconds between the last record of a batch and the next request."""
    patience: float = 60.0
    """Seconds without an answer or a record after which something is wrong."""


class Gone(Exception):
    """The gateway is not there any more."""


class Lost(AssertionError):
    """The gateway is there, but something that it declared is not."""


class Run:
    """One attempt to read everything."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], settings: PlainSettings) -> None:
        self._context = context
        self._patience = int(settings.patience * 1000)
        self._host = settings.endpoint.rpartition(":")[0]
        self._control = context.socket(zmq.REQ)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control_monitor = self._control.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._control.connect(settings.endpoint)
        self._data: zmq.Socket[bytes] | None = None
        self.welcomed = False
        """Whether a gateway has answered."""

    def read(self, settings: PlainSettings, output: Output) -> None:
        """Subscribe, and ask for records until there are no more."""
        answer = self._ask(SUBSCRIBE)
        if answer["jsonClass"] != "OnSubscribe" or set(answer) != {"jsonClass", "size", "port"}:
            raise Lost(f"Subscribe was answered with {answer}")
        self.welcomed = True
        self._data = self._context.socket(zmq.SUB)
        self._data.setsockopt(zmq.LINGER, 0)
        self._data.setsockopt(zmq.SUBSCRIBE, b"")
        self._data.connect(f"{self._host}:{answer['port']}")
        request = b'{"jsonClass":"Next","count":%d}' % settings.count
        pausing = threading.Event()
        while True:
            answer = self._ask(request)
            if answer == {"jsonClass": "OnComplete", "complete": True}:
                break
            if answer["jsonClass"] != "OnNext" or not 0 <= answer["count"] <= settings.count:
                raise Lost(f"Next({settings.count}) was answered with {answer} after {output.count} records")
            self._receive(answer["count"], output)
            if settings.pause:
                pausing.wait(settings.pause)
        if self._data.poll(100):
            raise Lost(f"more records came after the end, at {output.count}")
        output.finish()
        self._ask(CANCEL)

    def close(self) -> None:
        """Let go of the sockets."""
        self._control.disable_monitor()
        self._control.close()
        if self._data is not None:
            self._data.close()

    def _ask(self, request: bytes) -> dict[str, Any]:
        self._control.send(request)
        self._wait_for(self._control, "an answer")
        answer: dict[str, Any] = json.loads(self._control.recv())
        return answer

    def _receive(self, count: int, output: Output) -> None:
        data = self._data
        assert data is not None
        receive, take = data.recv, output.take
        while count:
            try:
                while count:
                    take(receive(zmq.NOBLOCK))
                    count -= 1
            except zmq.Again:
                self._wait_for(data, f"the last {count} declared records")

    def _wait_for(self, socket: zmq.Socket[bytes], what: str) -> None:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._control_monitor, zmq.POLLIN)
        ready = dict(poller.poll(self._patience))
        if self._control_monitor in ready:
            event = parse_monitor_message(self._control_monitor.recv_multipart())["event"]
            raise Gone(f"event {event!r} while waiting for {what}")
        if not ready:
            raise Lost(f"no sign of {what} for {self._patience / 1000:g} s, and the connection is there")


def main() -> None:
    """Read everything, as often as it takes."""
    settings = msgspec.json.decode(sys.argv[1], type=PlainSettings)
    expected = Path(settings.expected).read_bytes()
    given_up: list[str] = []
    with zmq.Context() as context:
        while True:
            output = Output(Path(f"{settings.output}.{len(given_up)}"), expected)
            run = Run(context, settings)
            try:
                run.read(settings, output)
                break
            except Gone as gone:
                if not run.welcomed:
                    continue  # Connected to a process that was just being killed: nothing was begun yet.
                given_up.append(f"after {output.count} records: {gone}")
                print(f"starting over {given_up[-1]}", file=sys.stderr, flush=True)
            finally:
                run.close()
                output.close()
    summary = {"count": output.count, "given_up": given_up}
    Path(settings.summary).write_bytes(msgspec.json.encode(summary))


if __name__ == "__main__":
    main()
