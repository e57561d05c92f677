"""The dead letters of a source: wrong records on their way to another gateway, each of them once.

A task writes the wrong records of its range in one transaction, and commits it when it has read the whole
range. Spark may run a task again, or twice at the same time, or repeat a batch after a restart. The name of
the transaction depends only on what Spark has logged, so the gateway recognises it, and publishes it once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec
import zmq

from penstock.aquifer import (
    Batch,
    LogReader,
    Producer,
    Record,
    Refused,
    Transaction,
    dead_letter,
    offsets_of,
    unpack_metadata,
)
from penstock.spark.errors import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.columns import WrongRecord
from penstock.spark.source.positions import OffsetRange

__all__ = ["DeadLetterTransaction", "TaskId"]

_log = logging.getLogger("penstock.spark")

_NAMED: Final = 100
"""How many characters of a cursor's name are in the name of the writer."""


class TaskId(NamedTuple):
    """Identifies the work of a task, also if the task runs again."""

    name: str
    """For people who look at the gateway's status: the name of the query's cursor."""
    query: str
    """The query and the task's place in each batch."""
    batch: int
    """The number of the batch; it grows."""


class DeadLetterTransaction:
    """The wrong records of a range; used by one task, as a context manager."""

    def __init__(self, span: OffsetRange, task: TaskId, digest: str, options: SourceOptions) -> None:
        self._span = span
        self._task = task
        self._options = options
        self._count = 0
        self._first: str | None = None
        # With another schema, other records are wrong. So that none of them is taken for written when the
        # schema changes in the middle of a batch, the schema is a part of the name.
        self._writer = sha256(f"{task.query} {digest}".encode()).hexdigest()[:32]
        self._producer: Producer | None = None
        self._transaction: Transaction | None = None

    def add(self, batch: Batch, wrong: Sequence[WrongRecord]) -> None:
        """Write wrong records of a batch; they are not published yet."""
        if not wrong:
            return
        self._count += len(wrong)
        offsets = offsets_of(batch)
        self._first = self._first or f"record {offsets[wrong[0].number]}: {wrong[0].reason}"
        if self._options.dead_letter is None:
            return
        keys, span = unpack_metadata(batch.metadata).keys, self._span
        letters = [
            Record(
                msgspec.json.encode(
                    dead_letter(
                        each.value,
                        each.reason,
                        endpoint=span.endpoint,
                        epoch=span.epoch,
                        offset=offsets[each.number],
                    )
                ),
                key=None if keys is None else keys[each.number],
            )
            for each in wrong
        ]
        with self._options.connection_hints("deadLetter"):
            self._begun(self._options.dead_letter).write(letters)

    def commit(self) -> None:
        """Publish them, unless another run of this task has done so; returns when they are in the log."""
        if self._count:
            _log.warning(
                "%d of the records %d to %d of %s are wrong; the first is %s",
                self._count,
                self._span.start,
                self._span.stop - 1,
                self._span.endpoint,
                self._first,
            )
        if self._transaction is not None:
            with self._options.connection_hints("deadLetter"):
                self._transaction.commit()

    def _begun(self, endpoint: str) -> Transaction:
        if self._transaction is None:
            self._check_log(endpoint)
            options, name = self._options, f"{self._task.name[:_NAMED]}/{self._writer}"
            self._producer = Producer(endpoint, name, patience=options.patience, curve=options.curve_client())
            self._transaction = self._producer.transaction(self._task.batch)
        return self._transaction

    def _check_log(self, endpoint: str) -> None:
        """Raise BadOption if the endpoint is another name of the log that has the wrong records."""
        options = self._options
        try:
            with LogReader(
                endpoint,
                patience=options.patience,
                curve=options.curve_client(),
                context=zmq.Context.instance(),
            ) as log:
                epoch = log.state().epoch
        except Refused:
            return  # A key may allow to write there, and not to read.
        if epoch == self._span.epoch:
            remedy = (
                f"that is the log of {self._span.endpoint}, and the query would read its own dead letters: "
                "give another gateway, or a stream of its own"
            )
            raise BadOption("deadLetter", endpoint, remedy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.close()
