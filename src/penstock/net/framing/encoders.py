"""The way out: what makes a frame of bytes, for ``outbound.send(flux.map(…))``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.net.framing.errors import BadFrame
from penstock.net.framing.lengths import ByteOrder, a_byte_order, a_size

__all__ = ["end_with", "json_line", "length_prefix"]


def length_prefix(frame: bytes, size: int = 4, byteorder: ByteOrder = "big", *, adjustment: int = 0) -> bytes:
    """The frame behind its length: what :func:`length_prefixed` with the same arguments takes apart.

    >>> length_prefix(b"penstock", size=2)
    b'\\x00\\x08penstock'
    """
    number = len(frame) - adjustment
    try:
        prefix = number.to_bytes(a_size(size, "length_prefix"), a_byte_order(byteorder, "length_prefix"))
    except OverflowError:
        raise BadFrame(
            f"a length of {number} does not go into {size} bytes; use a larger size on both sides, or "
            "send the frame in pieces"
        ) from None
    return prefix + frame


def end_with(delimiter: bytes, encoding: str = "utf-8") -> Callable[[bytes | str], bytes]:
    """A function that ends a frame with ``delimiter``; text is encoded before.

    What contains the delimiter would arrive as two frames, so it is an error here.

    >>> end_with(b"\\n")("penstock")
    b'penstock\\n'
    """
    if not isinstance(delimiter, bytes) or not delimiter:
        raise ValueError(f"end_with() needs at least one byte, such as b'\\n', not {delimiter!r}")

    def ended(frame: bytes | str) -> bytes:
        content = frame.encode(encoding) if isinstance(frame, str) else frame
        whole = content + delimiter
        if (first := whole.find(delimiter)) != len(content):
            raise BadFrame(
                f"this frame of {len(content)} bytes has the delimiter {delimiter!r} in it, at byte {first} "
                "of the frame, and would arrive as two; escape it, or use length_prefix()",
                offset=first,
            )
        return whole

    return ended


def json_line(value: Any) -> bytes:
    """A value as JSON on a line of its own: what :func:`lines`, and for a dict :func:`json_objects`, read.

    >>> json_line({"level": 3, "text": "two\\nlines"})
    b'{"level":3,"text":"two\\\\nlines"}\\n'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (TypeError, ValueError) as wrong:
        raise BadFrame(f"this {type(value).__name__} cannot be sent as JSON: {wrong}") from wrong
