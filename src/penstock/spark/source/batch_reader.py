"""A batch read: what is in the logs now, or between two offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.aquifer.subscriber.log_client import LogClient
from penstock.spark.columns import Columns
from penstock.spark.options import BadOption, SourceOptions
from penstock.spark.source.positions import Piece, Position, pieces
from penstock.spark.source.reading import curve_client, read_piece
from penstock.spark.source.stream_reader import PiecePartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AquiferBatchReader"]


class AquiferBatchReader(DataSourceReader):
    """``spark.read.format("aquifer")``."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns_of = (schema, options.value)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The pieces between the two offsets; Spark asks once, when the query is planned."""
        options = self._options
        starts, ends, epochs = {}, {}, {}
        for endpoint in options.endpoints:
            curve = curve_client(options.curve_key, options.curve_server)
            client = LogClient(endpoint, patience=options.patience, curve=curve)
            try:
                state = client.look()
            finally:
                client.close()
            starts[endpoint] = self._resolved(
                "startingOffsets", options.starting, endpoint, state.first, state.head
            )
            ends[endpoint] = self._resolved(
                "endingOffsets", options.ending, endpoint, state.first, state.head
            )
            epochs[endpoint] = state.epoch
            if starts[endpoint] > ends[endpoint]:
                raise BadOption("startingOffsets", starts[endpoint], f"it is after the end, {ends[endpoint]}")
        end = Position(ends, epochs, starts, "", options.partitions or 2)
        return [PiecePartition(piece) for piece in pieces(starts, end)] or [PiecePartition(_nothing(end))]

    @staticmethod
    def _resolved(name: str, wanted: str | dict[str, int], endpoint: str, first: int, head: int) -> int:
        if isinstance(wanted, str):
            return first if wanted == "earliest" else head
        if not first <= wanted[endpoint] <= head:
            raise BadOption(name, wanted[endpoint], f"{endpoint} has the offsets {first} to {head - 1}")
        return wanted[endpoint]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, PiecePartition)
        if partition.piece.start < partition.piece.stop:
            yield from read_piece(partition.piece, Columns(*self._columns_of), self._options)


def _nothing(end: Position) -> Piece:
    endpoint = next(iter(end.offsets))
    return Piece(endpoint, end.epochs[endpoint], 0, 0)
