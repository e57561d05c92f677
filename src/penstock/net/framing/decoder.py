"""What every decoder has in common: chunks in, frames out, and no way on after an error or the end.

A decoder does no input or output. Whoever reads bytes, from wherever, feeds them::

    open ──feed──▶ open        frames come out
    open ──feed──▶ failed      frames come out, then the error
    open ──finish▶ finished    what was left comes out, or an error
    failed ──any─▶ failed      the same error
    finished ─any▶ finished    a RuntimeError
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from penstock.net.errors import NetError

__all__ = ["BadFrame", "Decoder", "FrameTooLong", "FrameTruncated", "FramingError", "a_limit"]

F = TypeVar("F")


class Decoder(ABC, Generic[F]):
    """Cuts a stream of bytes into frames, for one stream, once.

    To make one of your own, write :meth:`cut` and :meth:`rest`.
    """

    def __init__(self) -> None:
        self._over: Exception | None = None

    def feed(self, chunk: bytes) -> Iterable[F]:
        """The frames that end in this chunk.

        It is a list, unless something is wrong: then it gives the frames that came before, and raises.

        >>> from penstock.net.framing import LineDecoder
        >>> decoder = LineDecoder()
        >>> decoder.feed(b"one\\ntw"), decoder.feed(b"o\\n"), decoder.feed(b"three"), decoder.finish()
        ([b'one'], [b'two'], [], [b'three'])
        """
        if self._over is not None:
            raise self._over
        return self.cut(chunk if type(chunk) is bytes else _as_bytes(chunk))

    def finish(self) -> list[F]:
        """There will be no more chunks: the last frame, if what is left is one, or an error."""
        if self._over is not None:
            raise self._over
        self._over = RuntimeError("this decoder has finished; make a new one for each stream")
        return self.rest()

    @abstractmethod
    def cut(self, chunk: bytes) -> Iterable[F]:
        """The frames that end in this chunk; keep what is left. Where it is broken return :meth:`broken`."""

    @abstractmethod
    def rest(self) -> list[F]:
        """What the end of the stream makes of that which is left."""

    def broken(self, frames: list[F], error: FramingError) -> Iterable[F]:
        """These frames, and then the error: what was sent before the fault is not lost by it."""
        self._over = error
        return _frames_then(frames, error)


def _frames_then(frames: list[F], error: Exception) -> Iterator[F]:
    yield from frames
    raise error


def _as_bytes(chunk: Any) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(f"a decoder needs bytes, not {chunk!r}; text must be encoded first: .map(str.encode)")


def a_limit(max_length: Any, of: str) -> int:
    """The most bytes that a frame may have, or an error that says which numbers are allowed."""
    if isinstance(max_length, bool) or not isinstance(max_length, int):
        raise TypeError(f"{of}() needs a whole number of bytes as max_length, not {max_length!r}")
    if max_length < 1:
        raise ValueError(f"{of}() needs a max_length of at least 1, not {max_length}")
    return max_length


class FramingError(NetError):
    """The bytes of a stream cannot be cut into frames; the text says why, and what to do about it."""


class FrameTooLong(FramingError):
    """A frame is longer than the limit. It is told as soon as that is known, not when the frame has ended."""

    def __init__(self, message: str, *, limit: int = 0, length: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        """The most bytes that a frame may have."""
        self.length = length
        """How long the frame is, as far as is known: what it announces, or what has come of it."""


class FrameTruncated(FramingError):
    """The stream ended inside a frame."""

    def __init__(self, message: str, *, left: int = 0, missing: int | None = None) -> None:
        super().__init__(message)
        self.left = left
        """How many bytes of the unfinished frame had come."""
        self.missing = missing
        """How many more it needed, where that can be known."""


class BadFrame(FramingError):
    """What came, or what should be sent, is no frame of this kind."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        """Which byte is wrong, counted from the start of the stream, or of the frame if the text says so."""
