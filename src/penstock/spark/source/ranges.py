"""The work of a task: read a range of offsets, and yield Arrow batches at Spark's pace."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import zmq
from pyspark.sql.datasource import InputPartition

from penstock.aquifer import AquiferError, Batch, EpochChanged, LogReader, OffsetGone
from penstock.spark.errors import DataLoss
from penstock.spark.options import SourceOptions
from penstock.spark.source.columns import Columns, WrongRecord
from penstock.spark.source.dead_letters import DeadLetterTransaction, TaskId
from penstock.spark.source.keys import KeyShare
from penstock.spark.source.lease_renewal import renewed
from penstock.spark.source.positions import OffsetRange
from penstock.spark.source.pushed_filters import Conditions
from penstock.spark.worker_upkeep import spare_upkeep

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KeyPartition",
    "RangePartition",
    "key_partitions",
    "ranges_of",
    "read_partition",
    "read_range",
    "renew_lease",
]

_log = logging.getLogger("penstock.spark")

_MOST_KEYS: Final = 256
_MOST_KEY_BYTES: Final = 16 * 1024
"""More than so many keys are not sent to the gateway: the task looks at each record itself."""
_JOINED_ROWS: Final = 10_000
_JOINED_BYTES: Final = 2 * 1024 * 1024
"""Smaller batches are joined up to this size."""


class RangePartition(InputPartition):
    """A range of offsets on its way to a task."""

    def __init__(
        self, span: OffsetRange, task: TaskId, alone: bool = False, share: KeyShare | None = None
    ) -> None:
        super().__init__(span)
        self.span = span
        self.task = task
        self.alone = alone
        """Whether it is the only range of its read."""
        self.share = share
        """Which records of the range count; None if all do."""


class KeyPartition(InputPartition):
    """Some keys of several ranges, on their way to a task."""

    def __init__(self, ranges: Sequence[RangePartition]) -> None:
        super().__init__(None)
        self.ranges = ranges


def key_partitions(spans: Sequence[OffsetRange], count: int, task: TaskId) -> list[KeyPartition]:
    """Partitions in which each key is in one. Each reads all ranges, and keeps the records of its keys.

    There are no more of them than records.
    """
    count = min(count, sum(span.stop - span.start for span in spans))
    return [
        KeyPartition(
            [
                RangePartition(
                    span,
                    TaskId(task.name, f"{task.query} key {number} of {count}, range {place}", task.batch),
                    share=KeyShare(number, count),
                )
                for place, span in enumerate(spans)
            ]
        )
        for number in range(count)
    ]


def ranges_of(partition: InputPartition) -> Sequence[RangePartition]:
    """The ranges of a partition."""
    if isinstance(partition, KeyPartition):
        return partition.ranges
    assert isinstance(partition, RangePartition), "the partitions are ours"
    return [partition]


def read_partition(
    partition: InputPartition,
    columns: Columns,
    options: SourceOptions,
    lease: float,
    conditions: Conditions | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition; see :func:`read_range`."""
    for each in ranges_of(partition):
        yield from read_range(each, columns, options, lease, conditions)


def read_range(
    partition: RangePartition,
    columns: Columns,
    options: SourceOptions,
    lease: float,
    conditions: Conditions | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, and publish its dead letters when all of it is read.

    The gateway gets more credit only when Spark asks for the next batch, so a query that stands still stops
    the gateway. While a task reads, it renews the lease of the query's cursor.
    """
    span, task = partition.span, partition.task
    with (
        _renewed_lease(span, options, lease),
        DeadLetterTransaction(span, task, columns.digest, options) as letters,
    ):
        choices = [choice for choice in (partition.share, conditions) if choice is not None]
        yield from _joined(_read(span, columns, options, letters, choices))
        letters.commit()
    spare_upkeep()


def _read(
    span: OffsetRange,
    columns: Columns,
    options: SourceOptions,
    letters: DeadLetterTransaction,
    choices: Sequence[KeyShare | Conditions],
) -> Iterator[pa.RecordBatch]:
    while span.start < span.stop:
        try:
            for batch in _batches(span, columns, options, _keys_in(choices)):
                wrong: list[WrongRecord] = []
                keep = _kept(batch, choices)
                if keep is None or keep:
                    rows = columns.batch(span.endpoint, batch, wrong, keep)
                    letters.add(batch, wrong)
                    if rows.num_rows:
                        yield rows
                span = replace(span, start=batch.end)
            if span.start < span.stop:
                raise OffsetGone("the log ends before them")
        except (OffsetGone, EpochChanged) as error:
            text = (
                f"records {span.start} to {span.stop - 1} of {span.endpoint} are gone: {error}. The "
                'gateway keeps records while the query runs, and for option("leaseSeconds") after that. '
                'To continue without them, set option("failOnDataLoss", "false")'
            )
            if options.fail_on_data_loss:
                raise DataLoss(text) from error
            _log.warning("%s", text)
            first = error.first if isinstance(error, OffsetGone) else None
            left = span.stop if first is None or first <= span.start else min(first, span.stop)
            span = replace(span, start=left)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: each costs Java as much as hundreds of rows."""
    held: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        if not held and batch.num_rows >= _JOINED_ROWS:
            yield batch
            continue
        if held and (rows + batch.num_rows > _JOINED_ROWS or nbytes + batch.nbytes > _JOINED_BYTES):
            yield _one(held)
            held, rows, nbytes = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    import pyarrow as pa

    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _kept(batch: Batch, choices: Sequence[KeyShare | Conditions]) -> set[int] | None:
    """The numbers of the records that all choices have; None if there are no choices."""
    if not choices:
        return None
    return set.intersection(*(set(choice.of(batch)) for choice in choices))


def _renewed_lease(span: OffsetRange, options: SourceOptions, lease: float) -> AbstractContextManager[None]:
    """Renew the lease of the query's cursor on another thread."""

    def renew() -> None:
        try:
            renew_lease(span, options, lease)
        except AquiferError as error:
            _log.warning(
                "could not renew the lease of the cursor %s at %s: %s", span.name, span.endpoint, error
            )

    return renewed(lease / 4, renew)


def _keys_in(choices: Sequence[KeyShare | Conditions]) -> frozenset[bytes] | None:
    """The keys that the gateway is asked for; None if all records are wanted, or there are too many keys."""
    for choice in choices:
        if isinstance(choice, Conditions) and choice.keys:
            fits = len(choice.keys) <= _MOST_KEYS and sum(map(len, choice.keys)) <= _MOST_KEY_BYTES
            return choice.keys if fits else None
    return None


def _batches(
    span: OffsetRange, columns: Columns, options: SourceOptions, keys: frozenset[bytes] | None
) -> Iterator[Batch]:
    # A context of its own would have threads, which take time to start and to stop.
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    log = LogReader(span.endpoint, patience=options.patience, curve=options.curve_client(), context=context)
    return log.read(span.start, span.stop, epoch=span.epoch, format=columns.wire_format, keys=keys)


def renew_lease(span: OffsetRange, options: SourceOptions, lease: float) -> None:
    """Renew the lease of the cursor of a range's query."""
    with LogReader(span.endpoint, patience=options.patience, curve=options.curve_client()) as log:
        log.state(name=span.name, lease=lease)
