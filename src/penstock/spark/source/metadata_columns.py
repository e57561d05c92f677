"""What the gateway knows about a record beside its value, as columns: endpoint, offset, timestamp and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.aquifer import Batch, RecordMetadata, offsets_of
from penstock.spark.errors import BadSchema

__all__ = ["COLUMNS", "METADATA", "check_metadata_columns"]

METADATA: Final[Mapping[str, DataType]] = {
    "endpoint": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
}
"""The columns, and their types. Records have no headers."""


def check_metadata_columns(schema: StructType) -> list[StructField]:
    """The fields of a schema that are metadata; BadSchema if there is none, or one of another type."""
    columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in METADATA.items())
    found = [field for field in schema.fields if field.name in METADATA]
    if not found:
        raise BadSchema(
            f'option "includeMetadata" is true, and the schema has none of the columns: add some of {columns}'
        )
    for field in found:
        kind = field.dataType.simpleString()
        if kind != METADATA[field.name].simpleString() or (field.name == "key" and not field.nullable):
            raise BadSchema(
                f'option "includeMetadata" is true: the columns are {columns}, and a record may have no key; '
                f"{field.name} {kind}{'' if field.nullable else ' NOT NULL'} does not fit"
            )
    return found


# Cached, because most batches have as many records as the one before.
@lru_cache(4)
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@lru_cache(4)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _offsets(endpoint: str, records: Batch, metadata: RecordMetadata) -> pa.Array:
    if records.span is None:
        # With its type: without one, pyarrow tries to import dateutil each time, to see what the value is.
        # Where that is not installed, the search takes longer than all the columns of a batch.
        return pc.add(_counting(records.count), pa.scalar(records.first, pa.int64()))
    return pa.array(offsets_of(records), pa.int64())


def _timestamps(endpoint: str, records: Batch, metadata: RecordMetadata) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    if metadata.timestamps is None:
        return pa.repeat(pa.scalar(metadata.timestamp, kind), records.count)
    return pa.array(metadata.timestamps, pa.int64()).cast(kind)


def _keys(endpoint: str, records: Batch, metadata: RecordMetadata) -> pa.Array:
    return (
        pa.nulls(records.count, pa.binary())
        if metadata.keys is None
        else pa.array(metadata.keys, pa.binary())
    )


COLUMNS: Final[Mapping[str, Callable[[str, Batch, RecordMetadata], pa.Array]]] = {
    "endpoint": lambda endpoint, records, metadata: _repeated(endpoint, records.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
}
