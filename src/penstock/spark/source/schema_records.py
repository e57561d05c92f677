"""Records in Avro or Protocol Buffers as Arrow columns; their own schema is an option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from penstock.aquifer import SchemaCodec, open_schema
from penstock.spark.errors import BadOption, UnreadableRecord
from penstock.spark.source.metadata_columns import METADATA
from penstock.spark.source.misfits import first_misfit
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


class SchemaRecords:
    """Reads records one by one; as wrong counts what its codec cannot read, and what no column can hold."""

    def __init__(self, arrow_schema: pa.Schema, value: str, text: str | None) -> None:
        self._schema = arrow_schema
        self._read = codec_of(value, text).read

    def batch(self, values: Sequence[bytes], wrong: Reasons | None = None) -> pa.RecordBatch:
        """A row for each record. With ``wrong``, it gets the reasons of wrong records; see TypedRecords."""
        rows: list[Any] = []
        for index, value in enumerate(values):
            try:
                row = self._read(value)
                if not isinstance(row, dict):
                    raise ValueError(f"it is {type(row).__name__}, and not a record with fields")
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


def _refused(index: int, reason: object, wrong: Reasons | None) -> dict[str, Any]:
    if wrong is None:
        raise UnreadableRecord(reason, index)
    wrong[index] = one_line(reason)
    return {}
