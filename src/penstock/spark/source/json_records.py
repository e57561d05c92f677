"""Records of JSON as Arrow columns: pyarrow parses them, column by column, where it can.

Times and bytes it is given as texts, because its own way with them is not Spark's: it takes a time without a
zone for one in UTC, and the letters of base 64 for the bytes. They are converted afterwards, as columns. If
anything does not fit, :class:`TypedRecords` has a closer look, and either reads the records or says which
one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.source.decoders import binary, date, instant, local_time
from penstock.spark.source.typed_records import NotOfTheSchema, TypedRecords
from penstock.spark.source.zones import Zone

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JsonRecords"]


class JsonRecords:
    """Reads records of one schema."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, zone: Zone) -> None:
        self._schema = arrow_schema
        self._zone = zone
        self._closely = TypedRecords(schema, arrow_schema, "json", zone)
        texts = [_with_texts(field.type) for field in arrow_schema]
        self._texts = (
            None
            if None in texts
            else pa.schema([field.with_type(kind) for field, kind in zip(arrow_schema, texts, strict=True)])
        )
        """What pyarrow has to read; None if there is a column that it cannot read."""

    def batch(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """A row for each record; what a record does not have is null."""
        for index, value in enumerate(values):
            # pyarrow would stumble over the others, and over a null so badly that it takes the process along.
            if value[:1] != b"{" and value.lstrip(b" \t\r\n")[:1] != b"{":
                raise NotOfTheSchema(index, f"{value[:40]!r} is no JSON object")
        if self._texts is not None:
            try:
                return self._parsed(values, self._texts)
            except (pa.ArrowException, ValueError, OverflowError):
                pass  # The closer look says why, or knows better.
        return self._closely.batch(values)

    def _parsed(self, values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        text = b"\n".join(values)
        table = pa.json.read_json(
            BytesIO(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # Strings, that is: the parser does not look whether they are UTF-8.
        if table.num_rows != len(values):
            raise ValueError(f"{table.num_rows} objects in {len(values)} records")
        columns = table.combine_chunks().to_batches()[0]
        arrays = [self._converted(columns.column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _converted(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """A column of texts, or with texts in it, as one of the type that is wanted."""
        if column.type == kind:
            return column
        types = pa.types
        if types.is_struct(kind):
            fields = [kind.field(index) for index in range(kind.num_fields)]
            inner = [self._converted(column.field(index), field.type) for index, field in enumerate(fields)]
            return pa.StructArray.from_arrays(inner, fields=fields, mask=column.is_null())
        if types.is_list(kind):
            elements = self._converted(column.values, kind.value_type)
            return pa.ListArray.from_arrays(column.offsets, elements, type=kind, mask=column.is_null())
        if not types.is_binary(kind):
            try:
                return column.cast(kind)
            except pa.ArrowInvalid:
                pass  # Nanoseconds, or no zone: Arrow takes neither.
        if types.is_timestamp(kind) and kind.tz is not None and self._zone.key is not None:
            try:
                naive = column.cast(pa.timestamp("us"))
                return pc.assume_timezone(naive, self._zone.key, ambiguous="earliest").cast(kind)
            except pa.ArrowInvalid:
                pass  # Some have a zone, or were skipped when clocks were changed.
        convert = self._conversion(kind)
        return pa.array([None if text is None else convert(text) for text in column.to_pylist()], kind)

    def _conversion(self, kind: pa.DataType) -> Callable[[str], Any]:
        if pa.types.is_binary(kind):
            return binary
        if pa.types.is_date(kind):
            return date
        zone = self._zone
        return local_time if kind.tz is None else lambda text: instant(text, zone)


def _with_texts(kind: pa.DataType) -> pa.DataType | None:
    """The type that pyarrow is to read a column as; None if it cannot."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
        return pa.string()
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = [_with_texts(field.type) for field in fields]
        if None in inner or any(field.metadata for field in fields):
            return None  # A variant, for one, is a struct with a mark in it.
        return pa.struct([field.with_type(text) for field, text in zip(fields, inner, strict=True)])
    if types.is_list(kind):
        element = _with_texts(kind.value_type)
        return None if element is None else pa.list_(kind.value_field.with_type(element))
    plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return kind if plain or types.is_decimal(kind) or types.is_string(kind) or types.is_null(kind) else None
