"""Writing to a gateway in batches, exactly once: stage what there is, then publish it.

See :mod:`penstock.aquifer.protocol.transactions` for how the gateway sees it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import UNSET

from penstock.aquifer.client.connection import Asker
from penstock.aquifer.errors import GatewayUnreachable, ProtocolViolation
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnNext,
    Put,
    encode,
    extension,
)
from penstock.aquifer.protocol.remote_errors import error_from
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
        self._asker = Asker(self._endpoint, curve)

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
        answer = self._ask([encode(question), payload, metadata], self._patience)
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
        answer = self._ask([encode(question)], timeout)
        if not isinstance(answer, OnComplete):
            raise ProtocolViolation(f"the gateway at {self._endpoint} answered with {type(answer).__name__}")

    def close(self) -> None:
        """Let go of the connection."""
        self._asker.close()

    def _ask(self, question: Sequence[bytes | memoryview], patience: float) -> Control:
        give_up = time.monotonic() + patience
        while True:
            answer = self._asker.ask(*question, patience=max(give_up - time.monotonic(), 0.0))
            if answer is None:
                raise GatewayUnreachable(self._what_is_wrong(patience))
            if not isinstance(answer, OnError):
                return answer
            pause = _pause_before_asking_again(answer)
            if pause is None or time.monotonic() + pause >= give_up:
                raise error_from(answer)
            time.sleep(pause)

    def _what_is_wrong(self, patience: float) -> str:
        if self._asker.connected:
            return (
                f"the gateway at {self._endpoint} did not take a batch for {patience:g} s; is it well, and "
                "does anybody read what is behind it?"
            )
        return (
            f"no gateway could be reached at {self._endpoint} for {patience:g} s, so a batch was not taken; "
            "is it running there, and do both sides use keys or neither?"
        )


def _pause_before_asking_again(answer: OnError) -> float | None:
    """Seconds, if the gateway only has too much to do at the moment."""
    details = extension(answer.x)
    if details is None or details.code != "BUSY" or details.retry is UNSET:
        return None
    return max(0, min(details.retry, 10_000)) / 1000
