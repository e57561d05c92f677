"""The readers of the format: :class:`AquiferBatchReader` and :class:`AquiferStreamReader`.

A batch read returns what is in the logs now, or between two offsets. Spark does not tell a data source that a
read is over. So the gateways keep its records for a minute until the first task starts, while tasks run
because these renew the lease, and for some seconds after the last task. Meanwhile a full log holds back its
source. ``leaseSeconds`` sets these times: on a busy cluster, the next task may start later.

A streaming read has one reader in a process beside the driver. It plans batches, moves the cursors of the
query, and decides how much a batch takes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.aquifer import LogState
from penstock.spark.errors import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_times import BatchTimes
from penstock.spark.source.columns import columns_of
from penstock.spark.source.dead_letters import TaskId
from penstock.spark.source.decoders import session_zone
from penstock.spark.source.demand import FIRST_BATCH, AdaptiveDemand, shares
from penstock.spark.source.gateway_logs import GatewayLogs, StateOptions
from penstock.spark.source.lag import Lag
from penstock.spark.source.positions import OffsetRange, QueryPosition, cut_ranges, partition_count
from penstock.spark.source.ranges import RangePartition, read_range, renew_lease
from penstock.spark.spark_interface import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchReader", "AquiferStreamReader", "RefusedStreamReader"]

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

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read; Spark asks once, when it plans the query."""
        options, logs = self._options, GatewayLogs(self._options)
        name = f"spark-read-{secrets.token_hex(8)}"
        try:
            starts, ends, epochs = {}, {}, {}
            for endpoint in options.endpoints:
                state = logs.state(endpoint)
                starts[endpoint] = logs.start_of(endpoint, state)
                ends[endpoint] = logs.end_of(endpoint, state)
                epochs[endpoint] = state.epoch
                if starts[endpoint] > ends[endpoint]:
                    remedy = f"{endpoint} would be read from {starts[endpoint]} to {ends[endpoint]}"
                    raise BadOption("startingOffsets", starts[endpoint], f"that is after the end: {remedy}")
            start = QueryPosition(starts, epochs, starts, name, 1)
            records = sum(ends.values()) - sum(starts.values())
            if records:
                lease = options.lease or _PLANNING_LEASE
                kept = {endpoint: logs.keep(endpoint, start, lease) for endpoint in options.endpoints}
                if options.starting in (None, "earliest") and options.starting_at is None:
                    # The oldest record may have gone since the first question. From now on it stays.
                    start = replace(start, offsets=kept, initial=kept)
        finally:
            logs.close()
        parts = partition_count(options.partitions, len(ends), records, options.min_partitions)
        cut = cut_ranges(start, start.at(ends, parts))
        alone = len(cut) == 1
        # A read of the same records has the same dead letters, however often it is evaluated.
        ranges = cut or [_empty_range(start)]
        return [
            RangePartition(span, TaskId("spark-read", f"{span.epoch} {span.start} {span.stop}", 0), alone)
            for span in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; runs in a task."""
        assert isinstance(partition, RangePartition)
        span, options = partition.span, self._options
        if span.start < span.stop:
            lease = options.lease or _TASK_LEASE
            renew_lease(span, options, lease)  # Also for the tasks that have not started yet.
            yield from read_range(
                partition, columns_of(self._schema, options, session_zone()), options, lease
            )
            if partition.alone:
                renew_lease(span, options, _NO_LEASE)


def _empty_range(start: QueryPosition) -> OffsetRange:
    endpoint = next(iter(start.offsets))
    return OffsetRange(endpoint, start.epochs[endpoint], 0, 0, start.name)


_UNBOUNDED: Final = 2**63 - 1
_TURN: Final = 0.05
"""Seconds to wait for one gateway if there are several."""
_SHORT_WAIT: Final = 0.02
"""Seconds to wait for records while another source of the query has some."""
_SHORT_WAITS_FOR: Final = 10.0
"""Seconds for which waits stay short after another source had records."""
_BUSY_SHARE: Final = 0.8
"""If a batch took less than this share of the time until the next one, Spark has waited in between."""
_ENDED_PAUSE: Final = 1.0
"""Seconds between two questions to gateways whose streams have ended."""


class AquiferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query in a process beside the driver; ``read`` runs on copies in the tasks."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._logs = GatewayLogs(options)
        self._demand: AdaptiveDemand | None = None
        self._warm = False
        """Whether a batch has run."""
        self._asked: tuple[float, int, Mapping[str, int]] | None = None
        """When the last batch was planned, how many records it has, and where it ends."""
        self._times = BatchTimes()
        self._has_pauses = False
        """Whether Spark waits between batches, as with a trigger that has an interval."""
        self._heads: dict[str, int] = {}
        self._lag = Lag(self._logs.time_of)
        self._until: Mapping[str, int] | None = None
        """Where to end with the trigger AvailableNow."""
        self._beginning: QueryPosition | None = None
        self._gave_nothing = False
        """Whether the last answer to Spark was that there is nothing new."""
        self._short_waits_until = 0.0
        """Until then, waits are short, because another source of the query has records."""
        self._turn = 0
        self._resumed = False
        """Whether this reader has planned a batch."""
        if options.target_seconds is not None:
            most = options.max_records or _UNBOUNDED
            start = min(FIRST_BATCH, most)
            self._demand = AdaptiveDemand(options.target_seconds, start=start, most=most)

    # ---------------------------------------------------------------- the beginning
    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins; the gateways keep every record from there on."""
        if self._beginning is None:
            self._beginning = self._begin()
        return self._beginning.to_json()

    def _begin(self) -> QueryPosition:
        options = self._options
        name = options.subscription or f"spark-{secrets.token_hex(8)}"
        offsets, epochs = {}, {}
        for endpoint in options.endpoints:
            state = self._logs.state(endpoint, name=name)
            kept = state.acknowledged
            offset = self._logs.start_of(endpoint, state)
            if kept is not None and options.starting is None and options.starting_at is None:
                offset = kept  # The checkpoint is new, but the subscription is not: resume there.
            elif kept is not None and kept > offset:
                self._logs.drop_cursor(endpoint, name)
            offsets[endpoint] = offset
            epochs[endpoint] = state.epoch
        beginning = QueryPosition(offsets, epochs, offsets, name, 1, query=secrets.token_hex(8))
        held = {endpoint: self._logs.keep(endpoint, beginning) for endpoint in options.endpoints}
        if options.starting in (None, "earliest") and options.starting_at is None:
            # The oldest record may have gone since the first question. From now on it stays.
            beginning = replace(beginning, offsets=held, initial=held)
        return beginning

    # ---------------------------------------------------------------- the size of a batch
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set for a trigger."""
        return ReadMaxRows(self._options.max_records or _UNBOUNDED)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end now: the query ends there."""
        self._until = {endpoint: self._logs.state(endpoint).head for endpoint in self._options.endpoints}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        self._note_duration()
        logged = self._logs.relocated(QueryPosition.from_json(start))
        began = time.monotonic()
        here, states = self._wait_for_records(self._logs.with_added(logged))
        waited = time.monotonic() - began
        waiting = {e: max(self._available(e, s) - here.offsets[e], 0) for e, s in states.items()}
        taken = shares(waiting, self._batch_size(limit))
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            taken = self._within_bytes(here, taken, self._options.max_bytes)
        records = sum(taken.values())
        ends = {endpoint: here.offsets[endpoint] + count for endpoint, count in taken.items()}
        self._lag.planned(self._heads, ends, waited, sum(state.nbytes for state in states.values()))
        self._gave_nothing = not records
        if not records:
            return start  # Spark compares the JSON: the same again means that there is nothing new.
        parts = partition_count(self._options.partitions, len(taken), records, self._options.min_partitions)
        end = here.at(ends, parts)
        self._times.request(end.name)
        if self._demand is not None:
            self._asked = time.monotonic(), records, end.offsets
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the logs go, how far the query is behind, and which logs have ended.

        Spark shows it in the query's progress report.
        """
        if not self._heads:
            return None
        ended = self._logs.ended
        heads = dict(sorted(self._heads.items()))
        return {"offsets": heads, **self._lag.figures(), **({"ended": ended} if ended else {})}

    def _wait_for_records(self, here: QueryPosition) -> tuple[QueryPosition, dict[str, LogState]]:
        """Wait for new records in any of the logs, and return the position and the states of the logs.

        Spark asks again at once if there is nothing new, so the waiting is done here.
        """
        deadline = time.monotonic() + self._wait_seconds()
        states = {}
        reports = self._times.reports(self._options.endpoints)
        for endpoint in self._options.endpoints:
            told: StateOptions = {"report": reports[endpoint]} if endpoint in reports else {}
            here, states[endpoint] = self._checked_state(endpoint, here, **told)
            self._acknowledge(endpoint, here, states[endpoint])
        while self._until is None and not any(s.head > here.offsets[e] for e, s in states.items()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            open_ended = [endpoint for endpoint, state in states.items() if state.end is None]
            if not open_ended:
                # They would answer at once. More records come only if a gateway is restarted.
                time.sleep(min(left, _ENDED_PAUSE))
            turn = left if len(states) == 1 else min(left, _TURN)
            for endpoint in open_ended or states:
                beyond = here.offsets[endpoint]
                here, states[endpoint] = self._checked_state(endpoint, here, beyond=beyond, wait=turn)
        self._heads = {endpoint: state.head for endpoint, state in states.items()}
        return here, states

    def _wait_seconds(self) -> float:
        """How long to wait for records.

        Spark asks the sources of a query one after the other, so this source must not delay the others while
        they have records.
        """
        short = time.monotonic() < self._short_waits_until
        return min(self._options.wait, _SHORT_WAIT) if short else self._options.wait

    def _checked_state(
        self, endpoint: str, here: QueryPosition, **options: Unpack[StateOptions]
    ) -> tuple[QueryPosition, LogState]:
        options["name"], options["lease"] = here.name, self._logs.lease(here)
        state = self._logs.state(endpoint, **options)
        return self._logs.checked(endpoint, state, here), state

    def _acknowledge(self, endpoint: str, here: QueryPosition, state: LogState) -> None:
        """Acknowledge the records before the next batch.

        Spark asks for the next batch when all batches before it are committed. But it calls `commit` only
        after it has logged the next batch. If the last batch filled the log, there is no next batch until
        these records are acknowledged.
        """
        if state.acknowledged is not None and state.acknowledged < here.offsets[endpoint]:
            self._logs.keep(endpoint, here)

    def _available(self, endpoint: str, state: LogState) -> int:
        return state.head if self._until is None else min(state.head, self._until[endpoint])

    def _within_bytes(self, here: QueryPosition, taken: Mapping[str, int], nbytes: int) -> dict[str, int]:
        """Reduce a batch to a number of bytes, or to one record if that record alone is larger.

        The gateways share the bytes. They take turns at being first: the first one gets a record in any case.
        """
        within = dict.fromkeys(taken, 0)
        endpoints = [endpoint for endpoint in taken if taken[endpoint]]
        self._turn += 1
        turn = self._turn % max(len(endpoints), 1)
        endpoints = endpoints[turn:] + endpoints[:turn]
        for number, endpoint in enumerate(endpoints):
            start, share = here.offsets[endpoint], nbytes // (len(endpoints) - number)
            count, used = self._logs.count_within(endpoint, start, taken[endpoint], share)
            if not number and not count:
                count, used = self._logs.count_within(endpoint, start, 1, nbytes)
                if not count:
                    return within | {endpoint: 1}
            within[endpoint] = count
            nbytes -= used
        return within

    def _batch_size(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            return _UNBOUNDED  # The trigger Once has only one batch.
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNBOUNDED
        return min(most, self._demand.size) if self._demand is not None else most

    def _note_duration(self) -> None:
        if self._asked is not None and self._demand is not None:
            since, records, end = self._asked
            elapsed = time.monotonic() - since
            seconds = self._times.seconds(end)
            if seconds is not None:
                self._has_pauses = seconds < _BUSY_SHARE * elapsed
            elif not self._has_pauses:
                seconds = elapsed  # Batches follow each other. The report comes a moment later.
            if self._warm and seconds is not None:
                self._demand.observed(records, min(seconds, elapsed))
            # The first batch includes the warm-up of Java, and says nothing about later ones.
            self._warm = True
        self._asked = None

    # ---------------------------------------------------------------- reading
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        begin = self._logs.relocated(QueryPosition.from_json(start))
        ending = self._logs.relocated(QueryPosition.from_json(end))
        cut = cut_ranges(begin, ending)
        if not self._resumed:
            self._resume(begin, ending)
            self._resumed = True
        return [
            RangePartition(span, TaskId(ending.name, f"{ending.query} {number}", ending.batch))
            for number, span in enumerate(cut)
        ]

    def _resume(self, begin: QueryPosition, end: QueryPosition) -> None:
        """Keep the cursor with the full lease: Spark has now logged its name.

        If the first batch is repeated, `initialOffset` has made another cursor, which is not needed.
        """
        if begin.name != end.name:
            self._logs.release(begin)
        kept = dict(end.initial)
        for endpoint, offset in begin.offsets.items():
            if not begin.is_beginning and begin.epochs[endpoint] == end.epochs.get(endpoint):
                kept[endpoint] = offset
        for endpoint in end.offsets:
            if begin.epochs.get(endpoint) in (None, end.epochs[endpoint]):
                self._logs.keep(endpoint, replace(end, offsets=kept), self._options.stream_lease)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; runs in a task, on a copy of this object."""
        assert isinstance(partition, RangePartition)
        columns = columns_of(self._schema, self._options, session_zone())
        yield from read_range(partition, columns, self._options, self._options.stream_lease)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge everything before ``end``: Spark has committed it."""
        if self._gave_nothing:
            # Spark has logged a batch all the same, so another source of the query has records.
            self._short_waits_until = time.monotonic() + _SHORT_WAITS_FOR
        done = self._logs.relocated(QueryPosition.from_json(end))
        for endpoint in done.offsets:
            self._logs.keep(endpoint, done)

    def stop(self) -> None:
        """Close the connections. Spark often skips this call, so nothing depends on it."""
        self._times.close()
        self._logs.close()


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises its reason whenever Spark asks it anything.

    If the format raised when Spark creates the stream reader, Spark would report a missing reader instead of
    the reason.
    """

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        """Raise the reason."""
        raise self._reason

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise the reason."""
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the reason."""
        raise self._reason

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the reason."""
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the reason."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the reason."""
        raise self._reason
