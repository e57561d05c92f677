"""Data frames of the extended dialect: what goes over the shared data port.

A frame is a message of three or four parts::

    topic     8 bytes, the session's
    header   16 bytes, big-endian: version, flags, 0, first offset, count
    payload   the records, in the format that was agreed on
    metadata     times and keys of the records (absent in frames without records)

``first`` is always the offset of the next record that the gateway sends in this session. A subscriber that
sees a higher one than it expects has lost a frame; it subscribes again from the offset that it expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from struct import Struct
from typing import Final

import msgspec

from penstock.aquifer.errors import ProtocolViolation

__all__ = ["HEADER", "PLACE", "TOKEN_BYTES", "TOPIC_BYTES", "Flag", "Frame", "header", "parse"]

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


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A data frame without its topic."""

    flags: int
    first: int
    count: int
    payload: bytes | memoryview
    """A view into the socket's buffer, if the reader of the frames wants no copies."""
    metadata: bytes = b""

    @property
    def nbytes(self) -> int:
        """How many bytes of credit it costs."""
        return len(self.payload) + len(self.metadata)


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
