"""Who has which connection of a pool, and who is the next to get one.

A connection belongs to the event loop that opened it. Bound and queue count the connections of all loops, so
one pool may serve several loops. If the first caller in the queue is on another loop than the connection that
was given back, that connection is closed and the caller opens its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from penstock.net.connection import Connection
from penstock.net.connections import Connections
from penstock.net.errors import AcquireTimeout, ConnectionAborted, PoolClosed, PoolFull
from penstock.net.lifecycle import CloseReport
from penstock.net.metrics import PoolMetrics
from penstock.net.settings import TcpSettings
from penstock.net.tcp.pool_remote import Remote, Waiter
from penstock.net.tcp.pooled_socket import Lease, PooledSocket
from penstock.net.transport import call_on
from penstock.streams.spi import renew_after_fork

__all__ = ["Opening", "PoolLedger"]

Opening = Callable[[Connections], Awaitable[Connection]]
"""Opens a connection that belongs to these connections."""


class PoolLedger:
    """The books of a pool. They may be used from any thread; nobody is called while the lock is held."""

    def __init__(
        self,
        max_connections: int,
        max_pending: int,
        acquire_timeout: float,
        max_idle_time: float | None,
        max_life_time: float | None,
    ) -> None:
        self.max_connections = max_connections
        self.max_pending = max_pending
        self.acquire_timeout = acquire_timeout
        self.max_idle_time = max_idle_time
        self.max_life_time = max_life_time
        self.closed = False
        """Whether no more connections are handed out."""
        self._lock = threading.Lock()
        self._remotes: dict[str, Remote] = {}
        self._inherited: list[dict[str, Remote]] = []
        self._total = 0
        self._waited = 0.0
        self._watching: list[Callable[[], object]] = []
        renew_after_fork(self)

    # ---------------------------------------------------------------- what there is
    def counted(self) -> PoolMetrics:
        """The counts of all remote addresses together."""
        with self._lock:
            return self._counted(list(self._remotes.values()), self._total, self._waited)

    def counted_by_remote(self) -> dict[str, PoolMetrics]:
        """The counts of each remote address."""
        with self._lock:
            return {
                where: self._counted([remote], remote.total, remote.waited)
                for where, remote in self._remotes.items()
            }

    def _counted(self, remotes: list[Remote], total: int, waited: float) -> PoolMetrics:
        idle = sum(len(remote.idle) for remote in remotes)
        return PoolMetrics(
            connections_active=sum(len(remote.sockets) for remote in remotes) - idle,
            connections_idle=idle,
            connections_max=self.max_connections,
            acquires_pending=sum(len(remote.waiters) for remote in remotes),
            acquires_max=self.max_pending,
            acquires_total=total,
            acquires_waited=waited,
        )

    # ---------------------------------------------------------------- acquiring
    async def acquire(self, settings: TcpSettings, open_one: Opening) -> Connection:
        """A connection for these settings: an idle one, or one that ``open_one`` opens. For clients."""
        pooled = await self._socket_for(settings)
        if self.closed:
            self._pass_on(pooled)
            raise self._is_closed(settings.where)
        if pooled.uses:
            if pooled.fit_for_use:
                return pooled.use_again(settings)
            pooled = self._exchange(pooled, settings)
        try:
            connection = await open_one(Lease(settings, pooled))
        except BaseException as error:
            if pooled.transport is None:
                self.lost(pooled)
            elif pooled.connection is not None:
                pooled.connection.abort(error)  # It is up, but nobody will get it.
            raise
        if self.closed and not connection.closed:
            connection.abort()
            raise self._is_closed(settings.where)
        return connection

    async def _socket_for(self, settings: TcpSettings) -> PooledSocket:
        where, route, loop = settings.where, settings.route, asyncio.get_running_loop()
        with self._lock:
            if self.closed:
                raise self._is_closed(where)
            remote = self._remote(where)
            pooled = remote.take_idle(route, loop)
            if pooled is None and len(remote.sockets) >= self.max_connections:
                remote.forget_closed_loops()
                remote.grant()
            if pooled is None and len(remote.sockets) < self.max_connections:
                pooled = remote.new(route, loop)
            if pooled is not None:
                self._count(remote, 0.0)
                return pooled
            # One that leads there in another way, or lives on another loop, makes room.
            idle = remote.idle.popleft() if remote.idle else None
            if idle is None and len(remote.waiters) >= self.max_pending:
                raise self._is_full(where)
            waiter = Waiter(route, loop)
            remote.waiters.append(waiter)
            if idle is not None and not idle.loop.is_running():
                # It cannot be closed before its loop runs again, so nobody waits for that.
                remote.sockets.discard(idle)
                remote.grant()
        if idle is not None:
            call_on(idle.loop, idle.close)
        return await self._wait(where, waiter)

    async def _wait(self, where: str, waiter: Waiter) -> PooledSocket:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.acquire_timeout):
                await waiter.wait()
        except TimeoutError:
            if not self._leaves(where, waiter):
                raise self._took_too_long(where) from None
        except BaseException:
            if self._leaves(where, waiter) and waiter.granted is not None:
                self._pass_on(waiter.granted)  # It came in the very moment; the next caller gets it.
            raise
        if waiter.error is not None:
            raise waiter.error
        pooled = waiter.granted
        assert pooled is not None
        with self._lock:
            self._count(self._remote(where), time.monotonic() - began)
        return pooled

    def _leaves(self, where: str, waiter: Waiter) -> bool:
        """Take a caller out of the queue. Returns whether it has been given something before."""
        with self._lock:
            remote = self._remotes.get(where)
            if remote is not None and waiter in remote.waiters:
                remote.waiters.remove(waiter)
            return waiter.granted is not None or waiter.error is not None

    def _pass_on(self, pooled: PooledSocket) -> None:
        """A caller that was given this socket does not use it."""
        pooled.in_use = False
        if pooled.transport is None:
            self.lost(pooled)
        else:
            self.returned(pooled)

    def _took_too_long(self, where: str) -> AcquireTimeout:
        with self._lock:
            remote = self._remotes.get(where)
            others = len(remote.waiters) if remote is not None else 0
        return AcquireTimeout(
            f"acquiring a connection to {where} took longer than {self.acquire_timeout:g} s: all "
            f"{self.max_connections} are in use, and {others} other callers wait; give connections back "
            "sooner, or allow more with ConnectionPool(max_connections=…) or more time with acquire_timeout=…"
        )

    def _is_full(self, where: str) -> PoolFull:
        return PoolFull(
            f"cannot acquire a connection to {where}: all {self.max_connections} are in use, and "
            f"{self.max_pending} callers wait already, the limit of max_pending; give connections back "
            "sooner, or allow more with ConnectionPool(max_connections=…, max_pending=…)"
        )

    def _is_closed(self, where: str) -> PoolClosed:
        return PoolClosed(
            f"cannot acquire a connection to {where}: the pool is closed; make a new ConnectionPool, "
            "or close it later"
        )

    def _exchange(self, dead: PooledSocket, settings: TcpSettings) -> PooledSocket:
        """A new socket in the place of one that the peer has closed."""
        with self._lock:
            remote = self._remote(dead.remote)
            remote.sockets.discard(dead)
            pooled = remote.new(settings.route, dead.loop)
        dead.close()
        return pooled

    def _remote(self, where: str) -> Remote:
        remote = self._remotes.get(where)
        if remote is None:
            remote = self._remotes[where] = Remote(self, where, self.max_connections)
        return remote

    def _count(self, remote: Remote, waited: float) -> None:
        remote.total += 1
        remote.waited += waited
        self._total += 1
        self._waited += waited

    # ---------------------------------------------------------------- what the sockets call
    def keeps(self, pooled: PooledSocket) -> bool:
        """Whether a socket that is fit for use may stay open."""
        if self.closed:
            return False
        left = self._life_left(pooled)
        return left is None or left > 0

    def _life_left(self, pooled: PooledSocket) -> float | None:
        if self.max_life_time is None:
            return None
        return pooled.opened + self.max_life_time - pooled.loop.time()

    def returned(self, pooled: PooledSocket) -> None:
        """A socket is idle: the first caller in the queue gets it, or it waits for the next one."""
        kept = False
        with self._lock:
            remote = self._remotes.get(pooled.remote)
            if remote is not None and pooled in remote.sockets and not (pooled.closing or self.closed):
                kept = remote.hand_over(pooled)
                if not kept and not remote.waiters:
                    remote.idle.append(pooled)
                    kept = True
                    times = [
                        seconds
                        for seconds in (self.max_idle_time, self._life_left(pooled))
                        if seconds is not None
                    ]
                    pooled.idle_for(max(0.0, min(times)) if times else None)
        if not kept:
            pooled.close()

    def take_out(self, pooled: PooledSocket) -> None:
        """Do not hand out the socket any more: it is being closed."""
        with self._lock:
            remote = self._remotes.get(pooled.remote)
            if remote is not None and pooled in remote.idle:
                remote.idle.remove(pooled)

    def lost(self, pooled: PooledSocket) -> None:
        """A socket is closed: the first caller in the queue may open another one."""
        with self._lock:
            remote = self._remotes.get(pooled.remote)
            if remote is None or pooled not in remote.sockets:
                return
            remote.sockets.discard(pooled)
            if pooled in remote.idle:
                remote.idle.remove(pooled)
            remote.grant()
            if not remote.sockets and not remote.waiters:
                del self._remotes[pooled.remote]
            watching = list(self._watching)
        for tell in watching:
            tell()

    def renew_in_child(self) -> None:
        """After a fork, the sockets belong to the parent. The child begins without any."""
        self._lock = threading.Lock()
        # They are kept and not dropped: a destructor could touch the parent's event loop.
        self._inherited.append(self._remotes)
        self._remotes = {}
        self._watching = []

    # ---------------------------------------------------------------- the end
    async def close(self, grace: float) -> CloseReport:
        """Hand out no more connections, and close those that there are."""
        with self._lock:
            self.closed = True
            waiters = [waiter for remote in self._remotes.values() for waiter in remote.waiters]
            for where, remote in self._remotes.items():
                for waiter in remote.waiters:
                    waiter.error = self._is_closed(where)
                remote.waiters.clear()
                remote.forget_closed_loops()
            idle = [pooled for remote in self._remotes.values() for pooled in remote.idle]
            used = sum(pooled.in_use for pooled in self._sockets())
        for waiter in waiters:
            waiter.wake()
        for pooled in idle:
            call_on(pooled.loop, pooled.close)  # If its loop is closed, so is the socket.
        await self._until_closed(grace)
        with self._lock:
            late = [
                pooled.connection
                for pooled in self._sockets()
                if pooled.in_use and pooled.connection is not None and not pooled.connection.closed
            ]
        for connection in late:
            why = f"{connection.label} was cut off: it was in use {grace:g} s after its pool was closed"
            connection.abort(ConnectionAborted(why))
        await self._until_closed(None)
        return CloseReport(used - len(late), tuple(connection.label for connection in late))

    def _sockets(self) -> list[PooledSocket]:
        return [pooled for remote in self._remotes.values() for pooled in remote.sockets]

    def _open_sockets(self) -> bool:
        """Whether a socket is open whose loop can close it."""
        with self._lock:
            return any(
                pooled.transport is not None and pooled.loop.is_running() for pooled in self._sockets()
            )

    async def _until_closed(self, seconds: float | None) -> None:
        """Wait until no socket is open, or the time is over. The caller can tell which."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            call_on(loop, changed.set)  # If that loop is closed, nobody waits any more.

        with self._lock:
            self._watching.append(tell)
        try:
            async with asyncio.timeout(seconds):
                while self._open_sockets():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                self._watching.remove(tell)
