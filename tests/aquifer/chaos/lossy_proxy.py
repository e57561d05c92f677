"""A way for control messages that loses some of them and delivers others twice.

Each subscriber has a door of its own, an endpoint that it takes for the gateway's. Behind the door there is
one connection to the gateway at a time, so that the gateway sees as many peers as there are; when the
subscriber comes with a new connection, the one behind it is new, too.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Sequence

import zmq

__all__ = ["LossyProxy"]

Socket = zmq.Socket[bytes]


class LossyProxy:
    """Runs on a thread of its own from :meth:`start` to :meth:`stop`."""

    def __init__(
        self, gateway: str, names: Sequence[str], *, seed: object, dropped: float, repeated: float
    ) -> None:
        self.passed: Counter[str] = Counter()
        """Messages that were sent on once, by kind."""
        self.dropped: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self._context: zmq.Context[Socket] = zmq.Context()
        self._doors = [
            _Door(self._context, gateway, name, random.Random(f"{seed} {name}"), dropped, repeated)
            for name in names
        ]
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lossy-proxy")

    def endpoint(self, name: str) -> str:
        """What the subscriber of this name connects to."""
        return next(door.endpoint for door in self._doors if door.name == name)

    def start(self) -> None:
        """Begin to pass messages on."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()
        for door in self._doors:
            door.close()
        self._context.term()

    def _run(self) -> None:
        while not self._stopping:
            poller = zmq.Poller()
            for door in self._doors:
                for socket in door.sockets():
                    poller.register(socket, zmq.POLLIN)
            ready = dict(poller.poll(100))
            for door in self._doors:
                door.pass_on(ready, self)


class _Door:
    """The way of one subscriber."""

    def __init__(
        self,
        context: zmq.Context[Socket],
        gateway: str,
        name: str,
        chance: random.Random,
        dropped: float,
        repeated: float,
    ) -> None:
        self.name = name
        self._context = context
        self._gateway = gateway
        self._chance = chance
        self._dropped = dropped
        self._repeated = repeated
        self._front = context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        port = self._front.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._back: Socket | None = None
        self._peer = b""
        self._gone: set[bytes] = set()

    def sockets(self) -> list[Socket]:
        """What to poll."""
        return [self._front] if self._back is None else [self._front, self._back]

    def close(self) -> None:
        """Let go of the sockets."""
        for socket in self.sockets():
            socket.close(0)

    def pass_on(self, ready: dict[Socket, int], proxy: LossyProxy) -> None:
        """Pass on what has come, or not, or twice."""
        back = self._back
        if back is not None and back in ready:
            for parts in _all(back):
                for _ in range(self._times(parts[-1], proxy)):
                    self._front.send_multipart([self._peer, *parts])
        if self._front in ready:
            for peer, *parts in _all(self._front):
                if peer != self._peer:
                    if peer in self._gone:
                        continue  # Late words of a connection that was closed.
                    self._follow(peer)
                assert self._back is not None
                for _ in range(self._times(parts[-1], proxy)):
                    self._back.send_multipart(parts)

    def _follow(self, peer: bytes) -> None:
        """The subscriber has a new connection."""
        self._gone.add(self._peer)
        self._peer = peer
        if self._back is not None:
            self._back.close(0)
        self._back = self._context.socket(zmq.DEALER)
        self._back.setsockopt(zmq.RECONNECT_IVL, 50)
        self._back.connect(self._gateway)

    def _times(self, body: bytes, proxy: LossyProxy) -> int:
        kind = str(json.loads(body)["jsonClass"])
        fate = self._chance.random()
        if fate < self._dropped:
            proxy.dropped[kind] += 1
            return 0
        if fate < self._dropped + self._repeated:
            proxy.repeated[kind] += 1
            return 2
        proxy.passed[kind] += 1
        return 1


def _all(socket: Socket) -> list[list[bytes]]:
    messages: list[list[bytes]] = []
    try:
        while True:
            messages.append(socket.recv_multipart(zmq.NOBLOCK))
    except zmq.Again:
        return messages
