"""Records of JSON or MessagePack as Arrow columns, by way of Python objects of the schema's types.

pyarrow reads JSON itself, and many times as fast, but knows no maps and not all that Spark takes for a
number or a time; MessagePack it does not know at all.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.spark.source.decoders import Dialect, decoder
from penstock.spark.source.zones import Zone

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["NotOfTheSchema", "TypedRecords", "may_be_null", "misplaced_null"]


class NotOfTheSchema(ValueError):
    """A record that is not what the schema says."""

    def __init__(self, index: int, reason: object) -> None:
        super().__init__(str(reason))
        self.index = index
        """Which of the records it is."""


class TypedRecords:
    """Reads records of one schema."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, form: str, zone: Zone) -> None:
        self._schema = arrow_schema
        self._read = _reader(schema, Dialect(form, zone))
        self._read_leniently = _reader(schema, Dialect(form, zone, lenient=True)) if form == "json" else None

    def batch(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """A row for each record; what a record does not have is null."""
        rows: list[Any] = []
        for value in values:
            try:
                rows.append(self._read(value))
            except (ValueError, OverflowError) as error:
                rows.append(self._second_look(value, len(rows), error))
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            # One of them does not fit. Which one, pyarrow does not say.
            for index, row in enumerate(rows):
                try:
                    pa.RecordBatch.from_pylist([row], schema=self._schema)
                except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                    raise NotOfTheSchema(index, error) from error
            raise

    def _second_look(self, value: bytes, index: int, reason: Exception) -> Any:
        if self._read_leniently is None:
            raise NotOfTheSchema(index, reason) from reason
        try:
            if b"NaN" in value or b"Infinity" in value:
                value = _with_constants_as_texts(value)
            return self._read_leniently(value)
        except (ValueError, OverflowError) as error:
            raise NotOfTheSchema(index, error) from error


def _reader(schema: StructType, dialect: Dialect) -> Callable[[bytes], Any]:
    record = decoder(schema, dialect)
    decode: Callable[[bytes], Any] = (
        msgspec.json.Decoder(record.wire).decode
        if dialect.form == "json"
        else msgspec.msgpack.Decoder(record.wire).decode
    )
    convert = record.convert
    if convert is None:
        return decode
    return lambda value: convert(decode(value))


def _with_constants_as_texts(value: bytes) -> bytes:
    """Many write ``NaN`` where JSON allows no such thing: Python's own module, for one."""
    record = json.loads(value, parse_constant=str, parse_float=decimal.Decimal)
    return msgspec.json.Encoder(decimal_format="number").encode(record)


def may_be_null(field: pa.Field) -> bool:
    """Whether a field, and everything in it, may be null."""
    kind = field.type
    if not field.nullable:
        return False
    if pa.types.is_map(kind):
        return may_be_null(kind.item_field)  # A key is there anyway.
    return all(may_be_null(kind.field(index)) for index in range(kind.num_fields))


def misplaced_null(column: pa.Array, field: pa.Field, path: str = "") -> str | None:
    """The name of the first field with a null in it that may have none."""
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return path
    kind = field.type
    found: str | None = None
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            inner = column.drop_null().field(index) if column.null_count else column.field(index)
            found = found or misplaced_null(inner, kind.field(index), path)
    elif pa.types.is_map(kind):
        found = misplaced_null(column.items, kind.item_field, path)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = misplaced_null(column.flatten(), kind.value_field, path)
    return found
