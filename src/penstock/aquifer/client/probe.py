"""Asking a gateway for its status, without subscribing to anything."""

from __future__ import annotations

from msgspec import UNSET

from penstock.aquifer.client.connection import GatewayConnection, gateway_endpoint
from penstock.aquifer.errors import AquiferError, ProtocolViolation
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.security import CurveClient
from penstock.aquifer.status import GatewayStatus
from penstock.arguments import seconds

__all__ = ["probe"]


def probe(endpoint: str, timeout: float = 2.5, curve: CurveClient | None = None) -> GatewayStatus:
    """Return the status of the gateway at ``endpoint``: see :meth:`penstock.aquifer.Gateway.status`.

    Raises :class:`~penstock.aquifer.GatewayUnreachable` if there is no answer within ``timeout`` seconds,
    :class:`~penstock.aquifer.Refused` if the key is not let in, and
    :class:`~penstock.aquifer.ProtocolViolation` if the gateway speaks the plain dialect only.
    """
    patience = seconds(timeout, "probe(timeout=…)", positive=True)
    with GatewayConnection(gateway_endpoint(endpoint, "probe"), curve, patience=patience) as connection:
        # Not repeated: a plain gateway may not survive a second Subscribe.
        answer = connection.ask(Subscribe(x=SubscribeFields(v=VERSION, probe=True)), repeat=False)
        if not isinstance(answer, OnSubscribe):
            raise AquiferError(f"{endpoint} answered a probe with {type(answer).__name__}: not a gateway")
        details = extension(answer.x)
        if details is not None and details.status is not UNSET:
            return read_status(details.status, GatewayStatus)
        # It took the probe for a subscriber, and would keep records for it.
        connection.tell(Subscribe(cancel=True))
        raise ProtocolViolation(
            f"the gateway at {connection.endpoint} speaks the plain dialect only, which has no way to ask "
            "for its status"
        )
