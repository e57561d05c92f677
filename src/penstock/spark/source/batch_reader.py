"""The reader of ``spark.read.format("aquifer")``: what is in the logs now, or between two offsets.

Spark does not tell a data source that a read is over. So the gateways keep its records for a minute until the
first task starts, while tasks run because these renew the lease, and for some seconds after the last task.
Meanwhile a full log holds back its source. ``leaseSeconds`` sets these times: on a busy cluster, the next
task may start later.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.errors import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.columns import columns_of
from penstock.spark.source.dead_letters import TaskId
from penstock.spark.source.decoders import session_zone
from penstock.spark.source.gateway_logs import READ_PREFIX, GatewayLogs
from penstock.spark.source.positions import OffsetRange, QueryPosition, cut_ranges, partition_count
from penstock.spark.source.pushed_filters import Conditions, conditions_in
from penstock.spark.source.ranges import (
    RangePartition,
    key_partitions,
    ranges_of,
    read_partition,
    renew_lease,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchReader", "FilteringBatchReader"]

_PLANNING_LEASE: Final = 60.0
"""Seconds between the planning of a read and its first task."""
_TASK_LEASE: Final = 10.0
"""Seconds between the end of a task and the start of the next."""
_NO_LEASE: Final = 0.001


class AquiferBatchReader(DataSourceReader):
    """``spark.read.format("aquifer")``."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._conditions = Conditions()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read; Spark asks once, when it plans the query."""
        options, logs = self._options, GatewayLogs(self._options)
        name = f"{READ_PREFIX}{secrets.token_hex(8)}"
        try:
            starts, ends, epochs = {}, {}, {}
            for endpoint in options.endpoints:
                state = logs.state(endpoint)
                starts[endpoint] = logs.start_of(endpoint, state)
                ends[endpoint] = logs.end_of(endpoint, state)
                epochs[endpoint] = state.epoch
                if starts[endpoint] > ends[endpoint]:
                    raise self._backwards(endpoint, starts[endpoint], ends[endpoint])
                span = self._conditions.clipped(endpoint, starts[endpoint], ends[endpoint])
                starts[endpoint], ends[endpoint] = span
            logs.check_different(epochs)
            start = QueryPosition(starts, epochs, starts, name, 1)
            records = sum(ends.values()) - sum(starts.values())
            if records:
                lease = options.lease or _PLANNING_LEASE
                kept = {endpoint: logs.keep(endpoint, start, lease) for endpoint in options.endpoints}
                # The oldest record may have gone since the first question. From now on it stays.
                oldest = {
                    e: min(kept[e], ends[e]) if logs.starts_with_oldest(e) else starts[e] for e in starts
                }
                start = replace(start, offsets=oldest, initial=oldest)
        finally:
            logs.close()
        counts = [ends[endpoint] - start.offsets[endpoint] for endpoint in ends]
        parts = partition_count(options.partitions, counts, options.min_partitions)
        if options.partition_by is not None and records:
            cut = cut_ranges(start, start.at(ends, 1))
            logs_and_offsets = " ".join(f"{span.epoch} {span.start} {span.stop}" for span in cut)
            return key_partitions(cut, parts * len(ends), TaskId("spark-read", logs_and_offsets, 0))
        cut = cut_ranges(start, start.at(ends, parts))
        alone = len(cut) == 1
        # A read of the same records has the same dead letters, however often it is evaluated.
        ranges = cut or [_empty_range(start)]
        return [
            RangePartition(span, TaskId("spark-read", f"{span.epoch} {span.start} {span.stop}", 0), alone)
            for span in ranges
        ]

    def _backwards(self, endpoint: str, start: int, end: int) -> BadOption:
        """The error about a start that is after the end."""
        options = self._options
        last = "endingOffsets" if options.ending_at is None else "endingTimestamp"
        remedy = f"that is after the end, {last}: {endpoint} would be read from offset {start} to {end}"
        if options.starting_at is not None:
            return BadOption("startingTimestamp", options.starting_at // 1000, remedy)
        return BadOption("startingOffsets", start, remedy)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; runs in a task."""
        options = self._options
        spans = [each.span for each in ranges_of(partition)]
        if any(span.start < span.stop for span in spans):
            lease = options.lease or _TASK_LEASE
            for span in spans:
                renew_lease(span, options, lease)  # Also for the tasks that have not started yet.
            columns = columns_of(self._schema, options, session_zone())
            chosen = self._conditions if self._conditions.choose_records else None
            yield from read_partition(partition, columns, options, lease, chosen)
            if isinstance(partition, RangePartition) and partition.alone:
                renew_lease(partition.span, options, _NO_LEASE)


class FilteringBatchReader(AquiferBatchReader):
    """The same for a session that pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what the conditions leave out; Spark evaluates all of them once more.

        With dead letters, every record counts. The columns of other formats are fields of the records, unless
        the option ``includeMetadata`` says otherwise.
        """
        options = self._options
        has_metadata = options.value in ("binary", "string") or options.include_metadata
        if has_metadata and options.dead_letter is None:
            self._conditions = conditions_in(filters)
        return filters


def _empty_range(start: QueryPosition) -> OffsetRange:
    endpoint = next(iter(start.offsets))
    return OffsetRange(endpoint, start.epochs[endpoint], 0, 0, start.name)
