"""Writing to a gateway in batches, exactly once: stage what there is, then publish it.

See :mod:`penstock.aquifer.protocol.transactions` for how the gateway sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.aquifer.client.connection import GatewayConnection
from penstock.aquifer.errors import GatewayUnreachable, ProtocolViolation
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Next,
    NextFields,
    OnComplete,
    OnNext,
    Put,
)
from penstock.aquifer.records.batch import MSGPACK
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint

__all__ = ["Courier"]


class Courier:
    """Brings the batches of one writer to a gateway; used by one thread.

    Everything it says may be said again, so it does: until the gateway has answered.
    """

    def __init__(self, endpoint: str, *, patience: float = 30.0, curve: CurveClient | None = None) -> None:
        self._endpoint = Endpoint.parse(endpoint)
        self._patience = patience
        self._connection = GatewayConnection(self._endpoint, curve, patience=patience)

    def stage(
        self,
        query: str,
        batch: int,
        part: int,
        attempt: int,
        seq: int,
        *,
        count: int,
        payload: bytes | memoryview,
        metadata: bytes,
        format: str = MSGPACK,
    ) -> None:
        """Leave a piece with the gateway; nobody sees it before :meth:`publish`."""
        put = Put(query=query, batch=batch, part=part, attempt=attempt, seq=seq, fmt=format)
        question = Next(count, x=NextFields(put=put))
        answer = self._connection.ask(question, payload, metadata)
        if not isinstance(answer, OnNext):
            raise ProtocolViolation(f"the gateway at {self._endpoint} answered with {type(answer).__name__}")

    def publish(
        self, query: str, batch: int, parts: Sequence[tuple[int, int, int]], timeout: float = 600.0
    ) -> None:
        """Publish what was staged: ``parts`` names the attempts that count, and their number of pieces.

        Returns when it is in the log, which may take until there is room: the readers of the gateway set the
        pace. A batch that was published before is not published again.
        """
        question = Complete(x=CompleteFields(commit=Commit(query=query, batch=batch, parts=list(parts))))
        try:
            answer = self._connection.ask(question, patience=timeout)
        except GatewayUnreachable as error:
            if not self._connection.connected:
                raise
            raise GatewayUnreachable(f"{error}; does anybody read from it?") from None
        if not isinstance(answer, OnComplete):
            raise ProtocolViolation(f"the gateway at {self._endpoint} answered with {type(answer).__name__}")

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
