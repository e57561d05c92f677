"""The data sockets of a gateway: one for the extended subscribers of an endpoint, one for each plain one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import zmq

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.gateway.listener import GatewayListener
from penstock.aquifer.gateway.shared_memory import SharedSegments
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import Flag, Frame, header
from penstock.aquifer.protocol.messages import SegmentFields
from penstock.aquifer.protocol.session import FAREWELLS, Session, SessionEvent, SessionState, refusal

__all__ = ["SocketPorts"]

_log = logging.getLogger("penstock.aquifer")

_CHANGES_A_TURN: Final = 256
_LARGE: Final = 64 * 1024
"""Payloads of at least this many bytes go into the shared memory of a session that has some."""
_SHARED: Final = int(Flag.SHARED)
_PIECE: Final = int(Flag.PIECE)


class _PlainPort(NamedTuple):
    """The data port of a plain subscriber."""

    socket: zmq.Socket[bytes]
    number: int


class SocketPorts:
    """The :class:`~penstock.aquifer.protocol.session.DataPorts` of a gateway; used by its server's thread."""

    def __init__(self, listeners: Sequence[GatewayListener], limits: Limits, poller: zmq.Poller) -> None:
        self._listeners = listeners
        self._poller = poller
        self._plain: dict[Session, _PlainPort] = {}
        self._segments = SharedSegments(limits.shared_memory)
        for listener in listeners:
            poller.register(listener.data, zmq.POLLIN)

    # ---------------------------------------------------------------- for the protocol
    def open(self, session: Session) -> int:
        """The port of a session: the shared one, or for a plain peer one of its own."""
        listener = self._listeners[session.peer[0]]
        if isinstance(session, ExtendedSession):
            return listener.data_port
        if session not in self._plain:
            self._plain[session] = port = _PlainPort(*listener.open_port())
            self._poller.register(port.socket, zmq.POLLIN)
        return self._plain[session].number

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        """Memory to share with a session, if there is any."""
        return self._segments.lend(session, token)

    def close(self, session: Session, event: SessionEvent) -> None:
        """A session is over."""
        now = time.monotonic()
        self._segments.take_back(session, now)
        if isinstance(session, ExtendedSession):
            farewell = FAREWELLS.get(event)
            if farewell is not None:
                self.send(session, session.error_frame(farewell, now))
        elif (port := self._plain.pop(session, None)) is not None:
            self._poller.unregister(port.socket)
            port.socket.close()
        who = session.name or session.peer.hex()
        about = {"subscriber": who, "dialect": session.dialect, "event": event.name.lower()}
        _log.debug("%s subscriber %s: %s", session.dialect, who, event.name.lower(), extra=about)

    # ---------------------------------------------------------------- for the server
    def send(self, session: ExtendedSession, frame: Frame) -> None:
        """Send a frame, its payload through shared memory if that is possible and worth it."""
        socket = self._listeners[session.peer[0]].data
        send = super(zmq.Socket, socket).send  # Past pyzmq's outer layer, which costs as much as the sending.
        flags, payload, metadata = frame.flags, frame.payload, frame.metadata
        if session.segment_use is not None and frame.nbytes >= _LARGE and not flags & _PIECE:
            position = self._segments.put(session, payload, session.segment_use, frame.more)
            if position is not None:
                flags, payload = flags | _SHARED, position
        if frame.more and not flags & _SHARED:
            payload = b"".join([payload, *frame.more])
        send(session.topic, zmq.SNDMORE)
        send(header(flags, frame.first, frame.count), zmq.SNDMORE)
        if not metadata:
            send(payload)
            return
        if flags & _SHARED:
            send(payload, zmq.SNDMORE)
        else:
            socket.send(payload, zmq.SNDMORE, copy=False)
        send(metadata)

    def send_values(self, session: Session, values: list[bytes]) -> None:
        """Send records to a plain subscriber, each as a message."""
        send = super(zmq.Socket, self._plain[session].socket).send
        for value in values:
            send(value)

    def watch(
        self, ready: dict[object, int], session_with: Callable[[bytes], ExtendedSession | None]
    ) -> Iterator[tuple[Session, zmq.Frame | None]]:
        """Data connections that have come (with a message of theirs) and gone (None), one by one.

        If the connection may have the records, :meth:`admit` has to be called before the next one.
        """
        for listener in self._listeners:
            if listener.data in ready:
                for joined, topic, frame in _changes(listener.data):
                    session = session_with(topic)
                    if session is not None:
                        self._admitted = listener.data, topic
                        yield session, frame if joined else None
        for plain, port in list(self._plain.items()):
            if port.socket in ready:
                for joined, topic, frame in _changes(port.socket):
                    self._admitted = port.socket, topic
                    yield plain, frame if joined else None
                    if plain not in self._plain:
                        break  # The session is over, and its socket closed.

    def admit(self) -> None:
        """The connection that has come last may have the records of its topic."""
        socket, topic = self._admitted
        socket.setsockopt(zmq.SUBSCRIBE, topic)

    def tick(self, now: float) -> None:
        """Free shared memory whose reader has not come back."""
        self._segments.tick(now)

    def close_all(self, sessions: Sequence[Session]) -> None:
        """The gateway is closing: tell the extended subscribers, and close the sockets."""
        closing = refusal("the gateway is closing", ErrorCode.CLOSING)
        for session in sessions:
            if isinstance(session, ExtendedSession) and session.state is not SessionState.ENDED:
                self.send(session, session.error_frame(closing, time.monotonic()))
        for port in self._plain.values():
            port.socket.close()
        for listener in self._listeners:
            listener.close()
        self._segments.close()


def _changes(socket: zmq.Socket[bytes]) -> Iterator[tuple[bool, bytes, zmq.Frame]]:
    """The connections (True) and disconnections on a data socket, by topic, one at a time."""
    for _ in range(_CHANGES_A_TURN):
        try:
            frame = socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        message = frame.bytes
        if message[:1] in (b"\0", b"\1"):
            yield bool(message[0]), message[1:], frame
