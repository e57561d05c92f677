"""The sockets of a subscriber: a DEALER for control, a SUB for data, and what is known of their connections.

A DEALER that sends an empty part before each message looks like a REQ to a REP or a ROUTER, but is not stuck
for ever when an answer is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeGuard

import zmq

from penstock.aquifer.bell import Bell
from penstock.aquifer.endpoints import Endpoint
from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.security import CurveClient
from penstock.aquifer.subscriber.line import Line, Moved

__all__ = ["Channel"]

_LINGER: Final = 500
"""Milliseconds that a goodbye may take."""
_FRAMES_A_TURN: Final = 8
"""Few, so that what was copied here is still in the processor's cache when it is unpacked."""
_RECORDS_A_TURN: Final = 4096
_INCOMING: Final = int(zmq.POLLIN)
_LARGE: Final = 64 * 1024
"""Bytes of a part from which on it is cheaper to look at it where it is than to copy it."""


class Channel:
    """The connections of one subscription; used by one thread, except :meth:`wake`."""

    def __init__(self, endpoint: Endpoint, curve: CurveClient | None, *, views: bool = False) -> None:
        self._endpoint = endpoint
        self._curve = curve
        self._views = views
        """Whether large payloads are left where ØMQ has put them: for whom does not keep them for long."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._bell = Bell()
        self._control: zmq.Socket[bytes] | None = None
        self._control_line: Line | None = None
        self._data: zmq.Socket[bytes] | None = None
        self._data_line: Line | None = None

    # ---------------------------------------------------------------- connections
    def connect(self, *, keep_data: bool) -> None:
        """A new control connection; the old one, and unless kept the data connection, are closed."""
        self._close(self._control, self._control_line)
        if not keep_data:
            self._close(self._data, self._data_line)
            self._data = self._data_line = None
        self._control = self._context.socket(zmq.DEALER)
        self._control_line = Line(self._control)
        self._open(self._control, self._endpoint)

    def join(self, port: int, topic: bytes) -> None:
        """The data connection, to a port of the same host."""
        if not 0 < port < 65536:
            raise ProtocolViolation(f"the gateway at {self._endpoint} names {port} as its data port")
        self._close(self._data, self._data_line)
        self._data = self._context.socket(zmq.SUB)
        # Credit bounds what can come; a bound here would make the gateway drop records.
        self._data.setsockopt(zmq.RCVHWM, 0)
        self._data.setsockopt(zmq.SUBSCRIBE, topic)
        self._data_line = Line(self._data)
        self._open(self._data, Endpoint(self._endpoint.host, port))

    def close(self) -> None:
        """Close everything; what was said last still gets a moment to leave."""
        self._close(self._control, self._control_line, _LINGER)
        self._close(self._data, self._data_line)
        self._control = self._data = self._control_line = self._data_line = None
        self._context.term()
        self._bell.close()

    def _open(self, socket: zmq.Socket[bytes], endpoint: Endpoint) -> None:
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        if ":" in endpoint.host:
            socket.setsockopt(zmq.IPV6, 1)
        if self._curve is not None:
            self._curve.secure(socket)
        socket.connect(str(endpoint))

    @staticmethod
    def _close(socket: zmq.Socket[bytes] | None, line: Line | None, linger: int = 0) -> None:
        if line is not None:
            line.close()
        if socket is not None:
            socket.close(linger)

    # ---------------------------------------------------------------- talking
    def say(self, message: bytes | memoryview, *attached: bytes | memoryview) -> None:
        """Send a control message."""
        if self._control is None:
            return
        try:
            self._control.send_multipart([b"", message, *attached], zmq.NOBLOCK)
        except zmq.Again:
            # No connection, not even one that is being made: the gateway turned us away. Whoever waits for
            # an answer will see to it.
            return

    def wake(self) -> None:
        """Make :meth:`wait` return; from any thread."""
        self._bell.ring()

    def wait(self, seconds: float) -> None:
        """Until something comes in, or somebody calls :meth:`wake`, or the time is over."""
        poller = zmq.Poller()
        poller.register(self._bell.fileno(), zmq.POLLIN)
        for socket, line in ((self._control, self._control_line), (self._data, self._data_line)):
            if socket is not None and line is not None:
                poller.register(socket, zmq.POLLIN)
                poller.register(line.monitor, zmq.POLLIN)
        poller.poll(max(0, int(seconds * 1000 + 0.999)))
        self._bell.hush()

    def control_messages(self) -> list[bytes]:
        """The control messages that have come."""
        return [parts[-1] for parts in _all(self._control, 256)]

    def frames(self) -> Sequence[Sequence[bytes | memoryview]]:
        """The data frames that have come (extended dialect)."""
        return _viewed(self._data, _FRAMES_A_TURN) if self._views else _all(self._data, _FRAMES_A_TURN)

    def records(self) -> list[bytes]:
        """The records that have come (plain dialect: one part each)."""
        socket, records = self._data, []
        if socket is None:
            return []
        receive = socket.recv
        try:
            for _ in range(_RECORDS_A_TURN):
                records.append(receive(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return records

    def control_news(self) -> list[int]:
        """What became of the control connection since the last time this was asked: events of ØMQ."""
        return [] if self._control_line is None else self._control_line.news()

    def data_news(self) -> list[int]:
        """The same for the data connection."""
        return [] if self._data_line is None else self._data_line.news()

    def control_moved(self) -> Moved:
        """How many bytes have moved on the control connection."""
        return Moved(0, 0) if self._control_line is None else self._control_line.moved()

    def data_moved(self) -> Moved:
        """The same for the data connection."""
        return Moved(0, 0) if self._data_line is None else self._data_line.moved()


def _all(socket: zmq.Socket[bytes] | None, most: int) -> list[list[bytes]]:
    messages: list[list[bytes]] = []
    while len(messages) < most and _has_come(socket):
        messages.append(socket.recv_multipart(zmq.NOBLOCK))
    return messages


def _viewed(socket: zmq.Socket[bytes] | None, most: int) -> list[list[bytes | memoryview]]:
    messages: list[list[bytes | memoryview]] = []
    while len(messages) < most and _has_come(socket):
        parts = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        messages.append([part.buffer if len(part) >= _LARGE else part.bytes for part in parts])
    return messages


def _has_come(socket: zmq.Socket[bytes] | None) -> TypeGuard[zmq.Socket[bytes]]:
    """Whether there is a message to be had: to ask takes a third of what `zmq.Again` does."""
    return socket is not None and bool(int(socket.getsockopt(zmq.EVENTS)) & _INCOMING)
