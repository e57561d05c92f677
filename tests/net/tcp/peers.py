"""The other end of a connection, as a bare socket that does only what it is told; and how tests wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from penstock.net import AsyncioTransport, Connection, RunningServer

LONG = 60.0
"""Seconds after which something that should have happened is taken for not happening."""


def raw(connection: Connection) -> Any:
    """The event loop's own transport of a connection."""
    assert isinstance(connection.transport, AsyncioTransport)
    return connection.transport.raw


async def until(condition: Callable[[], object]) -> None:
    """Until this holds; it is looked at again and again."""
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.002)


async def settled() -> None:
    """Until whatever was cancelled has come to its end."""
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def soon(work: Any) -> Any:
    """The result of something that has to come, however loaded the machine is."""
    async with asyncio.timeout(LONG):
        return await work


def begun(work: Any) -> asyncio.Future[Any]:
    """Something to be awaited, under way already."""
    return asyncio.ensure_future(soon(work))


class Peer:
    """A socket without any library around it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def of(cls, server: RunningServer, receive_buffer: int | None = None) -> Self:
        """One that is connected to this server; with a small buffer it blocks its sender early."""
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer = cls(connection)
        try:
            await soon(peer.loop.sock_connect(connection, (server.host, server.port)))
        except OSError:
            connection.close()
            raise
        return peer

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    async def send(self, data: bytes) -> None:
        await soon(self.loop.sock_sendall(self.socket, data))

    async def receive(self, size: int) -> bytes:
        """Exactly so many bytes, or fewer if the other side ends before."""
        data = bytearray()
        while len(data) < size and (chunk := await soon(self.loop.sock_recv(self.socket, size - len(data)))):
            data += chunk
        return bytes(data)

    async def rest(self) -> bytes:
        """All bytes until the other side ends."""
        chunks = []
        while chunk := await soon(self.loop.sock_recv(self.socket, 262_144)):
            chunks.append(chunk)
        return b"".join(chunks)

    async def gone(self) -> None:
        """Until the other side has ended, in order or with a reset."""
        with contextlib.suppress(ConnectionError):
            await self.rest()

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close so that the other side gets a reset, not an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses whoever calls. It is kept, so that no other program listens there meanwhile."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


class Listener:
    """A bare listening socket, for clients."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.port = int(self.socket.getsockname()[1])

    async def accept(self) -> Peer:
        connection, _ = await soon(asyncio.get_running_loop().sock_accept(self.socket))
        return Peer(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *anything: object) -> None:
        self.socket.close()
