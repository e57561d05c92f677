"""The server: the one thread that uses the gateway's sockets and its session tables.

It passes control messages to the :class:`~penstock.aquifer.protocol.session_table.SessionTable` of their
stream, sends each session the records that it has credit for, and never blocks.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import zmq

from penstock.aquifer.errors import ErrorCode, JournalError, JournalUnavailable
from penstock.aquifer.gateway.listener import GatewayListener
from penstock.aquifer.gateway.socket_ports import SocketPorts
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import encode
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import Reply, Session, refusal
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.protocol.stream_directory import StreamDirectory
from penstock.aquifer.security import Caller
from penstock.waker import Waker

__all__ = ["Server"]

_log = logging.getLogger("penstock.aquifer")

_TURN: Final = 1 << 20
"""How many bytes a session may be sent before it is the next one's turn."""
_MESSAGES_A_TURN: Final = 256
_TICK: Final = 0.02
"""Seconds between looks at the clock, and at all sessions, while records flow."""
_IDLE_TICK: Final = 0.2
"""The same once nothing has happened for a while but that subscribers say they are there. A look costs a few
microseconds for each session. A message still has its own session served at once, and a new record all."""
_QUIET_TICKS: Final = 25
"""After so many ticks of that kind, the thread sleeps longer."""
_CALL: Final = 0.5
"""Seconds between checks whether the thread is still there to do what it was asked to."""

T = TypeVar("T")


class Server:
    """Serves all sessions, on a thread of its own."""

    def __init__(
        self,
        streams: StreamDirectory,
        listeners: Sequence[GatewayListener],
        ports: SocketPorts,
        poller: zmq.Poller,
    ) -> None:
        self.streams = streams
        """Used by the thread of the server only; others go through :meth:`call`."""
        self._listeners = listeners
        self._ports = ports
        self._poller = poller
        self._waker = Waker()
        self._looked_at = Waker()
        for table in streams.tables:
            table.log.wake_on_growth(self._waker)
        for waker in (self._waker, self._looked_at):
            poller.register(waker.fileno(), zmq.POLLIN)
        for listener in listeners:
            poller.register(listener.control, zmq.POLLIN)
        self._calls: deque[Callable[[], None]] = deque()
        self._looks: deque[Callable[[], None]] = deque()
        self._heard: set[bytes] = set()
        """The peers that have said something since their sessions had a turn."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="penstock-gateway", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread look for work."""
        self._waker.wake()

    def revoke(self) -> None:
        """End what the access list does not allow any more; when this returns, that has been done."""

        def end(streams: StreamDirectory) -> None:
            if not self._stopping:
                for table in streams.tables:
                    self._reply(table.revoke())

        self.call(end)

    def call(self, function: Callable[[StreamDirectory], T]) -> T:
        """Use the session tables on the thread of the server; on this one, once the server has stopped."""
        return self._on_its_thread(function, self._calls, self._waker)

    def look(self, function: Callable[[StreamDirectory], T]) -> T:
        """:meth:`call` a function that changes nothing: for that alone, no session gets a turn.

        With 500 sessions, a turn of each takes longer than a look at them.
        """
        return self._on_its_thread(function, self._looks, self._looked_at)

    def _on_its_thread(
        self, function: Callable[[StreamDirectory], T], calls: deque[Callable[[], None]], waker: Waker
    ) -> T:
        if threading.current_thread() is self._thread:
            return function(self.streams)
        wanted: Future[T] = Future()
        calls.append(lambda: _settle(wanted, lambda: function(self.streams)))
        waker.wake()
        while True:
            if not self._thread.is_alive():
                _do(calls)
            try:
                return wanted.result(_CALL)
            except TimeoutError:
                if wanted.done():
                    raise

    def stop(self) -> None:
        """Tell the extended subscribers, close the sockets and wait for the thread."""
        self._stopping = True
        self._waker.wake()
        self._thread.join()

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        next_tick = 0.0
        quiet = 0
        everybody = True
        try:
            ready: dict[Any, int] = {}
            while not self._stopping:
                if self._waker.fileno() in ready:
                    self._waker.drain()
                    if self._stopping:
                        break  # What woke the thread was perhaps stop(), after the look above.
                    _do(self._calls)
                    everybody = True
                    # The log has grown: a commit is done, or a probe has waited for that.
                    for table in self.streams.tables:
                        self._reply(table.answers(time.monotonic()))
                sent = self._serve_all(everybody)
                self._heard.clear()
                wait = 0.0 if sent else max(0.0, next_tick - time.monotonic())
                ready = dict(self._poller.poll(math.ceil(wait * 1000)))
                if ready.pop(self._looked_at.fileno(), 0):
                    self._looked_at.drain()
                    _do(self._looks)
                for index, listener in enumerate(self._listeners):
                    if listener.control in ready:
                        self._hear(index, listener)
                if ready:
                    self._watch(ready)
                now = time.monotonic()
                if sent or self._waker.fileno() in ready or self._strangers():
                    quiet, next_tick = 0, min(next_tick, now + _TICK)
                everybody = sent or now >= next_tick
                if now >= next_tick:
                    quiet += 1
                    next_tick = now + (_TICK if quiet < _QUIET_TICKS else _IDLE_TICK)
                    self._tick(now)
                if everybody or ready:
                    for table in self.streams.tables:
                        table.tell_log_what_is_needed()
        except Exception:
            _log.exception("the gateway cannot serve any more: this is a defect")
        finally:
            self._ports.close_all(self.streams.sessions())
            self._waker.close()
            self._looked_at.close()

    def _tick(self, now: float) -> None:
        for table in self.streams.tables:
            self._reply(table.tick(now))
            for session in table.by_topic.values():
                if (frame := session.heartbeat(now)) is not None:
                    self._ports.send(session, frame)
        self._ports.tick(now)

    # ---------------------------------------------------------------- control
    def _hear(self, index: int, listener: GatewayListener) -> None:
        now = time.monotonic()
        for _ in range(_MESSAGES_A_TURN):
            try:
                frames = listener.control.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            caller = listener.caller(frames[0])
            # Two endpoints may give the same routing id to different peers.
            parts = [bytes([index]) + frames[0].bytes, *(frame.bytes for frame in frames[1:])]
            try:
                self._heard.add(parts[0])
                self._reply(self._receive(parts, now, caller))
            except Exception:
                # The other subscribers must not suffer for it.
                self.streams.default.counters["defects"] += 1
                _log.exception("a control message could not be dealt with: this is a defect")

    def _receive(self, parts: list[bytes], now: float, caller: Caller) -> list[Reply]:
        table = self.streams.table_for(parts)
        with table.log.keeping_everything():
            before = table.sessions.get(parts[0])
            replies = table.receive(parts, now, caller)
            if table.sessions.get(parts[0]) is not before:
                # At once: what a new subscriber was promised must not be forgotten meanwhile.
                table.tell_log_what_is_needed()
        return replies

    def _reply(self, replies: list[Reply]) -> None:
        for (peer, *rest), message in replies:
            self._listeners[peer[0]].control.send_multipart([peer[1:], *rest, encode(message)])

    def _watch(self, ready: dict[object, int]) -> None:
        """Tell the session table which peers have connected to the data ports, and which have left."""
        for session, message in self._ports.watch(ready, self.streams.session_with_topic):
            self._heard.add(session.peer)
            table = self.streams.table_of(session)
            now = time.monotonic()
            if message is None:
                self._reply(table.disconnected(session, now))
                continue
            caller = self._listeners[session.peer[0]].caller(message)
            admitted, replies = table.connected(session, caller, now)
            if admitted:
                self._ports.admit()
            self._reply(replies)

    # ---------------------------------------------------------------- data
    def _heard_of(self, table: SessionTable) -> list[Session]:
        """The sessions whose subscribers have just said something."""
        return [session for peer in self._heard if (session := table.sessions.get(peer)) is not None]

    def _strangers(self) -> bool:
        """Whether somebody without a session has said something: a probe, or a program that writes."""
        return any(not self.streams.knows(peer) for peer in self._heard)

    def _serve_all(self, everybody: bool) -> bool:
        """Give the sessions of all streams their turn, or those that were heard of."""
        busy = False
        for table in self.streams.tables:
            busy |= self._serve(table, table.registry.all() if everybody else self._heard_of(table))
        return busy

    def _serve(self, table: SessionTable, sessions: Iterable[Session]) -> bool:
        """Give each of these sessions its turn; whether anything was sent."""
        busy = False
        for session in sessions:
            self._reply(session.tick(time.monotonic()))
            try:
                if isinstance(session, ExtendedSession):
                    busy |= self._serve_extended(table, session)
                elif isinstance(session, PlainSession):
                    busy |= self._serve_plain(session)
            except JournalUnavailable:
                continue  # It gets its records when the journal can be read again.
            except JournalError as error:
                # One part of the journal cannot be read. Subscribers that are elsewhere do not notice.
                self._fail(table, session, str(error))
            except zmq.ZMQError:
                raise  # It concerns everybody.
            except Exception as error:
                # Rows that cannot be shown in the format of this subscriber: the year 10000 as JSON, say.
                self._fail(table, session, f"the records from {session.cursor} on cannot be sent: {error}")
        return busy

    def _fail(self, table: SessionTable, session: Session, why: str) -> None:
        _log.error("%s", why)
        if isinstance(session, ExtendedSession):
            error = refusal(why, ErrorCode.JOURNAL)
            self._ports.send(session, session.error_frame(error, time.monotonic()))
        table.fail(session)

    def _serve_extended(self, table: SessionTable, session: ExtendedSession) -> bool:
        budget, chooser, busy = _TURN, session.filter, False
        while budget > 0:
            searched, before = 0 if chooser is None else chooser.looked_at, session.sent_bytes
            frame = table.next_frame(session, time.monotonic())
            if frame is None:
                break
            self._ports.send(session, frame)
            if frame.count:
                busy = True
                # To search the log takes time as well, also if nothing is found.
                budget -= session.sent_bytes - before
                budget -= 0 if chooser is None else chooser.looked_at - searched
        return busy

    def _serve_plain(self, session: PlainSession) -> bool:
        before = session.sent_bytes
        while session.sent_bytes - before < _TURN and (values := session.next_values()):
            self._ports.send_values(session, values)
        return session.sent_bytes > before


def _do(calls: deque[Callable[[], None]]) -> None:
    while calls:
        try:
            call = calls.popleft()
        except IndexError:  # Two callers of a server that has stopped.
            return
        call()


def _settle(wanted: Future[T], function: Callable[[], T]) -> None:
    try:
        wanted.set_result(function())
    except BaseException as error:  # Whoever asked waits for an answer.
        wanted.set_exception(error)
