"""The sockets of one endpoint of a gateway: control, shared data, and a data port for each plain peer."""

from __future__ import annotations

import functools
from typing import Final

import zmq

from penstock.aquifer.limits import Limits
from penstock.aquifer.security import CurveServer
from penstock.aquifer.security.access import ALL_RIGHTS, USUAL_RIGHTS, Caller, Right
from penstock.endpoint import Endpoint

__all__ = ["GatewayListener"]

_LINGER: Final = 1000
"""Milliseconds that a closed socket may take to send what it was given."""
_QUESTIONS: Final = 64
"""How many control messages of a peer may wait for the server."""
_ANSWERS: Final = 1000
"""How many answers may wait for a peer that does not read them; further ones are dropped."""
_LONGEST_TOPIC: Final = 4096
"""Bytes that a peer may send to a data port, where it can only say which topic it wants."""
_SHORTEST_SILENCE: Final = 10
_LONGEST_SILENCE: Final = 600
"""Seconds. The system refuses more than some hours, and libzmq then aborts the process."""
_PROBES: Final = 3
"""How often the system asks whether a peer's machine is still there, before the connection is given up."""


class GatewayListener:
    """Binds an endpoint, loopback or secured, and makes data sockets beside it."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        control: Endpoint,
        data: Endpoint,
        curve: CurveServer | None,
        limits: Limits,
        longest_attachment: int = 0,
    ) -> None:
        self._context = context
        self._curve = curve
        self._data_host = data.host
        self._limits = limits
        self.control = context.socket(zmq.ROUTER)
        # A peer that comes back with the routing id of an old connection takes that over.
        self.control.setsockopt(zmq.ROUTER_HANDOVER, 1)
        # MAXMSGSIZE holds for each part of a message: producers attach their records.
        # Few requests wait here; the rest waits in the memory of the peer that sends them.
        self.control.setsockopt(zmq.RCVHWM, _QUESTIONS)
        self.control.setsockopt(zmq.MAXMSGSIZE, max(16 * limits.max_message, longest_attachment))
        self.data = context.socket(zmq.XPUB)
        # The server decides who gets a topic. Otherwise a peer could subscribe to all of them and get
        # everybody's records; and if it did not read them, they would pile up here.
        self.data.setsockopt(zmq.XPUB_MANUAL, 1)
        self.data.setsockopt(zmq.MAXMSGSIZE, _LONGEST_TOPIC)
        try:
            self.control_endpoint = self._bind(self.control, control, _ANSWERS)
            self.data_port = self._bind(self.data, data, 2 * limits.frames_in_flight + 64).port
        except BaseException:
            self.close()
            raise

    def open_port(self) -> tuple[zmq.Socket[bytes], int]:
        """A data socket on a port of its own."""
        socket = self._context.socket(zmq.XPUB)
        # The server decides who gets the records, because it knows whose port this is.
        socket.setsockopt(zmq.XPUB_MANUAL, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, _LONGEST_TOPIC)
        try:
            return socket, self._bind(socket, Endpoint(self._data_host, 0), 2 * self._limits.plain_batch).port
        except BaseException:
            socket.close(0)
            raise

    def caller(self, frame: zmq.Frame) -> Caller:
        """The sender of a message, by one of its parts, and its present rights."""
        address = _property(frame, "Peer-Address")
        if self._curve is None:
            return _without_a_key(address)
        key = _property(frame, "User-Id")
        return Caller(key, address, self._curve.access.rights_of(key) or Right(0))

    def close(self) -> None:
        """Stop listening; what was sent already may still leave."""
        self.control.close(_LINGER)
        self.data.close(_LINGER)

    def _bind(self, socket: zmq.Socket[bytes], endpoint: Endpoint, most_waiting: int) -> Endpoint:
        # Credit bounds what is on its way, and ØMQ's own bound drops messages silently. So that bound is
        # so high that only peers reach it that break the protocol: they acknowledge what they do not read.
        socket.setsockopt(zmq.SNDHWM, most_waiting)
        socket.setsockopt(zmq.LINGER, _LINGER)
        # Not ØMQ's own heartbeats: with them, a peer that sends faster than we read and then goes away makes
        # libzmq abort the process (zeromq/libzmq#4364, #3937). The lease finds peers that hang.
        # The system is as patient as the lease: a line that is slow, or silent for ten seconds, is not dead,
        # and a plain peer could not have what was on it sent again.
        silence = round(min(max(self._limits.lease, _SHORTEST_SILENCE), _LONGEST_SILENCE))
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, silence // 2)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, max(silence // (2 * _PROBES), 1))
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, _PROBES)
        socket.setsockopt(zmq.TCP_MAXRT, silence * 1000)
        if ":" in endpoint.host:
            socket.setsockopt(zmq.IPV6, 1)
        if self._curve is not None:
            self._curve.secure(socket)
        try:
            socket.bind(endpoint.address)
        except zmq.ZMQError as error:
            reason = zmq.strerror(error.errno or 0)  # The error's own text has the address once more.
            raise OSError(
                error.errno,
                f"cannot listen at {endpoint}: {reason}; choose another port, or 0 for any free one",
            ) from error
        bound = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return Endpoint(endpoint.host, int(bound.rstrip(b"\0").rsplit(b":", 1)[1]))


@functools.lru_cache(1024)
def _without_a_key(address: str) -> Caller:
    """A caller at this address. It is not asked for its key: without CURVE a peer can claim any."""
    unknown = Caller("", address, USUAL_RIGHTS)
    return unknown._replace(rights=ALL_RIGHTS) if unknown.is_local else unknown


def _property(frame: zmq.Frame, name: str) -> str:
    """What libzmq says about the peer that has sent this."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""
