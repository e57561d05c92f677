"""All connections of one server or client: how many there may be, and how they are brought to an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.net.errors import ConnectionAborted
from penstock.net.labels import new_id
from penstock.net.lifecycle import CloseReport
from penstock.net.metrics import TcpMetrics
from penstock.net.settings import SocketOption, TcpSettings

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.handler import HandlerRun

__all__ = ["Connections"]

_log = logging.getLogger("penstock.net")


class Connections:
    """Every connection, from the moment it is up until it is over."""

    def __init__(self, settings: TcpSettings) -> None:
        self.settings = settings
        self.metrics = TcpMetrics()
        self.alive: set[Connection] = set()
        self._left: set[HandlerRun] = set()
        """Handlers whose connections are gone, and which are not done with what came before."""
        self._closed = False
        self._changed: asyncio.Event | None = None

    def next_id(self) -> str:
        """An id for a new connection."""
        self.metrics.connections_total += 1
        return new_id()

    @property
    def closed(self) -> bool:
        """Whether no more are taken."""
        return self._closed

    def admit(self, connection: Connection) -> bool:
        """Keep track of a connection; one too many is cut off."""
        most = self.settings.max_connections
        if self._closed:
            # It was accepted before the close, and TLS has only now come about.
            _log.info("%s refused: the server is being closed", connection.label)
        elif most is not None and len(self.alive) >= most:
            _log.warning(
                "%s refused: there are %d connections, as many as max_connections() allows",
                connection.label,
                most,
            )
        else:
            self.alive.add(connection)
            self.metrics.connections_active = len(self.alive)
            return True
        self.metrics.connections_refused += 1
        connection.transport.abort()
        return False

    def remove(self, connection: Connection) -> None:
        """A connection is over."""
        self.alive.discard(connection)
        self.metrics.connections_active = len(self.alive)
        self._note_change()

    def leave(self, connection: Connection, handler: HandlerRun) -> None:
        """Let a handler finish without its connection; it may do so on another thread."""
        self._left.add(handler)
        handler.when_over = lambda handler: connection.on_loop(self._finished, handler)

    def _finished(self, handler: HandlerRun) -> None:
        self._left.discard(handler)
        self._note_change()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def set_option(self, connection: Connection, option: SocketOption) -> None:
        """Set a socket option on a connection; one that does not fit is told, not fatal."""
        try:
            option.apply(connection.transport.socket)
        except OSError as error:
            _log.warning("%s option %s=%r: %s", connection.label, option.text, option.value, error)

    async def close(self, grace: float) -> CloseReport:
        """Let every connection finish what it has received; cut off those that take longer than ``grace``."""
        self._closed = True
        there = len(self.alive)
        for connection in list(self.alive):
            connection.finish()
        await self._until(lambda: not self.alive and not self._left, grace)
        late = list(self.alive)
        # Whoever is done and waits only for its peer to close is cut off, too, but nothing is lost by that.
        aborted = tuple(connection.label for connection in late if connection.busy)
        for connection in late:
            connection.abort(
                ConnectionAborted(
                    f"{connection.label} was cut off: it had not ended {grace:g} s after the close"
                )
            )
        await self._until(lambda: not self.alive, None)
        while self._left:
            self._left.pop().cancel()
        return CloseReport(there - len(aborted), aborted)

    async def _until(self, true: Callable[[], bool], seconds: float | None) -> None:
        """Until this is true or the time is over; the caller sees which."""
        self._changed = changed = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                while not true():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._changed = None
