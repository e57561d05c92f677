"""What readers get of the batches in a log: a part of one, several as one, or another format."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.aquifer.records import (
    ARROW,
    MSGPACK,
    Batch,
    RecordMetadata,
    arrow,
    pack_metadata,
    pack_values,
    unpack_metadata,
    unpack_values,
)

__all__ = ["can_follow", "in_format", "joined", "leading", "part", "parts_of"]


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
        b"".join(parts_of(batches)),
        pack_metadata(RecordMetadata(all_metadata[0].timestamp, keys, timestamps)),
    )


def can_follow(batch: Batch, following: Batch) -> bool:
    """Whether two msgpack batches are one batch if their values are put together: they came at one time."""
    if following.first != batch.end or following.format != MSGPACK or following.metadata != batch.metadata:
        return False
    metadata = unpack_metadata(batch.metadata)
    return metadata.keys is None and metadata.timestamps is None


def parts_of(batches: Sequence[Batch]) -> list[bytes | memoryview]:
    """The payload that such batches have together, in parts."""
    bodies = (memoryview(batch.payload)[_array_header(batch.count) :] for batch in batches)
    return [_array_start(sum(batch.count for batch in batches)), *bodies]


def _array_header(count: int) -> int:
    """How many bytes precede the first element in a msgpack array of ``count`` elements."""
    return 1 if count < 16 else 3 if count < 2**16 else 5


def _array_start(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    if count < 2**16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def leading(batch: Batch, low: int, nbytes: int) -> tuple[int, int]:
    """How many records of a batch, from number ``low`` on, fit into ``nbytes``, and their bytes."""
    if batch.format == ARROW:
        return arrow.leading(batch.payload, low, nbytes)
    values = unpack_values(batch.payload)
    # What a batch has beside its values is shared by its records.
    rest = -(-(batch.nbytes - sum(map(len, values))) // batch.count)
    count = used = 0
    for value in values[low:]:
        if used + len(value) + rest > nbytes:
            break
        count, used = count + 1, used + len(value) + rest
    return count, used


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
        payload = arrow.table(range(batch.first, batch.end), timestamps, keys, unpack_values(batch.payload))
    else:
        payload = pack_values(arrow.rows(batch.payload))
    return Batch(batch.first, batch.count, payload, batch.metadata, format)
