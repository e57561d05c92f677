"""Records in CSV as Arrow columns: a line for each record, without a header; fields in the order of columns.

An empty field is null; an empty field in quotes is an empty string. A field in quotes may have separators,
line breaks and, doubled, quotes in it. Fields are split record by record, and converted by columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import UnreadableRecord
from penstock.spark.source.arrow_rows import converted_where_possible
from penstock.spark.source.decimals import decimals_of_texts
from penstock.spark.source.decoders import TIME_FORM, Zone
from penstock.spark.source.misfits import misfit
from penstock.spark.source.records import Reasons, times_of_texts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["CsvRecords"]

_WHOLE: Final = r"^[+-]?[0-9]+$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FRACTION: Final = rf"{_NUMBER}|^(NaN|[+-]?Inf(inity)?)$"
_TRUTH: Final = r"^(?i:true|false)$"
_TIME: Final = f"^{TIME_FORM}$"


class CsvRecords:
    """Reads the records of one schema."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, separator: str, zone: Zone) -> None:
        self._schema = arrow_schema
        self._separator = separator
        mark = re.escape(separator)
        self._field = re.compile(rf'(?:"((?:[^"]|"")*)"|([^"{mark}\r\n][^{mark}\r\n]*)?)(?:{mark}|(\Z))')
        self._conversions = [_conversion(field.type, zone) for field in arrow_schema]

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
                if width:  # Without columns, a record may have any number of fields.
                    reasons.setdefault(number, f"there are {len(fields)} fields, and the schema has {width}")
                fields = (fields + [None] * width)[:width]
            for column, field in zip(columns, fields, strict=True):
                column.append(field)
        arrays = [
            self._converted(pa.array(column, pa.string()), field, conversion, reasons)
            for column, field, conversion in zip(columns, self._schema, self._conversions, strict=True)
        ]
        if wrong is None and reasons:
            first = min(reasons)
            raise UnreadableRecord(reasons[first], first)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @staticmethod
    def _converted(texts: pa.Array, field: pa.Field, conversion: _Conversion, reasons: Reasons) -> pa.Array:
        if conversion.is_safe:
            try:
                return conversion.convert(texts)
            except (ValueError, OverflowError):
                pass  # Some are wrong.
        if conversion.pattern is not None:
            fits = pc.match_substring_regex(texts, conversion.pattern)
            for number in pc.indices_nonzero(pc.invert(fits)).to_pylist():
                reasons.setdefault(number, misfit(field.name, texts[number].as_py(), field.type))
            texts = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
        return converted_where_possible(texts, field, conversion.convert, 0, reasons)

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


class _Conversion(NamedTuple):
    """How the texts of a column become values."""

    pattern: str | None
    """What a text has to look like; None if there is no such rule."""
    convert: Callable[[pa.Array], pa.Array]
    is_safe: bool = False
    """Whether it raises for every text that does not look like that. Arrow reads 0x1f, and 1 as true."""


def _conversion(kind: pa.DataType, zone: Zone) -> _Conversion:
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return _Conversion(None, lambda texts: texts.cast(kind))
    if types.is_boolean(kind):
        return _Conversion(_TRUTH, lambda texts: texts.cast(kind))
    if types.is_integer(kind):
        return _Conversion(_WHOLE, lambda texts: _without_plus(texts).cast(kind))
    if types.is_floating(kind):
        return _Conversion(_FRACTION, lambda texts: _without_plus(texts).cast(kind))
    if types.is_decimal(kind):
        return _Conversion(_NUMBER, lambda texts: decimals_of_texts(texts, kind))
    assert types.is_date(kind) or types.is_timestamp(kind), "there are no columns of other types"
    return _Conversion(_TIME, lambda texts: times_of_texts(texts, kind, zone), is_safe=True)


def _without_plus(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^\+", "")
