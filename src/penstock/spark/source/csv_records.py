"""Records in CSV as Arrow columns: a line for each record, without a header; fields in the order of columns.

An empty field is null; an empty field in quotes is an empty string. A field in quotes may have separators,
line breaks and, doubled, quotes in it. Fields are split record by record, and converted by columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import BadSchema, UnreadableRecord
from penstock.spark.source.arrow_rows import converted_where_possible
from penstock.spark.source.decoders import Zone
from penstock.spark.source.records import Reasons, times_of_texts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["CsvRecords"]

_WHOLE: Final = r"^[+-]?[0-9]+$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FRACTION: Final = rf"{_NUMBER}|^(NaN|[+-]?Inf(inity)?)$"
_TRUTH: Final = r"^(?i:true|false)$"


class CsvRecords:
    """Reads the records of one schema."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, separator: str, zone: Zone) -> None:
        self._schema = arrow_schema
        self._separator = separator
        mark = re.escape(separator)
        self._field = re.compile(rf'(?:"((?:[^"]|"")*)"|([^"{mark}\r\n][^{mark}\r\n]*)?)(?:{mark}|(\Z))')
        self._converters = [
            _converter(field.type, zone, given.name, given.dataType.simpleString())
            for field, given in zip(arrow_schema, schema.fields, strict=True)
        ]

    def batch(self, values: Sequence[bytes], wrong: Reasons | None = None) -> pa.RecordBatch:
        """A row for each record. With ``wrong``, it gets the reasons of wrong records; see TypedRecords."""
        reasons: Reasons = {} if wrong is None else wrong
        width = len(self._schema)
        columns: list[list[str | None]] = [[] for _ in range(width)]
        for number, value in enumerate(values):
            fields: list[str | None] = []
            try:
                fields = self._split(value.decode().rstrip("\r\n"))
            except ValueError as error:
                reasons[number] = str(error)
            if len(fields) != width:
                reasons.setdefault(number, f"there are {len(fields)} fields, and the schema has {width}")
                fields = (fields + [None] * width)[:width]
            for column, field in zip(columns, fields, strict=True):
                column.append(field)
        arrays = [
            converted_where_possible(pa.array(column, pa.string()), field, convert, 0, reasons)
            for column, field, convert in zip(columns, self._schema, self._converters, strict=True)
        ]
        if wrong is None and reasons:
            first = min(reasons)
            raise UnreadableRecord(reasons[first], first)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _split(self, line: str) -> list[str | None]:
        if '"' not in line:
            return [field or None for field in line.split(self._separator)]
        fields: list[str | None] = []
        at = 0
        while True:
            found = self._field.match(line, at)
            if found is None:
                raise ValueError(f"field {len(fields) + 1} has a quote in the wrong place")
            quoted, plain, end = found.groups()
            fields.append(plain if quoted is None else quoted.replace('""', '"'))
            at = found.end()
            if end is not None:
                return fields


def _converter(kind: pa.DataType, zone: Zone, name: str, told: str) -> Callable[[pa.Array], pa.Array]:
    """Converts texts to a type; raises a ValueError if one of them is not of that type."""
    types = pa.types
    if types.is_string(kind):
        return lambda texts: texts
    if types.is_binary(kind):
        return lambda texts: texts.cast(kind)
    if types.is_boolean(kind):
        return lambda texts: _matching(texts, _TRUTH).cast(kind)
    if types.is_integer(kind):
        return lambda texts: pc.replace_substring_regex(_matching(texts, _WHOLE), r"^\+", "").cast(kind)
    if types.is_floating(kind):
        return lambda texts: pc.replace_substring_regex(_matching(texts, _FRACTION), r"^\+", "").cast(kind)
    if types.is_decimal(kind):
        return lambda texts: _matching(texts, _NUMBER).cast(kind)
    if types.is_date(kind) or types.is_timestamp(kind):
        return lambda texts: times_of_texts(texts, kind, zone)
    raise BadSchema(f"the column {name} is {told}, and CSV has no form for that: read it as a string")


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    fits = pc.match_substring_regex(texts, pattern)
    if pc.all(fits).as_py() is False:
        text = texts.filter(pc.invert(fits))[0].as_py()
        raise ValueError(f"{text[:40]!r} is not of that type")
    return texts
