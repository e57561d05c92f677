"""Sends records as fast as it is let, and counts in a file those that it got rid of.

A record has four thousand bytes and begins with its number. As a program:
``python -m tests.feeds.fast_sender KIND COUNTER ADDRESS``.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

SIZE = 4000
"""Bytes of a record, with its newline where it is a line."""
BLOCK = 10
"""Records in one write."""
_PADDING = b"x" * (SIZE - 10)


def record(number: int) -> bytes:
    """A record without a newline."""
    return b"%09d%s" % (number, _PADDING)


def number_of(value: bytes) -> int:
    """The number of a record; it has to be whole."""
    assert len(value) == SIZE - 1, f"{len(value)} bytes: {value[:40]!r}"
    assert value.endswith(_PADDING)
    return int(value[:9])


class Counter:
    """A number in a file, which another process can read at any time."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    @property
    def value(self) -> int:
        return int.from_bytes(self._map[:8], "little")

    @value.setter
    def value(self, value: int) -> None:
        self._map[:8] = value.to_bytes(8, "little")


def _blocks() -> Iterator[tuple[bytes, int]]:
    """Lines without an end, and how many there were with them."""
    first = 0
    while True:
        end = first + BLOCK
        yield b"".join(b"%09d%s\n" % (number, _PADDING) for number in range(first, end)), end
        first = end


def _to_socket(connection: socket.socket, counter: Counter) -> None:
    for block, sent in _blocks():
        connection.sendall(block)
        counter.value = sent


def _serve(server: socket.socket, counter: Counter) -> None:
    with server:
        connection, _ = server.accept()
        with connection:
            _to_socket(connection, counter)


def _datagrams(port: int, counter: Counter) -> None:
    """Until a file beside the counter tells the end."""
    stop = Path(sys.argv[2] + ".stop")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sent = 0
        while not stop.exists():
            for _ in range(100):
                sending.sendto(record(sent), ("127.0.0.1", port))
                sent += 1
            counter.value = sent
            time.sleep(0.001)  # Its pace: no more than 100 000 a second.


def _application(counter: Counter) -> Callable[..., Awaitable[None]]:
    """Lines, events or messages over HTTP."""

    async def serve(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            sent = 0
            while True:
                await send({"type": "websocket.send", "bytes": record(sent)})
                sent += 1
                counter.value = sent
        events = scope["path"] == "/events"
        kind = b"text/event-stream" if events else b"text/plain"
        # With X-Accel-Buffering nginx does not gather the response in files.
        headers = [(b"content-type", kind), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for block, sent in _blocks():
            body = block
            if events:
                numbers = range(sent - BLOCK, sent)
                body = b"".join(b"id: %d\ndata: %s\n\n" % (number, record(number)) for number in numbers)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            counter.value = sent

    return serve


def _over_http(port: int, counter: Counter) -> None:
    import uvicorn

    application: Any = _application(counter)
    uvicorn.run(application, host="127.0.0.1", port=port, lifespan="off", log_level="warning")


def _with_acknowledgements(port: int, counter: Counter) -> None:
    from penstock.feeds import LineSender
    from penstock.net import TcpClient

    async def run() -> None:
        sender = LineSender(TcpClient.create().host("127.0.0.1").port(port), sys.argv[4], 30)
        sending = asyncio.ensure_future(sender.run())
        while not sending.done():
            await asyncio.wait([sending], timeout=0.01)
            counter.value = sender.sent

    asyncio.run(run())


def main(kind: str, path: str, address: str = "0", *_: str) -> None:
    counter = Counter(Path(path))
    if kind == "stdout":
        for block, sent in _blocks():
            os.write(1, block)  # A pipe that is not closed takes all of it: it waits.
            counter.value = sent
    elif kind == "tcp":
        _serve(socket.create_server(("127.0.0.1", int(address))), counter)
    elif kind == "unix":
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen()
        _serve(server, counter)
    elif kind == "tcp-listen":
        with socket.create_connection(("127.0.0.1", int(address))) as connection:
            _to_socket(connection, counter)
    else:
        by_kind = {"http": _over_http, "udp": _datagrams, "acknowledged": _with_acknowledgements}
        by_kind[kind](int(address), counter)


if __name__ == "__main__":
    main(*sys.argv[1:])
