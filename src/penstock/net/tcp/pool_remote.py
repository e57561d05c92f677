"""One remote address of a pool: the sockets that lead there, and the callers that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from penstock.net.errors import PoolClosed
from penstock.net.tcp.pooled_socket import Owner, PooledSocket
from penstock.net.transport import call_on

__all__ = ["Remote", "Waiter"]


class Waiter:
    """A caller in the queue. It gets a socket, or an error, exactly once."""

    __slots__ = ("_future", "error", "granted", "loop", "route")

    def __init__(self, route: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.route = route
        self.loop = loop
        self.granted: PooledSocket | None = None
        self.error: PoolClosed | None = None
        self._future: asyncio.Future[None] = loop.create_future()

    async def wait(self) -> None:
        """Wait until there is a socket or an error."""
        await self._future

    def wake(self) -> bool:
        """Let it look, from any thread. False if its loop is closed."""
        return call_on(self.loop, self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Remote:
    """The sockets to one remote address, and the callers that wait for one. Only used under the lock."""

    __slots__ = ("_most", "_owner", "idle", "sockets", "total", "waited", "waiters", "where")

    def __init__(self, owner: Owner, where: str, most: int) -> None:
        self.where = where
        self._owner = owner
        self._most = most
        self.sockets: set[PooledSocket] = set()
        """All that count: idle, in use, being opened and being closed."""
        self.idle: deque[PooledSocket] = deque()
        """The one that was used last is at the end."""
        self.waiters: deque[Waiter] = deque()
        self.total = 0
        self.waited = 0.0

    def take_idle(self, route: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> PooledSocket | None:
        """The socket that was used last, so that those that are not needed reach their idle time."""
        for pooled in reversed(self.idle):
            if pooled.fits(route, loop):
                self.idle.remove(pooled)
                pooled.in_use = True
                return pooled
        return None

    def forget_closed_loops(self) -> None:
        """What belonged to a loop that is closed can neither be used nor given back."""
        self.sockets = {pooled for pooled in self.sockets if not pooled.loop.is_closed()}
        self.idle = deque(pooled for pooled in self.idle if not pooled.loop.is_closed())
        self.waiters = deque(waiter for waiter in self.waiters if not waiter.loop.is_closed())

    def new(self, route: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> PooledSocket:
        """A place for a socket that a caller on this loop is going to open."""
        pooled = PooledSocket(self._owner, self.where, route, loop)
        self.sockets.add(pooled)
        return pooled

    def hand_over(self, pooled: PooledSocket) -> bool:
        """Give a socket to the first caller, if it can use it."""
        while self.waiters:
            first = self.waiters[0]
            if pooled.transport is not None and not pooled.fits(first.route, first.loop):
                return False  # When it is closed, the first caller opens another one.
            self.waiters.popleft()
            pooled.route, pooled.loop = first.route, first.loop
            first.granted = pooled
            pooled.in_use = True
            if first.wake():
                return True
            first.granted, pooled.in_use = None, False
        return False

    def grant(self) -> None:
        """Let callers open a socket, the first ones first, while there may be more."""
        while self.waiters and len(self.sockets) < self._most:
            first = self.waiters[0]
            place = self.new(first.route, first.loop)
            if not self.hand_over(place):
                self.sockets.discard(place)
