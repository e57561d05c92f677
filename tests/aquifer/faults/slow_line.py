"""A slow line before a gateway: so many bytes a second, a delay, pauses, and an end without a word."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from queue import Empty, Full, Queue
from typing import Any

_BUFFER = 16 * 1024
"""Bytes that wait before the line, in the system and in the line itself: little, so that it is felt."""


class SlowLine:
    """Passes connections on from 127.0.0.2 to the same ports of 127.0.0.1, as slowly as it is told."""

    def __init__(self, *ports: int, rate: float = 1e9, delay: float = 0.0, host: str = "127.0.0.2") -> None:
        self.host = host
        self.rate = rate
        """Bytes a second towards the subscriber, for all connections together."""
        self.delay = delay
        """Seconds that everything takes longer, each way."""
        self.passed = 0
        """Bytes that have passed towards the subscriber."""
        self.connections = 0
        self.backwards = False
        """Whether the rate holds for what the subscriber sends as well."""
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = threading.Event()
        self._mutex = threading.Lock()
        self._free_at = 0.0
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listeners = []
        for port in ports:
            listener = socket.create_server((host, port))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._listeners.append(listener)
            self._start(self._accept, listener, port)

    def __enter__(self) -> SlowLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._flowing.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def stall(self) -> None:
        """Pass nothing on, until :meth:`flow`: no connection is closed, and none comes about."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Close every connection there is; new ones are welcome."""
        with self._mutex:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name="slow-line", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._closing.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            try:
                server.connect(("127.0.0.1", port))
            except OSError:
                server.close()
                client.close()
                continue
            with self._mutex:
                self._sockets |= {client, server}
                self.connections += 1
            for source, target, down in ((client, server, False), (server, client, True)):
                # What a delayed line holds on its way is no buffer, and does not slow it down.
                held: Queue[tuple[float, bytes]] = Queue(4 if not self.delay else 4096)
                self._start(self._take, source, held, down)
                self._start(self._give, held, target, down)

    def _take(self, source: socket.socket, held: Queue[tuple[float, bytes]], down: bool) -> None:
        data = b"."
        while data and not self._closing.is_set():
            try:
                data = source.recv(4096)
            except OSError:
                data = b""
            if down or self.backwards:
                self._wait_for_turn(len(data))
            while not self._closing.is_set():
                with contextlib.suppress(Full):
                    held.put((time.monotonic() + self.delay, data), timeout=0.1)
                    break

    def _wait_for_turn(self, count: int) -> None:
        with self._mutex:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.rate
            wait = self._free_at - now
        self._closing.wait(wait)

    def _give(self, held: Queue[tuple[float, bytes]], target: socket.socket, down: bool) -> None:
        while not self._closing.is_set():
            try:
                due, data = held.get(timeout=0.2)
            except Empty:
                continue
            self._closing.wait(max(0.0, due - time.monotonic()))
            self._flowing.wait()
            try:
                if not data:  # The other end has closed it.
                    target.shutdown(socket.SHUT_RDWR)
                    break
                target.sendall(data)
            except OSError:
                break
            self.passed += len(data) if down else 0
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        target.close()
