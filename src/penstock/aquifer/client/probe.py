"""Asking a gateway how it is, without subscribing to anything."""

from __future__ import annotations

import time
from typing import Any

import zmq
from msgspec import UNSET

from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.errors import AquiferError, GatewayUnreachable, ProtocolViolation, Refused
from penstock.aquifer.protocol.messages import (
    VERSION,
    Control,
    OnError,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    decode,
    encode,
    extension,
)
from penstock.aquifer.protocol.remote_errors import error_from
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint

__all__ = ["probe"]


def probe(endpoint: str, timeout: float = 2.5, curve: CurveClient | None = None) -> dict[str, Any]:
    """What the gateway at ``endpoint`` says of itself: see :meth:`penstock.aquifer.Gateway.status`.

    Raises :class:`~penstock.aquifer.GatewayUnreachable` if nobody answers within ``timeout`` seconds,
    :class:`~penstock.aquifer.Refused` if the key is not let in, and
    :class:`~penstock.aquifer.ProtocolViolation` if the gateway knows the plain dialect alone.
    """
    place = Endpoint.parse(endpoint)
    if not place.is_one_place:
        raise ValueError(f"probe({endpoint!r}): name the host and port of one gateway")
    sockets = GatewaySockets(place, curve)
    try:
        sockets.connect(keep_data=False)
        sockets.send(encode(Subscribe(x=SubscribeFields(v=VERSION, probe=True))))
        return _status(_answer(sockets, place, time.monotonic() + timeout, timeout), sockets, place)
    finally:
        sockets.close()


def _answer(sockets: GatewaySockets, place: Endpoint, deadline: float, timeout: float) -> Control:
    connected = False
    while (left := deadline - time.monotonic()) > 0:
        sockets.wait(left)
        news = sockets.control_events()
        if zmq.EVENT_HANDSHAKE_FAILED_AUTH in news:
            raise Refused(
                f"the gateway at {place} does not let this key in; add the public key to its list of "
                "allowed clients"
            )
        connected |= zmq.EVENT_HANDSHAKE_SUCCEEDED in news
        for message in sockets.control_messages():
            return decode(message)
    if connected:
        raise GatewayUnreachable(
            f"something listens at {place}, but did not answer within {timeout:g} s; is it a gateway's "
            "control endpoint, and is the gateway still well?"
        )
    raise GatewayUnreachable(
        f"no gateway answers at {place} within {timeout:g} s; is it running there, and do both sides use "
        "keys or neither?"
    )


def _status(answer: Control, sockets: GatewaySockets, place: Endpoint) -> dict[str, Any]:
    if isinstance(answer, OnError):
        raise error_from(answer)
    if isinstance(answer, OnSubscribe):
        details = extension(answer.x)
        if details is not None and details.status is not UNSET:
            return details.status
        # It has taken the probe for a subscriber, and would keep records for it.
        sockets.send(encode(Subscribe(cancel=True)))
        raise ProtocolViolation(
            f"the gateway at {place} speaks the plain dialect only, which has no way to ask for its state"
        )
    raise AquiferError(f"{place} answered a probe with {type(answer).__name__}: this is no gateway")
