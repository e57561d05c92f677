"""From data frames of a gateway to the Arrow batches that Spark takes: column by column, no row in Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json

from penstock.aquifer.arrow import load
from penstock.aquifer.batches import Notes, unpack_notes, unpack_values
from penstock.aquifer.protocol.frames import Frame

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["BadSchema", "Columns", "UnreadableRecord", "default_schema"]

_META: Final = "endpoint string, offset bigint, timestamp timestamp, key binary"


class BadSchema(ValueError):
    """The schema does not fit what the records can be read as; the text says what would."""


class UnreadableRecord(ValueError):
    """Records that are not what the option ``value`` says they are."""


def default_schema(value: str) -> str:
    """The columns, when the user names none."""
    if value in ("json", "msgpack", "arrow"):
        raise BadSchema(
            f'option "value" is {value!r}: then the columns come from the records, so name them: '
            '.schema("sensor string, reading double")'
        )
    return f"{_META}, value {'string' if value == 'string' else 'binary'}"


class Columns:
    """Builds batches of one schema."""

    def __init__(self, schema: StructType, value: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._value = value
        self.wire_format = "arrow" if value == "arrow" else "msgpack"
        """The payload format to ask the gateway for."""
        if value in ("binary", "string"):
            self._check(schema, value)

    def batch(self, endpoint: str, frame: Frame) -> pa.RecordBatch:
        """The records of a frame as a batch."""
        if self._value == "arrow":
            return self._fitted(load(frame.payload), endpoint, frame)
        values = unpack_values(frame.payload)
        if self._value == "json":
            return self._json(values, endpoint, frame)
        if self._value == "msgpack":
            return self._msgpack(values, endpoint, frame)
        notes = unpack_notes(frame.notes)
        arrays = [_COLUMNS[name](endpoint, frame, notes, values) for name in self._schema.names]
        try:
            return pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )
        except pa.ArrowInvalid as error:
            raise self._unreadable(endpoint, frame, error) from error

    # ---------------------------------------------------------------- typed values
    def _json(self, values: list[bytes], endpoint: str, frame: Frame) -> pa.RecordBatch:
        text = b"\n".join(values)
        try:
            table = pa.json.read_json(
                BytesIO(text),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=self._schema, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._unreadable(endpoint, frame, error) from error
        if table.num_rows != frame.count:
            raise self._unreadable(endpoint, frame, f"{table.num_rows} objects in {frame.count} records")
        return self._fitted(table.combine_chunks().to_batches()[0], endpoint, frame)

    def _msgpack(self, values: list[bytes], endpoint: str, frame: Frame) -> pa.RecordBatch:
        try:
            decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
            return pa.RecordBatch.from_pylist(list(map(decode, values)), schema=self._schema)
        except (msgspec.DecodeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._unreadable(endpoint, frame, error) from error

    def _fitted(self, batch: pa.RecordBatch, endpoint: str, frame: Frame) -> pa.RecordBatch:
        """The columns that the schema names, in its order and with its types."""
        if batch.schema.equals(self._schema):
            return batch
        missing = [name for name in self._schema.names if name not in batch.schema.names]
        if missing:
            raise BadSchema(
                f"the records of {endpoint} have no column {', '.join(missing)}; they have "
                f"{', '.join(batch.schema.names)}"
            )
        try:
            arrays = [batch.column(field.name).cast(field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._unreadable(endpoint, frame, error) from error

    def _unreadable(self, endpoint: str, frame: Frame, error: object) -> UnreadableRecord:
        return UnreadableRecord(
            f"records {frame.first} to {frame.first + frame.count - 1} of {endpoint} cannot be read as "
            f"{self._value} with the schema {', '.join(self._schema.names)}: {error}; mend the schema, or "
            'read them raw with option("value", "binary")'
        )

    @staticmethod
    def _check(schema: StructType, value: str) -> None:
        allowed = {field.split()[0]: field.split()[1] for field in default_schema(value).split(", ")}
        for field in schema.fields:
            name, kind = field.name, field.dataType.simpleString()
            if allowed.get(name) != kind:
                columns = ", ".join(f"{name} {kind}" for name, kind in allowed.items())
                raise BadSchema(
                    f'with option("value", "{value}") there are the columns {columns}; {name} {kind} is none '
                    'of them. For columns out of the records use option("value", "json") or "arrow"'
                )


def _offsets(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    numbers = array("q", range(frame.first, frame.first + frame.count))
    return pa.Array.from_buffers(pa.int64(), frame.count, [None, pa.py_buffer(numbers)])


def _timestamps(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    if notes.timestamps is None:
        return pa.repeat(pa.scalar(notes.timestamp, pa.int64()), frame.count).cast(kind)
    return pa.array(notes.timestamps, pa.int64()).cast(kind)


def _keys(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    return pa.nulls(frame.count, pa.binary()) if notes.keys is None else pa.array(notes.keys, pa.binary())


_COLUMNS: Final[Mapping[str, Callable[[str, Frame, Notes, list[bytes]], pa.Array]]] = {
    "endpoint": lambda endpoint, frame, notes, values: pa.repeat(pa.scalar(endpoint), frame.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
    "value": lambda endpoint, frame, notes, values: pa.array(values, pa.binary()),
}
