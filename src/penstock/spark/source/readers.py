"""The reader of ``spark.readStream.format("aquifer")``.

A streaming read has one reader in a process beside the driver. It plans batches, moves the cursors of the
query, and decides how much a batch takes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.aquifer import LogState
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_pace import UNBOUNDED, BatchPace
from penstock.spark.source.columns import columns_of
from penstock.spark.source.dead_letters import TaskId
from penstock.spark.source.decoders import session_zone
from penstock.spark.source.demand import shares
from penstock.spark.source.gateway_logs import QUERY_PREFIX, GatewayLogs, StateOptions
from penstock.spark.source.lag import Lag
from penstock.spark.source.positions import QueryPosition, cut_ranges
from penstock.spark.source.ranges import RangePartition, key_partitions, read_partition
from penstock.spark.spark_interface import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferStreamReader", "RefusedStreamReader"]

_log = logging.getLogger("penstock.spark")

_TURN: Final = 0.05
"""Seconds to wait for one gateway if there are several."""
_LONGEST_WAIT: Final = 10.0
"""Seconds for a question to a gateway that waits with its answer."""
_SHORT_WAIT: Final = 0.02
"""Seconds to wait for records while another source of the query has some."""
_SHORT_WAITS_FOR: Final = 10.0
"""Seconds for which waits stay short after another source had records."""
_ENDED_PAUSE: Final = 1.0
"""Seconds between two questions to gateways whose streams have ended."""


class AquiferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query in a process beside the driver; ``read`` runs on copies in the tasks."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._logs = GatewayLogs(options)
        self._pace = BatchPace(options)
        self._heads: dict[str, int] = {}
        self._lag = Lag(self._logs.time_of)
        self._until: Mapping[str, int] | None = None
        """Where to end with the trigger AvailableNow."""
        self._beginning: QueryPosition | None = None
        self._gave_nothing = False
        """Whether the last answer to Spark was that there is nothing new."""
        self._others_had_records = False
        """Whether Spark has run a batch for another source since the last answer."""
        self._short_waits_until = 0.0
        """Until then, waits are short, because another source of the query has had records."""
        self._turn = 0
        self._resumed = False
        """Whether this reader has planned a batch."""

    # ---------------------------------------------------------------- the beginning
    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins; the gateways keep every record from there on."""
        if self._beginning is None:
            self._beginning = self._begin()
        return self._beginning.to_json()

    def _begin(self) -> QueryPosition:
        options = self._options
        name = options.subscription or f"{QUERY_PREFIX}{secrets.token_hex(8)}"
        offsets, epochs = {}, {}
        for endpoint in options.endpoints:
            state = self._logs.state(endpoint, name=name)
            kept = state.acknowledged
            offset = self._logs.start_of(endpoint, state)
            if kept is not None and options.starting is None and options.starting_at is None:
                offset = kept
                _log.warning(
                    "the checkpoint is new, but %s knows the subscription %r: the query continues there, at "
                    "offset %d. If the checkpoint was deleted, its last batch may take effect twice; set "
                    'option("startingOffsets") to start elsewhere',
                    endpoint,
                    name,
                    kept,
                    extra={"endpoint": endpoint},
                )
            elif kept is not None and kept > offset:
                self._logs.drop_cursor(endpoint, name)
            elif options.subscription is None:
                self._logs.warn_of_silent_query(endpoint, state, offset)
            offsets[endpoint] = offset
            epochs[endpoint] = state.epoch
        self._logs.check_different(epochs)
        beginning = QueryPosition(offsets, epochs, offsets, name, 1, query=secrets.token_hex(8))
        held = {endpoint: self._logs.keep(endpoint, beginning) for endpoint in options.endpoints}
        # The oldest record may have gone since the first question. From now on it stays.
        oldest = {e: held[e] if self._logs.starts_with_oldest(e) else offsets[e] for e in offsets}
        return replace(beginning, offsets=oldest, initial=oldest)

    # ---------------------------------------------------------------- the size of a batch
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set for a trigger."""
        return ReadMaxRows(self._options.max_records or UNBOUNDED)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end now: the query ends there."""
        self._until = {endpoint: self._logs.state(endpoint).head for endpoint in self._options.endpoints}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        self._pace.note_duration()
        logged = self._logs.relocated(QueryPosition.from_json(start))
        began = time.monotonic()
        here, states = self._wait_for_records(self._logs.with_added(logged))
        waiting = self._waiting(here, states)
        if self._until is None and not isinstance(limit, ReadAllAvailable):
            here, states = self._wait_for_more(here, states, self._batch_size(limit))
            waiting = self._waiting(here, states)
        waited = time.monotonic() - began
        taken = shares(waiting, self._batch_size(limit))
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            taken = self._within_bytes(here, taken, self._options.max_bytes)
        records = sum(taken.values())
        ends = {endpoint: here.offsets[endpoint] + count for endpoint, count in taken.items()}
        held = {endpoint: (state.records, state.nbytes) for endpoint, state in states.items()}
        self._lag.planned(self._heads, ends, waited, held)
        self._gave_nothing = not records
        self._others_had_records = False
        if not records:
            return start  # Spark compares the JSON: the same again means that there is nothing new.
        end = here.at(ends, self._pace.tasks(taken.values()))
        self._pace.planned(end, records, sum(waiting.values()) - records)
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
        reports = self._pace.reports(self._options.endpoints)
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
            began = time.monotonic()
            for endpoint in open_ended or states:
                beyond = here.offsets[endpoint]
                here, states[endpoint] = self._checked_state(endpoint, here, beyond=beyond, wait=turn)
            # One gateway answers when a record arrives. Of several, one may have had it since the turn began.
            self._pace.nothing_until(time.monotonic() if len(states) == 1 else began)
        self._heads = {endpoint: state.head for endpoint, state in states.items()}
        return here, states

    def _waiting(self, here: QueryPosition, states: Mapping[str, LogState]) -> dict[str, int]:
        """How many records of each log are in no batch yet."""
        return {e: max(self._available(e, s) - here.offsets[e], 0) for e, s in states.items()}

    def _wait_for_more(
        self, here: QueryPosition, states: dict[str, LogState], enough: int
    ) -> tuple[QueryPosition, dict[str, LogState]]:
        """Wait for a fuller batch, if the records may get older.

        A gateway answers when it has enough records for a whole batch. Several are asked in turn.
        """
        while not self._keeps_others_waiting():
            waiting = self._waiting(here, states)
            missing = min(enough, self._fill(states)) - sum(waiting.values())
            left = self._pace.wait(sum(waiting.values()))
            open_ended = [endpoint for endpoint, state in states.items() if state.end is None]
            if missing <= 0 or left <= 0 or not open_ended:
                break
            turn = min(left, _LONGEST_WAIT if len(open_ended) == 1 else _TURN / len(open_ended))
            for endpoint in open_ended:
                beyond = min(states[endpoint].head + missing - 1, UNBOUNDED)
                here, states[endpoint] = self._checked_state(endpoint, here, beyond=beyond, wait=turn)
        self._heads = {endpoint: state.head for endpoint, state in states.items()}
        return here, states

    def _fill(self, states: Mapping[str, LogState]) -> int:
        """About how many records have all the bytes of a batch, if they are as large as the others."""
        records = sum(state.records for state in states.values())
        nbytes = sum(state.nbytes for state in states.values())
        if self._options.max_bytes is None or not nbytes:
            return UNBOUNDED
        return max(1, self._options.max_bytes * records // nbytes)

    def _wait_seconds(self) -> float:
        """How long to wait for records.

        Spark asks the sources of a query one after the other, so this source must not delay the others while
        they have records.
        """
        return min(self._options.wait, _SHORT_WAIT) if self._keeps_others_waiting() else self._options.wait

    def _keeps_others_waiting(self) -> bool:
        # If the trigger has an interval, the last batch may be long ago, and says no less about the next.
        return self._others_had_records or time.monotonic() < self._short_waits_until

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
            return UNBOUNDED  # The trigger Once has only one batch.
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else UNBOUNDED
        return self._pace.size(most)

    # ---------------------------------------------------------------- reading
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        begin = self._logs.relocated(QueryPosition.from_json(start))
        ending = self._logs.relocated(QueryPosition.from_json(end))
        by_key = self._options.partition_by is not None
        cut = cut_ranges(begin, replace(ending, partitions=1) if by_key else ending)
        if not self._resumed:
            self._resume(begin, ending)
            self._resumed = True
        if by_key:
            task = TaskId(ending.name, ending.query, ending.batch)
            return key_partitions(cut, ending.partitions * len(ending.offsets), task)
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
        columns = columns_of(self._schema, self._options, session_zone())
        yield from read_partition(partition, columns, self._options, self._options.stream_lease)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge everything before ``end``: Spark has committed it."""
        if self._gave_nothing:
            # Spark has logged a batch all the same, so another source of the query has records.
            self._others_had_records = True
            self._short_waits_until = time.monotonic() + _SHORT_WAITS_FOR
        done = self._logs.relocated(QueryPosition.from_json(end))
        for endpoint in done.offsets:
            if not self._logs.has_kept(endpoint, done):  # `latestOffset` has, as a rule.
                self._logs.keep(endpoint, done)

    def stop(self) -> None:
        """Close the connections. Spark often skips this call, so nothing depends on it."""
        self._pace.close()
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
