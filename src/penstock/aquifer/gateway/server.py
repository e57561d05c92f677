"""The server: the one thread that touches the gateway's sockets.

It passes control messages to the :class:`~penstock.aquifer.protocol.session_table.SessionTable`, sends each
session the records that it has credit for, and never blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import zmq

from penstock.aquifer.errors import JournalError
from penstock.aquifer.gateway.listener import Listener
from penstock.aquifer.gateway.shared_memory import SharedSegments
from penstock.aquifer.limits import Limits
from penstock.aquifer.log.log import Log
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import Flag, header
from penstock.aquifer.protocol.messages import OnError, SegmentFields, encode
from penstock.aquifer.protocol.pieces import CutFrame
from penstock.aquifer.protocol.session import FAREWELLS, Event, Reply, Session, State, refusal
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records.batch import MSGPACK, Batch, in_format, joined, part, values_of
from penstock.aquifer.security.access import Caller
from penstock.waker import Waker

__all__ = ["Server"]

_log = logging.getLogger("penstock.aquifer")

_TURN: Final = 1 << 20
"""How many bytes a session may be sent before it is the next one's turn."""
_MESSAGES_A_TURN: Final = 256
_TICK: Final = 20
"""Milliseconds between looks at the clock."""
_LARGE: Final = 64 * 1024
"""Batches of as many bytes are put into the shared memory of a session that has one."""
_ACK: Final = int(Flag.ACK)
_SHARED: Final = int(Flag.SHARED)
_PIECE: Final = int(Flag.PIECE)
_CALL: Final = 0.5
"""Seconds between looks whether the server is still there to do what it was asked to."""
_SMALL: Final = 8 * 1024
"""Batches of fewer bytes are joined into one frame, for whoever is behind."""


T = TypeVar("T")


@dataclass
class _Port:
    """The data port of a plain subscriber, and who is connected to it."""

    socket: zmq.Socket[bytes]
    number: int
    joined: int = 0
    """Those that can be the subscriber."""
    strangers: int = 0
    """Those that cannot: they have another address, or another key."""


class Server:
    """Serves all sessions; also the :class:`~penstock.aquifer.protocol.session.DataPorts` of the table."""

    def __init__(
        self,
        log: Log,
        limits: Limits,
        listeners: list[Listener],
        make_table: Callable[[Server], SessionTable],
    ):
        self._log = log
        self._limits = limits
        self._listeners = listeners
        self._ports: dict[Session, _Port] = {}
        self._segments = SharedSegments(limits.shared_memory)
        self._joined: Counter[bytes] = Counter()
        """How many data connections there are for a topic."""
        self._waker = Waker()
        self._poller = zmq.Poller()
        self._poller.register(self._waker.fileno(), zmq.POLLIN)
        for listener in listeners:
            self._poller.register(listener.control, zmq.POLLIN)
            self._poller.register(listener.data, zmq.POLLIN)
        self.table = make_table(self)
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="penstock-gateway", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def wake(self) -> None:
        """The log has grown, or ended."""
        self._waker.wake()

    def call(self, function: Callable[[SessionTable], T]) -> T:
        """Do something with the session table on the thread of the server, which alone may touch it."""
        wanted: Future[T] = Future()
        self._calls.append(lambda: _settle(wanted, lambda: function(self.table)))
        self._waker.wake()
        while True:
            try:
                return wanted.result(_CALL)
            except TimeoutError:
                if not self._thread.is_alive():
                    raise RuntimeError("this gateway does not run") from None

    def stop(self) -> None:
        """Tell the extended subscribers, close the sockets and wait for the thread."""
        self._stopping = True
        self._waker.wake()
        self._thread.join()

    # ---------------------------------------------------------------- the data ports of the session table
    def open(self, session: Session) -> int:
        """The port of a session: the shared one, or for a plain peer one of its own."""
        listener = self._listeners[session.peer[0]]
        if isinstance(session, ExtendedSession):
            return listener.data_port
        if session not in self._ports:
            self._ports[session] = _Port(*listener.open_port())
            self._poller.register(self._ports[session].socket, zmq.POLLIN)
        return self._ports[session].number

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        """Memory to share with a session, if there is any."""
        return self._segments.lend(session, token)

    def close(self, session: Session, event: Event) -> None:
        """A session is over."""
        self._segments.take_back(session, time.monotonic())
        if isinstance(session, ExtendedSession):
            self._joined.pop(session.topic, None)
            farewell = FAREWELLS.get(event)
            if farewell is not None:
                self._send_error(session, farewell)
        elif session in self._ports:
            socket = self._ports.pop(session).socket
            self._poller.unregister(socket)
            socket.close()
        who = session.name or session.peer.hex()
        _log.debug("%s subscriber %s: %s", session.dialect, who, event.name.lower())

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        next_tick = 0.0
        try:
            ready: dict[Any, int] = {}
            while not self._stopping:
                if self._waker.fileno() in ready:
                    self._waker.drain()
                    while self._calls:
                        self._calls.popleft()()
                sent = self._serve()
                ready = dict(self._poller.poll(0 if sent else _TICK))
                for index, listener in enumerate(self._listeners):
                    if listener.control in ready:
                        self._hear(index, listener)
                    if listener.data in ready:
                        self._watch_topics(listener)
                for session, port in list(self._ports.items()):
                    if port.socket in ready:
                        self._watch_port(session, port)
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + _TICK / 1000
                    self._reply(self.table.tick(now))
                    self._beat(now)
                    self._segments.tick(now)
                self._log.set_low_watermark(self.table.low_watermark(), self.table.needed())
        except Exception:
            _log.exception("the gateway cannot serve any more: this is a defect")
        finally:
            self._close_all()

    def _close_all(self) -> None:
        for session in list(self.table.sessions.values()):
            if isinstance(session, ExtendedSession) and session.state is not State.ENDED:
                self._send_error(session, refusal("the gateway is closing", "CLOSING"))
        for port in self._ports.values():
            port.socket.close()
        for listener in self._listeners:
            listener.close()
        self._segments.close()
        self._waker.close()

    # ---------------------------------------------------------------- control
    def _hear(self, index: int, listener: Listener) -> None:
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
                self._reply(self._receive(parts, now, caller))
            except Exception:
                # The others must not suffer for it.
                self.table.counters["defects"] += 1
                _log.exception("a control message could not be dealt with: this is a defect")

    def _receive(self, parts: list[bytes], now: float, caller: Caller) -> list[Reply]:
        with self._log.moved:
            before = self.table.sessions.get(parts[0])
            replies = self.table.receive(parts, now, caller)
            if self.table.sessions.get(parts[0]) is not before:
                # At once: what a newcomer was promised must not be forgotten meanwhile.
                self._log.set_low_watermark(self.table.low_watermark(), self.table.needed())
        return replies

    def _reply(self, replies: list[Reply]) -> None:
        for (peer, *rest), message in replies:
            self._listeners[peer[0]].control.send_multipart([peer[1:], *rest, encode(message)])

    def _watch_topics(self, listener: Listener) -> None:
        socket = listener.data
        for change, topic, frame in _changes(socket):
            session = self.table.by_topic.get(topic)
            if session is None:
                continue
            if change is Event.JOINED and listener.caller(frame).owner != session.owner:
                continue  # It knows the topic of another; that is not enough.
            if change is Event.JOINED:
                socket.setsockopt(zmq.SUBSCRIBE, topic)
                self._joined[topic] += 1
            else:
                self._joined[topic] -= 1
            # Who comes back may be here before it is noticed that the old connection is gone.
            if self._joined[topic] == (change is Event.JOINED):
                session.handle(change, time.monotonic())

    def _watch_port(self, session: Session, port: _Port) -> None:
        listener, socket = self._listeners[session.peer[0]], port.socket
        for change, topic, frame in _changes(socket):
            if change is Event.LEFT:
                # It does not say who. If it was the subscriber, that one comes back, and is the second.
                if port.strangers:
                    port.strangers -= 1
                    continue
                port.joined -= 1
            elif not session.is_of(listener.caller(frame)):
                port.strangers += 1
                self.table.counters["strangers at a data port"] += 1
                continue
            elif port.joined and not session.owner:
                self.table.counters["contested data ports"] += 1
                self.table.end(session, Event.CONTESTED)
                return  # The socket is closed.
            else:
                socket.setsockopt(zmq.SUBSCRIBE, topic)
                port.joined += 1
            if port.joined == (change is Event.JOINED):
                self._reply(session.handle(change, time.monotonic()))

    # ---------------------------------------------------------------- data
    def _serve(self) -> bool:
        """Give every session its turn; whether anything was sent."""
        busy = False
        for session in list(self.table.sessions.values()):
            self._reply(session.tick(time.monotonic()))
            try:
                if isinstance(session, ExtendedSession):
                    busy |= self._serve_extended(session)
                else:
                    busy |= self._serve_plain(session)
            except JournalError as error:
                # One place of the journal cannot be read. Whoever is elsewhere does not notice.
                self._give_up(session, str(error))
            except zmq.ZMQError:
                raise  # It concerns everybody.
            except Exception as error:
                # Rows that cannot be shown in the format of this subscriber: the year 10000 as JSON, say.
                self._give_up(session, f"the records from {session.cursor} on cannot be sent: {error}")
        return busy

    def _give_up(self, session: Session, why: str) -> None:
        _log.error("%s", why)
        if isinstance(session, ExtendedSession):
            self._send_error(session, refusal(why, "JOURNAL"))
        self.table.give_up(session)

    def _serve_extended(self, session: ExtendedSession) -> bool:
        budget = _TURN
        socket = self._listeners[session.peer[0]].data
        send = super(zmq.Socket, socket).send  # Past pyzmq's outer layer, which costs as much as the sending.
        while budget > 0 and session.line_has_room():
            if session.cut is not None:
                budget -= self._send_piece(session, session.cut)
                continue
            allowed = session.credit()
            if not allowed:
                break
            if session.overtaken:
                self._send_gap(session)
                continue
            room = session.credit_bytes()
            if room <= 0:
                break
            batch = self._next_batch(session, min(allowed, self._limits.max_frame_records), room)
            if batch is None:
                break
            if session.cut_up(batch):
                continue
            nbytes = batch.nbytes
            flags = _ACK if session.wants_acknowledgement(batch.count, nbytes) else 0
            place = None
            if session.segment_use is not None and nbytes >= _LARGE:
                place = self._segments.put(session, batch.payload, session.segment_use)
            send(session.topic, zmq.SNDMORE)
            if place is None:
                send(header(flags, batch.first, batch.count), zmq.SNDMORE)
                socket.send(batch.payload, zmq.SNDMORE, copy=False)
            else:
                send(header(flags | _SHARED, batch.first, batch.count), zmq.SNDMORE)
                send(place, zmq.SNDMORE)
            send(batch.metadata)
            session.sent(batch.count, nbytes)
            session.spoke = time.monotonic()
            if flags:
                session.asked(session.spoke)
            budget -= nbytes
        if session.exhausted:
            if session.failed:
                self._send_error(session, refusal(self._log.failure or "", "SOURCE"))
            else:
                self._send(session, Flag.END, session.cursor)
            session.ended()
        return budget < _TURN

    def _send_piece(self, session: ExtendedSession, cut: CutFrame) -> int:
        """Send the next piece of a frame, and return how many bytes that were."""
        socket = self._listeners[session.peer[0]].data
        data, place, last = cut.piece(session.pace.message if session.pace is not None else _TURN)
        count = cut.count if last else 0
        flags = _PIECE
        if session.wants_acknowledgement(count, len(data)):
            flags |= _ACK
        socket.send(session.topic, zmq.SNDMORE)
        socket.send(header(flags, cut.first, cut.count), zmq.SNDMORE)
        socket.send(data, zmq.SNDMORE, copy=False)
        socket.send(place)
        if last:
            session.cut = None
        session.sent(count, len(data))
        session.spoke = time.monotonic()
        if flags & _ACK:
            session.asked(session.spoke)
        return len(data)

    def _next_batch(self, session: ExtendedSession, allowed: int, room: int) -> Batch | None:
        """What to send next: a batch of the log if possible as it is, a part of one, or several as one."""
        batch = self._log.find(session.cursor)
        if batch is None:
            return None
        if 0 < session.begun <= min(allowed, batch.end - session.cursor):
            return in_format(part(batch, session.cursor, session.cursor + session.begun), session.format)
        fit = batch.count
        if session.pace is not None and session.pace.slow and batch.format == session.format == MSGPACK:
            # To cut it by records is more work than to cut it by bytes, but its first records arrive sooner.
            room = min(room, session.pace.message)
            fit = max(1, batch.count * room // batch.nbytes)
        if batch.nbytes < _SMALL and batch.format == MSGPACK:
            batch = self._with_following(batch, session.cursor, allowed, room)
            fit = max(fit, batch.count)
        whole = min(batch.end, session.stop, session.cursor + self._limits.max_frame_records) - session.cursor
        whole = min(whole, fit)
        count = min(whole, allowed)
        if batch.nbytes > room:
            count = min(count, max(1, batch.count * room // batch.nbytes))
        if count < whole:
            nbytes = batch.nbytes * whole // batch.count
            if session.better_whole(whole, nbytes, time.monotonic()):
                return None
        return in_format(part(batch, session.cursor, session.cursor + count), session.format)

    def _with_following(self, batch: Batch, start: int, allowed: int, room: int) -> Batch:
        batches, nbytes, end = [batch], batch.nbytes, start + allowed
        while batches[-1].end < end and nbytes < 8 * _SMALL and nbytes < room:
            following = self._log.find(batches[-1].end)
            if following is None or following.nbytes >= _SMALL or following.format != MSGPACK:
                break
            batches.append(following)
            nbytes += following.nbytes
        return joined(batches)

    def _serve_plain(self, session: Session) -> bool:
        budget = _TURN
        allowed = session.credit()
        while budget > 0 and allowed:
            batch = None if session.overtaken else self._log.find(session.cursor)
            if batch is None:
                break
            start = session.cursor - batch.first
            values = values_of(batch)[start : start + allowed]
            send = super(zmq.Socket, self._ports[session].socket).send
            for value in values:
                send(value)
            nbytes = batch.nbytes * len(values) // batch.count
            session.sent(len(values), nbytes)
            budget -= nbytes
            allowed = session.credit()
        return budget < _TURN

    # ---------------------------------------------------------------- frames without records
    def _send(self, session: ExtendedSession, flag: Flag, first: int, payload: bytes = b"") -> None:
        self._listeners[session.peer[0]].data.send_multipart([session.topic, header(flag, first, 0), payload])
        session.spoke = time.monotonic()

    def _send_error(self, session: ExtendedSession, error: OnError) -> None:
        self._send(session, Flag.ERR, session.cursor, encode(error))

    def _send_gap(self, session: ExtendedSession) -> None:
        missed, first = session.cursor, self._log.first
        self.table.counters["overtaken"] += 1
        session.skip_to(first)
        self._send(session, Flag.GAP, first, missed.to_bytes(8, "big"))

    def _beat(self, now: float) -> None:
        for session in self.table.by_topic.values():
            if now - session.spoke >= self._limits.heartbeat and session.state is State.STREAMING:
                self._send(session, Flag.HB, session.cursor, self._log.head.to_bytes(8, "big"))


def _settle(wanted: Future[T], function: Callable[[], T]) -> None:
    try:
        wanted.set_result(function())
    except Exception as error:
        wanted.set_exception(error)


def _changes(socket: zmq.Socket[bytes]) -> Iterator[tuple[Event, bytes, zmq.Frame]]:
    """Who has come and gone on a data socket, by topic; one by one, as each has to be let in at once."""
    for _ in range(_MESSAGES_A_TURN):
        try:
            frame = socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        message = frame.bytes
        if message[:1] in (b"\0", b"\1"):
            yield Event.JOINED if message[0] else Event.LEFT, message[1:], frame
