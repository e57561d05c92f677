"""The writers of the format: tasks prepare the parts of a transaction, and the driver commits it.

A task may run twice, or keep running for a while after Spark has given it up, and a batch may run again after
a crash. So tasks only leave their rows with the gateway. The driver commits them, and the gateway publishes
each batch once.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.aquifer import BatchMissing, PreparedPart, Producer
from penstock.spark.checkpoints import BATCH_PROPERTY, check_not_published, is_repeated
from penstock.spark.errors import BadOption, DataLoss
from penstock.spark.options import SinkOptions
from penstock.spark.sink.rows import RowPacker
from penstock.spark.source.batch_times import note_commit
from penstock.spark.spark_interface import StreamArrowWriter
from penstock.spark.stop_notices import QueryRun, StopNotice
from penstock.spark.worker_upkeep import spare_upkeep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchWriter", "AquiferStreamWriter"]

_log = logging.getLogger("penstock.spark")


@dataclass
class PreparedRows(WriterCommitMessage):
    """The rows that a task has left with the gateway, as a message to the driver."""

    query: str
    part: PreparedPart
    run: QueryRun | None = None
    """The run of a streaming query that the task belongs to, if any: also of one with ``foreachBatch``."""
    published_before: int | None = None
    """The last batch that the gateway has, if that is this one or a later one."""
    repeated: bool | None = None
    """Whether the batch was planned by an earlier run; None if that is not known."""


@contextmanager
def _producer(options: SinkOptions, query: str) -> Iterator[Producer]:
    curve = options.curve_client()
    # A context of its own would have threads, which take time to start and to stop.
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with (
        Producer(
            options.endpoint, query, patience=options.patience, curve=curve, context=context
        ) as producer,
        options.connection_hints(),
    ):
        yield producer


def _packer(schema: StructType, options: SinkOptions) -> RowPacker:
    return RowPacker(schema, options.value, options.separator, options.value_schema)


def _prepare(
    batches: Iterator[pa.RecordBatch], schema: StructType, options: SinkOptions, query: str, batch: int
) -> PreparedRows:
    """Leave the rows with the gateway; runs in a task."""
    task = TaskContext.get()
    assert task is not None, "only tasks write rows"
    packer = _packer(schema, options)
    with _producer(options, query) as producer:
        transaction = producer.transaction(batch, part=task.partitionId())
        for rows in batches:
            for records in packer.batches(rows):
                transaction.write_batch(records)
        part, before = transaction.prepare(), transaction.published_before
        prepared = PreparedRows(query, part, _this_run(task), before, is_repeated(task))
    spare_upkeep()
    return prepared


def _commit(
    messages: list[WriterCommitMessage | None], batch: int, options: SinkOptions, follows: int | None = None
) -> None:
    """Commit what the tasks have prepared; ``follows`` is the batch that the log must have before."""
    prepared = [message for message in messages if isinstance(message, PreparedRows)]
    if not prepared:
        return  # Without tasks there are no rows.
    parts = [message.part for message in prepared]
    for message in prepared:
        if message.run is not None:
            check_not_published(
                batch, message.published_before, message.repeated, options.endpoint, options.writer_id
            )
    waits_for = f"batch {batch} waited for the gateway at {options.endpoint}"
    with (
        _producer(options, prepared[0].query) as producer,
        StopNotice(prepared[0].run, waits_for) as notice,
    ):
        try:
            producer.commit(
                batch, parts, timeout=options.timeout, follows=follows, while_waiting=notice.check
            )
        except BatchMissing as missing:
            if options.fail_on_data_loss:
                raise _gap(batch, missing.published, options.endpoint) from missing
            _log.warning("%s", missing, extra={"endpoint": options.endpoint})
            producer.commit(batch, parts, timeout=options.timeout, follows=-1, while_waiting=notice.check)


def _gap(batch: int, published: int | None, endpoint: str) -> DataLoss:
    found = (
        "none of this query's batches is in its log"
        if published is None
        else (f"the last batch of this query in its log is {published}")
    )
    return DataLoss(
        f"the gateway at {endpoint} has another journal than before, or an older copy of it: {found}, and "
        f"batch {batch} would follow. Put the journal back; or start the query with a new checkpoint, which "
        'writes everything again; or set option("failOnDataLoss", "false") to continue with this batch'
    )


class AquiferStreamWriter(StreamArrowWriter):
    """The writer of ``writeStream``."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._schema = schema
        self._options = options
        if options.writer_id is not None:
            remedy = "a stream has its own id and batch numbers; writerId and batchId are for df.write"
            raise BadOption("writerId", options.writer_id, remedy)
        _packer(schema, options)  # Raises here, rather than in a task, if the schema does not fit.
        spare_upkeep()  # In the process that makes a writer for each batch.

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of a task; runs in the task."""
        query, batch = _this_batch()
        return _prepare(iterator, self._schema, self._options, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch when its tasks are done; runs beside the driver, perhaps again after a restart."""
        began = time.monotonic()
        # Spark numbers the batches without a gap, and each has a task, so that each leaves a mark.
        _commit(messages, batchId, self._options, follows=batchId - 1)
        for message in messages:
            if isinstance(message, PreparedRows):
                note_commit(message.query, self._options.endpoint, time.monotonic() - began)
                break

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log it. There is nothing to undo: the gateway drops what is not committed."""
        _log.info("batch %d was aborted", batchId)


class AquiferBatchWriter(DataSourceArrowWriter):
    """The writer of ``df.write``.

    Each write is published, unless the options ``writerId`` and ``batchId`` name its transaction. In
    ``foreachBatch``, where a batch may run again, they make sure that it is published once.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._schema = schema
        self._options = options
        self._query, self._batch = options.transaction or (f"write-{secrets.token_hex(8)}", 0)
        _packer(schema, options)
        spare_upkeep()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of a task; runs in the task."""
        return _prepare(iterator, self._schema, self._options, self._query, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows when all tasks are done; runs beside the driver."""
        _commit(messages, self._batch, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log it. There is nothing to undo."""
        _log.info("the write was aborted")


def _this_run(task: TaskContext) -> QueryRun | None:
    """The run of a query that a task belongs to; Spark has it in the same way."""
    query, group = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("spark.jobGroup.id")
    return None if query is None or group is None else QueryRun(query, group)


def _this_batch() -> tuple[str, int]:
    """The id of the query and the number of the batch that this task belongs to.

    Spark has them only in properties of the task, whose names are not documented. A test checks them.
    """
    task = TaskContext.get()
    assert task is not None, "only tasks write rows"
    query = task.getLocalProperty("sql.streaming.queryId")
    batch = task.getLocalProperty(BATCH_PROPERTY)
    if query is None or batch is None:
        raise RuntimeError("this version of Spark does not tell a task which batch it belongs to")
    return query, int(batch)
