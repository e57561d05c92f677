"""Records as Arrow batches with the columns of a schema, built once on their way into the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.aquifer.records.arrow import from_arrow_stream, to_arrow_stream
from penstock.aquifer.records.schemas.reference import SchemaCodec

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ColumnCodec"]


class ColumnCodec:
    """Elements are dictionaries; what is stored and read are Arrow batches with a row for each."""

    name = "arrow"

    def __init__(self, codec: SchemaCodec) -> None:
        self._schema = codec.arrow_schema()
        self._row = codec.row

    def batch_of(self, elements: Sequence[Any]) -> pyarrow.RecordBatch:
        """The rows of some elements; ValueError if one of them does not fit its columns."""
        import pyarrow as pa

        try:
            return pa.RecordBatch.from_pylist(list(map(self._row, elements)), schema=self._schema)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
            raise ValueError(f"it does not fit its columns: {error}") from None

    def encode(self, element: Any) -> bytes:
        """One element as an IPC stream with one row."""
        return bytes(to_arrow_stream(self.batch_of([element])))

    def decode(self, value: bytes) -> Any:
        """The batch in an IPC stream."""
        return from_arrow_stream(value)
