"""From the batches of a gateway to Arrow batches for Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.aquifer import Batch, RecordMetadata, from_arrow_stream, unpack_metadata, unpack_values
from penstock.spark.errors import BadSchema, UnreadableRecord
from penstock.spark.source.decoders import Zone
from penstock.spark.source.records import (
    JsonRecords,
    TypedRecords,
    may_be_null,
    misplaced_null,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Columns", "default_schema"]

_META: Final = "endpoint string, offset bigint, timestamp timestamp, key binary"


def default_schema(value: str) -> str:
    """The columns if the user does not give a schema; BadSchema if there is no default."""
    if value in ("json", "msgpack", "arrow"):
        raise BadSchema(
            f'option "value" is {value!r}: the columns come from the records, so give a schema: '
            '.schema("sensor string, reading double")'
        )
    return f"{_META}, value {'string' if value == 'string' else 'binary'}"


class Columns:
    """Makes Arrow batches of one schema."""

    def __init__(self, schema: StructType, value: str, zone: Zone | None = None) -> None:
        from penstock.spark.spark_interface import arrow_schema

        self._schema = arrow_schema(schema)
        self._value = value
        self.wire_format = "arrow" if value == "arrow" else "msgpack"
        """The payload format to request from the gateway."""
        self._strict = not all(map(may_be_null, self._schema))
        """Whether some columns must not have nulls. pyarrow does not check that, and Spark relies on it."""
        self._parser: JsonRecords | TypedRecords | None = None
        zone = zone or Zone("UTC")
        if value == "json":
            self._parser = JsonRecords(schema, self._schema, zone)
        elif value == "msgpack":
            self._parser = TypedRecords(schema, self._schema, value, zone)
        if value in ("binary", "string"):
            self._check(schema, value)

    def batch(self, endpoint: str, records: Batch) -> pa.RecordBatch:
        """The records as an Arrow batch."""
        batch = self._converted(endpoint, records)
        if self._strict:
            for column, field in zip(batch.columns, self._schema, strict=True):
                null = misplaced_null(column, field)
                if null is not None:
                    raise self._unreadable(endpoint, records, f"{null} is null, and the schema says NOT NULL")
        return batch

    def _converted(self, endpoint: str, records: Batch) -> pa.RecordBatch:
        if self._value == "arrow":
            return self._fitted(from_arrow_stream(records.payload), endpoint, records)
        values = unpack_values(records.payload)
        if self._parser is not None:
            try:
                return self._parser.batch(values)
            except UnreadableRecord as error:
                raise self._unreadable(endpoint, records, error, error.index) from error
        metadata = unpack_metadata(records.metadata)
        arrays = [_COLUMNS[name](endpoint, records, metadata, values) for name in self._schema.names]
        try:
            return pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )
        except pa.ArrowInvalid as error:
            raise self._unreadable(endpoint, records, error) from error

    def _fitted(self, batch: pa.RecordBatch, endpoint: str, records: Batch) -> pa.RecordBatch:
        """The columns of the schema, in its order and with its types."""
        if batch.schema.equals(self._schema):
            return batch
        missing = [name for name in self._schema.names if name not in batch.schema.names]
        if missing:
            raise BadSchema(
                f"the records of {endpoint} have no column {', '.join(missing)}; they have "
                f"{', '.join(batch.schema.names)}"
            )
        try:
            arrays = [_cast(batch.column(field.name), field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except pa.ArrowException as error:
            raise self._unreadable(endpoint, records, error) from error

    def _unreadable(
        self, endpoint: str, records: Batch, error: object, index: int | None = None
    ) -> UnreadableRecord:
        which = f"records {records.first} to {records.first + records.count - 1} of {endpoint}"
        if index is not None or records.count == 1:
            which = f"record {records.first + (index or 0)} of {endpoint}"
        reason = " ".join(str(error).split())  # On one line, because Spark's own message is long enough.
        return UnreadableRecord(
            f"{which} cannot be read as {self._value} with the schema {', '.join(self._schema.names)}: "
            f'{reason}; correct the schema, or read raw values with option("value", "binary")'
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


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


# Cached, because most batches have as many records as the one before.
@lru_cache(4)
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@lru_cache(4)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _offsets(endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes]) -> pa.Array:
    return pc.add(_counting(records.count), records.first)


def _timestamps(endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes]) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    if metadata.timestamps is None:
        return pa.repeat(pa.scalar(metadata.timestamp, kind), records.count)
    return pa.array(metadata.timestamps, pa.int64()).cast(kind)


def _keys(endpoint: str, records: Batch, metadata: RecordMetadata, values: list[bytes]) -> pa.Array:
    return (
        pa.nulls(records.count, pa.binary())
        if metadata.keys is None
        else pa.array(metadata.keys, pa.binary())
    )


_COLUMNS: Final[Mapping[str, Callable[[str, Batch, RecordMetadata, list[bytes]], pa.Array]]] = {
    "endpoint": lambda endpoint, records, metadata, values: _repeated(endpoint, records.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
    "value": lambda endpoint, records, metadata, values: pa.array(values, pa.binary()),
}
