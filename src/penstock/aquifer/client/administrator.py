"""Administering a gateway from elsewhere: its ids and sessions are listed, ended, deleted and handed over."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from msgspec import UNSET

from penstock.aquifer.client.connection import GatewayConnection, gateway_endpoint
from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.messages import (
    VERSION,
    AdminRequest,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
)
from penstock.aquifer.security import CurveClient

__all__ = ["Administrator"]


class Administrator:
    """Asks a gateway what only an administrator may ask; used by one thread.

    Over loopback nobody else is needed than who asks; elsewhere it takes a key with the right ``admin``.
    Without it, everything here raises :class:`~penstock.aquifer.Refused`.
    """

    def __init__(self, endpoint: str, *, patience: float = 10.0, curve: CurveClient | None = None) -> None:
        place = gateway_endpoint(endpoint, "Administrator")
        self._connection = GatewayConnection(place, curve, patience=patience)

    def ids(self) -> dict[str, Any]:
        """All durable ids, here or away, and the sessions without one: see :meth:`Gateway.ids`."""
        listed = self._ask(AdminRequest(list=True))
        while (after := listed["next"]) is not None:
            more = self._ask(AdminRequest(list=True, after=after))
            listed["ids"] += more["ids"]
            listed["next"] = more["next"]
        return listed

    def evict(self, who: str | int) -> dict[str, Any]:
        """End a session, by its id or its number. Its reader gets an error; an id keeps its place."""
        return self._ask(AdminRequest(evict=who))

    def forget(self, id: str) -> dict[str, Any]:
        """Delete a durable id: nothing is kept for it any more. A session that has it ends."""
        return self._ask(AdminRequest(forget=id))

    def give(self, id: str, key: str) -> dict[str, Any]:
        """Let an id belong to another public key, or with ``""`` to those without one."""
        return self._ask(AdminRequest(give=id, to=key))

    def give_writer(self, name: str, key: str) -> dict[str, Any]:
        """The same for the name of a writer."""
        return self._ask(AdminRequest(writer=name, to=key))

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, wanted: AdminRequest) -> dict[str, Any]:
        question = Subscribe(x=SubscribeFields(v=VERSION, probe=True, admin=wanted))
        answer = self._connection.ask(question)
        details = extension(answer.x) if isinstance(answer, OnSubscribe) else None
        if details is None or details.status is UNSET:
            raise ProtocolViolation(
                f"the gateway at {self._connection.endpoint} cannot be administered from elsewhere"
            )
        return details.status
