"""Rows as lines of CSV, in the form that the source reads: no header, and an empty field is null."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.spark.arrow_layouts import columns_in_utc
from penstock.spark.errors import UnwritableRow

__all__ = ["CsvRowEncoder"]

_MARKS: Final = ('"', "\r", "\n")
"""What a field can have only in quotes, beside the separator."""


class CsvRowEncoder:
    """Writes the rows of a schema; the types are checked before."""

    def __init__(self, separator: str) -> None:
        self._separator = separator

    def rows(self, batch: pa.RecordBatch) -> list[bytes]:
        """Each row of an Arrow batch as a line, without a line break at its end."""
        columns = [
            self._texts(name, column)
            for name, column in zip(batch.schema.names, columns_in_utc(batch), strict=True)
        ]
        if not columns:
            return [b""] * batch.num_rows
        return [self._separator.join(row).encode() for row in zip(*columns, strict=True)]

    def _texts(self, name: str, column: pa.Array) -> list[str]:
        text = _text_of(column.type)
        try:
            return ["" if value is None else self._quoted(text(value)) for value in column.to_pylist()]
        except (ValueError, OverflowError, pa.ArrowException) as error:
            # To cast bytes to a string does not change them.
            is_bytes = pa.types.is_binary(column.type)
            remedy = "Make a text of it with base64()" if is_bytes else "Cast it to a string"
            raise UnwritableRow(
                f"the column {name} cannot be written as csv: {error}. {remedy}, or use "
                'option("value", "arrow")'
            ) from error

    def _quoted(self, text: str) -> str:
        if text and self._separator not in text and not any(mark in text for mark in _MARKS):
            return text
        return '"' + text.replace('"', '""') + '"'


def _text_of(kind: pa.DataType) -> Callable[[Any], str]:
    types = pa.types
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_floating(kind):
        return _fraction
    if types.is_decimal(kind):
        return lambda value: format(value, "f")
    if types.is_date(kind):
        return datetime.date.isoformat
    if types.is_timestamp(kind):
        return datetime.datetime.isoformat
    return bytes.decode if types.is_binary(kind) else str


def _fraction(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
