"""The connections of one server or client: how many there may be, and how all of them are closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.net.errors import ConnectionAborted
from penstock.net.handler import HandlerAdvice
from penstock.net.labels import new_id
from penstock.net.lifecycle import CloseReport, ConnectionState
from penstock.net.metrics import TcpMetrics
from penstock.net.settings import SocketOption, TcpSettings

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.handler import HandlerRun

__all__ = ["Connections"]

_log = logging.getLogger("penstock.net")


class Connections:
    """The set of open connections, and the handlers that outlive theirs."""

    opening: tuple[ConnectionState, ...] = (ConnectionState.CONNECTED,)
    """What observers hear of a connection before it is configured."""

    def __init__(self, settings: TcpSettings) -> None:
        self.settings = settings
        self.metrics = TcpMetrics()
        self.advice = HandlerAdvice()
        self.alive: set[Connection] = set()
        self._left: set[HandlerRun] = set()
        """Handlers whose connections are gone, and which still work on what arrived before."""
        self._closed = False
        self._changed: asyncio.Event | None = None

    def next_id(self) -> str:
        """Count a new connection and give it an id."""
        self.metrics.connections_total += 1
        return new_id()

    @property
    def closed(self) -> bool:
        """Whether new connections are refused."""
        return self._closed

    def admit(self, connection: Connection) -> bool:
        """Add a connection, or abort it if there are too many. Returns whether it was added."""
        most = self.settings.max_connections
        if self._closed:
            # It was accepted before the close, and its TLS handshake has only finished now.
            _log.info("%s refused: the server is being closed", connection.label)
        elif most is not None and len(self.alive) >= most:
            _log.warning(
                "%s refused: there are %d connections already, the limit of max_connections()",
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
        """A connection is closed."""
        self.alive.discard(connection)
        self.metrics.connections_active = len(self.alive)
        self._note_change()

    async def settle(self, connection: Connection) -> None:
        """Called when ``async with`` is left without an error, before the connection is closed."""

    def takes_back(self, connection: Connection) -> bool:
        """Whether a pool takes the socket of a connection that is to be closed; then it stays open."""
        return False

    def leave(self, connection: Connection, handler: HandlerRun) -> None:
        """Let a handler finish without its connection. It may do so on another thread."""
        self._left.add(handler)
        handler.when_over = lambda handler: connection.on_loop(self._finished, handler)

    def _finished(self, handler: HandlerRun) -> None:
        self._left.discard(handler)
        self._note_change()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def set_option(self, connection: Connection, option: SocketOption) -> None:
        """Set a socket option on a connection; if the system refuses it, log that and go on."""
        opened = connection.transport.socket
        if opened is None:
            return
        try:
            option.apply(opened)
        except OSError as error:
            _log.warning("%s option %s=%r: %s", connection.label, option.text, option.value, error)

    async def close(self, grace: float) -> CloseReport:
        """Let every connection finish what it has received. Abort those that take longer than ``grace``."""
        self._closed = True
        there = len(self.alive)
        for connection in list(self.alive):
            connection.finish()
        await self._until(lambda: not self.alive and not self._left, grace)
        late = list(self.alive)
        # A connection that only waits for its peer to close is aborted too, but nothing is lost by that.
        aborted = tuple(connection.label for connection in late if connection.busy)
        for connection in late:
            connection.abort(
                ConnectionAborted(
                    f"{connection.label} was cut off: it was still open {grace:g} s after the close"
                )
            )
        await self._until(lambda: not self.alive, None)
        while self._left:
            self._left.pop().cancel()
        return CloseReport(there - len(aborted), aborted)

    async def _until(self, true: Callable[[], bool], seconds: float | None) -> None:
        """Wait until this is true, or the time is over. The caller can tell which."""
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
