"""A session table whose gateway can be written to, and what its answers say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnError,
    Put,
    encode,
    extension,
)
from penstock.aquifer.protocol.transactions import PendingTransaction
from penstock.aquifer.records.batch import RecordMetadata, pack_metadata, pack_values, unpack_values
from penstock.aquifer.security.access import LOCAL, Caller
from tests.aquifer.protocol.front_table import FrontTable

METADATA = pack_metadata(RecordMetadata(1))


@dataclass
class WritableTable(FrontTable):
    """Says what a writer would say, and has a writer that writes when it is told to."""

    writable: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.written: list[bytes] = []
        """What is in the log."""

    @property
    def marks(self) -> dict[str, str]:
        return self.log.journal.marked

    @property
    def submitted(self) -> list[PendingTransaction]:
        return list(self.log.submitted)  # type: ignore[arg-type]

    def put(self, *values: bytes, peer: bytes = b"task", metadata: bytes = METADATA, **where: Any) -> Control:
        """Stage values; what the gateway answers."""
        return self.put_raw(len(values), pack_values(values), metadata, peer=peer, **where)

    def put_raw(
        self, count: int, *attached: bytes, peer: bytes = b"task", caller: Caller = LOCAL, **where: Any
    ) -> Control:
        """Stage what may be no records at all."""
        place = {"query": "q", "batch": 0, "part": 0, "attempt": 0, "seq": 0, **where}
        body = encode(Next(count, x=NextFields(put=Put(**place))))
        (answer,) = self._read(self.table.receive([peer, b"", body, *attached], self.now, caller))
        return answer

    def commit(
        self,
        batch: int,
        *parts: tuple[int, int, int],
        query: str = "q",
        peer: bytes = b"driver",
        caller: Caller = LOCAL,
        **more: Any,
    ) -> list[Control]:
        """Ask for a batch to be published; what is answered at once."""
        commit = Commit(query=query, batch=batch, parts=list(parts), **more)
        body = encode(Complete(x=CompleteFields(commit=commit)))
        return self._read(self.table.receive([peer, b"", body], self.now, caller))

    def write(self) -> list[Control]:
        """Write what was submitted, as the writer does, and answer for it."""
        for pending in self.submitted:
            for batch in pending.batches:
                self.written += unpack_values(batch.payload)
            self.marks.update(pending.marks_after(self.marks))
            self.log.head = len(self.written)
            pending.end = self.log.head
        self.log.submitted.clear()
        return self.pass_time(0.02)


def code(answer: Control) -> object:
    """The code of a refusal."""
    assert isinstance(answer, OnError), answer
    details = extension(answer.x)
    assert details is not None
    return details.code


def end(answer: Control) -> object:
    """Where the log ends, as the answer to a commit says."""
    assert isinstance(answer, OnComplete), answer
    details = extension(answer.x)
    assert details is not None
    return details.end
