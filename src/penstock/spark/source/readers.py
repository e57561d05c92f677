"""A batch read: what is in the logs now, or between two offsets.

Nobody tells a data source that a read is over. So the gateways keep its records for a minute, until the first
task starts; while tasks run, these have them kept; and some seconds after the last one has ended they may go.
Meanwhile a source that has filled its log waits. With ``leaseSeconds`` the user says how long that may be: on
a busy cluster the next task may start later.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.aquifer import LogState
from penstock.spark.errors import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.columns import Columns
from penstock.spark.source.decoders import session_zone
from penstock.spark.source.demand import AdaptiveDemand, BatchTimes
from penstock.spark.source.gateway_logs import GatewayLogs, offset_in
from penstock.spark.source.positions import OffsetRange, QueryPosition, cut_ranges, partition_count
from penstock.spark.source.ranges import RangePartition, read_range, renew_lease

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchReader", "AquiferStreamReader", "RefusedStreamReader"]

_UNTIL_IT_STARTS: Final = 60.0
"""Seconds that may pass between the planning of a read and its first task."""
_UNTIL_THE_NEXT_STARTS: Final = 10.0
"""Seconds that may pass between the end of a task and the start of the next."""
_AT_ONCE: Final = 0.001


class AquiferBatchReader(DataSourceReader):
    """``spark.read.format("aquifer")``."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns_of = (schema, options.value)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The pieces between the two offsets; Spark asks once, when the query is planned."""
        options, gateways = self._options, GatewayLogs(self._options)
        name = f"spark-read-{secrets.token_hex(8)}"
        try:
            starts, ends, epochs = {}, {}, {}
            for endpoint in options.endpoints:
                state = gateways.look(endpoint)
                starts[endpoint] = offset_in(state, options.starting, endpoint, "startingOffsets")
                ends[endpoint] = offset_in(state, options.ending, endpoint, "endingOffsets")
                epochs[endpoint] = state.epoch
                if starts[endpoint] > ends[endpoint]:
                    remedy = f"it is after the end, {ends[endpoint]}"
                    raise BadOption("startingOffsets", starts[endpoint], remedy)
            start = QueryPosition(starts, epochs, starts, name, 1)
            records = sum(ends.values()) - sum(starts.values())
            if records:
                lease = options.lease or _UNTIL_IT_STARTS
                kept = {endpoint: gateways.keep(endpoint, start, lease) for endpoint in options.endpoints}
                if options.starting in (None, "earliest"):
                    # The oldest may have gone since it was looked at. Now it stays.
                    start = replace(start, offsets=kept, initial=kept)
        finally:
            gateways.close()
        parts = partition_count(options.partitions, len(ends), records)
        cut = cut_ranges(start, start.at(ends, parts))
        alone = len(cut) == 1
        return [RangePartition(span, alone) for span in cut] or [RangePartition(_nothing(start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, RangePartition)
        span, options = partition.span, self._options
        if span.start < span.stop:
            lease = options.lease or _UNTIL_THE_NEXT_STARTS
            renew_lease(span, options, lease)  # For the tasks that have not started, too.
            yield from read_range(span, Columns(*self._columns_of, session_zone()), options, lease)
            if partition.alone:
                renew_lease(span, options, _AT_ONCE)


def _nothing(start: QueryPosition) -> OffsetRange:
    endpoint = next(iter(start.offsets))
    return OffsetRange(endpoint, start.epochs[endpoint], 0, 0, start.name)


_UNBOUNDED: Final = 2**63 - 1
_FIRST_BATCH: Final = 10_000
"""Records in the first batch of an adaptive query, when nothing is known about it yet."""
_TURN: Final = 0.05
"""Seconds to wait for news of one gateway, when there are others as well."""
_IN_COMPANY: Final = 0.02
"""Seconds to wait for records while another source of the query has some."""
_COMPANY: Final = 10.0
"""Seconds after which that is long ago."""
_MOST_OF_IT: Final = 0.8
"""A batch that took less of the time until the next one: Spark has waited for the rest of it."""
_PAUSE: Final = 1.0
"""Seconds between looks at gateways whose streams have ended."""


class AquiferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query run, in a process beside the driver; ``read`` runs on copies in the executors."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns_of = (schema, options.value)
        self._options = options
        self._gateways = GatewayLogs(options)
        self._demand: AdaptiveDemand | None = None
        self._warm = False
        """Whether a batch has run."""
        self._asked: tuple[float, int, Mapping[str, int]] | None = None
        """When the last batch was given to Spark, how many records it had, and where it ended."""
        self._times = BatchTimes()
        self._has_breaks = False
        """Whether Spark waits between batches, as a trigger with an interval does."""
        self._heads: dict[str, int] = {}
        self._until: Mapping[str, int] | None = None
        """Where to end, for the trigger AvailableNow."""
        self._beginning: QueryPosition | None = None
        self._gave_nothing = False
        """Whether Spark was told that there is nothing new."""
        self._alone_from = 0.0
        """When it will be long ago that another source of the query had records."""
        self._turn = 0
        self._resumed = False
        """Whether a batch was planned since this reader was made."""
        if options.target_seconds is not None:
            most = options.max_records or _UNBOUNDED
            start = min(_FIRST_BATCH, most)
            self._demand = AdaptiveDemand(options.target_seconds, start=start, most=most)

    # ---------------------------------------------------------------- where it stands
    def initialOffset(self) -> dict[str, Any]:
        """Where the query begins; the gateways keep everything from there on."""
        if self._beginning is None:
            self._beginning = self._begin()
        return self._beginning.to_json()

    def _begin(self) -> QueryPosition:
        options = self._options
        name = options.subscription or f"spark-{secrets.token_hex(8)}"
        offsets, epochs = {}, {}
        for endpoint in options.endpoints:
            state = self._gateways.look(endpoint, name=name)
            kept = state.acknowledged
            offset = offset_in(state, options.starting, endpoint, "startingOffsets")
            if kept is not None and options.starting is None:
                offset = kept  # A new checkpoint, and a subscription that was there before: it goes on.
            elif kept is not None and kept > offset:
                self._gateways.forget(endpoint, name)
            offsets[endpoint] = offset
            epochs[endpoint] = state.epoch
        beginning = QueryPosition(offsets, epochs, offsets, name, 1)
        held = {endpoint: self._gateways.keep(endpoint, beginning) for endpoint in options.endpoints}
        if options.starting in (None, "earliest"):
            # The oldest may have gone since it was looked at. Now it stays.
            beginning = replace(beginning, offsets=held, initial=held)
        return beginning

    # ---------------------------------------------------------------- how much to take
    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow for each trigger; to read everything that is there, Spark says so itself."""
        return ReadMaxRows(self._options.max_records or _UNBOUNDED)

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything that is there now, and nothing that comes later."""
        self._until = {endpoint: self._gateways.look(endpoint).head for endpoint in self._options.endpoints}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch should end: as far as there are records, and the query can take."""
        self._note_duration()
        here, states = self._wait_for_news(self._gateways.found(QueryPosition.from_json(start)))
        waiting = {e: max(self._available(e, s) - here.offsets[e], 0) for e, s in states.items()}
        taken = _shared_out(waiting, self._room(limit))
        if self._options.max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            taken = self._within_bytes(here, taken, self._options.max_bytes)
        records = sum(taken.values())
        self._gave_nothing = not records
        if not records:
            return start  # Spark compares texts: the very same one means that there is nothing new.
        parts = partition_count(self._options.partitions, len(taken), records)
        end = here.at({e: here.offsets[e] + n for e, n in taken.items()}, parts)
        if self._demand is not None:
            self._times.request(end.name)
            self._asked = time.monotonic(), records, end.offsets
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the logs go, and which of them have ended, for the query's progress report."""
        if not self._heads:
            return None
        ended = self._gateways.ended
        return {"offsets": dict(sorted(self._heads.items())), **({"ended": ended} if ended else {})}

    def _wait_for_news(self, here: QueryPosition) -> tuple[QueryPosition, dict[str, LogState]]:
        """How the logs are, as soon as there is something new in one of them, or the time is over.

        Spark asks again at once. While nothing happens, the waiting is done here.
        """
        deadline = time.monotonic() + self._patience()
        states = {}
        for endpoint in self._options.endpoints:
            here, states[endpoint] = self._look(endpoint, here)
            self._let_go(endpoint, here, states[endpoint])
        while self._until is None and not any(s.head > here.offsets[e] for e, s in states.items()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            open_ended = [endpoint for endpoint, state in states.items() if state.end is None]
            if not open_ended:
                # They would answer at once. No gateway has more to come, unless it is started again.
                time.sleep(min(left, _PAUSE))
            turn = left if len(states) == 1 else min(left, _TURN)
            for endpoint in open_ended or states:
                news = {"beyond": here.offsets[endpoint], "wait": turn}
                here, states[endpoint] = self._look(endpoint, here, **news)
        self._heads = {endpoint: state.head for endpoint, state in states.items()}
        return here, states

    def _patience(self) -> float:
        """How long to wait for news.

        Spark asks the sources of a query one after the other. While another one has records, nobody must wait
        for this one.
        """
        in_company = time.monotonic() < self._alone_from
        return min(self._options.wait, _IN_COMPANY) if in_company else self._options.wait

    def _look(self, endpoint: str, here: QueryPosition, **wishes: Any) -> tuple[QueryPosition, LogState]:
        lease = self._gateways.lease(here)
        state = self._gateways.look(endpoint, name=here.name, lease=lease, **wishes)
        return self._gateways.checked(endpoint, state, here), state

    def _let_go(self, endpoint: str, here: QueryPosition, state: LogState) -> None:
        """Spark asks for a next batch when it has written down that all before it are done.

        It says so itself, with `commit`, when it has logged the next one. If the last batch was all that the
        log has room for, there is no next one until it may be forgotten.
        """
        if state.acknowledged is not None and state.acknowledged < here.offsets[endpoint]:
            self._gateways.keep(endpoint, here)

    def _available(self, endpoint: str, state: LogState) -> int:
        return state.head if self._until is None else min(state.head, self._until[endpoint])

    def _within_bytes(self, here: QueryPosition, taken: Mapping[str, int], nbytes: int) -> dict[str, int]:
        """As many of these as have no more than so many bytes, or one record if that alone has more.

        GatewayLogs share the bytes. They take turns at being first: that one gets a record in any case.
        """
        within = dict.fromkeys(taken, 0)
        endpoints = [endpoint for endpoint in taken if taken[endpoint]]
        self._turn += 1
        turn = self._turn % max(len(endpoints), 1)
        endpoints = endpoints[turn:] + endpoints[:turn]
        for number, endpoint in enumerate(endpoints):
            start, share = here.offsets[endpoint], nbytes // (len(endpoints) - number)
            count, used = self._gateways.reach(endpoint, start, taken[endpoint], share)
            if not number and not count:
                count, used = self._gateways.reach(endpoint, start, 1, nbytes)
                if not count:
                    return within | {endpoint: 1}
            within[endpoint] = count
            nbytes -= used
        return within

    def _room(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            return _UNBOUNDED  # The trigger Once: there is no second batch that could take the rest.
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNBOUNDED
        return min(room, self._demand.size) if self._demand is not None else room

    def _note_duration(self) -> None:
        if self._asked is not None and self._demand is not None:
            since, records, end = self._asked
            elapsed = time.monotonic() - since
            seconds = self._times.seconds(end)
            if seconds is not None:
                self._has_breaks = seconds < _MOST_OF_IT * elapsed
            elif not self._has_breaks:
                seconds = elapsed  # One batch follows the other. The report comes a moment later.
            if self._warm and seconds is not None:
                self._demand.observed(records, min(seconds, elapsed))
            # The first batch of a run pays for Java's warming up, and tells nothing about the others.
            self._warm = True
        self._asked = None

    # ---------------------------------------------------------------- reading
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        begin = self._gateways.found(QueryPosition.from_json(start))
        ending = self._gateways.found(QueryPosition.from_json(end))
        cut = cut_ranges(begin, ending)
        if not self._resumed:
            self._resume(begin, ending)
            self._resumed = True
        return [RangePartition(span) for span in cut]

    def _resume(self, begin: QueryPosition, end: QueryPosition) -> None:
        """From now on Spark remembers the query's name: it is worth keeping a place under it.

        If this is the first batch once more, there is a new beginning as well, which is of no use.
        """
        if begin.name != end.name:
            self._gateways.release(begin)
        here = replace(begin, name=end.name)
        if begin.is_beginning or set(begin.offsets) != set(end.offsets):
            here = replace(end, offsets=end.initial)
        for endpoint in here.offsets:
            if begin.epochs.get(endpoint) == end.epochs[endpoint]:
                self._gateways.keep(endpoint, here, self._options.stream_lease)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task, on a copy of this object that has nothing but options and schema."""
        assert isinstance(partition, RangePartition)
        columns = Columns(*self._columns_of, session_zone())
        yield from read_range(partition.span, columns, self._options, self._options.stream_lease)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before ``end`` is safe with Spark: the gateways need not keep it."""
        if self._gave_nothing:
            # Spark has logged a batch all the same: another source of the query has records.
            self._alone_from = time.monotonic() + _COMPANY
        done = self._gateways.found(QueryPosition.from_json(end))
        for endpoint in done.offsets:
            self._gateways.keep(endpoint, done)

    def stop(self) -> None:
        """Often it does not come, so nothing depends on it: the lease ends by itself."""
        self._times.close()
        self._gateways.close()


def _shared_out(waiting: Mapping[str, int], room: int) -> dict[str, int]:
    """How many records to take from each gateway: the same from all, as far as they have them."""
    taken = dict.fromkeys(waiting, 0)
    while room > 0 and (hungry := [e for e in waiting if taken[e] < waiting[e]]):
        share = max(1, room // len(hungry))
        for endpoint in hungry:
            more = min(share, waiting[endpoint] - taken[endpoint], room)
            taken[endpoint] += more
            room -= more
    return taken


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises what was wrong, whatever it is asked."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        """Says why not."""
        raise self._reason

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says why not."""
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> None:
        """Says why not."""
        raise self._reason

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Says why not."""
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Says why not."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Says why not."""
        raise self._reason
