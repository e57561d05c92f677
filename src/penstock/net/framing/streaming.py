"""Framing as a step of a stream: a Flux of bytes in, a Flux of frames out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from penstock.net.framing.cutting import FramesSource
from penstock.net.framing.decoder import Decoder
from penstock.net.framing.delimiters import LONGEST_LINE, DelimiterDecoder, LineDecoder
from penstock.net.framing.json_objects import JsonObjectDecoder
from penstock.net.framing.lengths import LONGEST_FRAME, ByteOrder, LengthDecoder
from penstock.net.framing.texts import TextDecoder
from penstock.spec import Publisher
from penstock.streams import Flux
from penstock.streams.assembly import describe
from penstock.streams.conversion import as_stream
from penstock.streams.stream import flux_of

__all__ = ["Framing", "delimited", "frames", "json_objects", "length_prefixed", "lines", "text"]

F = TypeVar("F", covariant=True)
G = TypeVar("G")


def frames(
    chunks: Publisher[bytes], decoder: Callable[[], Decoder[G]], *, label: str | None = None
) -> Flux[G]:
    """Cut the chunks of a stream into frames, by a new ``decoder()`` for each subscriber.

    >>> frames(Flux.just(b"one\\ntw", b"o\\n"), LineDecoder).collect_list().block()
    [b'one', b'two']

    Emits when a chunk completes a frame.
    Backpressures when its subscriber does: the frames of one chunk wait, and no other chunk is asked for.
    Completes when the source has completed and the last frame is sent; what is left over may be an error.
    Cancels when its subscriber cancels, or a frame is wrong: the frames before it are sent first.
    """
    if not callable(decoder):
        raise TypeError(f"frames() needs a function that makes a decoder, not {decoder!r}")
    name = f"frames({describe(decoder)})" if label is None else label
    return flux_of(FramesSource(name, as_stream(chunks, "frames()"), decoder))


class Framing(Generic[F]):
    """A way to cut a stream into frames, for any number of streams.

    Servers and clients take one as their ``framing()``. It is also a function from a Flux of bytes to a
    Flux of frames, so ``flux.transform(lines())`` applies it. Without a stream, :meth:`decoder` gives the
    machine itself.
    """

    __slots__ = ("_label", "_make")

    def __init__(self, make: Callable[[], Decoder[F]], label: str) -> None:
        make()  # wrong arguments are told where they are written, not when somebody connects
        self._make = make
        self._label = label

    def frames(self, data: Publisher[bytes]) -> Flux[F]:
        """The frames of this stream; see :func:`frames` for what it does with demand, errors and the end."""
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
    """Lines, which end with ``\\n`` or ``\\r\\n``; an empty line is a frame, too.

    They are bytes or, with an ``encoding``, text. ``max_length`` counts the bytes without the end, which
    ``keep_ends`` leaves on. What follows the last end is a line as well, unless ``must_end`` says that it is
    the half of one: a peer that dies in the middle of a line closes its side like one that is done.

    >>> Flux.just(b"one\\r\\ntw", b"o\\nthree").transform(lines(encoding="utf-8")).collect_list().block()
    ['one', 'two', 'three']
    """
    return Framing(
        lambda: LineDecoder(max_length, encoding=encoding, keep_ends=keep_ends, must_end=must_end),
        f"lines({'' if encoding is None else repr(encoding)})",
    )


def delimited(delimiter: bytes, max_length: int = LONGEST_LINE, *, must_end: bool = False) -> Framing[bytes]:
    """Frames that end with ``delimiter``, which is left off. The rest is as with :func:`lines`.

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
    """Frames that begin with their length, in ``size`` bytes without a sign.

    The header may have ``offset`` bytes before the length; all of it is left off unless ``keep_header``.
    ``adjustment`` is added to the length that is read: where it counts its own four bytes, that is -4.
    ``max_length`` is for what follows the header. A frame that announces more is refused before it comes.

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
    """JSON objects that stand one after the other, or one to a line, or in arrays; each as it came, in bytes.

    Objects are found by their braces. Whether what is between them is JSON is for whoever parses it.

    >>> Flux.just(b'{"a": 1}\\n{"b"', b': {}} [{"c": "}"}]').transform(json_objects()).collect_list().block()
    [b'{"a": 1}', b'{"b": {}}', b'{"c": "}"}']
    """
    return Framing(lambda: JsonObjectDecoder(max_length), "json_objects()")


def text(
    encoding: str = "utf-8", errors: Literal["strict", "replace", "ignore"] | str = "strict"
) -> Framing[str]:
    """The bytes as text, in pieces of any length; a character that is cut in two comes when it is complete.

    >>> Flux.just(b"caf\\xc3", b"\\xa9").transform(text()).collect_list().block()
    ['caf', 'é']
    """
    return Framing(lambda: TextDecoder(encoding, errors), f"text({encoding!r})")
