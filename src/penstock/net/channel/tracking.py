"""All connections of one server or client: how many there may be, and how they are brought to an end."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.net.errors import ConnectionAborted
from penstock.net.metrics import Metrics, Traffic
from penstock.net.settings import Settings, SocketOption

if TYPE_CHECKING:
    from penstock.net.channel.handling import HandlerRun
    from penstock.net.connection import Connection

__all__ = ["Closed", "Connections"]

_log = logging.getLogger("penstock.net")


@dataclass(frozen=True, slots=True)
class Closed:
    """What became of the connections that were there when a server was closed."""

    finished: int
    """Connections whose handlers ended in time."""
    aborted: tuple[str, ...]
    """The labels of those that had to be cut off."""


class Connections:
    """Every connection, from the moment it is up until it is over."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.alive: set[Connection] = set()
        self._left: set[HandlerRun] = set()
        """Handlers whose connections are gone, and which are not done with what came before."""
        self._prefix = os.urandom(2).hex()
        self._empty: asyncio.Event | None = None

    def next_id(self) -> str:
        """An id for a new connection."""
        self.metrics.connections_total += 1
        return f"{self._prefix}{self.metrics.connections_total:04x}"

    def admit(self, connection: Connection) -> bool:
        """Keep track of a connection; one too many is cut off."""
        most = self.settings.max_connections
        self.alive.add(connection)
        self.metrics.connections_active = len(self.alive)
        if most is None or len(self.alive) <= most:
            return True
        self.metrics.connections_refused += 1
        _log.warning(
            "%s refused: there are %d connections, as many as max_connections() allows",
            connection.label,
            most,
        )
        connection.transport.abort()
        return False

    def remove(self, connection: Connection, traffic: Traffic | None) -> None:
        """A connection is over."""
        self.alive.discard(connection)
        self.metrics.connections_active = len(self.alive)
        if traffic is not None:
            self.metrics.data_received += traffic.received
            self.metrics.data_sent += traffic.sent
        self._check_empty()

    def leave(self, handler: HandlerRun) -> None:
        """Let a handler finish without its connection."""
        self._left.add(handler)
        handler.when_over = self._finished

    def _finished(self, handler: HandlerRun) -> None:
        self._left.discard(handler)
        self._check_empty()

    def _check_empty(self) -> None:
        if not self.alive and not self._left and self._empty is not None:
            self._empty.set()

    def set_option(self, connection: Connection, option: SocketOption) -> None:
        """Set a socket option on a connection; one that does not fit is told, not fatal."""
        socket = connection.transport.get_extra_info("socket")
        try:
            option.apply(socket)
        except OSError as error:
            _log.warning("%s option %s=%r: %s", connection.label, option.text, option.value, error)

    async def close(self, grace: float) -> Closed:
        """Let every connection finish what it has received; cut off those that take longer than ``grace``."""
        there = len(self.alive)
        for connection in list(self.alive):
            connection.finish()
        if (self.alive or self._left) and grace > 0:
            await self._until_empty(grace)
        left, self._left = self._left, set()
        for handler in left:
            handler.cancel()
        late = list(self.alive)
        aborted = tuple(connection.label for connection in late)
        for connection in late:
            connection.abort(
                ConnectionAborted(
                    f"{connection.label} was cut off: it had not ended {grace:g} s after the close"
                )
            )
        if self.alive:
            await self._until_empty(None)
        return Closed(there - len(aborted), aborted)

    async def _until_empty(self, seconds: float | None) -> None:
        self._empty = asyncio.Event()
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return  # The caller sees who is left.
        finally:
            self._empty = None
