"""The connections of one server or client: how many there may be, and how all of them are closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.net.errors import ConnectionAborted
from penstock.net.handler import HandlerAdvice
from penstock.net.labels import new_id
from penstock.net.lifecycle import CloseReport, ConnectionState
from penstock.net.loops import Landlord
from penstock.net.metrics import TcpMetrics, Traffic
from penstock.net.settings import SocketOption, TcpSettings
from penstock.net.transport import call_on

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.handler import HandlerRun

__all__ = ["Connections"]

_log = logging.getLogger("penstock.net")

_STUCK: Final = 10.0
"""Seconds after which nobody waits for an event loop any more that does not even abort a connection."""


class Connections:
    """The set of open connections, and the handlers that outlive theirs.

    They may live on several event loops. Every method may be called from any thread, and nobody is called
    while the lock is held.
    """

    opening: tuple[ConnectionState, ...] = (ConnectionState.CONNECTED,)
    """What observers hear of a connection before it is configured."""

    def __init__(self, settings: TcpSettings) -> None:
        self.settings = settings
        self.advice = HandlerAdvice()
        self._lock = threading.Lock()
        self._alive: set[Connection] = set()
        self._left: set[HandlerRun] = set()
        """Handlers whose connections are gone, and which still work on what arrived before."""
        self._closed = False
        self._watching: list[Callable[[], object]] = []
        self._total = self._refused = self._handshakes_failed = self._headers_refused = self._errors = 0
        self._landlord: Landlord[Connections] | None = None
        self._past = Traffic()
        """The bytes of connections that are closed."""

    def renew_in_child(self) -> None:
        """After a fork, the connections are the parent's. The lock may be held by a thread of it."""
        self._lock = threading.Lock()
        self._watching = []

    # ---------------------------------------------------------------- what there is
    @property
    def alive(self) -> list[Connection]:
        """The connections that are open now."""
        with self._lock:
            return list(self._alive)

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def closed(self) -> bool:
        """Whether new connections are refused."""
        return self._closed

    @property
    def metrics(self) -> TcpMetrics:
        """The counts so far."""
        with self._lock:
            traffic = [self._past, *(each.traffic for each in self._alive if each.traffic is not None)]
            return TcpMetrics(
                connections_total=self._total,
                connections_active=len(self._alive),
                connections_refused=self._refused,
                handshakes_failed=self._handshakes_failed,
                proxy_headers_refused=self._headers_refused,
                errors=self._errors,
                data_received=sum(each.received for each in traffic),
                data_sent=sum(each.sent for each in traffic),
            )

    def count_error(self) -> None:
        """A handler has failed, or a connection was lost."""
        with self._lock:
            self._errors += 1

    def count_handshake_failed(self) -> None:
        """A TLS handshake has failed, so there is no connection."""
        with self._lock:
            self._handshakes_failed += 1

    def count_header_refused(self) -> None:
        """A PROXY header was refused, so there is no connection."""
        with self._lock:
            self._headers_refused += 1

    # ---------------------------------------------------------------- what connections call
    def next_id(self) -> str:
        """Count a new connection and give it an id."""
        with self._lock:
            self._total += 1
        return new_id()

    def admit(self, connection: Connection) -> bool:
        """Add a connection, or abort it if there are too many. Returns whether it was added."""
        most = self.settings.max_connections
        with self._lock:
            closed = self._closed
            if not closed and (most is None or len(self._alive) < most):
                self._alive.add(connection)
                return True
            self._refused += 1
        if closed:
            # It was accepted before the close, and its TLS handshake has only finished now.
            _log.info("%s refused: the server is being closed", connection.label)
        else:
            _log.warning(
                "%s refused: there are %d connections already, the limit of max_connections()",
                connection.label,
                most,
            )
        connection.transport.abort()
        return False

    def remove(self, connection: Connection) -> None:
        """A connection is closed."""
        with self._lock:
            if connection in self._alive:
                self._alive.discard(connection)
                if connection.traffic is not None:
                    self._past.received += connection.traffic.received
                    self._past.sent += connection.traffic.sent
            landlord = None if self._alive else self._landlord
        self._note_change()
        if landlord is not None:
            landlord.remove(self)

    def move_in(self, landlord: Landlord[Connections]) -> bool:
        """Be closed before the loops of the landlord are. False if they are closed already."""
        with self._lock:
            self._landlord = landlord
            return not self._alive or landlord.add(self)

    async def settle(self, connection: Connection) -> None:
        """Called when ``async with`` is left without an error, before the connection is closed."""

    def takes_back(self, connection: Connection) -> bool:
        """Whether a pool takes the socket of a connection that is to be closed; then it stays open."""
        return False

    def leave(self, connection: Connection, handler: HandlerRun) -> None:
        """Let a handler finish without its connection. It may do so on another thread."""
        with self._lock:
            self._left.add(handler)
        handler.when_over = lambda handler: connection.on_loop(self._finished, handler)

    def _finished(self, handler: HandlerRun) -> None:
        with self._lock:
            self._left.discard(handler)
        self._note_change()

    def _note_change(self) -> None:
        for tell in list(self._watching):
            tell()

    def set_option(self, connection: Connection, option: SocketOption) -> None:
        """Set a socket option on a connection; if the system refuses it, log that and go on."""
        opened = connection.transport.socket
        if opened is None:
            return
        try:
            option.apply(opened)
        except OSError as error:
            _log.warning("%s option %s=%r: %s", connection.label, option.text, option.value, error)

    # ---------------------------------------------------------------- the end
    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Let every connection finish what it has received. Abort those that take longer than ``grace``."""
        with self._lock:
            self._closed = True
            alive = list(self._alive)
        for connection in alive:
            connection.on_loop(connection.finish)
        await self._until(lambda: not self._alive and not self._left, grace)
        late = self.alive
        # A connection that only waits for its peer to close is aborted too, but nothing is lost by that.
        aborted = tuple(connection.label for connection in late if connection.busy)
        for connection in late:
            connection.abort(
                ConnectionAborted(
                    f"{connection.label} was cut off: it was still open {grace:g} s after the close"
                )
            )
        await self._until(lambda: all(each.on_closed_loop for each in self._alive), _STUCK)
        for connection in self.alive:
            _log.warning(
                "%s cannot be closed: its event loop has not responded for %g s", connection.label, _STUCK
            )
        with self._lock:
            left, self._left = self._left, set()
        for handler in left:
            handler.cancel()
        return CloseReport(len(alive) - len(aborted), aborted)

    async def _until(self, true: Callable[[], bool], seconds: float | None) -> None:
        """Wait until this is true, or the time is over. The caller can tell which."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            call_on(loop, changed.set)  # If that loop is closed, nobody waits any more.

        with self._lock:
            self._watching.append(tell)
        try:
            async with asyncio.timeout(seconds):
                while not self._holds(true):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                self._watching.remove(tell)

    def _holds(self, true: Callable[[], bool]) -> bool:
        with self._lock:
            return true()
