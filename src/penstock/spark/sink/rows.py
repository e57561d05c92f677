"""From Arrow batches of Spark to the pieces that a gateway takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.aquifer.arrow import stream
from penstock.aquifer.batches import ARROW, MSGPACK, Notes, pack_notes, pack_values
from penstock.spark.columns import BadSchema
from penstock.spark.sink.encoders import RowEncoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Piece", "RowPacker"]

_LARGEST: Final = 512 * 1024
"""Bytes of a piece, about."""
_BYTES: Final = ("binary", "string")


class Piece(NamedTuple):
    """Records that are staged at once."""

    records: int
    payload: bytes | memoryview
    notes: bytes
    format: str


class RowPacker:
    """Makes records of rows, as the option ``value`` says."""

    def __init__(self, schema: StructType, value: str) -> None:
        self._value = value
        self._rows = RowEncoder(schema, value) if value in ("json", "msgpack") else None
        names = set(schema.names)
        if value in ("binary", "string"):
            kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
            fits = kinds.get("value") in _BYTES and kinds.get("key", "binary") in _BYTES
            if not fits or names - {"value", "key"}:
                columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
                raise BadSchema(
                    f'option "value" is {value!r}: then a row is a column value, and may have a column key, '
                    f"both string or binary; this query has {columns}. Select these, or use "
                    'option("value", "json")'
                )

    def pieces(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """The records of a batch, in pieces of a good size."""
        rows = max(1, batch.num_rows * _LARGEST // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield from self._split(batch.slice(start, rows))

    def _split(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        piece, half = self._piece(batch), batch.num_rows // 2
        if len(piece.payload) <= 2 * _LARGEST or not half:
            yield piece
            return
        # Arrow has a name once for a column, JSON once for each row.
        yield from self._split(batch.slice(0, half))
        yield from self._split(batch.slice(half))

    def _piece(self, batch: pa.RecordBatch) -> Piece:
        now = time.time_ns() // 1000
        if self._value == "arrow":
            return Piece(batch.num_rows, stream(batch), pack_notes(Notes(now)), ARROW)
        if self._rows is not None:
            values, keys = self._rows.rows(batch), None
        else:
            values = _as_bytes(batch.column("value"), "value")
            keys = batch.column("key").cast(pa.binary()).to_pylist() if "key" in batch.schema.names else None
        return Piece(len(values), pack_values(values), pack_notes(Notes(now, keys)), MSGPACK)


def _as_bytes(column: Any, name: str) -> list[bytes]:
    if column.null_count:
        raise ValueError(f"the column {name} has {column.null_count} nulls, but a record has a value: filter")
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values
