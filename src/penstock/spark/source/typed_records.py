"""Records of JSON or MessagePack as Arrow columns, by way of Python objects of the schema's types.

pyarrow reads JSON itself, and many times as fast, but knows no maps and takes dates for numbers; MessagePack
it does not know at all.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

__all__ = ["NotOfTheSchema", "TypedRecords", "may_be_null", "misplaced_null"]


class NotOfTheSchema(ValueError):
    """A record that is not what the schema says."""

    def __init__(self, index: int, reason: object) -> None:
        super().__init__(str(reason))
        self.index = index
        """Which of the records it is."""


class TypedRecords:
    """Reads records of one schema."""

    def __init__(self, schema: pa.Schema, form: str) -> None:
        kind = _record(list(schema))
        self._schema = schema
        self._decode = (
            msgspec.json.Decoder(kind).decode if form == "json" else msgspec.msgpack.Decoder(kind).decode
        )

    def batch(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """A row for each record; what a record does not have is null."""
        rows: list[Any] = []
        try:
            for value in values:
                rows.append(self._decode(value))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotOfTheSchema(len(rows), error) from error
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


def _record(fields: Sequence[pa.Field]) -> Any:
    """A dictionary with these fields, none of which has to be there; others are left out."""
    # The name of the class means nothing, and fields may be called anything: no syntax but this allows it.
    return TypedDict("Record", {field.name: _type(field.type) | None for field in fields}, total=False)  # type: ignore[operator]


def _type(kind: pa.DataType) -> Any:
    """The Python type that values of an Arrow type are read as."""
    types = pa.types
    if types.is_boolean(kind):
        return bool
    if types.is_integer(kind):
        return int
    if types.is_floating(kind):
        return float
    if types.is_decimal(kind):
        return decimal.Decimal
    if types.is_string(kind) or types.is_large_string(kind):
        return str
    if types.is_timestamp(kind):
        return datetime.datetime
    if types.is_date(kind):
        return datetime.date
    if types.is_struct(kind):
        return _record([kind.field(index) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return dict[_type(kind.key_type), _type(kind.item_type) | None]  # type: ignore[misc]
    if types.is_list(kind) or types.is_large_list(kind):
        return list[_type(kind.value_type) | None]  # type: ignore[misc]
    return Any


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
