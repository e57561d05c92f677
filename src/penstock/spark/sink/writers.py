"""What the tasks of a query write, and how it becomes visible.

A task may run twice, or go on for a while after it was given up, and a batch may be run again after a crash.
So tasks only stage what they have; the driver publishes it, and the gateway does so once for each batch.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.aquifer import PreparedPart, Producer
from penstock.spark.errors import BadOption
from penstock.spark.options import SinkOptions
from penstock.spark.sink.rows import RowPacker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchWriter", "AquiferStreamWriter"]

_log = logging.getLogger("penstock.spark")


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged."""

    query: str
    part: PreparedPart


@contextmanager
def _producer(options: SinkOptions, query: str) -> Iterator[Producer]:
    curve = options.curve_client()
    with (
        Producer(options.endpoint, query, patience=options.patience, curve=curve) as producer,
        options.connection_hints(),
    ):
        yield producer


def _stage(
    batches: Iterator[pa.RecordBatch], schema: StructType, options: SinkOptions, query: str, batch: int
) -> Staged:
    """Runs in a task: leave everything with the gateway."""
    task = TaskContext.get()
    assert task is not None, "rows are written by a task"
    packer = RowPacker(schema, options.value)
    with _producer(options, query) as producer:
        transaction = producer.transaction(batch, part=task.partitionId())
        for rows in batches:
            for piece in packer.pieces(rows):
                transaction.write_batch(piece)
        return Staged(query, transaction.prepare())


def _publish(messages: list[WriterCommitMessage | None], batch: int, options: SinkOptions) -> None:
    staged = [message for message in messages if isinstance(message, Staged)]
    if not staged:
        return  # No tasks, no rows.
    with _producer(options, staged[0].query) as producer:
        producer.commit(batch, [message.part for message in staged], timeout=options.timeout)


class AquiferStreamWriter(DataSourceStreamArrowWriter):
    """For ``writeStream``."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._schema = schema
        self._options = options
        if options.writer_id is not None:
            remedy = "a stream has a name and numbers of its own; leave writerId and batchId to df.write"
            raise BadOption("writerId", options.writer_id, remedy)
        RowPacker(schema, options.value)  # A schema that does not fit is told now, not by a task.

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        query, batch = _this_batch()
        return _stage(iterator, self._schema, self._options, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs beside the driver, when all tasks are done; perhaps again after a restart."""
        _publish(messages, batchId, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was published, so there is nothing to take back: what is staged is dropped by itself."""
        _log.info("batch %d was given up", batchId)


class AquiferBatchWriter(DataSourceArrowWriter):
    """For ``df.write``.

    Each is a writer of its own, unless the options ``writerId`` and ``batchId`` say what it is: in
    ``foreachBatch``, where a batch may be run again, they make it count once.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._schema = schema
        self._options = options
        self._query, self._batch = options.transaction or (f"write-{secrets.token_hex(8)}", 0)
        RowPacker(schema, options.value)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return _stage(iterator, self._schema, self._options, self._query, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs beside the driver, when all tasks are done."""
        _publish(messages, self._batch, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was published."""
        _log.info("the write was given up")


def _this_batch() -> tuple[str, int]:
    """The query and the number of the batch that this task works for.

    Spark tells it nowhere but in properties of the task whose names are its own business; a test watches that
    they stay.
    """
    task = TaskContext.get()
    assert task is not None, "rows are written by a task"
    query = task.getLocalProperty("sql.streaming.queryId")
    batch = task.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise RuntimeError("this version of Spark does not tell a task which batch it works for")
    return query, int(batch)
