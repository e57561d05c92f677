"""What the tests of writing have in common: a courier's batch in one call, and gateways that die on cue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from penstock.aquifer import AquiferPublisher, Gateway, LogReader, PreparedPart, Producer
from penstock.aquifer.log import SqliteJournal
from penstock.aquifer.records.batch import MSGPACK, Batch, RecordMetadata, pack_metadata, pack_values


class Courier(Producer):
    """A producer that chooses names, attempts and the order of pieces itself: for the tests of gateways."""

    def __init__(self, endpoint: str, **settings: Any) -> None:
        super().__init__(endpoint, "courier", **settings)

    def stage(
        self,
        query: str,
        batch: int,
        part: int,
        attempt: int,
        seq: int,
        *,
        count: int,
        payload: bytes,
        metadata: bytes,
        format: str = MSGPACK,
    ) -> None:
        """Stage one piece."""
        self.name = query
        self._stage(batch, part, attempt, seq, Batch(0, count, payload, metadata, format))

    def publish(
        self, query: str, batch: int, parts: Sequence[tuple[int, int, int]], timeout: float | None = None
    ) -> None:
        """Commit what was staged."""
        self.name = query
        self.commit(batch, [PreparedPart(*part) for part in parts], timeout=timeout)


Connect = Callable[..., Courier]
"""``connect(gateway)``, or ``connect(endpoint)``: a courier."""

METADATA = pack_metadata(RecordMetadata(1))


def stage(
    courier: Courier,
    batch: int,
    *pieces: Sequence[bytes],
    query: str = "query",
    part: int = 0,
    attempt: int = 0,
) -> tuple[int, int, int]:
    """Stage the pieces of a task; what the commit has to say of it."""
    for seq, values in enumerate(pieces):
        payload = pack_values(values)
        courier.stage(query, batch, part, attempt, seq, count=len(values), payload=payload, metadata=METADATA)
    return part, attempt, len(pieces)


def deliver(courier: Courier, batch: int, values: Sequence[bytes], query: str = "query") -> None:
    """Stage and publish a batch of one piece."""
    courier.publish(query, batch, [stage(courier, batch, values, query=query)])


def numbered(batch: int, count: int) -> list[bytes]:
    """The records of a batch: all different, and of all batches, too."""
    return [b"%d/%d" % (batch, number) for number in range(count)]


@contextmanager
def couriers() -> Iterator[Connect]:
    """Opens couriers to a gateway, or to an endpoint, and closes them at the end."""
    with ExitStack() as opened:

        def open_courier(where: Gateway | str, **settings: Any) -> Courier:
            endpoint = where if isinstance(where, str) else where.endpoint
            return opened.enter_context(closing(Courier(endpoint, **settings)))

        yield open_courier


def log_of(endpoint: str) -> list[bytes]:
    """All that is in the log of a gateway at this moment."""
    with closing(LogReader(endpoint, patience=15)) as client:
        head = client.state().head
    return list(AquiferPublisher(endpoint, stop=head).flux()) if head else []


class DyingJournal(SqliteJournal):
    """Kills its process (SIGKILL) when a batch from outside is to be stored: before that, or right after."""

    def __init__(self, path: str | Path, when: str) -> None:
        super().__init__(path)
        self._when = when

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str] | None = None) -> None:
        if marks and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(batches, marks)
        if marks and self._when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
