"""From data frames of a gateway to the Arrow batches that Spark takes: column by column, if possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.aquifer.arrow import load
from penstock.aquifer.batches import Notes, unpack_notes, unpack_values
from penstock.aquifer.protocol.frames import Frame
from penstock.spark.source.typed_records import NotOfTheSchema, TypedRecords, may_be_null, misplaced_null

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
        self._strict = not all(map(may_be_null, self._schema))
        """Whether there are columns that must not have nulls: pyarrow does not look, and Spark trusts us."""
        self._typed: TypedRecords | None = None
        if value == "msgpack" or (value == "json" and not all(_plain_json(f.type) for f in self._schema)):
            self._typed = TypedRecords(self._schema, value)
        if value in ("binary", "string"):
            self._check(schema, value)

    def batch(self, endpoint: str, frame: Frame) -> pa.RecordBatch:
        """The records of a frame as a batch."""
        batch = self._batch(endpoint, frame)
        if self._strict:
            for column, field in zip(batch.columns, self._schema, strict=True):
                null = misplaced_null(column, field)
                if null is not None:
                    raise self._unreadable(endpoint, frame, f"{null} is null, and the schema says NOT NULL")
        return batch

    def _batch(self, endpoint: str, frame: Frame) -> pa.RecordBatch:
        if self._value == "arrow":
            return self._fitted(load(frame.payload), endpoint, frame)
        values = unpack_values(frame.payload)
        if self._typed is not None:
            try:
                return self._typed.batch(values)
            except NotOfTheSchema as error:
                raise self._unreadable(endpoint, frame, error, error.index) from error
        if self._value == "json":
            return self._json(values, endpoint, frame)
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
        for index, value in enumerate(values):
            # pyarrow would stumble over the others, and over a null so badly that it takes the process along.
            if value[:1] != b"{" and value.lstrip(b" \t\r\n")[:1] != b"{":
                raise self._unreadable(endpoint, frame, f"{value[:40]!r} is no JSON object", index)
        try:
            table = self._parsed(values)
        except pa.ArrowException as error:
            raise self._unreadable(endpoint, frame, error, self._culprit(values)) from error
        if table.num_rows != frame.count:
            raise self._unreadable(endpoint, frame, f"{table.num_rows} objects in {frame.count} records")
        return self._fitted(table.combine_chunks().to_batches()[0], endpoint, frame)

    def _parsed(self, values: list[bytes]) -> pa.Table:
        text = b"\n".join(values)
        table = pa.json.read_json(
            BytesIO(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # Strings, that is: the parser does not look whether they are UTF-8.
        return table

    def _culprit(self, values: list[bytes]) -> int | None:
        """Which of the records cannot be read; None if each by itself can."""
        for index, value in enumerate(values):
            try:
                self._parsed([value])
            except pa.ArrowException:
                return index
        return None

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
        except pa.ArrowException as error:
            raise self._unreadable(endpoint, frame, error) from error

    def _unreadable(
        self, endpoint: str, frame: Frame, error: object, index: int | None = None
    ) -> UnreadableRecord:
        which = f"records {frame.first} to {frame.first + frame.count - 1} of {endpoint}"
        if index is not None or frame.count == 1:
            which = f"record {frame.first + (index or 0)} of {endpoint}"
        reason = " ".join(str(error).split())  # In one line: Spark's own text is long enough.
        return UnreadableRecord(
            f"{which} cannot be read as {self._value} with the schema {', '.join(self._schema.names)}: "
            f'{reason}; mend the schema, or read raw values with option("value", "binary")'
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


def _plain_json(kind: pa.DataType) -> bool:
    """Whether pyarrow's own reader makes the right thing of a column of JSON."""
    if pa.types.is_map(kind) or pa.types.is_date(kind):
        return False
    return all(_plain_json(kind.field(index).type) for index in range(kind.num_fields))


# Most frames have as many records as the one before.
@lru_cache(4)
def _counting(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@lru_cache(4)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _offsets(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    return pc.add(_counting(frame.count), frame.first)


def _timestamps(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    if notes.timestamps is None:
        return pa.repeat(pa.scalar(notes.timestamp, kind), frame.count)
    return pa.array(notes.timestamps, pa.int64()).cast(kind)


def _keys(endpoint: str, frame: Frame, notes: Notes, values: list[bytes]) -> pa.Array:
    return pa.nulls(frame.count, pa.binary()) if notes.keys is None else pa.array(notes.keys, pa.binary())


_COLUMNS: Final[Mapping[str, Callable[[str, Frame, Notes, list[bytes]], pa.Array]]] = {
    "endpoint": lambda endpoint, frame, notes, values: _repeated(endpoint, frame.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
    "value": lambda endpoint, frame, notes, values: pa.array(values, pa.binary()),
}
