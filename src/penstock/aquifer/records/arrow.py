"""Arrow payloads: one IPC stream with one record batch, a row for each record.

pyarrow is imported only here, and only when Arrow is used: a gateway does not need it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.aquifer.records.arrow_message import MOST_EXPANDED, claimed_by_message, is_native_schema

if TYPE_CHECKING:
    import pyarrow

__all__ = ["cut", "from_arrow_stream", "leading", "rows", "table", "taken", "to_arrow_stream"]

_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""The forms of Spark's ``to_json``, which the Spark source reads back."""


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Arrow payloads need pyarrow, which is not installed: pip install 'penstock-streams[arrow]'"
        ) from error
    return pyarrow


def to_arrow_stream(batch: pyarrow.RecordBatch) -> memoryview:
    """A record batch as an IPC stream."""
    pa = _pyarrow()
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"codec 'arrow' takes pyarrow.RecordBatch, not {type(batch).__name__}")
    # Measured before it is written: a buffer that grows is copied as it does.
    measure = pa.MockOutputStream()
    _write(batch, measure)
    buffer = pa.allocate_buffer(measure.size())
    with pa.FixedSizeBufferWriter(buffer) as sink:
        _write(batch, sink)
    return memoryview(buffer).cast("B")


def _write(batch: pyarrow.RecordBatch, sink: Any) -> None:
    with _pyarrow().ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def from_arrow_stream(payload: bytes | memoryview) -> pyarrow.RecordBatch:
    """The record batch in an IPC stream; without copying.

    A ValueError if its buffers are compressed and claim to be larger than 64 MiB: others may have made it.
    """
    pa = _pyarrow()
    ipc, schema = pa.ipc, None
    for number, message in enumerate(ipc.MessageReader.open_stream(payload)):
        metadata = memoryview(message.metadata)
        claimed = claimed_by_message(metadata, memoryview(message.body or b""))
        if claimed > MOST_EXPANDED:
            raise ValueError(f"it claims to have {claimed} bytes, and at most {MOST_EXPANDED} are expanded")
        if message.type == "record batch":
            if schema is not None:
                # What has dictionaries, but not here, is for the whole stream's reader to refuse.
                with suppress(pa.ArrowKeyError):
                    return ipc.read_record_batch(message, schema)
            break
        # A batch can be read by itself if there is nothing before it but a schema. It would be read as if its
        # bytes were in the order of this machine, whatever the schema says.
        schema = ipc.read_schema(message) if not number and is_native_schema(metadata) else None
    with ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def cut(payload: bytes | memoryview, low: int, high: int) -> memoryview:
    """The rows from ``low`` up to, but not with, ``high`` as a stream of their own."""
    return to_arrow_stream(from_arrow_stream(payload).slice(low, high - low))


def taken(payload: bytes | memoryview, numbers: Sequence[int]) -> memoryview:
    """The rows with these numbers as a stream of their own."""
    return to_arrow_stream(from_arrow_stream(payload).take(_pyarrow().array(numbers, "int64")))


def leading(payload: bytes | memoryview, low: int, nbytes: int) -> tuple[int, int]:
    """How many rows from ``low`` on fit into ``nbytes``, and how many bytes they have."""
    batch = from_arrow_stream(payload)
    head: int = max(memoryview(payload).nbytes - batch.nbytes, 0)

    def size(count: int) -> int:
        rows_alone: int = batch.slice(low, count).nbytes
        return head + rows_alone

    fits, too_many = 0, batch.num_rows - low + 1
    while too_many - fits > 1:
        count = (fits + too_many) // 2
        if size(count) <= nbytes:
            fits = count
        else:
            too_many = count
    return fits, size(fits) if fits else 0


def rows(payload: bytes | memoryview) -> list[bytes]:
    """Each row as a JSON object: a map is an object, and NaN and the infinities are strings."""
    encode = msgspec.json.Encoder().encode
    batch = _in_microseconds(from_arrow_stream(payload))
    objects: list[dict[str, Any]] = batch.to_pylist()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        convert = _conversion(column.type)
        if convert is not None and not _is_finite(column):
            for row in objects:
                if row[name] is not None:
                    row[name] = convert(row[name])
    return [encode(row) for row in objects]


def _is_finite(column: pyarrow.Array) -> bool:
    """Whether a column has numbers only, all of which JSON can represent."""
    import pyarrow.compute as pc

    return _pyarrow().types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is not False


def _conversion(kind: pyarrow.DataType) -> Callable[[Any], Any] | None:
    """Converts a value that is not null to one that JSON can represent; None if every value is one."""
    types = _pyarrow().types
    if types.is_floating(kind):
        return lambda number: number if isfinite(number) else _NOT_FINITE[str(number)]
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = {field.name: convert for field in fields if (convert := _conversion(field.type)) is not None}
        if not inner:
            return None
        return lambda value: {
            name: inner[name](each) if name in inner and each is not None else each
            for name, each in value.items()
        }
    if types.is_map(kind):
        item = _conversion(kind.item_type) or _same
        return lambda pairs: {key: None if each is None else item(each) for key, each in pairs}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = _conversion(kind.value_type)
        if element is None:
            return None
        return lambda values: [None if each is None else element(each) for each in values]
    return None


def _same(value: Any) -> Any:
    return value


def _in_microseconds(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Python's times end there, and pyarrow refuses to make one of a nanosecond."""
    pa = _pyarrow()
    columns = []
    for column in batch.columns:
        kind = column.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False)
        elif pa.types.is_time64(kind) and kind.unit == "ns":
            column = column.cast(pa.time64("us"), safe=False)
        elif pa.types.is_duration(kind) and kind.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def table(
    offsets: Sequence[int], timestamps: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes]
) -> memoryview:
    """Single records as rows of offset, timestamp, key and value."""
    pa = _pyarrow()
    schema = pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary(), nullable=False),
        ]
    )
    return to_arrow_stream(
        pa.record_batch(
            [
                pa.array(offsets, pa.int64()),
                pa.array(timestamps, pa.timestamp("us", tz="UTC")),
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
            ],
            schema=schema,
        )
    )
