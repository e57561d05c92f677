"""Frames in pieces: a frame that would keep the line busy for long goes as several messages.

ØMQ shows a message when it is complete. A frame of some megabytes keeps a slow line busy for minutes, nothing
else gets through meanwhile, and if the connection is lost in the last second, all of it has to be sent again.
So the gateway cuts it: a :class:`CutFrame` is sent piece by piece, and the subscriber puts the pieces
together in a :class:`FrameAssembly`. The pieces that have arrived survive their connection, so that the next
session continues in the middle of the frame.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.records.batch import Batch

__all__ = ["PIECE", "CutFrame", "FrameAssembly"]

PIECE: Final = Struct(">QQQI")
"""How a :class:`_Piece` is packed; it takes the place of the metadata."""
_PIECE_FLAG: Final = int(Flag.PIECE)


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
        self.count = batch.count
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
