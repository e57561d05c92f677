"""One record of a gateway's log, and the metadata that a batch keeps of its records."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Record", "RecordMetadata", "pack_metadata", "unpack_metadata"]


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
