"""WebSocket servers for the tests of the client: a real one, and one that a test plays byte by byte."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

PATIENCE = 60.0


@contextmanager
def websocket_server(handler: Callable[[ServerConnection], Awaitable[None]], **options: Any) -> Iterator[str]:
    """The server of the library ``websockets``, on a thread with an event loop; gives its address."""
    ready = threading.Event()
    address: list[str] = []
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with serve(handler, "127.0.0.1", 0, max_size=None, ping_interval=None, **options) as server:
            scheme = "wss" if "ssl" in options else "ws"
            address.append(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            stop.append(lambda: loop.call_soon_threadsafe(over.set))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield address[0]
    finally:
        stop[0]()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class RawPeer:
    """One connection of a server that is played by a test."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(PATIENCE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        self.head = head

    def accept(self) -> None:
        """Agree on a WebSocket."""
        lines = dict(line.split(b": ", 1) for line in self.head.split(b"\r\n")[1:] if b": " in line)
        key = next(value for name, value in lines.items() if name.lower() == b"sec-websocket-key")
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.socket.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )

    def say(self, opcode: int, data: bytes = b"", fin: bool = True) -> None:
        self.socket.sendall(frame(opcode, data, fin))

    def close(self, code: int = 1000) -> None:
        """Close the WebSocket, and then the socket."""
        self.say(CLOSE, code.to_bytes(2, "big"))
        self.socket.shutdown(socket.SHUT_WR)
        self.until_gone()

    def until_gone(self) -> bytes:
        """Everything that comes until the client has closed its socket."""
        rest = bytearray()
        try:
            while data := self.socket.recv(65536):
                rest += data
        except ConnectionResetError:
            pass
        return bytes(rest)


TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def frame(opcode: int, data: bytes = b"", fin: bool = True) -> bytes:
    """A frame as a server sends it, without a mask."""
    size = len(data)
    if size < 126:
        length = bytes([size])
    elif size < 65536:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    return bytes([opcode | (0x80 if fin else 0)]) + length + data


@contextmanager
def raw_server(talk: Callable[[RawPeer], object]) -> Iterator[str]:
    """A server that reads the head of one handshake and then does as it is told; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            connection, _ = listener.accept()
            with connection:
                talk(RawPeer(connection))
        except BaseException as failed:
            failures.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()
        assert not failures, failures
