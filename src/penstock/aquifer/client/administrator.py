"""Administering a gateway from another process: its ids and sessions are listed, ended and handed over."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from msgspec import UNSET, Struct, UnsetType

from penstock.aquifer.client.connection import GatewayConnection, gateway_endpoint
from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.messages import (
    VERSION,
    AdminRequest,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.security import CurveClient
from penstock.aquifer.status import AdminAnswer, CursorMove, Handover, IdList, IdStatus, SessionStatus
from penstock.arguments import seconds

__all__ = ["Administrator"]

S = TypeVar("S", bound=Struct)


class Administrator:
    """Administers a gateway; used by one thread at a time.

    On the gateway's own machine everybody may. From elsewhere it takes a key with the right ``admin``;
    without it every method raises :class:`~penstock.aquifer.Refused`.
    """

    def __init__(self, endpoint: str, *, patience: float = 10.0, curve: CurveClient | None = None) -> None:
        place = gateway_endpoint(endpoint, "Administrator")
        self._connection = GatewayConnection(
            place, curve, patience=seconds(patience, "Administrator(patience=…)", positive=True)
        )

    def ids(self) -> IdList:
        """List the durable ids, connected or not, and the sessions without one: see :meth:`Gateway.ids`."""
        listed = self._ask(AdminRequest(list=True), IdList)
        if listed.total is UNSET:
            raise self._cannot()  # It took the question for a probe, and sent its status.
        while listed.next is not None:
            more = self._ask(AdminRequest(list=True, after=listed.next), IdList)
            listed.ids += more.ids
            listed.next = more.next
        return listed

    def evict(self, who: str | int) -> SessionStatus:
        """End a session, by its id or its number. Its reader fails with an error; an id keeps its cursor."""
        return self._answered(self._ask(AdminRequest(evict=who), AdminAnswer).evicted)

    def forget(self, id: str) -> IdStatus:
        """Delete a durable id and its cursor. A session that uses it ends."""
        return self._answered(self._ask(AdminRequest(forget=id), AdminAnswer).forgotten)

    def give(self, id: str, key: str) -> Handover:
        """Hand an id over to another public key, or with ``""`` to clients without a key."""
        return self._answered(self._ask(AdminRequest(give=id, to=key), AdminAnswer).given)

    def move(self, id: str, offset: int) -> CursorMove:
        """Let a durable id continue at another offset, of those that the log has. A session of it ends."""
        return self._answered(self._ask(AdminRequest(move=id, offset=offset), AdminAnswer).moved)

    def give_writer(self, name: str, key: str) -> Handover:
        """Hand the name of a producer over to another public key."""
        return self._answered(self._ask(AdminRequest(writer=name, to=key), AdminAnswer).given)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: AdminRequest, kind: type[S]) -> S:
        question = Subscribe(x=SubscribeFields(v=VERSION, probe=True, admin=request))
        answer = self._connection.ask(question)
        details = extension(answer.x) if isinstance(answer, OnSubscribe) else None
        if details is None or details.status is UNSET:
            raise self._cannot()
        return read_status(details.status, kind)

    def _answered(self, done: S | UnsetType) -> S:
        if done is UNSET:
            raise self._cannot()
        return done

    def _cannot(self) -> ProtocolViolation:
        return ProtocolViolation(
            f"the gateway at {self._connection.endpoint} cannot be administered from elsewhere"
        )
