"""Framings as a user writes them: ``transform(lines())`` on the way in, ``map(json_line)`` on the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from penstock.arguments import describe
from penstock.net.framing.decoder import BadFrame, Decoder
from penstock.net.framing.json_objects import JsonObjectDecoder
from penstock.net.framing.lengths import LONGEST_FRAME, ByteOrder, LengthDecoder, a_byte_order, a_size
from penstock.net.framing.stage import FramesSource
from penstock.net.framing.texts import LONGEST_LINE, DelimiterDecoder, LineDecoder, TextDecoder
from penstock.spec import Publisher
from penstock.streams import Flux
from penstock.streams.spi import as_stream, flux_of

__all__ = [
    "Framing",
    "delimited",
    "end_with",
    "frames",
    "json_line",
    "json_objects",
    "length_prefix",
    "length_prefixed",
    "lines",
    "text",
]

F = TypeVar("F", covariant=True)
G = TypeVar("G")


def frames(
    chunks: Publisher[bytes], decoder: Callable[[], Decoder[G]], *, label: str | None = None
) -> Flux[G]:
    """Split the chunks of a stream into frames, with a new ``decoder()`` for each subscriber.

    >>> frames(Flux.just(b"one\\ntw", b"o\\n"), LineDecoder).collect_list().block()
    [b'one', b'two']

    Emits when a chunk completes a frame.
    Backpressures when its subscriber does: the frames of one chunk wait, and no other chunk is requested.
    Completes when the source has completed and the last frame was emitted; an incomplete one may be an error.
    Cancels when its subscriber cancels, or when a frame is wrong: the frames before it are emitted first.
    """
    if not callable(decoder):
        raise TypeError(f"frames() needs a function that makes a decoder, not {decoder!r}")
    name = f"frames({describe(decoder)})" if label is None else label
    return flux_of(FramesSource(name, as_stream(chunks, "frames()"), decoder))


class Framing(Generic[F]):
    """A way to split a stream into frames; for any number of streams.

    Servers and clients accept one as their ``framing()``. It is also a function from a Flux of bytes to a
    Flux of frames, so ``flux.transform(lines())`` applies it. :meth:`decoder` returns a decoder for use
    without a stream.
    """

    __slots__ = ("_label", "_make")

    def __init__(self, make: Callable[[], Decoder[F]], label: str) -> None:
        make()  # wrong arguments are reported here, not when somebody connects
        self._make = make
        self._label = label

    def frames(self, data: Publisher[bytes]) -> Flux[F]:
        """The frames of this stream. See :func:`frames` for demand, errors and the end."""
        return frames(data, self._make, label=self._label)

    __call__ = frames

    def decoder(self) -> Decoder[F]:
        """A decoder for one stream."""
        return self._make()

    def __repr__(self) -> str:
        return f"<Framing {self._label}>"


@overload
def lines(
    max_length: int = ..., encoding: None = None, keep_ends: bool = ..., *, must_end: bool = ...
) -> Framing[bytes]: ...
@overload
def lines(max_length: int, encoding: str, keep_ends: bool = ..., *, must_end: bool = ...) -> Framing[str]: ...
@overload
def lines(
    max_length: int = ..., *, encoding: str, keep_ends: bool = ..., must_end: bool = ...
) -> Framing[str]: ...
def lines(
    max_length: int = LONGEST_LINE,
    encoding: str | None = None,
    keep_ends: bool = False,
    *,
    must_end: bool = False,
) -> Framing[Any]:
    """Lines, which end with ``\\n`` or ``\\r\\n``. An empty line is a frame too.

    They are bytes or, with an ``encoding``, text. ``max_length`` counts the bytes without the line end, which
    ``keep_ends`` keeps. What follows the last line end is a line too. With ``must_end`` it is an error: a
    peer that dies in the middle of a line closes its side like a peer that has finished.

    >>> Flux.just(b"one\\r\\ntw", b"o\\nthree").transform(lines(encoding="utf-8")).collect_list().block()
    ['one', 'two', 'three']
    """
    return Framing(
        lambda: LineDecoder(max_length, encoding=encoding, keep_ends=keep_ends, must_end=must_end),
        f"lines({'' if encoding is None else repr(encoding)})",
    )


def delimited(delimiter: bytes, max_length: int = LONGEST_LINE, *, must_end: bool = False) -> Framing[bytes]:
    """Frames that end with ``delimiter``, which is removed. The rest is as in :func:`lines`.

    >>> Flux.just(b"one;;two;", b";three").transform(delimited(b";;")).collect_list().block()
    [b'one', b'two', b'three']
    """
    return Framing(
        lambda: DelimiterDecoder(delimiter, max_length, must_end=must_end),
        f"delimited({describe(delimiter)})",
    )


def length_prefixed(
    size: int = 4,
    byteorder: ByteOrder = "big",
    max_length: int = LONGEST_FRAME,
    *,
    offset: int = 0,
    adjustment: int = 0,
    keep_header: bool = False,
) -> Framing[bytes]:
    """Frames that begin with their length, an unsigned number of ``size`` bytes.

    The header may have ``offset`` bytes before the length. It is removed unless ``keep_header`` is set.
    ``adjustment`` is added to the length that was read: -4 if the length includes its own four bytes.
    ``max_length`` bounds what follows the header. A frame that announces more is refused before it arrives.

    >>> Flux.just(b"\\0\\3one\\0", b"\\3two").transform(length_prefixed(size=2)).collect_list().block()
    [b'one', b'two']
    """
    return Framing(
        lambda: LengthDecoder(
            size, byteorder, max_length, offset=offset, adjustment=adjustment, keep_header=keep_header
        ),
        f"length_prefixed({size})",
    )


def json_objects(max_length: int = LONGEST_FRAME) -> Framing[bytes]:
    """JSON objects one after the other, one per line, or in arrays; each as the bytes that arrived.

    Objects are found by their braces. They are not parsed, so they may still turn out not to be JSON.

    >>> Flux.just(b'{"a": 1}\\n{"b"', b': {}} [{"c": "}"}]').transform(json_objects()).collect_list().block()
    [b'{"a": 1}', b'{"b": {}}', b'{"c": "}"}']
    """
    return Framing(lambda: JsonObjectDecoder(max_length), "json_objects()")


def text(
    encoding: str = "utf-8", errors: Literal["strict", "replace", "ignore"] | str = "strict"
) -> Framing[str]:
    """The bytes as text, in pieces of any length. A character that two chunks share comes with the second.

    >>> Flux.just(b"caf\\xc3", b"\\xa9").transform(text()).collect_list().block()
    ['caf', 'é']
    """
    return Framing(lambda: TextDecoder(encoding, errors), f"text({encoding!r})")


def length_prefix(frame: bytes, size: int = 4, byteorder: ByteOrder = "big", *, adjustment: int = 0) -> bytes:
    """The frame with its length before it, as :func:`length_prefixed` with the same arguments reads it.

    >>> length_prefix(b"penstock", size=2)
    b'\\x00\\x08penstock'
    """
    number = len(frame) - adjustment
    try:
        prefix = number.to_bytes(a_size(size, "length_prefix"), a_byte_order(byteorder, "length_prefix"))
    except OverflowError:
        raise BadFrame(
            f"a length of {number} does not fit into {size} bytes; use a larger size on both sides, or "
            "split the frame"
        ) from None
    return prefix + frame


def end_with(delimiter: bytes, encoding: str = "utf-8") -> Callable[[bytes | str], bytes]:
    """A function that adds ``delimiter`` to a frame, and encodes text before that.

    A frame that contains the delimiter would arrive as two frames, so it is an error.

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
                f"this frame of {len(content)} bytes contains the delimiter {delimiter!r}, at byte {first} "
                "of the frame, and would arrive as two; escape it, or use length_prefix()",
                offset=first,
            )
        return whole

    return ended


def json_line(value: Any) -> bytes:
    """A value as JSON on a line of its own, for :func:`lines`, or if it is a dict :func:`json_objects`.

    >>> json_line({"level": 3, "text": "two\\nlines"})
    b'{"level":3,"text":"two\\\\nlines"}\\n'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (TypeError, ValueError) as wrong:
        raise BadFrame(f"this {type(value).__name__} cannot be sent as JSON: {wrong}") from wrong
