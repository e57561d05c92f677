"""The driver's side of a streaming read: where the query stands, and how much it should take next."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.aquifer.subscriber.log_client import LogClient, LogState
from penstock.spark.columns import Columns
from penstock.spark.demand import AdaptiveDemand
from penstock.spark.options import BadOption, SourceOptions
from penstock.spark.source.positions import Piece, Position, pieces
from penstock.spark.source.reading import DataLoss, curve_client, read_piece

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferStreamReader"]

_log = logging.getLogger("penstock.spark")

_FIRST_BATCH = 10_000
"""Records in the first batch of an adaptive query, when nothing is known about it yet."""


class PiecePartition(InputPartition):
    """A piece, on its way to a task."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece)
        self.piece = piece


class AquiferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query run, in a process beside the driver; ``read`` runs on copies in the executors."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns_of = (schema, options.value)
        self._options = options
        self._clients: dict[str, LogClient] = {}
        self._demand: AdaptiveDemand | None = None
        self._asked: tuple[float, int] | None = None
        """When the last batch was given to Spark, and how many records it had."""
        self._heads: dict[str, int] = {}
        self._until: Mapping[str, int] | None = None
        """Where to end, for the trigger AvailableNow."""
        self._beginning: Position | None = None
        if options.target_seconds is not None:
            most = options.max_records or 2**63 - 1
            start = min(_FIRST_BATCH, most)
            self._demand = AdaptiveDemand(options.target_seconds, start=start, most=most)

    # ---------------------------------------------------------------- where it stands
    def initialOffset(self) -> dict[str, Any]:
        """Where the query begins; the gateways keep everything from there on."""
        if self._beginning is None:
            self._beginning = self._begin()
        return self._beginning.to_json()

    def _begin(self) -> Position:
        options = self._options
        name = options.subscription or f"spark-{secrets.token_hex(8)}"
        offsets, epochs = {}, {}
        for endpoint in options.endpoints:
            state = self._client(endpoint).look(name=name, lease=options.lease)
            if options.subscription is not None and state.acknowledged is not None:
                offset = state.acknowledged
            else:
                offset = self._resolved(options.starting, endpoint, state)
                self._client(endpoint).look(name=name, lease=options.lease, acknowledge=offset)
            offsets[endpoint], epochs[endpoint] = offset, state.epoch
        return Position(offsets, epochs, offsets, name, self._partitions())

    def _resolved(self, wanted: str | dict[str, int], endpoint: str, state: LogState) -> int:
        if wanted == "earliest":
            return state.first
        if wanted == "latest":
            return state.head
        assert isinstance(wanted, dict)
        offset = wanted[endpoint]
        if not state.first <= offset <= state.head:
            raise BadOption(
                "startingOffsets", offset, f"{endpoint} has the offsets {state.first} to {state.head - 1}"
            )
        return offset

    def _partitions(self) -> int:
        if self._options.partitions is not None:
            return self._options.partitions
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        cores = context.defaultParallelism if context is not None else 2
        return max(1, cores // len(self._options.endpoints))

    # ---------------------------------------------------------------- how much to take
    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow for each trigger."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything that is there now, and nothing that comes later."""
        self._until = {endpoint: self._client(endpoint).look().head for endpoint in self._options.endpoints}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch should end: as far as there are records, and the query can take."""
        self._note_duration()
        here = Position.from_json(start)
        states = self._wait_for_news(here)
        room = self._room(limit, states)
        there = {endpoint: self._available(endpoint, state) for endpoint, state in states.items()}
        ends = _shared_out({e: max(there[e] - here.offsets[e], 0) for e in there}, room)
        taken = sum(ends.values())
        if not taken:
            return start  # Spark compares texts: the very same one means that there is nothing new.
        self._asked = (time.monotonic(), taken)
        return here.at({e: here.offsets[e] + ends[e] for e in ends}, here.partitions).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the logs go, for the query's progress report."""
        return {"offsets": dict(sorted(self._heads.items()))} if self._heads else None

    def _wait_for_news(self, here: Position) -> dict[str, LogState]:
        options = self._options
        states = {e: self._look(e, here) for e in options.endpoints}
        deadline = time.monotonic() + options.wait
        while self._until is None and not any(s.head > here.offsets[e] for e, s in states.items()):
            left = (deadline - time.monotonic()) / len(options.endpoints)
            if left <= 0:
                break
            for endpoint in options.endpoints:
                states[endpoint] = self._look(endpoint, here, beyond=here.offsets[endpoint], wait=left)
        self._heads = {endpoint: state.head for endpoint, state in states.items()}
        return states

    def _look(self, endpoint: str, here: Position, **wishes: Any) -> LogState:
        lease = self._options.lease
        state = self._client(endpoint).look(name=here.name, lease=lease, **wishes)
        if state.epoch != here.epochs[endpoint]:
            raise DataLoss(
                f"{endpoint} has started a new log (epoch {state.epoch}, not {here.epochs[endpoint]}): the "
                "offsets of the old one mean nothing in it. Start the query with a new checkpoint"
            )
        return state

    def _available(self, endpoint: str, state: LogState) -> int:
        return state.head if self._until is None else min(state.head, self._until[endpoint])

    def _room(self, limit: ReadLimit, states: Mapping[str, LogState]) -> int:
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**63 - 1
        if self._options.max_bytes is not None:
            records = sum(state.records for state in states.values())
            nbytes = sum(state.nbytes for state in states.values())
            if records and nbytes:
                room = min(room, max(1, self._options.max_bytes * records // nbytes))
        return min(room, self._demand.size) if self._demand is not None else room

    def _note_duration(self) -> None:
        if self._asked is not None and self._demand is not None:
            since, records = self._asked
            self._demand.observed(records, time.monotonic() - since)
        self._asked = None

    # ---------------------------------------------------------------- reading
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        ending = Position.from_json(end)
        begin = Position.from_json(start).start_of_batch_to(ending)
        return [PiecePartition(piece) for piece in pieces(begin, ending)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task, on a copy of this object that has nothing but options and schema."""
        assert isinstance(partition, PiecePartition)
        yield from read_piece(partition.piece, Columns(*self._columns_of), self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before ``end`` is safe with Spark: the gateways need not keep it."""
        done = Position.from_json(end)
        for endpoint, offset in done.offsets.items():
            self._client(endpoint).look(name=done.name, lease=self._options.lease, acknowledge=offset)

    def stop(self) -> None:
        """Often it does not come, so nothing depends on it: the lease ends by itself."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, endpoint: str) -> LogClient:
        if endpoint not in self._clients:
            options = self._options
            curve = curve_client(options.curve_key, options.curve_server)
            self._clients[endpoint] = LogClient(endpoint, patience=options.patience, curve=curve)
        return self._clients[endpoint]


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
