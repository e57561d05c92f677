"""The driver's side of a streaming read: where the query stands, and how much it should take next."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.aquifer.subscriber.log_client import LogState
from penstock.spark.columns import Columns
from penstock.spark.demand import AdaptiveDemand
from penstock.spark.options import SourceOptions
from penstock.spark.source.gateways import Gateways, offset_in
from penstock.spark.source.positions import Position, partition_count, pieces
from penstock.spark.source.reading import PiecePartition, read_piece
from penstock.spark.source.zones import session_zone

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferStreamReader"]

_UNBOUNDED: Final = 2**63 - 1
_FIRST_BATCH: Final = 10_000
"""Records in the first batch of an adaptive query, when nothing is known about it yet."""
_TURN: Final = 0.05
"""Seconds to wait for news of one gateway, when there are others as well."""
_PAUSE: Final = 1.0
"""Seconds between looks at gateways whose streams have ended."""


class AquiferStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query run, in a process beside the driver; ``read`` runs on copies in the executors."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns_of = (schema, options.value)
        self._options = options
        self._gateways = Gateways(options)
        self._demand: AdaptiveDemand | None = None
        self._warm = False
        """Whether a batch has run."""
        self._asked: tuple[float, int] | None = None
        """When the last batch was given to Spark, and how many records it had."""
        self._heads: dict[str, int] = {}
        self._until: Mapping[str, int] | None = None
        """Where to end, for the trigger AvailableNow."""
        self._beginning: Position | None = None
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

    def _begin(self) -> Position:
        options = self._options
        name = options.subscription or f"spark-{secrets.token_hex(8)}"
        offsets, epochs = {}, {}
        for endpoint in options.endpoints:
            state = self._gateways.look(endpoint, name=name)
            offset = state.acknowledged if options.subscription is not None else None
            if offset is None:
                offset = offset_in(state, options.starting, endpoint, "startingOffsets")
            offsets[endpoint] = offset
            epochs[endpoint] = state.epoch
        beginning = Position(offsets, epochs, offsets, name, 1)
        kept = {endpoint: self._gateways.keep(endpoint, beginning) for endpoint in options.endpoints}
        if options.starting == "earliest":
            # The oldest may have gone since it was looked at. Now it stays.
            beginning = replace(beginning, offsets=kept, initial=kept)
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
        here, states = self._wait_for_news(self._gateways.found(Position.from_json(start)))
        waiting = {e: max(self._available(e, s) - here.offsets[e], 0) for e, s in states.items()}
        taken = _shared_out(waiting, self._room(limit, states))
        records = sum(taken.values())
        if not records:
            return start  # Spark compares texts: the very same one means that there is nothing new.
        self._asked = (time.monotonic(), records)
        parts = partition_count(self._options.partitions, len(taken), records)
        return here.at({e: here.offsets[e] + n for e, n in taken.items()}, parts).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the logs go, and which of them have ended, for the query's progress report."""
        if not self._heads:
            return None
        ended = self._gateways.ended
        return {"offsets": dict(sorted(self._heads.items())), **({"ended": ended} if ended else {})}

    def _wait_for_news(self, here: Position) -> tuple[Position, dict[str, LogState]]:
        """How the logs are, as soon as there is something new in one of them, or the time is over.

        Spark asks again at once. While nothing happens, the waiting is done here.
        """
        deadline = time.monotonic() + self._options.wait
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

    def _look(self, endpoint: str, here: Position, **wishes: Any) -> tuple[Position, LogState]:
        lease = self._gateways.lease(here)
        state = self._gateways.look(endpoint, name=here.name, lease=lease, **wishes)
        return self._gateways.checked(endpoint, state, here), state

    def _let_go(self, endpoint: str, here: Position, state: LogState) -> None:
        """Spark asks for a next batch when it has written down that all before it are done.

        It says so itself, with `commit`, when it has logged the next one. If the last batch was all that the
        log has room for, there is no next one until it may be forgotten.
        """
        if state.acknowledged is not None and state.acknowledged < here.offsets[endpoint]:
            self._gateways.keep(endpoint, here)

    def _available(self, endpoint: str, state: LogState) -> int:
        return state.head if self._until is None else min(state.head, self._until[endpoint])

    def _room(self, limit: ReadLimit, states: Mapping[str, LogState]) -> int:
        if isinstance(limit, ReadAllAvailable):
            return _UNBOUNDED  # The trigger Once: there is no second batch that could take the rest.
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNBOUNDED
        if self._options.max_bytes is not None:
            records = sum(state.records for state in states.values())
            nbytes = sum(state.nbytes for state in states.values())
            if records and nbytes:
                room = min(room, max(1, self._options.max_bytes * records // nbytes))
        return min(room, self._demand.size) if self._demand is not None else room

    def _note_duration(self) -> None:
        if self._asked is not None and self._demand is not None:
            since, records = self._asked
            if self._warm:
                self._demand.observed(records, time.monotonic() - since)
            # The first batch of a run pays for Java's warming up, and tells nothing about the others.
            self._warm = True
        self._asked = None

    # ---------------------------------------------------------------- reading
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        begin = self._gateways.found(Position.from_json(start))
        ending = self._gateways.found(Position.from_json(end))
        cut = pieces(begin, ending)
        if not self._resumed:
            self._resume(begin, ending)
            self._resumed = True
        return [PiecePartition(piece) for piece in cut]

    def _resume(self, begin: Position, end: Position) -> None:
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
                self._gateways.keep(endpoint, here, self._options.lease)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task, on a copy of this object that has nothing but options and schema."""
        assert isinstance(partition, PiecePartition)
        columns = Columns(*self._columns_of, session_zone())
        yield from read_piece(partition.piece, columns, self._options, self._options.lease)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before ``end`` is safe with Spark: the gateways need not keep it."""
        done = self._gateways.found(Position.from_json(end))
        for endpoint in done.offsets:
            self._gateways.keep(endpoint, done)

    def stop(self) -> None:
        """Often it does not come, so nothing depends on it: the lease ends by itself."""
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
