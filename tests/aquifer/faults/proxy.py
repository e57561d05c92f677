"""Bad lines: proxies between a subscriber and a gateway that cut, stall, swallow, drop and repeat.

:class:`TcpProxy` forwards bytes. A gateway tells its subscribers the number of its data port, so the proxy
listens at the same port numbers on another loopback address: who connects to 127.0.0.2 talks to the gateway
at 127.0.0.1 through it. :class:`ControlProxy` forwards whole control messages, and loses some of them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import zmq

__all__ = ["ControlProxy", "TcpProxy"]

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: to close is to send RST, and whatever was on its way is lost."""


class TcpProxy:
    """Listens at ``host`` on the given ports and forwards to 127.0.0.1."""

    def __init__(self, *ports: int, host: str = "127.0.0.2") -> None:
        self.host = host
        self.connections = 0
        """How many there were so far."""
        self.cuts = 0
        self.forwarded = 0
        """Bytes, both ways."""
        self.cut_after: Callable[[], int] | None = None
        """After how many bytes towards the subscriber a connection is cut, drawn for each connection."""
        self.mute = 0
        """How many of the next connections are accepted, and forward nothing."""
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = False
        self._mutex = threading.Lock()
        self._lines: set[_Line] = set()
        self._threads: list[threading.Thread] = []
        self._listeners = []
        for port in ports:
            listener = socket.create_server((host, port))
            self._listeners.append(listener)
            self._start(self._accept, listener, port)

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._flowing.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    # ---------------------------------------------------------------- what a test does
    def cut(self) -> None:
        """Reset every connection there is; new ones are welcome."""
        with self._mutex:
            lines, self._lines = self._lines, set()
        for line in lines:
            line.cut()

    def stall(self) -> None:
        """Forward nothing, until :meth:`flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def swallow(self) -> None:
        """Forward nothing more on the connections there are, and do not tell anybody; new ones work."""
        with self._mutex:
            lines, self._lines = self._lines, set()
        for line in lines:
            line.swallowed = True

    # ---------------------------------------------------------------- the threads
    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name="bad-line", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._closing:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", port))
            except OSError:
                client.close()  # The gateway is away, and so are we.
                continue
            line = _Line(client, server)
            with self._mutex:
                self._lines.add(line)
                self.connections += 1
                if self.mute:
                    self.mute -= 1
                    line.swallowed = True
            most = self.cut_after() if self.cut_after is not None else None
            self._start(self._pump, line, client, server, None)
            self._start(self._pump, line, server, client, most)

    def _pump(self, line: _Line, source: socket.socket, target: socket.socket, most: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                self._flowing.wait()
                if line.swallowed:
                    continue
                if most is not None and passed + len(data) >= most:
                    # In the middle: a part of it still gets there.
                    target.sendall(data[: most - passed])
                    self.cuts += 1
                    break
                target.sendall(data)
                passed += len(data)
                self.forwarded += len(data)
        line.cut()
        with self._mutex:
            self._lines.discard(line)


class _Line:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._ends = (client, server)
        self.swallowed = False

    def cut(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes the thread that waits for it; close alone would not.
                end.shutdown(socket.SHUT_RD)
            end.close()


class ControlProxy:
    """Passes control messages between subscribers and a gateway, drops some and repeats some, both ways.

    A question and its answer get through after two were lost: a subscriber asks four times before its
    patience is over, and how a line without any luck is told is the business of another test.
    """

    def __init__(self, gateway: str, *, seed: int, drop: float = 0.2, repeat: float = 0.2) -> None:
        self.dropped = self.repeated = self.passed = 0
        self._gateway = gateway
        self._random = random.Random(seed)
        self._drop, self._repeat = drop, repeat
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self.endpoint = f"tcp://127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._seen: Counter[bytes] = Counter()
        self._in_a_row: Counter[bytes] = Counter()
        """How many messages from or to a subscriber were dropped since it last got an answer."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="bad-control-line", daemon=True)
        self._thread.start()

    def __enter__(self) -> ControlProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        backs = self._backs
        while not self._stopping:
            ready = dict(poller.poll(20))
            if self._front in ready:
                peer, *parts = self._front.recv_multipart()
                if peer not in backs:
                    # One for each subscriber: the gateway knows them by their connections.
                    backs[peer] = self._context.socket(zmq.DEALER)
                    backs[peer].connect(self._gateway)
                    poller.register(backs[peer], zmq.POLLIN)
                for _ in range(self._times(peer)):
                    backs[peer].send_multipart(parts)
            for peer, back in backs.items():
                if back in ready:
                    parts = back.recv_multipart()
                    for _ in range(times := self._times(peer)):
                        self._front.send_multipart([peer, *parts])
                    if times:
                        self._in_a_row[peer] = 0

    def _times(self, peer: bytes) -> int:
        """How often a message is passed on."""
        self.passed += 1
        self._seen[peer] += 1  # The first question of a connection and its answer get through.
        chance = self._random.random()
        if chance < self._drop and self._seen[peer] > 2 and self._in_a_row[peer] < 2:
            self.dropped += 1
            self._in_a_row[peer] += 1
            return 0
        if self._drop <= chance < self._drop + self._repeat:
            # Not one that was only spared: without repeat= nothing is repeated.
            self.repeated += 1
            return 2
        return 1
