"""Data frames of the extended dialect: what goes over the shared data port.

A frame is a message of three or four parts::

    topic     8 bytes, the session's
    header   16 bytes, big-endian: version, flags, 0, first offset, count
    payload   the records, in the format that was agreed on
    metadata     times and keys of the records (absent in frames without records)

``first`` is always the offset of the next record that the gateway sends in this session. A subscriber that
sees a higher one than it expects has lost a frame; it subscribes again from the offset that it expected.

**Pieces.** ØMQ shows a message when it is complete. A frame of some megabytes keeps a slow line busy for
minutes, nothing else gets through meanwhile, and if the connection is lost in the last second, all of it has
to be sent again. So the gateway cuts it: a :class:`CutFrame` is sent piece by piece, and the subscriber puts
the pieces together in a :class:`FrameAssembly`. Pieces that have arrived survive their connection, so that
the next session continues in the middle of the frame.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import IntFlag
from operator import lt
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.records.batch import Batch, unpack_chosen
from penstock.aquifer.records.compression import claimed_bytes, expand

__all__ = [
    "HEADER",
    "PIECE",
    "PLACE",
    "TOKEN_BYTES",
    "TOPIC_BYTES",
    "CutFrame",
    "Flag",
    "Frame",
    "FrameAssembly",
    "header",
    "parse",
    "payload_of",
    "unpacked_bytes",
    "with_positions",
]


HEADER: Final = Struct(">BBHQI")
PLACE: Final = Struct(">QQQ")
"""The position of a payload in shared memory: its number, its first byte and its length."""
TOKEN_BYTES: Final = 16
"""What a shared segment begins with."""
TOPIC_BYTES: Final = 8
FRAME_VERSION: Final = 1


class Flag(IntFlag):
    """What a frame is, or asks for, beside carrying records."""

    END = 1
    """The stream is complete; ``first`` is its end."""
    GAP = 2
    """Records before ``first`` are gone: this optional reader was too slow."""
    HB = 4
    """A sign of life; the payload is the log's head as 8 bytes."""
    ACK = 8
    """Acknowledge now: the log is filling up."""
    ERR = 16
    """The stream failed; the payload is an ``OnError`` message."""
    SHARED = 32
    """The payload is in shared memory; here is its position: number, first byte, length, 8 bytes each."""
    PIECE = 64
    """A piece of a frame; its position takes the place of the metadata."""
    ZSTD = 128
    """The payload is compressed with zstd; that of the whole frame, if this is a piece."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A data frame without its topic."""

    flags: int
    first: int
    count: int
    payload: bytes | memoryview
    """A view into the socket's buffer, if the reader of the frames wants no copies."""
    metadata: bytes | memoryview = b""
    chosen: list[int] | None = None
    """Which of its records it has, by their position, if a subscriber asked for a few keys only. This is in
    the metadata."""
    more: Sequence[bytes | memoryview] = ()
    """What follows the payload, if the parts are put together where the subscriber reads them."""

    @property
    def nbytes(self) -> int:
        """How many bytes of credit it costs."""
        return len(self.payload) + len(self.metadata) + sum(map(len, self.more))

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.count if self.chosen is None else len(self.chosen)


def with_positions(frame: Frame) -> Frame:
    """The frame with the positions of its records, from its metadata; or a ``ProtocolViolation``."""
    try:
        chosen = unpack_chosen(frame.metadata).chosen
    except msgspec.DecodeError as error:
        text = f"the metadata of the frame at offset {frame.first} cannot be read: {error}"
        raise ProtocolViolation(text) from error
    if chosen is None:
        return frame
    # Each between the one before it and the one after it, and all within the frame.
    if not all(map(lt, [-1, *chosen], [*chosen, frame.count])):
        text = f"the frame at offset {frame.first} says that its records are in places that it does not have"
        raise ProtocolViolation(text)
    return msgspec.structs.replace(frame, chosen=chosen)


def payload_of(frame: Frame) -> bytes | memoryview:
    """The payload of a whole frame, expanded if it is compressed; or a ``ProtocolViolation``."""
    if not frame.flags & _ZSTD_FLAG:
        return frame.payload
    try:
        return expand(frame.payload)
    except ValueError as error:
        raise _unreadable(frame, error) from error


def unpacked_bytes(frame: Frame) -> int:
    """How many bytes a whole frame has when its payload is expanded; or a ``ProtocolViolation``."""
    if not frame.flags & _ZSTD_FLAG:
        return frame.nbytes
    try:
        return claimed_bytes(frame.payload) + len(frame.metadata)
    except ValueError as error:
        raise _unreadable(frame, error) from error


def header(flags: int, first: int, count: int) -> bytes:
    """The second part of a frame."""
    return HEADER.pack(FRAME_VERSION, flags, 0, first, count)


def parse(parts: Sequence[bytes | memoryview]) -> Frame:
    """The frame in a message from the data port; ``ProtocolViolation`` if there is none."""
    if not 3 <= len(parts) <= 4 or len(parts[1]) != HEADER.size:
        raise ProtocolViolation(
            f"not a data frame: {len(parts)} parts of {[len(part) for part in parts]} bytes, "
            f"expected a topic, a header of {HEADER.size} bytes, a payload and metadata"
        )
    version, flags, _, first, count = HEADER.unpack(parts[1])
    if version != FRAME_VERSION:
        raise ProtocolViolation(f"a data frame of version {version}; this end understands {FRAME_VERSION}")
    return Frame(flags, first, count, parts[2], bytes(parts[3]) if len(parts) == 4 else b"")


PIECE: Final = Struct(">QQQI")
"""How a :class:`_Piece` is packed; it takes the place of the metadata."""
_PIECE_FLAG: Final = int(Flag.PIECE)


def _unreadable(frame: Frame, error: ValueError) -> ProtocolViolation:
    return ProtocolViolation(f"the frame at offset {frame.first} is compressed, and {error}")


_ZSTD_FLAG: Final = int(Flag.ZSTD)


class _Piece(NamedTuple):
    """Where a piece belongs in its frame."""

    start: int
    """How many bytes of the frame come before it."""
    payload: int
    """The bytes of the frame's payload."""
    total: int
    """The bytes of its payload and metadata together."""
    crc: int
    """CRC-32 of payload and metadata: it shows whether pieces of two sessions belong to one frame."""


class CutFrame:
    """A frame on its way out, a piece at a time."""

    def __init__(self, batch: Batch, start: int = 0) -> None:
        self.first = batch.first
        self.count = batch.end - batch.first
        """How many records it stands for,"""
        self.left_out = self.count - batch.count
        """and how many of them it does not have, because the subscriber wants other keys."""
        self.compressed = batch.compressed
        self._payload = memoryview(batch.payload)
        self._metadata = memoryview(batch.metadata)
        self._total = batch.nbytes
        self._crc = zlib.crc32(batch.metadata, zlib.crc32(batch.payload))
        self._next = start if start < self._total else 0

    def piece(self, size: int) -> tuple[bytes | memoryview, bytes, bool]:
        """The next ``size`` bytes, where they belong, and whether they are the last."""
        start, stop = self._next, min(self._next + size, self._total)
        inside = len(self._payload)
        self._next = stop
        data: bytes | memoryview = self._payload[start:stop]
        if stop > inside:
            data = bytes(data) + self._metadata[max(start - inside, 0) : stop - inside]
        return data, PIECE.pack(start, inside, self._total, self._crc), stop == self._total


class FrameAssembly:
    """A frame on its way in, put together from its pieces."""

    def __init__(self) -> None:
        self.first = 0
        """The offset of the frame."""
        self.count = 0
        """The number of its records."""
        self.compressed = False
        """Whether its payload is compressed."""
        self.have = 0
        """How many of its bytes have arrived; 0 if no frame is on its way."""
        self.carried = 0
        """How many of these arrived in an earlier session."""
        self._place: _Piece | None = None
        self._pieces: list[bytes | memoryview] = []

    def is_begun_by(self, frame: Frame) -> bool:
        """Whether this piece is the first of its frame."""
        return _place_of(frame).start == 0

    def misfit(self, frame: Frame) -> str | None:
        """Why a piece does not continue where the last one ended; None if it does, or begins a frame."""
        place = _place_of(frame)
        if place.start == 0:
            return None
        if place.start != self.have:
            return f"the piece starts at byte {place.start}, but {self.have} bytes have arrived"
        if (frame.first, frame.count, *place[1:]) != (self.first, self.count, *(self._place or ())[1:]):
            return "the piece belongs to another frame"
        return None

    def add(self, frame: Frame) -> Frame | None:
        """Add a piece that is not a :meth:`misfit`; return the frame if it is complete now."""
        place = _place_of(frame)
        if place.start == 0:
            self.drop()
            self.first, self.count, self._place = frame.first, frame.count, place
            self.compressed = bool(frame.flags & _ZSTD_FLAG)
        self._pieces.append(frame.payload)
        self.have += len(frame.payload)
        return self._whole(frame, place) if self.have == place.total else None

    def _whole(self, frame: Frame, place: _Piece) -> Frame:
        data = memoryview(b"".join(self._pieces))
        if self.carried and zlib.crc32(data) != place.crc:
            raise ProtocolViolation(f"the pieces of the frame at offset {frame.first} do not belong together")
        payload, metadata = data[: place.payload], bytes(data[place.payload :])
        return Frame(frame.flags & ~_PIECE_FLAG, frame.first, frame.count, payload, metadata)

    def carry_over(self) -> None:
        """A new session begins: the pieces that are here arrived before it."""
        self.carried = self.have

    def drop(self) -> int:
        """Drop the pieces, and return how many of their bytes arrived in this session."""
        dropped = self.have - self.carried
        self._pieces.clear()
        self._place = None
        self.have = self.carried = 0
        return dropped


def _place_of(frame: Frame) -> _Piece:
    if len(frame.metadata) != PIECE.size or not frame.count:
        raise ProtocolViolation(
            f"the piece at offset {frame.first} has no records, or does not say where it belongs"
        )
    place = _Piece(*PIECE.unpack(frame.metadata))
    end = place.start + len(frame.payload)
    if end == place.start or end > place.total or place.payload > place.total:
        raise ProtocolViolation(f"the piece at offset {frame.first} does not fit into its frame: {place}")
    return place
