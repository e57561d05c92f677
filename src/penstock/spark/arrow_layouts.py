"""Arrow columns of another type with the same bytes: another zone, or other names inside a map.

A cast of pyarrow copies such a column, and refuses one with a null struct that has fields which must not be
null, as a null ``VARIANT`` has.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["has_same_layout", "reinterpreted"]


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
