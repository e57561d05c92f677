"""A line with a round trip: control messages are held up for half of it on each way.

What is emulated is a gateway far away. Records need no such delay: they only come later by it, in a steady
stream, while everything that has to be asked for waits for the whole round trip. So the relay stands in for
the control port alone, and the data port, which the answer to Subscribe names, is reached directly.
"""

from __future__ import annotations

import select
import time
from collections import deque
from typing import TypeAlias

import zmq

from benchmarks.processes import Facts, Line

__all__ = ["relay"]

Held: TypeAlias = deque[tuple[float, list[bytes]]]
"""Messages, each with the time when it may go on."""


def relay(line: Line, endpoint: str, *, round_trip: float) -> Facts:
    """Pass messages on between subscribers and the gateway, ``round_trip`` seconds for both ways together."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as front, context.socket(zmq.DEALER) as back:
        front.setsockopt(zmq.LINGER, 0)
        back.setsockopt(zmq.LINGER, 0)
        front.bind("tcp://127.0.0.1:*")
        back.connect(endpoint)
        line.say(front.getsockopt_string(zmq.LAST_ENDPOINT))
        forth: Held = deque()
        back_again: Held = deque()
        while not line.waiting():
            _take(front, forth, round_trip / 2)
            _take(back, back_again, round_trip / 2)
            if _pass_on(forth, back) or _pass_on(back_again, front):
                continue  # Sending may have swallowed the sign that something has come.
            due = min((held[0][0] for held in (forth, back_again) if held), default=float("inf"))
            # ØMQ's own poll counts in milliseconds, which is too coarse here.
            files = [front.fileno(), back.fileno(), line.fileno()]
            select.select(files, [], [], min(max(due - time.monotonic(), 0), 1.0))
        line.hear()
    return {}


def _take(socket: zmq.Socket[bytes], held: Held, delay: float) -> None:
    try:
        while True:
            held.append((time.monotonic() + delay, socket.recv_multipart(zmq.NOBLOCK)))
    except zmq.Again:
        return


def _pass_on(held: Held, socket: zmq.Socket[bytes]) -> bool:
    passed = False
    while held and held[0][0] <= time.monotonic():
        socket.send_multipart(held.popleft()[1])
        passed = True
    return passed
