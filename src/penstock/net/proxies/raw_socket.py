"""A connected socket before a transport takes it over: a proxy is spoken with here.

Only the bytes of that conversation are taken from the socket. Those behind them stay in the kernel, for TLS
or for the connection: nothing has to be put back.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

__all__ = ["RawSocket"]

_SOME: Final = 4096


class RawSocket:
    """Peeks at what has arrived, takes as much of it as it wants, and sends."""

    __slots__ = ("_loop", "socket")

    def __init__(self, opened: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.socket = opened
        self._loop = loop

    async def peek(self, most: int = _SOME) -> bytes:
        """Wait for bytes, and return those that are there without taking them. Empty at the peer's end."""
        while True:
            try:
                return self.socket.recv(most, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                await self._readable()

    def take(self, count: int) -> bytes:
        """Take bytes that :meth:`peek` has returned."""
        return self.socket.recv(count) if count else b""

    async def exactly(self, count: int) -> bytes:
        """Take so many bytes. Raises EOFError if the peer ends before."""
        data = b""
        while len(data) < count:
            chunk = self.take(len(await self.peek(count - len(data))))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    async def send(self, data: bytes) -> None:
        """Send all of this."""
        await self._loop.sock_sendall(self.socket, data)

    async def _readable(self) -> None:
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self.socket, _set, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(self.socket)


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():  # It may be told once more before the loop forgets the socket.
        readable.set_result(None)
