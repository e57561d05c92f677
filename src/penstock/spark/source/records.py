"""Records in JSON or MessagePack as Arrow columns.

:class:`JsonRecords` lets pyarrow parse JSON by columns, which is many times faster than by records. pyarrow
gets times and bytes as strings, because it reads them differently from Spark: it takes a time without a zone
for UTC, and does not decode base64. They are converted afterwards, by columns. If anything does not fit,
:class:`TypedRecords` reads the records one by one, or says which record is wrong.

:class:`TypedRecords` reads records by way of Python objects. It is needed for MessagePack, for maps, and for
the numbers and times that Spark accepts and pyarrow does not.
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

from penstock.spark.errors import UnreadableRecord
from penstock.spark.source.decoders import Dialect, Zone, binary, date, decoder, instant, local_time

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JsonRecords", "TypedRecords", "may_be_null", "misplaced_null"]


class TypedRecords:
    """Reads the records of one schema one by one."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, form: str, zone: Zone) -> None:
        self._schema = arrow_schema
        self._read = _reader(schema, Dialect(form, zone))
        self._read_leniently = _reader(schema, Dialect(form, zone, lenient=True)) if form == "json" else None

    def batch(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """A row for each record; fields that a record lacks are null."""
        rows: list[Any] = []
        for value in values:
            try:
                rows.append(self._read(value))
            except (ValueError, OverflowError) as error:
                rows.append(self._read_again(value, len(rows), error))
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            # One record does not fit, and pyarrow does not say which.
            for index, row in enumerate(rows):
                try:
                    pa.RecordBatch.from_pylist([row], schema=self._schema)
                except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                    raise UnreadableRecord(error, index) from error
            raise

    def _read_again(self, value: bytes, index: int, reason: Exception) -> Any:
        if self._read_leniently is None:
            raise UnreadableRecord(reason, index) from reason
        try:
            if b"NaN" in value or b"Infinity" in value:
                value = _with_quoted_constants(value)
            return self._read_leniently(value)
        except (ValueError, OverflowError) as error:
            raise UnreadableRecord(error, index) from error


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


def _with_quoted_constants(value: bytes) -> bytes:
    """Quote ``NaN`` and ``Infinity``: JSON has neither, but many programs write them, Python's as well."""
    record = json.loads(value, parse_constant=str, parse_float=decimal.Decimal)
    return msgspec.json.Encoder(decimal_format="number").encode(record)


def may_be_null(field: pa.Field) -> bool:
    """Whether a field and everything inside may be null."""
    kind = field.type
    if not field.nullable:
        return False
    if pa.types.is_map(kind):
        return may_be_null(kind.item_field)  # A key is never null.
    return all(may_be_null(kind.field(index)) for index in range(kind.num_fields))


def misplaced_null(column: pa.Array, field: pa.Field, path: str = "") -> str | None:
    """The path of the first field that has a null and must not."""
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
    """Reads the records of one schema by columns, if possible."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, zone: Zone) -> None:
        self._schema = arrow_schema
        self._zone = zone
        self._one_by_one = TypedRecords(schema, arrow_schema, "json", zone)
        kinds = [_with_strings(field.type) for field in arrow_schema]
        self._as_strings = (
            None
            if None in kinds
            else pa.schema([field.with_type(kind) for field, kind in zip(arrow_schema, kinds, strict=True)])
        )
        """The schema that pyarrow reads; None if there is a column that it cannot read."""

    def batch(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """A row for each record; fields that a record lacks are null."""
        for index, value in enumerate(values):
            # pyarrow fails on anything but an object, and a null even crashes the process.
            if value[:1] != b"{" and value.lstrip(b" \t\r\n")[:1] != b"{":
                raise UnreadableRecord(f"{value[:40]!r} is not a JSON object", index)
        if self._as_strings is not None:
            try:
                return self._parsed(values, self._as_strings)
            except (pa.ArrowException, ValueError, OverflowError):
                pass  # TypedRecords reads them, or says why not.
        return self._one_by_one.batch(values)

    def _parsed(self, values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        text = b"\n".join(values)
        table = pa.json.read_json(
            BytesIO(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # The parser does not check that strings are UTF-8.
        if table.num_rows != len(values):
            raise ValueError(f"{table.num_rows} objects in {len(values)} records")
        columns = table.combine_chunks().to_batches()[0]
        arrays = [self._converted(columns.column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _converted(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """Convert a column that has strings, perhaps inside, to the type of the schema."""
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
                pass  # Arrow accepts neither nanoseconds nor a missing zone.
        if types.is_timestamp(kind) and kind.tz is not None and self._zone.key is not None:
            try:
                naive = column.cast(pa.timestamp("us"))
                return pc.assume_timezone(naive, self._zone.key, ambiguous="earliest").cast(kind)
            except pa.ArrowInvalid:
                pass  # Some times have a zone, or the clocks skipped them.
        convert = self._conversion(kind)
        return pa.array([None if text is None else convert(text) for text in column.to_pylist()], kind)

    def _conversion(self, kind: pa.DataType) -> Callable[[str], Any]:
        if pa.types.is_binary(kind):
            return binary
        if pa.types.is_date(kind):
            return date
        zone = self._zone
        return local_time if kind.tz is None else lambda text: instant(text, zone)


def _with_strings(kind: pa.DataType) -> pa.DataType | None:
    """The type with which pyarrow reads a column; None if it cannot."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
        return pa.string()
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = [_with_strings(field.type) for field in fields]
        if None in inner or any(field.metadata for field in fields):
            return None  # For example a variant, which is a struct with metadata.
        return pa.struct([field.with_type(text) for field, text in zip(fields, inner, strict=True)])
    if types.is_list(kind):
        element = _with_strings(kind.value_type)
        return None if element is None else pa.list_(kind.value_field.with_type(element))
    plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return kind if plain or types.is_decimal(kind) or types.is_string(kind) or types.is_null(kind) else None
