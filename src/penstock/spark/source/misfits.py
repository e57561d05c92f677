"""Which value of a row does not fit into its column, in a sentence; pyarrow names neither."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.spark.errors import BadSchema
from penstock.spark.source.partial_rows import CANNOT_BE_READ
from penstock.spark.type_forms import spark_schema

__all__ = ["first_misfit", "misfit", "type_name"]

_SHOWN: Final = 40
"""Characters of a value."""


def misfit(path: str, value: object, kind: pa.DataType) -> str:
    """Say that a value does not fit into a column."""
    text = str(value) if isinstance(value, decimal.Decimal) else repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{path}: {shown} does not fit into {type_name(kind)}"


def first_misfit(row: Mapping[str, Any], schema: pa.Schema) -> str | None:
    """Say which value of a row does not fit; None if each of them does."""
    return _first([(field.name, row.get(field.name), field.type) for field in schema])


def _first(values: list[tuple[str, Any, pa.DataType]]) -> str | None:
    for path, value, kind in values:
        try:
            pa.array([value], kind)
        except CANNOT_BE_READ:
            return _first(_inside(path, value, kind)) or misfit(path, value, kind)
    return None


def _inside(path: str, value: Any, kind: pa.DataType) -> list[tuple[str, Any, pa.DataType]]:
    """What is inside a struct, an array or a map; nothing if the value is none of these."""
    types = pa.types
    if types.is_struct(kind) and isinstance(value, Mapping):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return [(f"{path}.{field.name}", value.get(field.name), field.type) for field in fields]
    if types.is_list(kind) and isinstance(value, list):
        return [(f"{path}[{index}]", each, kind.value_type) for index, each in enumerate(value)]
    if types.is_map(kind) and isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else value
        if not all(isinstance(pair, tuple) for pair in pairs):
            return []
        return [(f"{path}[{key!r}]", each, kind.item_type) for key, each in pairs]
    return []


def type_name(kind: pa.DataType) -> str:
    """What Spark calls a type; Arrow's own name if Spark does not have it."""
    try:
        return spark_schema(pa.schema([("column", kind)])).fields[0].dataType.simpleString()
    except BadSchema:
        return str(kind)
