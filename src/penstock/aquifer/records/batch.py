"""Records, their metadata, and batches: the records that are stored and sent as one.

Records are packed once, when they come in. From then on the same bytes are the entry in the log, the row in
the journal and the payload on the wire. They are unpacked again only for a subscriber that may have no more
than a part of them, or that wants another format: see :mod:`penstock.aquifer.log.excerpts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from penstock.aquifer.records import arrow

__all__ = [
    "ARROW",
    "MSGPACK",
    "Batch",
    "ChosenMetadata",
    "Record",
    "RecordMetadata",
    "offsets_of",
    "pack_metadata",
    "pack_values",
    "packed_count",
    "unpack_chosen",
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


class ChosenMetadata(RecordMetadata, array_like=True, frozen=True, gc=False):
    """The metadata of a batch that has only some of the records of its range, for a reader of a few keys."""

    chosen: list[int] | None = None
    """Which ones: the position of each in the range, from 0 on. None if the batch has all of them."""


# The methods of the codecs themselves: a function around them would be one more call for each batch.
pack_metadata: Final[Callable[[RecordMetadata], bytes]] = msgspec.msgpack.Encoder().encode
"""The metadata as it is stored and sent."""
unpack_metadata: Final[Callable[[bytes | memoryview], RecordMetadata]] = msgspec.msgpack.Decoder(
    RecordMetadata
).decode
"""The metadata that ``pack_metadata`` packed; ``msgspec.DecodeError`` if it is not valid."""
unpack_chosen: Final[Callable[[bytes | memoryview], ChosenMetadata]] = msgspec.msgpack.Decoder(
    ChosenMetadata
).decode
"""The same, with the positions of the records if there are only some."""
pack_values: Final[Callable[[Sequence[bytes]], bytes]] = msgspec.msgpack.Encoder().encode
"""The payload for these values."""
unpack_values: Final[Callable[[bytes | memoryview], list[bytes]]] = msgspec.msgpack.Decoder(
    list[bytes]
).decode
"""The values in a payload; ``msgspec.DecodeError`` if there are none."""


def packed_count(payload: bytes | memoryview) -> int:
    """How many values a payload claims to have, without unpacking it; -1 if it is no array."""
    kind = payload[0] if len(payload) else 0
    if kind & 0xF0 == 0x90:
        return kind & 0x0F
    size = {0xDC: 2, 0xDD: 4}.get(kind)
    return -1 if size is None else int.from_bytes(payload[1 : 1 + size], "big")


MSGPACK: Final = "msgpack"
"""Payload: a msgpack array of binaries, one for each record."""
ARROW: Final = "arrow"
"""Payload: one Arrow IPC stream with one record batch, a row for each record."""

COMPRESSED: Final = "+zstd"
"""What the format ends with if the payload is compressed."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Some consecutive records of the log; with ``span``, those of them that a reader has chosen."""

    first: int
    """The offset of the first record."""
    count: int
    payload: bytes | memoryview
    """The values, in the given format."""
    metadata: bytes | memoryview
    """Times and keys: a :class:`RecordMetadata`, packed."""
    format: str = MSGPACK
    # Counted once, when the batch is made: the writer, the log and every reader look at these two.
    end: int = 0
    """The offset after the last record."""
    nbytes: int = 0
    """The size of the batch, as bounds count it."""
    span: int | None = None
    """How many records of the log it stands for, if it does not have all of them."""
    compressed: bool = False
    """Whether the payload has to be expanded: the format says so."""

    def __post_init__(self) -> None:
        force_setattr(self, "end", self.first + (self.count if self.span is None else self.span))
        force_setattr(self, "nbytes", len(self.payload) + len(self.metadata))
        force_setattr(self, "compressed", self.format.endswith(COMPRESSED))


def offsets_of(batch: Batch) -> Sequence[int]:
    """The offset of each record of a batch."""
    if batch.span is None:
        return range(batch.first, batch.end)
    chosen = unpack_chosen(batch.metadata).chosen
    return range(batch.first, batch.end) if chosen is None else [batch.first + place for place in chosen]


def values_of(batch: Batch) -> list[bytes]:
    """What each record of a batch looks like to a subscriber that takes single records."""
    return arrow.rows(batch.payload) if batch.format == ARROW else unpack_values(batch.payload)
