"""Records in Avro or Protocol Buffers as Arrow columns; their own schema is an option."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from penstock.aquifer import SchemaCodec, open_schema
from penstock.spark.errors import BadOption, UnreadableRecord
from penstock.spark.source.metadata_columns import METADATA
from penstock.spark.source.misfits import first_misfit, misfit
from penstock.spark.source.partial_rows import CANNOT_BE_READ
from penstock.spark.source.records import Reasons, one_line
from penstock.spark.type_forms import spark_schema

__all__ = ["SchemaRecords", "codec_of", "schema_of"]


def codec_of(value: str, text: str | None) -> SchemaCodec:
    """The codec of the option ``valueSchema``; BadOption if it is missing or wrong."""
    if text is None:
        example = "orders.avsc" if value == "avro" else "shop.desc?message=shop.Order"
        raise BadOption("value", value, f'say which schema, as in option("valueSchema", "{example}")')
    try:
        return open_schema(f"{value}:{text}")
    except (ValueError, ImportError) as error:
        raise BadOption("valueSchema", text, str(error)) from None


def schema_of(value: str, text: str | None, *, include_metadata: bool = False) -> StructType:
    """The columns of the records' own schema, for a query that names none."""
    codec = codec_of(value, text)
    try:
        columns = codec.arrow_schema()
    except ValueError as error:
        raise BadOption("valueSchema", str(text), f"{error}; or give the query a schema") from None
    found = spark_schema(columns)
    if include_metadata:
        known = [StructField(name, kind) for name, kind in METADATA.items()]
        return StructType([*known, *(field for field in found.fields if field.name not in METADATA)])
    return found


_Check: TypeAlias = Callable[[Any], object]


class SchemaRecords:
    """Reads records one by one; as wrong counts what its codec cannot read, and what no column can hold."""

    def __init__(self, arrow_schema: pa.Schema, value: str, text: str | None) -> None:
        self._schema = arrow_schema
        codec = codec_of(value, text)
        self._read, self._row = codec.read, codec.row
        known = _types(codec)
        others = [field for field in arrow_schema if known.get(field.name) != field.type]
        self._checks = [(field.name, check) for field in others if (check := _check(field.type))]

    def batch(self, values: Sequence[bytes], wrong: Reasons | None = None) -> pa.RecordBatch:
        """A row for each record. With ``wrong``, it gets the reasons of wrong records; see TypedRecords."""
        rows: list[Any] = []
        for index, value in enumerate(values):
            try:
                row = self._row(self._read(value))
                if not isinstance(row, dict):
                    raise ValueError(f"it is {type(row).__name__}, and not a record with fields")
                for name, check in self._checks:
                    if not check(row.get(name)):
                        raise ValueError(misfit(name, row[name], self._schema.field(name).type))
                rows.append(row)
            except CANNOT_BE_READ as error:
                rows.append(_refused(index, error, wrong))
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        except CANNOT_BE_READ:
            pass  # One of them does not fit, and pyarrow does not say which.
        for index, row in enumerate(rows):
            try:
                pa.RecordBatch.from_pylist([row], schema=self._schema)
            except CANNOT_BE_READ as error:
                rows[index] = _refused(index, first_misfit(row, self._schema) or error, wrong)
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)


def _types(codec: SchemaCodec) -> dict[str, pa.DataType]:
    """The types of the columns that the records have; none if no column can hold some of their fields."""
    try:
        return {field.name: field.type for field in codec.arrow_schema()}
    except ValueError:
        return {}


def _check(kind: pa.DataType) -> _Check | None:
    """Whether a value is one of the type; None if pyarrow says that.

    It makes 1 of 1.5, a date of a time, a time of a number, and an array of the characters of a text.
    """
    types = pa.types
    if types.is_integer(kind):
        return lambda value: not isinstance(value, float) or value.is_integer()
    if types.is_date(kind):
        return lambda value: not isinstance(value, datetime.datetime)
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        return lambda value: not isinstance(value, int)
    if types.is_list(kind):
        element = _check(kind.value_type)
        return lambda value: (
            value is None or (isinstance(value, list) and (element is None or all(map(element, value))))
        )
    if types.is_map(kind):
        item = _check(kind.item_type)
        return lambda value: (
            value is None or (isinstance(value, dict) and (item is None or all(map(item, value.values()))))
        )
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inside = [(field.name, check) for field in fields if (check := _check(field.type))]
        if inside:
            return lambda value: (
                not isinstance(value, dict) or all(check(value.get(name)) for name, check in inside)
            )
    return None


def _refused(index: int, reason: object, wrong: Reasons | None) -> dict[str, Any]:
    if wrong is None:
        raise UnreadableRecord(reason, index)
    wrong[index] = one_line(reason)
    return {}
