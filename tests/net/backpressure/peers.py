"""Peers on raw sockets: they push, they never read, they go; nothing of ours is in them."""

from __future__ import annotations

import fcntl
import selectors
import socket
import ssl
import struct
import termios
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.net.backpressure.serving import PATIENCE

TWO_GIB = 2**31
BLOCK = Random("what is pushed, again and again").randbytes(65_536)
READ = 4 * len(BLOCK)


def largest_buffer(kind: str) -> int:
    """Bytes that the kernel lets a socket's buffer grow to by itself: ``tcp_rmem`` or ``tcp_wmem``."""
    return int(Path("/proc/sys/net/ipv4", kind).read_text().split()[2])


def connected(
    port: int, *, tls: Path | None = None, host: str = "127.0.0.1", options: dict[str, int] | None = None
) -> socket.socket:
    """A connection from this host; over TLS if there is a folder with the certificate to trust."""
    connection = socket.socket()
    try:
        for name, value in (options or {}).items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        connection.settimeout(PATIENCE)
        connection.bind((host, 0))
        connection.connect(("127.0.0.1", port))
        if tls is None:
            return connection
        context = ssl.create_default_context(cafile=str(tls / "certificate.pem"))
        return context.wrap_socket(connection, server_hostname="localhost")
    except BaseException:
        connection.close()
        raise


@contextmanager
def many_connected(
    number: int, port: int, *, tls: Path | None = None, options: dict[str, int] | None = None
) -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    try:
        for _ in range(number):
            connections.append(connected(port, tls=tls, options=options))
        yield connections
    finally:
        for connection in connections:
            connection.close()


class Pushing:
    """A thread that sends block after block on these connections, up to 2 GiB on each, and never reads."""

    def __init__(self, connections: Iterable[socket.socket]) -> None:
        self._selector = selectors.DefaultSelector()
        self._sent: dict[socket.socket, int] = {}
        for connection in connections:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_WRITE)
            self._sent[connection] = 0
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pushing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        self._selector.close()
        if self._failure is not None:
            raise self._failure

    @property
    def sent(self) -> int:
        """Bytes that the kernel has taken."""
        return sum(self._sent.values())

    def sent_on(self, connection: socket.socket) -> int:
        return self._sent[connection]

    @property
    def least(self) -> int:
        """The same, on the connection that took the least."""
        return min(self._sent.values())

    def _run(self) -> None:
        try:
            while self._selector.get_map() and not self._stopped:
                for key, _ in self._selector.select(0.05):
                    self._push(key.fileobj)  # type: ignore[arg-type]
        except BaseException as failure:
            self._failure = failure

    def _push(self, connection: socket.socket) -> None:
        rest = BLOCK[self._sent[connection] % len(BLOCK) :]
        try:
            self._sent[connection] += connection.send(rest)
        except (BlockingIOError, ssl.SSLWantWriteError):
            return
        if self._sent[connection] >= TWO_GIB:
            self._selector.unregister(connection)


class Reading:
    """A thread that reads what comes from a source without an end, as fast as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.received = 0

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        room = bytearray(READ)
        try:
            while not self._stopped:
                count = self._connection.recv_into(room)
                assert count, "the server closed the connection"
                self.received += count
        except BaseException as failure:
            self._failure = failure


def round_trips(connection: socket.socket, number: int, message: bytes = b"ping" * 16) -> None:
    """Send, wait until it is back, so many times."""
    for _ in range(number):
        connection.sendall(message)
        back = b""
        while len(back) < len(message):
            data = connection.recv(len(message) - len(back))
            assert data, "the server closed the connection"
            back += data
        assert back == message


def read(connection: socket.socket, number: int) -> None:
    """Read so many bytes, or a few more, whatever they are."""
    while number > 0:
        data = connection.recv(READ)
        assert data, "the server closed the connection"
        number -= len(data)


def all_comes_back(connection: socket.socket, number: int) -> None:
    """Read so many bytes: they have to be what was pushed."""
    connection.settimeout(PATIENCE)
    several = BLOCK * (READ // len(BLOCK) + 1)
    received = 0
    while received < number:
        data = connection.recv(min(READ, number - received))
        assert data, f"the server closed the connection after {received:,} of {number:,} bytes"
        begin = received % len(BLOCK)
        assert data == several[begin : begin + len(data)], f"wrong after {received:,} of {number:,} bytes"
        received += len(data)


def unacknowledged(connection: socket.socket) -> int:
    """Bytes that the kernel of the sender still has."""
    number: int = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    return number
