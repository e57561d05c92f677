"""JSON objects in a stream: found by their braces, not parsed.

Outside of objects the decoder is at one of a few places, and :data:`NEXT_PLACE` says which byte leads from
one to another. Any other byte is an error. Inside an object only braces and strings matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from penstock.net.framing.decoder import BadFrame, Decoder, FrameTooLong, FrameTruncated, a_limit
from penstock.net.framing.lengths import LONGEST_FRAME

__all__ = ["JsonObjectDecoder"]


class JsonPlace(Enum):
    """Where the decoder is."""

    TOP = "between objects"
    OPENED = "at the start of an array"
    OBJECT = "inside an object"
    BETWEEN = "after an object in an array"
    COMMA = "after a comma in an array"


NEXT_PLACE: dict[JsonPlace, dict[int, JsonPlace]] = {
    JsonPlace.TOP: {0x7B: JsonPlace.OBJECT, 0x5B: JsonPlace.OPENED},
    JsonPlace.OPENED: {0x7B: JsonPlace.OBJECT, 0x5D: JsonPlace.TOP},
    JsonPlace.BETWEEN: {0x2C: JsonPlace.COMMA, 0x5D: JsonPlace.TOP},
    JsonPlace.COMMA: {0x7B: JsonPlace.OBJECT},
}
"""``{`` 7B, ``}`` 7D, ``[`` 5B, ``]`` 5D, ``,`` 2C."""

# No pattern backtracks, so a chunk is scanned once, or a few times if an object continues in the next one.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'[^"{}]*+(?:' + _STRING + rb'[^"{}]*+)*+'


def _around(inner: bytes) -> bytes:
    """The content of braces that may contain further braces, one level deep, with ``inner`` in them."""
    return rb'[^"{}]*+(?:(?:' + _STRING + rb"|\{" + inner + rb'\})[^"{}]*+)*+'


_GAP = re.compile(rb"[ \t\r\n]*+")
_UP_TO_A_BRACE = re.compile(_FLAT, re.DOTALL)
_UP_TO_A_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_WHOLE = re.compile(rb"\{" + _around(_around(_FLAT)) + rb"\}", re.DOTALL)
"""A complete object of at most three levels, in one match: much faster than brace by brace."""


class JsonObjectDecoder(Decoder[bytes]):
    """One ``bytes`` for each object. See :func:`penstock.net.framing.json_objects`."""

    def __init__(self, max_length: int = LONGEST_FRAME) -> None:
        super().__init__()
        self._limit = a_limit(max_length, "json_objects")
        self._place = JsonPlace.TOP
        self._in_array = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        """The last chunk ended with a backslash in a string."""
        self._pending = bytearray()
        self._before = 0
        """Bytes of the stream before the current chunk."""

    def cut(self, chunk: bytes) -> Iterable[bytes]:
        """Jump from brace to brace."""
        frames: list[bytes] = []
        at, start, end = 0, 0, len(chunk)
        while at < end:
            if self._place is not JsonPlace.OBJECT:
                at = _end_of(_GAP, chunk, at)
                if at == end:
                    break
                following = NEXT_PLACE[self._place].get(chunk[at])
                if following is None:
                    return self.broken(frames, self._out_of_place(chunk[at], self._before + at))
                self._place = following
                if following is not JsonPlace.OBJECT:
                    self._in_array = following is not JsonPlace.TOP
                    at += 1
                    continue
                start = at
                whole = _WHOLE.match(chunk, at)
                at = self._inside(chunk, at) if whole is None else whole.end()
            else:
                at = self._inside(chunk, at)
            if self._depth:
                break  # the chunk is at its end
            if len(self._pending) + at - start > self._limit:
                return self.broken(frames, self._too_long(len(self._pending) + at - start))
            if self._pending:
                self._pending += chunk[:at]
                frames.append(bytes(self._pending))
                self._pending.clear()
            else:
                frames.append(chunk[start:at])
            self._place = JsonPlace.BETWEEN if self._in_array else JsonPlace.TOP
        if self._place is JsonPlace.OBJECT:
            self._pending += chunk[start:]
            if len(self._pending) > self._limit:
                return self.broken(frames, self._too_long(len(self._pending)))
        self._before += end
        return frames

    def rest(self) -> list[bytes]:
        """The last object, and an array around it, have to be closed."""
        left = len(self._pending)
        if self._place is JsonPlace.TOP:
            return []
        if self._place is not JsonPlace.OBJECT:
            raise FrameTruncated(
                f"the stream ended {self._place.value}, after {self._before} bytes: the array is not closed; "
                "the peer closed too early"
            )
        raise FrameTruncated(
            f"the stream ended inside a JSON object: {left} bytes of it had arrived, and at least "
            f"{self._depth} closing braces are missing; the peer closed too early",
            left=left,
        )

    def _inside(self, chunk: bytes, at: int) -> int:
        """Continue in an object, to its end (where ``_depth`` is 0) or to the end of the chunk."""
        depth, end = self._depth, len(chunk)
        while at < end:
            if self._in_string:
                at = _end_of(_UP_TO_A_QUOTE, chunk, at + self._escaped)
                self._escaped = at < end and chunk[at] == 0x5C
                self._in_string = at >= end or self._escaped
            else:
                at = _end_of(_UP_TO_A_BRACE, chunk, at)
                if at == end:
                    break
                if chunk[at] == 0x7B:
                    depth += 1
                elif chunk[at] == 0x7D:
                    depth -= 1
                    if not depth:
                        at += 1
                        break
                else:
                    self._in_string = True
            at += 1
        self._depth = depth
        return min(at, end)

    def _out_of_place(self, byte: int, offset: int) -> BadFrame:
        return BadFrame(
            f"byte {offset} of the stream is {bytes([byte])!r} {self._place.value}, where a JSON object "
            "should begin or an array continue; json_objects() reads objects one after the other, with or "
            "without white space between them, or arrays of objects. For other values, one per line, "
            "use lines()",
            offset=offset,
        )

    def _too_long(self, length: int) -> FrameTooLong:
        return FrameTooLong(
            f"a JSON object is too long: {length} bytes have arrived, and at most {self._limit} are allowed; "
            "increase max_length of json_objects(), or check that the peer closes its objects",
            limit=self._limit,
            length=length,
        )


def _end_of(pattern: re.Pattern[bytes], chunk: bytes, at: int) -> int:
    """Where the pattern, which may match nothing, ends."""
    match = pattern.match(chunk, at)
    assert match is not None
    return match.end()
