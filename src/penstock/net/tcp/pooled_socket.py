"""A socket of a pool: who uses it, and what happens to it while nobody does."""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.net.bridge import AsyncioBridge
from penstock.net.connections import Connections
from penstock.net.lifecycle import ConnectionState, tell_state
from penstock.net.settings import TcpSettings
from penstock.net.transport import TimerHandle, Transport

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["Lease", "Owner", "PooledSocket"]

_log = logging.getLogger("penstock.net")

_TURNS: Final = 4
"""Turns of the event loop in which it cancels an asynchronous generator that nobody uses any more."""


class Owner(Protocol):
    """The pool, as its sockets see it. Each call is made on the event loop of the socket."""

    def keeps(self, pooled: PooledSocket) -> bool:
        """Whether a socket that is fit for use may stay open."""
        ...

    def returned(self, pooled: PooledSocket) -> None:
        """A user has given the socket back, and it is idle."""
        ...

    def take_out(self, pooled: PooledSocket) -> None:
        """Do not hand out the socket any more: it is being closed."""
        ...

    def lost(self, pooled: PooledSocket) -> None:
        """The socket is closed."""
        ...


class PooledSocket:
    """One of the sockets that a pool may have open: not yet connected, in use, or idle.

    While it is idle it reads, so that the end of the peer is noticed. Bytes that arrive then belong to no
    conversation, and the socket is closed.
    """

    __slots__ = (
        "_timer",
        "closing",
        "connection",
        "in_use",
        "loop",
        "opened",
        "owner",
        "remote",
        "route",
        "transport",
        "uses",
    )

    def __init__(
        self, owner: Owner, remote: str, route: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.owner = owner
        self.remote = remote
        self.route = route
        self.loop = loop
        self.transport: Transport | None = None
        """None until it is connected, and once it is closed; a closed one is not opened again."""
        self.connection: Connection | None = None
        """The present user's connection, or the last one's."""
        self.in_use = True
        """Whether somebody has it, or has been promised it."""
        self.closing = False
        self.opened = 0.0
        self.uses = 0
        self._timer: TimerHandle | None = None

    def fits(self, route: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it leads there, and lives on this loop."""
        return self.loop is loop and self.route == route

    @property
    def fit_for_use(self) -> bool:
        """Whether it is open, and the kernel has nothing for us: neither bytes nor the end of the peer."""
        transport = self.transport
        if transport is None or self.closing or transport.is_closing():
            return False
        return not _has_input(transport)

    # ---------------------------------------------------------------- in use
    def use_again(self, settings: TcpSettings) -> Connection:
        """A connection for the next user. It begins as a new one does."""
        transport = self.transport
        assert transport is not None
        self._stop_timer()
        bridge = AsyncioBridge(Lease(settings, self), self.loop)
        transport.set_protocol(bridge)
        bridge.open(transport)
        return bridge.connection

    def idle_for(self, seconds: float | None) -> None:
        """Close the socket after so many seconds, unless somebody uses it before."""
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self.close)

    def close(self) -> None:
        """Close a socket that has no connection now."""
        self._stop_timer()
        self.owner.take_out(self)
        if self.transport is not None and not self.closing:
            self.closing = True
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---------------------------------------------------------------- what an idle transport calls
    @property
    def data_received(self) -> Callable[[bytes], None]:
        """Takes bytes that nobody has asked for."""
        return self._unexpected

    def _unexpected(self, data: bytes) -> None:
        if self.connection is not None:
            _log.info(
                "%s is closed: %d bytes arrived while it was idle in its pool",
                self.connection.label,
                len(data),
            )
        self.close()

    def eof_received(self) -> bool | None:
        """The peer has ended, so the transport closes itself."""
        self.close()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._stop_timer()
        self.transport = None
        if not self.in_use:
            self.owner.lost(self)
        connection = self.connection
        if connection is not None:
            settings = connection.settings
            tell_state(connection, ConnectionState.DISCONNECTING, settings.wiretap, settings.observers)

    def pause_writing(self) -> None:
        """Nothing is written while it is idle."""

    def resume_writing(self) -> None:
        """Nothing is written while it is idle."""


class Lease(Connections):
    """The only connection of one user of a pooled socket."""

    def __init__(self, settings: TcpSettings, pooled: PooledSocket) -> None:
        super().__init__(settings)
        self._pooled = pooled
        pooled.uses += 1
        if pooled.uses > 1:
            self.opening = (ConnectionState.ACQUIRED,)
        else:
            self.opening = (ConnectionState.CONNECTED, ConnectionState.ACQUIRED)

    def next_id(self) -> str:
        """The id of the socket, and from the second use on the number of the use."""
        first = super().next_id()
        last = self._pooled.connection
        return first if last is None else f"{last.id.partition('-')[0]}-{self._pooled.uses}"

    def admit(self, connection: Connection) -> bool:
        """The socket is up."""
        pooled = self._pooled
        pooled.connection = connection
        if pooled.transport is None:
            pooled.transport, pooled.opened = connection.transport, pooled.loop.time()
        return super().admit(connection)

    async def settle(self, connection: Connection) -> None:
        """Wait for the event loop to cancel a loop over ``receive()`` that was left with ``break``."""
        for _ in range(_TURNS):
            if not connection.receiving:
                return
            await asyncio.sleep(0)

    def takes_back(self, connection: Connection) -> bool:
        """Give the socket back, if it can be used again."""
        pooled = self._pooled
        if not (connection.reusable and pooled.fit_for_use and pooled.owner.keeps(pooled)):
            return False
        pooled.in_use = False
        connection.transport.set_protocol(pooled)
        connection.transport.resume_reading()
        try:
            connection.release()
        finally:
            pooled.owner.returned(pooled)
        return True

    def remove(self, connection: Connection) -> None:
        """The connection is over. If its socket is not idle now, it is closed."""
        super().remove(connection)
        if self._pooled.in_use:
            self._pooled.transport = None
            self._pooled.owner.lost(self._pooled)


def _has_input(transport: Transport) -> bool:
    """Whether the kernel has bytes of the peer that nobody has read, or its end, or an error."""
    opened = transport.socket
    descriptor = -1 if opened is None else opened.fileno()
    if descriptor < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
