"""Frames that begin with their length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from penstock.arguments import a_count, a_whole_number
from penstock.net.framing.decoder import BadFrame, Decoder, FrameTooLong, FrameTruncated, a_limit

__all__ = ["LONGEST_FRAME", "ByteOrder", "LengthDecoder", "a_byte_order", "a_size"]

LONGEST_FRAME = 1024 * 1024
"""The default for the most bytes in a frame that announces its length, or in a JSON object."""

ByteOrder = Literal["big", "little"]


class LengthDecoder(Decoder[bytes]):
    """Frames behind a header with their length. See :func:`penstock.net.framing.length_prefixed`."""

    def __init__(
        self,
        size: int = 4,
        byteorder: ByteOrder = "big",
        max_length: int = LONGEST_FRAME,
        *,
        offset: int = 0,
        adjustment: int = 0,
        keep_header: bool = False,
    ) -> None:
        super().__init__()
        self._offset = a_count(offset, "offset of length_prefixed()", least=0)
        self._header = self._offset + a_size(size, "length_prefixed")
        self._byteorder: ByteOrder = a_byte_order(byteorder, "length_prefixed")
        self._limit = a_limit(max_length, "length_prefixed")
        self._adjustment = a_whole_number(adjustment, "adjustment of length_prefixed()")
        self._keep_header = keep_header
        self._pending = bytearray()
        self._needed = self._header
        """With this many bytes a header or a frame is complete."""
        self._before = 0
        """Bytes of the stream before those that are pending."""

    def cut(self, chunk: bytes) -> Iterable[bytes]:
        """Collect bytes until something is complete, then take all complete frames."""
        pending = self._pending
        if pending:
            if len(pending) + len(chunk) < self._needed:
                pending += chunk
                return []
            chunk = b"".join((pending, chunk))
            pending.clear()
        offset, header, byteorder = self._offset, self._header, self._byteorder
        adjustment, limit = self._adjustment, self._limit
        skipped = 0 if self._keep_header else header
        frames: list[bytes] = []
        start, end = 0, len(chunk)
        needed = header
        while end - start >= header:
            body = start + header
            length = int.from_bytes(chunk[start + offset : body], byteorder) + adjustment
            if not 0 <= length <= limit:
                return self.broken(frames, self._wrong(length, self._before + start))
            stop = body + length
            if stop > end:
                needed = stop - start
                break
            frames.append(chunk[start + skipped : stop])
            start = stop
        self._needed = needed
        self._before += start
        pending += chunk[start:]
        return frames

    def rest(self) -> list[bytes]:
        """Nothing may be left."""
        left = len(self._pending)
        if not left:
            return []
        missing = self._needed - left
        what = "the header of a frame" if left < self._header else "a frame"
        raise FrameTruncated(
            f"the stream ended inside {what}, {self._before} bytes after its start: {left} bytes had "
            f"arrived, {missing} more were to follow; the peer closed too early, or counts differently",
            left=left,
            missing=missing,
        )

    def _wrong(self, length: int, start: int) -> BadFrame | FrameTooLong:
        if length < 0:
            return BadFrame(
                f"the frame at byte {start} announces a length of {length - self._adjustment}, which with "
                f"adjustment={self._adjustment} is below 0; check what the peer includes in its lengths",
                offset=start,
            )
        return FrameTooLong(
            f"the frame at byte {start} announces {length} bytes, and at most {self._limit} are allowed; "
            "increase max_length of length_prefixed(), or check that the peer uses this size and byte order",
            limit=self._limit,
            length=length,
        )


def a_size(size: int, wanted_by: str) -> int:
    """How many bytes a length has."""
    if type(size) is int and 1 <= size <= 8:
        return size  # length_prefix() asks for every frame
    return a_whole_number(size, f"size of {wanted_by}()", least=1, most=8)


def a_byte_order(byteorder: ByteOrder, wanted_by: str) -> ByteOrder:
    """The order of the bytes in a length."""
    if byteorder not in ("big", "little"):
        raise ValueError(f"{wanted_by}() needs the byteorder 'big' or 'little', not {byteorder!r}")
    return byteorder
