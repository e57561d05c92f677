"""From the batches of a gateway to Arrow batches for Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.aquifer import Batch, from_arrow_stream, offsets_of, unpack_metadata, unpack_values
from penstock.spark.errors import BadSchema, UnreadableRecord
from penstock.spark.options import SourceOptions
from penstock.spark.source.arrow_rows import fitted, rows_as_bytes
from penstock.spark.source.csv_records import CsvRecords
from penstock.spark.source.decoders import Zone
from penstock.spark.source.metadata_columns import COLUMNS, METADATA, check_metadata_columns
from penstock.spark.source.records import (
    JsonRecords,
    Reasons,
    TypedRecords,
    may_be_null,
    misplaced_null,
    one_line,
)
from penstock.spark.source.schema_records import SchemaRecords
from penstock.spark.source.value_columns import value_column
from penstock.spark.type_forms import check_names, check_types

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

__all__ = ["Columns", "WrongRecord", "columns_of", "default_schema"]


def default_schema(value: str) -> str:
    """The columns if the user does not give a schema; BadSchema if there is no default."""
    if value not in ("binary", "string"):
        raise BadSchema(
            f'option "value" is {value!r}: the columns come from the records, so give a schema: '
            '.schema("sensor string, reading double"), or use spark.read with option("inferSchema", "true")'
        )
    columns = {name: kind.simpleString() for name, kind in METADATA.items()} | {"value": value}
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def columns_of(schema: StructType, options: SourceOptions, zone: Zone | None = None) -> Columns:
    """The columns of a query; BadSchema if the schema does not fit the options."""
    if not schema.fields:  # Spark drops rows without columns on their way from Python.
        raise BadSchema(
            "the schema has no columns, and rows without columns get lost: name those that you need, as in "
            '.schema("sensor string, reading double")'
        )
    return Columns(
        schema,
        options.value,
        zone,
        options.mode,
        options.corrupt_record,
        options.separator,
        options.include_metadata,
        options.value_schema,
    )


class WrongRecord(NamedTuple):
    """A record that cannot be read, or does not fit the schema."""

    number: int
    """Which record of its batch it is."""
    reason: str
    value: bytes


class Columns:
    """Makes Arrow batches of one schema."""

    def __init__(
        self,
        schema: StructType,
        value: str,
        zone: Zone | None = None,
        mode: str = "FAILFAST",
        corrupt_record: str = "_corrupt_record",
        separator: str = ",",
        include_metadata: bool = False,
        value_schema: str | None = None,
    ) -> None:
        from penstock.spark.spark_interface import arrow_schema

        whole = schema
        check_names(schema)
        self._corrupt = next((field.name for field in schema.fields if field.name == corrupt_record), None)
        """The column for the bytes of wrong records, if the schema has it."""
        beside = [field for field in schema.fields if field.name == corrupt_record]
        for field in beside:
            _check_corrupt_record(field)
        if include_metadata and value not in ("binary", "string"):
            beside += check_metadata_columns(schema)
        schema = StructType([field for field in schema.fields if field not in beside])
        if value in ("binary", "string"):
            self._check(schema, value)
        else:
            check_types(schema, value, "read it as a string")
        self._whole_schema = arrow_schema(whole)
        self._schema = arrow_schema(schema)
        """The columns that come from the values of records."""
        self._value = value
        self._mode = mode
        self.wire_format = "arrow" if value == "arrow" else "msgpack"
        """The payload format to request from the gateway."""
        told = f"{value} {separator} {schema.json()}"
        self.digest = sha256(
            (told if value_schema is None else f"{told} {value_schema}").encode()
        ).hexdigest()
        """Identifies what makes a record wrong."""
        self._strict = not all(map(may_be_null, self._schema))
        """Whether some columns must not have nulls. pyarrow does not check that, and Spark relies on it."""
        self._parser: JsonRecords | TypedRecords | CsvRecords | SchemaRecords | None = None
        zone = zone or Zone("UTC")
        partial = mode != "DROPMALFORMED"
        """Whether what can be read of a wrong record is wanted."""
        if value == "json":
            self._parser = JsonRecords(schema, self._schema, zone, partial=partial)
        elif value == "msgpack":
            self._parser = TypedRecords(schema, self._schema, value, zone, partial=partial)
        elif value == "csv":
            self._parser = CsvRecords(schema, self._schema, separator, zone)
        elif value in ("avro", "protobuf"):
            self._parser = SchemaRecords(self._schema, value, value_schema)

    def batch(
        self,
        endpoint: str,
        records: Batch,
        wrong: list[WrongRecord] | None = None,
        keep: Collection[int] | None = None,
    ) -> pa.RecordBatch:
        """The records as an Arrow batch. Unless the mode is FAILFAST, ``wrong`` gets the wrong ones.

        With ``keep``, only the records with these numbers count.
        """
        reasons: Reasons | None = None if self._mode == "FAILFAST" else {}
        batch = self._converted(endpoint, records, reasons)
        if self._strict:
            for index, reason in self._misplaced_nulls(batch):
                if reasons is None:
                    raise self._unreadable(endpoint, records, reason, index)
                if self._mode == "PERMISSIVE":
                    raise self._not_nullable(endpoint, records, index, reasons.get(index, reason))
                reasons.setdefault(index, reason)
        found = self._wrong(records, reasons) if reasons else []
        if keep is not None:
            found = [each for each in found if each.number in keep]
        if wrong is not None:
            wrong += found
        if len(self._whole_schema) > len(self._schema):
            batch = self._completed(batch, endpoint, records, found)
        left_out = {each.number for each in found} if self._mode == "DROPMALFORMED" else set[int]()
        if left_out or keep is not None:
            every = range(records.count) if keep is None else sorted(keep)
            kept = [number for number in every if number not in left_out]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch

    def _converted(self, endpoint: str, records: Batch, reasons: Reasons | None) -> pa.RecordBatch:
        # Also if the schema has no column for the values: what is wrong is wrong without one.
        if self._value == "arrow":
            try:
                return fitted(from_arrow_stream(records.payload), self._schema, endpoint, reasons)
            except UnreadableRecord as error:
                raise self._unreadable(endpoint, records, error, error.index) from error
            except pa.ArrowException as error:
                raise self._unreadable(endpoint, records, error) from error
        if self._parser is not None:
            try:
                return self._parser.batch(unpack_values(records.payload), reasons)
            except UnreadableRecord as error:
                raise self._unreadable(endpoint, records, error, error.index) from error
        values = value_column(records.payload)
        if self._value == "string":
            values = self._texts(endpoint, records, values, reasons)
        metadata = unpack_metadata(records.metadata)
        columns = [
            COLUMNS[name](endpoint, records, metadata) if name in COLUMNS else values
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _texts(
        self, endpoint: str, records: Batch, values: pa.BinaryArray, reasons: Reasons | None
    ) -> pa.StringArray:
        """The values as texts; one that is not a text is null, and ``reasons`` gets why."""
        with suppress(pa.ArrowInvalid):  # Some are not UTF-8.
            return values.cast(pa.string())
        texts: list[str | None] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError as error:
                if reasons is None:
                    raise self._unreadable(endpoint, records, error, index) from error
                reasons[index] = str(error)
                texts.append(None)
        return pa.array(texts, pa.string())

    # ---------------------------------------------------------------- wrong records
    def _misplaced_nulls(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        """The rows with a null where the schema allows none."""
        for column, field in zip(batch.columns, self._schema, strict=True):
            if misplaced_null(column, field) is not None:
                for index in range(batch.num_rows):
                    null = misplaced_null(column.take(pa.array([index])), field)
                    if null is not None:
                        yield index, f"{null} is null, and the schema says NOT NULL"

    def _wrong(self, records: Batch, reasons: Reasons) -> list[WrongRecord]:
        numbers = sorted(reasons)
        if self._value == "arrow":
            values = rows_as_bytes(from_arrow_stream(records.payload), numbers)
        else:
            every = unpack_values(records.payload)
            values = [every[index] for index in numbers]
        return [
            WrongRecord(index, reasons[index], value) for index, value in zip(numbers, values, strict=True)
        ]

    def _completed(
        self, batch: pa.RecordBatch, endpoint: str, records: Batch, wrong: list[WrongRecord]
    ) -> pa.RecordBatch:
        """The batch with the columns that do not come from the values of records."""
        metadata = unpack_metadata(records.metadata)
        columns = []
        for field in self._whole_schema:
            if field.name in self._schema.names:
                columns.append(batch.column(field.name))
            elif field.name == self._corrupt:
                columns.append(self._corrupt_records(records.count, field.type, wrong))
            else:
                columns.append(COLUMNS[field.name](endpoint, records, metadata))
        return pa.RecordBatch.from_arrays(columns, schema=self._whole_schema)

    @staticmethod
    def _corrupt_records(count: int, kind: pa.DataType, wrong: list[WrongRecord]) -> pa.Array:
        values: list[bytes | str | None] = [None] * count
        for each in wrong:
            is_text = not pa.types.is_binary(kind)
            values[each.number] = each.value.decode(errors="replace") if is_text else each.value
        return pa.array(values, kind)

    def _not_nullable(self, endpoint: str, records: Batch, index: int, reason: str) -> UnreadableRecord:
        offset = offsets_of(records)[index]
        return UnreadableRecord(
            f"record {offset} of {endpoint} is wrong, and columns that are NOT NULL cannot "
            f"show that: {reason}; make the columns of the schema nullable, or leave wrong records out with "
            'option("mode", "DROPMALFORMED")'
        )

    def _unreadable(
        self, endpoint: str, records: Batch, error: object, index: int | None = None
    ) -> UnreadableRecord:
        offsets = offsets_of(records)
        which = f"records {offsets[0]} to {offsets[-1]} of {endpoint}"
        if index is not None or records.count == 1:
            which = f"record {offsets[index or 0]} of {endpoint}"
        return UnreadableRecord(
            f"{which} cannot be read as {self._value} with the schema {', '.join(self._whole_schema.names)}: "
            f'{one_line(error)}; correct the schema, choose another option("mode"), or read raw values with '
            'option("value", "binary")'
        )

    @staticmethod
    def _check(schema: StructType, value: str) -> None:
        known = {field.split()[0]: field.split()[1] for field in default_schema(value).split(", ")}
        for field in schema.fields:
            name, kind = field.name, field.dataType.simpleString()
            if known.get(name) != kind:
                columns = ", ".join(f"{name} {kind}" for name, kind in known.items())
                raise BadSchema(
                    f'option "value" is {value!r}: the columns are {columns}; {name} {kind} is not one of '
                    'them. For columns from the records, use option("value", "json") or "arrow"'
                )


def _check_corrupt_record(field: StructField) -> None:
    if not isinstance(field.dataType, StringType | BinaryType) or not field.nullable:
        raise BadSchema(
            f"the column {field.name} is for the bytes of wrong records, and null for all others: make it a "
            'nullable string or binary, or choose another name with option("columnNameOfCorruptRecord")'
        )
