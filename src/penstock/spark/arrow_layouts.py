"""Arrow columns of another type with the same bytes: another zone, or other names inside a map.

A cast of pyarrow copies such a column, and refuses one with a null struct that has fields which must not be
null, as a null ``VARIANT`` has.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["columns_in_utc", "has_same_layout", "reinterpreted"]


def has_same_layout(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether columns of both types have the same bytes, and the same fields in the same order."""
    types = pa.types
    if types.is_timestamp(one) and types.is_timestamp(other):
        return one.unit == other.unit and (one.tz is None) == (other.tz is None)
    for is_nested in (types.is_struct, types.is_list, types.is_map):
        if is_nested(one) and is_nested(other):
            if one.num_fields != other.num_fields:
                return False
            pairs = [(one.field(index), other.field(index)) for index in range(one.num_fields)]
            if types.is_map(one):
                pairs = [(one.key_field, other.key_field), (one.item_field, other.item_field)]
            named = not types.is_struct(one) or all(a.name == b.name for a, b in pairs)
            return named and all(has_same_layout(a.type, b.type) for a, b in pairs)
    return bool(one == other)


def reinterpreted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bytes as a type with the same layout, without copying."""
    return pa.array(_Reinterpreted(column, kind))


class _Reinterpreted:
    """Hands the bytes of a column to pyarrow as another type."""

    def __init__(self, column: pa.Array, kind: pa.DataType) -> None:
        self._column = column
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._kind.__arrow_c_schema__(), self._column.__arrow_c_array__()[1]


def columns_in_utc(batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns of a batch, with all instants in UTC."""
    return [
        reinterpreted(column, _in_utc(column.type)) if _has_zone(column.type) else column
        for column in batch.columns
    ]


def _has_zone(kind: pa.DataType) -> bool:
    """Whether there are instants in a type whose zone is not UTC."""
    if pa.types.is_timestamp(kind):
        return kind.tz is not None and kind.tz != "UTC"
    return any(_has_zone(kind.field(index).type) for index in range(kind.num_fields))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type with instants in UTC: UTC offsets of the 19th century have seconds, which get lost."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if types.is_struct(kind):
        return pa.struct([_field_in_utc(kind.field(index)) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_field_in_utc(kind.key_field), _field_in_utc(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_field_in_utc(kind.value_field))
    return kind


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_in_utc(field.type))
