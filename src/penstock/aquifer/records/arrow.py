"""Arrow payloads: one IPC stream with one record batch, a row for each record.

pyarrow is asked for only here, and only when somebody really uses Arrow: it is no need of the gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow

__all__ = ["cut", "from_arrow_stream", "rows", "table", "to_arrow_stream"]


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
    """The record batch in an IPC stream; without copying."""
    pa = _pyarrow()
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def cut(payload: bytes | memoryview, low: int, high: int) -> memoryview:
    """The rows from ``low`` up to, but not with, ``high`` as a stream of their own."""
    return to_arrow_stream(from_arrow_stream(payload).slice(low, high - low))


def rows(payload: bytes | memoryview) -> list[bytes]:
    """Each row as a JSON object."""
    encode = msgspec.json.Encoder().encode
    return [encode(row) for row in _in_microseconds(from_arrow_stream(payload)).to_pylist()]


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
    first: int, timestamps: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes]
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
                pa.array(range(first, first + len(values)), pa.int64()),
                pa.array(timestamps, pa.timestamp("us", tz="UTC")),
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
            ],
            schema=schema,
        )
    )
