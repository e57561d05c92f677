"""What can be had of ØMQ by hand: loops over the sockets of pyzmq, with nothing around them.

There is no demand here, no journal, no second chance after a loss, and no bound on the memory: the high-water
marks are off where they would drop records (PUB). These are the yardsticks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice, repeat
from typing import Any

import msgspec
import zmq

from benchmarks.processes import RECORD, Facts, Line, now
from benchmarks.workload import Counting

__all__ = [
    "FRAME",
    "document_client",
    "publish",
    "publish_frames",
    "pull",
    "push",
    "subscribe",
    "subscribe_frames",
]

FRAME = 2500
"""Records in a frame: as many as a gateway puts into its frames of 256 KiB."""

Socket = zmq.Socket[bytes]


def push(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """PUSH, a message for each record."""
    return _send(line, zmq.PUSH, receivers, warm_up, records, _one_by_one)


def publish(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """PUB, a message for each record."""
    return _send(line, zmq.XPUB, receivers, warm_up, records, _one_by_one)


def publish_frames(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """PUB, a message for each 2500 records, which are packed into it by msgspec."""
    return _send(line, zmq.XPUB, receivers, warm_up, records, _in_frames)


def pull(line: Line, endpoint: str, warm_up: int, records: int) -> Facts:
    """PULL, a message for each record."""
    return _receive(line, zmq.PULL, endpoint, warm_up, records, _take_one_by_one)


def subscribe(line: Line, endpoint: str, warm_up: int, records: int) -> Facts:
    """SUB, a message for each record."""
    return _receive(line, zmq.SUB, endpoint, warm_up, records, _take_one_by_one)


def subscribe_frames(line: Line, endpoint: str, warm_up: int, records: int, *, call: bool) -> Facts:
    """SUB, a message for each 2500 records, which are unpacked by msgspec.

    With ``call`` a method is called with each record: the on_next of the very Subscriber that the gateway's
    records are counted by. Without it, the list of records is all there is in the end.
    """
    take = _take_frames_and_call if call else _take_frames
    return _receive(line, zmq.SUB, endpoint, warm_up, records, take)


def document_client(line: Line, endpoint: str, warm_up: int, records: int, *, size: int) -> Facts:
    """A plain subscriber of a gateway that was written after the document: REQ, SUB, stop-and-wait."""
    with zmq.Context() as context, context.socket(zmq.REQ) as control, context.socket(zmq.SUB) as data:
        control.connect(endpoint)
        port = _ask(control, jsonClass="Subscribe", cancel=False)["port"]
        data.setsockopt(zmq.SUBSCRIBE, b"")
        data.connect(f"tcp://127.0.0.1:{port}")

        def take(records: int) -> None:
            while records > 0:
                declared = _ask(control, jsonClass="Next", count=size)["count"]
                _take_one_by_one(data, declared)
                records -= declared

        take(warm_up)
        line.say("warm")
        take(records)
        line.say((now(), records))
        line.hear()
    return {}


# -------------------------------------------------------------------- senders
def _send(
    line: Line,
    kind: int,
    receivers: int,
    warm_up: int,
    records: int,
    send_all: Callable[[Socket, int], None],
) -> Facts:
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        if kind == zmq.XPUB:
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.bind("tcp://127.0.0.1:*")
        line.say(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        if kind == zmq.XPUB:
            # XPUB is PUB, except that one can see who has come: records sent before would be lost.
            for _ in range(receivers):
                socket.recv()
        send_all(socket, warm_up)
        line.hear()
        line.say(now())
        send_all(socket, records)
        line.hear()
    return {}


def _one_by_one(socket: Socket, records: int) -> None:
    send = socket.send
    for record in repeat(RECORD, records):
        send(record)


def _in_frames(socket: Socket, records: int) -> None:
    send, encode = socket.send, msgspec.msgpack.Encoder().encode
    source = repeat(RECORD, records)
    while frame := list(islice(source, FRAME)):
        send(encode(frame), copy=False)


# -------------------------------------------------------------------- receivers
def _receive(
    line: Line,
    kind: int,
    endpoint: str,
    warm_up: int,
    records: int,
    take_all: Callable[[Socket, int], int],
) -> Facts:
    with zmq.Context() as context, context.socket(kind) as socket:
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        take_all(socket, warm_up)
        line.say("warm")
        count = take_all(socket, records)
        line.say((now(), count))
        line.hear()
    return {}


def _take_one_by_one(socket: Socket, records: int) -> int:
    receive = socket.recv
    for _ in range(records):
        receive()
    return records


def _take_frames(socket: Socket, records: int) -> int:
    receive, decode = socket.recv, msgspec.msgpack.Decoder(list[bytes]).decode
    count = 0
    while count < records:
        count += len(decode(receive()))
    return count


def _take_frames_and_call(socket: Socket, records: int) -> int:
    receive, decode = socket.recv, msgspec.msgpack.Decoder(list[bytes]).decode
    counting = Counting()
    on_next = counting.on_next
    while counting.count < records:
        for record in decode(receive()):
            on_next(record)
    return counting.count


def _ask(control: Socket, **message: Any) -> Any:
    control.send(json.dumps(message, separators=(",", ":")).encode())
    return json.loads(control.recv())
