"""Rows as records of Avro or Protocol Buffers; their schema is an option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.arrow_layouts import columns_in_utc
from penstock.spark.errors import BadOption, BadSchema, UnwritableRow
from penstock.spark.source.arrow_rows import fitted
from penstock.spark.source.records import Reasons
from penstock.spark.source.schema_records import codec_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SchemaRowEncoder"]


class SchemaRowEncoder:
    """Writes the rows of a query as ``"avro"`` or ``"protobuf"``."""

    def __init__(self, schema: StructType, value: str, text: str | None) -> None:
        codec = codec_of(value, text)
        if any(part.startswith("id=") for part in str(text).partition("?")[2].split("&")):
            remedy = "the sink writes records without the header of a schema registry: leave id out"
            raise BadOption("valueSchema", text, remedy)
        self._value = value
        self._encode = codec.encode
        self._columns: pa.Schema | None = None
        """The columns with the types of the schema; None if no column can hold some of its fields."""
        try:
            known = codec.arrow_schema()
        except ValueError:
            return  # The codec checks each row.
        for name in schema.names:
            if name not in known.names:
                raise BadSchema(
                    f"the query has a column {name}, and the schema of the records has no such field; it has "
                    f"{', '.join(known.names)}: select these"
                )
        self._columns = pa.schema([known.field(name) for name in schema.names])

    def rows(self, batch: pa.RecordBatch) -> list[bytes]:
        """Each row of an Arrow batch as a record."""
        columns = pa.RecordBatch.from_arrays(columns_in_utc(batch), names=batch.schema.names)
        if self._columns is not None:
            # Not every writer checks that a number is within the bounds of its type.
            reasons: Reasons = {}
            columns = fitted(columns, self._columns, "", reasons)
            if reasons:
                raise self._unwritable(reasons[min(reasons)])
        try:
            rows: list[dict[str, Any]] = columns.to_pylist(maps_as_pydicts="strict")
            return [self._encode(row) for row in rows]
        except (ValueError, OverflowError, KeyError, pa.ArrowException) as error:
            raise self._unwritable(error) from error

    def _unwritable(self, reason: object) -> UnwritableRow:
        return UnwritableRow(
            f"a row cannot be written as {self._value}: {reason}. Change the columns of the query, or the "
            'schema in option("valueSchema")'
        )
