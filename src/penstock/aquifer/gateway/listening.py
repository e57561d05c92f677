"""The sockets of one endpoint of a gateway: control, shared data, and a data port for each plain peer."""

from __future__ import annotations

from typing import Final

import zmq

from penstock.aquifer.endpoints import Endpoint
from penstock.aquifer.security import CurveServer

__all__ = ["Listener"]

_LINGER: Final = 1000
"""Milliseconds that a closed socket may take to send what it was given."""
_HEARTBEAT: Final = 1000
"""Milliseconds between ØMQ's own signs of life; three without an answer, and the connection is gone."""


class Listener:
    """Binds an endpoint, loopback or secured, and makes data sockets beside it."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        control: Endpoint,
        data: Endpoint,
        curve: CurveServer | None,
        longest_message: int,
    ) -> None:
        self._context = context
        self._curve = curve
        self._data_host = data.host
        self.control = context.socket(zmq.ROUTER)
        # A peer that asked and went away must not stop the gateway, and a returning one gets its place.
        self.control.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.control.setsockopt(zmq.MAXMSGSIZE, longest_message)
        self.data = context.socket(zmq.XPUB)
        try:
            self.control_endpoint = self._bind(self.control, control)
            self.data_port = self._bind(self.data, data).port
        except BaseException:
            self.close()
            raise

    def open_port(self) -> tuple[zmq.Socket[bytes], int]:
        """A data socket on a port of its own."""
        socket = self._context.socket(zmq.XPUB)
        try:
            return socket, self._bind(socket, Endpoint(self._data_host, 0)).port
        except BaseException:
            socket.close(0)
            raise

    def close(self) -> None:
        """Stop listening; what was sent already may still leave."""
        self.control.close(_LINGER)
        self.data.close(_LINGER)

    def _bind(self, socket: zmq.Socket[bytes], endpoint: Endpoint) -> Endpoint:
        # Credit bounds what is on its way. ØMQ's own bound would drop records without a word.
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, _LINGER)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT)
        if ":" in endpoint.host:
            socket.setsockopt(zmq.IPV6, 1)
        if self._curve is not None:
            self._curve.secure(socket)
        try:
            socket.bind(str(endpoint))
        except zmq.ZMQError as error:
            raise OSError(
                error.errno,
                f"cannot listen at {endpoint}: {error.strerror}; choose another port, or 0 for any free one",
            ) from error
        bound = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return Endpoint(endpoint.host, int(bound.rstrip(b"\0").rsplit(b":", 1)[1]))
