"""Records of JSON or MessagePack as Arrow columns, by way of Python objects of the schema's types.

pyarrow reads JSON itself, and many times as fast, but knows no maps and not all that Spark takes for a
number or a time; MessagePack it does not know at all.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.source.decoders import Dialect, Zone, binary, date, decoder, instant, local_time

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JsonRecords", "NotOfTheSchema", "TypedRecords", "may_be_null", "misplaced_null"]


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
