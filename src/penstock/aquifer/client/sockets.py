"""The sockets of a client: a DEALER for control, a SUB for data, and what is known about their connections.

A DEALER that sends an empty part before each message looks like a REQ to a REP or a ROUTER, but it does not
get stuck when an answer is lost.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeGuard

import zmq
from zmq.utils.monitor import parse_monitor_message

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint
from penstock.waker import Waker

__all__ = ["BytesMoved", "GatewaySockets"]

_HANDSHAKE: Final = 20_000
"""Milliseconds until a connection that was accepted, and is silent, is given up for another one. A proxy may
accept it and have nobody behind it. ØMQ would wait for 30 seconds, which is all of the usual patience. With
keys, a connection needs about five round trips, so each may take four seconds."""
_LINGER: Final = 500
"""Milliseconds for the last message to leave when the sockets are closed."""
_FRAMES_A_TURN: Final = 8
"""Few, so that the frames are still in the processor's cache when they are unpacked."""
_RECORDS_A_TURN: Final = 4096
_INCOMING: Final = int(zmq.POLLIN)
_LARGE: Final = 64 * 1024
"""Bytes from which on a view of a message part is cheaper than a copy."""
_EVENTS: Final = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)
_COUNTS: Final = Struct("=QQ")
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in Linux's ``struct tcp_info``."""
_COUNTS_AT: Final = 120
"""The position of these counts in the struct."""


class BytesMoved(NamedTuple):
    """Bytes that have moved since the handshake of the present connection."""

    sent: int
    """Bytes that the peer's system has confirmed."""
    received: int
    """Bytes that have arrived, whether their message is complete or not."""


class GatewaySockets:
    """The connections of one client to one gateway; for one thread, except :meth:`wake`."""

    def __init__(
        self,
        endpoint: Endpoint,
        curve: CurveClient | None,
        *,
        views: bool = False,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._curve = curve
        self._views = views
        """Whether large payloads stay in ØMQ's memory. That saves a copy for readers that drop them soon."""
        self._owns_context = context is None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context() if context is None else context
        self._waker = Waker()
        self._control: _Monitored | None = None
        self._data: _Monitored | None = None
        self._poller: zmq.Poller | None = None
        """Of the present connections; None if they have changed."""
        self._process = os.getpid()

    @property
    def is_of_parent(self) -> bool:
        """Whether a fork has led to this process since: ØMQ's sockets cannot be used in another."""
        return self._process != os.getpid()

    # ---------------------------------------------------------------- connections
    def connect(self, *, keep_data: bool = False) -> None:
        """Open a new control connection in place of the old one; close the data connection unless kept."""
        self._drop_control()
        if not keep_data:
            self._drop_data()
        self._control = self._open(self._context.socket(zmq.DEALER), self._endpoint)

    def connect_data(self, port: int, topic: bytes) -> None:
        """Open a data connection to a port of the same host."""
        if not 0 < port < 65536:
            raise ProtocolViolation(f"the gateway at {self._endpoint} names {port} as its data port")
        self._drop_data()
        data = self._context.socket(zmq.SUB)
        # Credit bounds what can arrive; a bound here would make the gateway drop records.
        data.setsockopt(zmq.RCVHWM, 0)
        data.setsockopt(zmq.SUBSCRIBE, topic)
        self._data = self._open(data, Endpoint(self._endpoint.host, port))

    def close(self) -> None:
        """Close everything; the last control message still gets a moment to leave. A child closes nothing."""
        if self.is_of_parent:
            return
        self._drop_control(_LINGER)
        self._drop_data()
        if self._owns_context:
            self._context.term()
        self._waker.close()

    def _open(self, opened: zmq.Socket[bytes], endpoint: Endpoint) -> _Monitored:
        monitored = _Monitored(opened)
        opened.setsockopt(zmq.SNDHWM, 0)
        opened.setsockopt(zmq.LINGER, 0)
        opened.setsockopt(zmq.RECONNECT_IVL, 50)
        opened.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        opened.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
        if endpoint.is_ipv6:
            opened.setsockopt(zmq.IPV6, 1)
        if self._curve is not None:
            self._curve.secure(opened)
        opened.connect(endpoint.address)
        self._poller = None
        return monitored

    def _drop_control(self, linger: int = 0) -> None:
        if self._control is not None:
            self._control.close(linger)
            self._control = self._poller = None

    def _drop_data(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = self._poller = None

    # ---------------------------------------------------------------- messages
    def send(
        self, message: bytes | memoryview, *attached: bytes | memoryview, number: bytes | None = None
    ) -> None:
        """Send a control message; a gateway puts the ``number`` before its answer, as for a REQ_CORRELATE."""
        if self._control is None:
            return
        envelope = [b""] if number is None else [number, b""]
        try:
            self._control.socket.send_multipart([*envelope, message, *attached], zmq.NOBLOCK)
        except zmq.Again:
            # There is no connection, not even one in the making: the gateway rejected our key. The code that
            # waits for the answer notices that.
            return

    def wake(self) -> None:
        """Make :meth:`wait` return; may be called from any thread."""
        self._waker.wake()

    def wait(self, seconds: float) -> bool:
        """Wait until something arrives, or another thread calls :meth:`wake`, or the time is over.

        Returns whether something has arrived: a message, or an event of a connection.
        """
        poller, waker = self._poller, self._waker.fileno()
        if poller is None:
            poller = self._poller = zmq.Poller()
            poller.register(waker, zmq.POLLIN)
            for monitored in (self._control, self._data):
                if monitored is not None:
                    poller.register(monitored.socket, zmq.POLLIN)
                    poller.register(monitored.monitor, zmq.POLLIN)
        ready = [which for which, _ in poller.poll(max(0, int(seconds * 1000 + 0.999)))]
        if waker not in ready:
            return bool(ready)
        self._waker.drain()
        return len(ready) > 1

    def control_messages(self) -> list[bytes]:
        """The control messages that have arrived."""
        return [parts[-1] for parts in _all(self._control, 256)]

    def answers(self) -> list[tuple[bytes, bytes]]:
        """The control messages that have arrived, each with the number before it, which may be empty."""
        return [(parts[0] if len(parts) > 1 else b"", parts[-1]) for parts in _all(self._control, 256)]

    def frames(self) -> Sequence[Sequence[bytes | memoryview]]:
        """The data frames that have arrived (extended dialect)."""
        return _viewed(self._data, _FRAMES_A_TURN) if self._views else _all(self._data, _FRAMES_A_TURN)

    def records(self) -> list[bytes]:
        """The records that have arrived (plain dialect: one part each)."""
        if self._data is None:
            return []
        records: list[bytes] = []
        receive = self._data.socket.recv
        try:
            for _ in range(_RECORDS_A_TURN):
                records.append(receive(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return records

    def discard(self) -> None:
        """Read what has arrived, and drop it."""
        for monitored in (self._control, self._data):
            if monitored is not None:
                monitored.events()
                _all(monitored, _FRAMES_A_TURN)

    # ---------------------------------------------------------------- the state of the connections
    def control_events(self) -> list[int]:
        """The events of the control connection since the last call, as ØMQ numbers them."""
        return [] if self._control is None else self._control.events()

    def data_events(self) -> list[int]:
        """The events of the data connection since the last call."""
        return [] if self._data is None else self._data.events()

    def control_bytes(self) -> BytesMoved:
        """How many bytes have moved over the control connection."""
        return BytesMoved(0, 0) if self._control is None else self._control.moved()

    def data_bytes(self) -> BytesMoved:
        """How many bytes have moved over the data connection."""
        return BytesMoved(0, 0) if self._data is None else self._data.moved()


class _Monitored:
    """A socket, whether its connection is up, and how many bytes have moved over it.

    ØMQ shows a message when it is complete. A large one takes long on a slow line, and until it is complete
    the line looks dead. The operating system counts bytes as they arrive and as they are confirmed, which
    tells a slow line from a dead one. Where it does not (it does on Linux), both counts stay 0, and only
    complete messages are a sign of life.
    """

    def __init__(self, watched: zmq.Socket[bytes]) -> None:
        self.socket = watched
        self.monitor: zmq.Socket[bytes] = watched.get_monitor_socket(_EVENTS)
        """Readable when there is an event."""
        self._file: int | None = None
        """ØMQ's file descriptor. It is only asked for its counts, and never closed here."""
        self._before = BytesMoved(0, 0)
        """What had moved when the handshake was done."""

    def events(self) -> list[int]:
        """The events since the last call, in order."""
        events: list[int] = []
        while int(self.monitor.getsockopt(zmq.EVENTS)) & _INCOMING:
            report = parse_monitor_message(self.monitor.recv_multipart(zmq.NOBLOCK))
            event = int(report["event"])
            events.append(event)
            if event == zmq.EVENT_CONNECTED:
                self._file, self._before = int(report["value"]), BytesMoved(0, 0)
            elif event == zmq.EVENT_DISCONNECTED:
                self._file = None
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._before = _counts(self._file)
        return events

    def moved(self) -> BytesMoved:
        """How many bytes have moved since the handshake; zeros if the system does not tell."""
        counts = _counts(self._file)
        return BytesMoved(counts.sent - self._before.sent, counts.received - self._before.received)

    def close(self, linger: int = 0) -> None:
        """Close the socket and its monitor. An open monitor would block the end of the context for ever."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger)


def _counts(file: int | None) -> BytesMoved:
    if file is None or sys.platform != "linux":
        return BytesMoved(0, 0)
    try:
        view = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=file)
    except OSError:  # ØMQ has closed it, and will report that.
        return BytesMoved(0, 0)
    try:
        known = view.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS_AT + _COUNTS.size)
    except OSError:
        return BytesMoved(0, 0)
    finally:
        view.detach()
    if len(known) < _COUNTS_AT + _COUNTS.size:  # An old kernel.
        return BytesMoved(0, 0)
    return BytesMoved(*_COUNTS.unpack_from(known, _COUNTS_AT))


def _all(source: _Monitored | None, most: int) -> list[list[bytes]]:
    messages: list[list[bytes]] = []
    while len(messages) < most and _is_readable(source):
        messages.append(source.socket.recv_multipart(zmq.NOBLOCK))
    return messages


def _viewed(source: _Monitored | None, most: int) -> list[list[bytes | memoryview]]:
    messages: list[list[bytes | memoryview]] = []
    while len(messages) < most and _is_readable(source):
        parts = source.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        messages.append([part.buffer if len(part) >= _LARGE else part.bytes for part in parts])
    return messages


def _is_readable(source: _Monitored | None) -> TypeGuard[_Monitored]:
    """Whether a message has arrived. Asking takes a third of the time that a `zmq.Again` does."""
    return source is not None and bool(int(source.socket.getsockopt(zmq.EVENTS)) & _INCOMING)
