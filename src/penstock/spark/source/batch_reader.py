"""A batch read: what is in the logs now, or between two offsets.

Nobody tells a data source that a read is over. So the gateways keep its records for a minute, until the first
task starts; while tasks run, these have them kept; and some seconds after the last one has ended they may go.
Meanwhile a source that has filled its log waits. With ``leaseSeconds`` the user says how long that may be: on
a busy cluster the next task may start later.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.columns import Columns
from penstock.spark.options import BadOption, SourceOptions
from penstock.spark.source.gateways import Gateways, offset_in
from penstock.spark.source.positions import Piece, Position, partition_count, pieces
from penstock.spark.source.reading import PiecePartition, read_piece, renew_lease
from penstock.spark.source.zones import session_zone

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchReader"]

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
        options, gateways = self._options, Gateways(self._options)
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
            start = Position(starts, epochs, starts, name, 1)
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
        cut = pieces(start, start.at(ends, parts))
        alone = len(cut) == 1
        return [PiecePartition(piece, alone) for piece in cut] or [PiecePartition(_nothing(start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, PiecePartition)
        piece, options = partition.piece, self._options
        if piece.start < piece.stop:
            lease = options.lease or _UNTIL_THE_NEXT_STARTS
            renew_lease(piece, options, lease)  # For the tasks that have not started, too.
            yield from read_piece(piece, Columns(*self._columns_of, session_zone()), options, lease)
            if partition.alone:
                renew_lease(piece, options, _AT_ONCE)


def _nothing(start: Position) -> Piece:
    endpoint = next(iter(start.offsets))
    return Piece(endpoint, start.epochs[endpoint], 0, 0, start.name)
