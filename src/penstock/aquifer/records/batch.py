"""Records, their metadata, and batches: the records that are stored and sent as one.

Records are packed once, when they come in. From then on the same bytes are the entry in the log, the row in
the journal and the payload on the wire. They are unpacked again only for a subscriber that may have no more
than a part of them, or that wants another format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.aquifer.records import arrow

__all__ = [
    "ARROW",
    "MSGPACK",
    "Batch",
    "Record",
    "RecordMetadata",
    "in_format",
    "joined",
    "pack_metadata",
    "pack_values",
    "part",
    "sizes_of",
    "unpack_metadata",
    "unpack_values",
    "values_of",
]


class Record(msgspec.Struct, frozen=True):
    """A value with what the log knows about it.

    On the way into a gateway only ``value`` has to be given; ``Record(value, key=b"sensor-7")`` gives a
    record a key, and ``timestamp`` a time other than that of its arrival. The offset is the gateway's to
    give, whatever is set here.
    """

    value: Any
    key: bytes | None = None
    timestamp: int | None = None
    """Microseconds since 1970 (UTC)."""
    offset: int | None = None
    """The record's offset in the log."""


class RecordMetadata(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The times and keys of the records of a batch."""

    timestamp: int
    """When the batch came in, in microseconds since 1970 (UTC)."""
    keys: list[bytes | None] | None = None
    """A key for each record, if any of them has one."""
    timestamps: list[int] | None = None
    """A time for each record, if they differ from that of the batch."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RecordMetadata).decode


def pack_metadata(metadata: RecordMetadata) -> bytes:
    """The metadata as it is stored and sent."""
    return _encode(metadata)


def unpack_metadata(packed: bytes) -> RecordMetadata:
    """The metadata that :func:`pack_metadata` packed; ``msgspec.DecodeError`` if it is not valid."""
    return _decode(packed)


MSGPACK: Final = "msgpack"
"""Payload: a msgpack array of binaries, one for each record."""
ARROW: Final = "arrow"
"""Payload: one Arrow IPC stream with one record batch, a row for each record."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Some consecutive records of the log."""

    first: int
    """The offset of the first record."""
    count: int
    payload: bytes | memoryview
    """The values, in the given format."""
    metadata: bytes
    """Times and keys: a :class:`RecordMetadata`, packed."""
    format: str = MSGPACK

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + self.count

    @property
    def nbytes(self) -> int:
        """The size of the batch, as bounds count it."""
        return len(self.payload) + len(self.metadata)


_values = msgspec.msgpack.Decoder(list[bytes]).decode


def pack_values(values: Sequence[bytes]) -> bytes:
    """The payload for these values."""
    return _encode(values)


def unpack_values(payload: bytes | memoryview) -> list[bytes]:
    """The values in a payload; ``msgspec.DecodeError`` if it is none."""
    return _values(payload)


def part(batch: Batch, start: int, stop: int) -> Batch:
    """The records of a batch from offset ``start`` up to, but not with, ``stop``."""
    if start <= batch.first and stop >= batch.end:
        return batch
    low, high = max(start - batch.first, 0), min(stop - batch.first, batch.count)
    payload: bytes | memoryview
    if batch.format == ARROW:
        payload = arrow.cut(batch.payload, low, high)
    else:
        payload = pack_values(unpack_values(batch.payload)[low:high])
    metadata = unpack_metadata(batch.metadata)
    if metadata.keys is None and metadata.timestamps is None:
        packed = batch.metadata
    else:
        packed = pack_metadata(
            RecordMetadata(
                metadata.timestamp,
                None if metadata.keys is None else metadata.keys[low:high],
                None if metadata.timestamps is None else metadata.timestamps[low:high],
            )
        )
    return Batch(batch.first + low, high - low, payload, packed, batch.format)


def joined(batches: Sequence[Batch]) -> Batch:
    """Several consecutive msgpack batches as one, for a reader that is behind a log of small ones."""
    if len(batches) == 1:
        return batches[0]
    count = sum(batch.count for batch in batches)
    bodies = [batch.payload[_array_header(batch.count) :] for batch in batches]
    all_metadata = [unpack_metadata(batch.metadata) for batch in batches]
    keys: list[bytes | None] | None = None
    if any(metadata.keys is not None for metadata in all_metadata):
        keys = []
        for batch, metadata in zip(batches, all_metadata, strict=True):
            keys += metadata.keys if metadata.keys is not None else [None] * batch.count
    timestamps: list[int] = []
    for batch, metadata in zip(batches, all_metadata, strict=True):
        timestamps += (
            metadata.timestamps if metadata.timestamps is not None else [metadata.timestamp] * batch.count
        )
    return Batch(
        batches[0].first,
        count,
        b"".join([_array_start(count), *bodies]),
        pack_metadata(RecordMetadata(all_metadata[0].timestamp, keys, timestamps)),
    )


def _array_header(count: int) -> int:
    """How many bytes precede the first element in a msgpack array of ``count`` elements."""
    return 1 if count < 16 else 3 if count < 2**16 else 5


def _array_start(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    if count < 2**16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def values_of(batch: Batch) -> list[bytes]:
    """What each record of a batch looks like to a subscriber that takes single records."""
    return arrow.rows(batch.payload) if batch.format == ARROW else unpack_values(batch.payload)


def sizes_of(batch: Batch) -> list[int]:
    """How many bytes each record counts for; together, those of the batch, or some more."""
    values = [0] * batch.count if batch.format == ARROW else [len(v) for v in unpack_values(batch.payload)]
    rest = -(-(batch.nbytes - sum(values)) // batch.count)
    return [value + rest for value in values]


def in_format(batch: Batch, format: str) -> Batch:
    """The same records for a subscriber that wants another format than the log's.

    A log of single records looks like a table of offset, timestamp, key and value in Arrow; a log of Arrow
    rows looks like a JSON object for each row in msgpack.
    """
    if batch.format == format:
        return batch
    payload: bytes | memoryview
    if format == ARROW:
        metadata = unpack_metadata(batch.metadata)
        timestamps = metadata.timestamps or [metadata.timestamp] * batch.count
        keys = metadata.keys or [None] * batch.count
        payload = arrow.table(batch.first, timestamps, keys, unpack_values(batch.payload))
    else:
        payload = pack_values(arrow.rows(batch.payload))
    return Batch(batch.first, batch.count, payload, batch.metadata, format)
