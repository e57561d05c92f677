"""From the batches of a gateway to Arrow batches for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.aquifer import Batch, RecordMetadata, from_arrow_stream, unpack_metadata, unpack_values
from penstock.spark.errors import BadSchema, UnreadableRecord
from penstock.spark.options import SourceOptions
from penstock.spark.source.arrow_rows import fitted, rows_as_bytes
from penstock.spark.source.csv_records import CsvRecords
from penstock.spark.source.decoders import Zone
from penstock.spark.source.records import (
    JsonRecords,
    Reasons,
    TypedRecords,
    may_be_null,
    misplaced_null,
    one_line,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

__all__ = ["Columns", "WrongRecord", "columns_of", "default_schema"]

_META: Final = "endpoint string, offset bigint, timestamp timestamp, key binary"


def default_schema(value: str) -> str:
    """The columns if the user does not give a schema; BadSchema if there is no default."""
    if value not in ("binary", "string"):
        raise BadSchema(
            f'option "value" is {value!r}: the columns come from the records, so give a schema: '
            '.schema("sensor string, reading double"), or use spark.read with option("inferSchema", "true")'
        )
    return f"{_META}, value {'string' if value == 'string' else 'binary'}"


def columns_of(schema: StructType, options: SourceOptions, zone: Zone | None = None) -> Columns:
    """The columns of a query; BadSchema if the schema does not fit the options."""
    return Columns(schema, options.value, zone, options.mode, options.corrupt_record, options.separator)


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
    ) -> None:
        from penstock.spark.spark_interface import arrow_schema

        self._whole_schema = arrow_schema(schema)
        self._corrupt = next((n for n, f in enumerate(schema.fields) if f.name == corrupt_record), None)
        """Which column is for the bytes of wrong records."""
        if self._corrupt is not None:
            _check_corrupt_record(schema.fields[self._corrupt])
            schema = StructType([field for field in schema.fields if field.name != corrupt_record])
        self._schema = arrow_schema(schema)
        self._value = value
        self._mode = mode
        self.wire_format = "arrow" if value == "arrow" else "msgpack"
        """The payload format to request from the gateway."""
        self.digest = sha256(f"{value} {separator} {schema.json()}".encode()).hexdigest()
        """Identifies what makes a record wrong."""
        self._strict = not all(map(may_be_null, self._schema))
        """Whether some columns must not have nulls. pyarrow does not check that, and Spark relies on it."""
        self._parser: JsonRecords | TypedRecords | CsvRecords | None = None
        zone = zone or Zone("UTC")
        if value == "json":
            self._parser = JsonRecords(schema, self._schema, zone)
        elif value == "msgpack":
            self._parser = TypedRecords(schema, self._schema, value, zone)
        elif value == "csv":
            self._parser = CsvRecords(schema, self._schema, separator, zone)
        if value in ("binary", "string"):
            self._check(schema, value)

    def batch(self, endpoint: str, records: Batch, wrong: list[WrongRecord] | None = None) -> pa.RecordBatch:
        """The records as an Arrow batch. Unless the mode is FAILFAST, ``wrong`` gets the wrong ones."""
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
        if wrong is not None:
            wrong += found
        if self._corrupt is not None:
            batch = self._with_corrupt_records(batch, self._corrupt, found)
        if found and self._mode == "DROPMALFORMED":
            left_out = {each.number for each in found}
            kept = [index for index in range(batch.num_rows) if index not in left_out]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch

    def _converted(self, endpoint: str, records: Batch, reasons: Reasons | None) -> pa.RecordBatch:
        if self._value == "arrow":
            try:
                return fitted(from_arrow_stream(records.payload), self._schema, endpoint, reasons)
            except pa.ArrowException as error:
                raise self._unreadable(endpoint, records, error) from error
        values = unpack_values(records.payload)
        if self._parser is not None:
            try:
                return self._parser.batch(values, reasons)
            except UnreadableRecord as error:
                raise self._unreadable(endpoint, records, error, error.index) from error
        metadata = unpack_metadata(records.metadata)
        texts: list[bytes | None] = [*values]
        if reasons is not None and self._value == "string" and "value" in self._schema.names:
            for index, value in enumerate(values):
                try:
                    value.decode()
                except UnicodeDecodeError as error:
                    reasons[index], texts[index] = str(error), None
        arrays = [_COLUMNS[name](endpoint, records, metadata, texts) for name in self._schema.names]
        try:
            return pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )
        except pa.ArrowInvalid as error:
            raise self._unreadable(endpoint, records, error) from error

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

    def _with_corrupt_records(
        self, batch: pa.RecordBatch, at: int, wrong: list[WrongRecord]
    ) -> pa.RecordBatch:
        field = self._whole_schema.field(at)
        values: list[bytes | str | None] = [None] * batch.num_rows
        for each in wrong:
            is_text = not pa.types.is_binary(field.type)
            values[each.number] = each.value.decode(errors="replace") if is_text else each.value
        columns = list(batch.columns)
        columns.insert(at, pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._whole_schema)

    def _not_nullable(self, endpoint: str, records: Batch, index: int, reason: str) -> UnreadableRecord:
        return UnreadableRecord(
            f"record {records.first + index} of {endpoint} is wrong, and columns that are NOT NULL cannot "
            f"show that: {reason}; make the columns of the schema nullable, or leave wrong records out with "
            'option("mode", "DROPMALFORMED")'
        )

    def _unreadable(
        self, endpoint: str, records: Batch, error: object, index: int | None = None
    ) -> UnreadableRecord:
        which = f"records {records.first} to {records.first + records.count - 1} of {endpoint}"
        if index is not None or records.count == 1:
            which = f"record {records.first + (index or 0)} of {endpoint}"
        return UnreadableRecord(
            f"{which} cannot be read as {self._value} with the schema {', '.join(self._schema.names)}: "
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


# Cached, because most batches have as many records as the one before.
@lru_cache(4)
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@lru_cache(4)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _offsets(endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes | None]) -> pa.Array:
    return pc.add(_counting(records.count), records.first)


def _timestamps(
    endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes | None]
) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    if metadata.timestamps is None:
        return pa.repeat(pa.scalar(metadata.timestamp, kind), records.count)
    return pa.array(metadata.timestamps, pa.int64()).cast(kind)


def _keys(endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes | None]) -> pa.Array:
    return (
        pa.nulls(records.count, pa.binary())
        if metadata.keys is None
        else pa.array(metadata.keys, pa.binary())
    )


_COLUMNS: Final[Mapping[str, Callable[[str, Batch, RecordMetadata, list[bytes | None]], pa.Array]]] = {
    "endpoint": lambda endpoint, records, metadata, values: _repeated(endpoint, records.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
    "value": lambda endpoint, records, metadata, values: pa.array(values, pa.binary()),
}
