"""Decoders: chunks go in, frames come out, and after an error or the end nothing more does.

A decoder does no input or output itself. The code that reads the bytes feeds them::

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

from penstock.arguments import a_count
from penstock.net.errors import NetError

__all__ = ["BadFrame", "Decoder", "FrameTooLong", "FrameTruncated", "FramingError", "a_limit"]

F = TypeVar("F")


class FramingError(NetError):
    """The bytes of a stream cannot be split into frames. The message says why, and what to do about it."""


class FrameTooLong(FramingError):
    """A frame is longer than the limit. That is raised as soon as it is known, not when the frame ends."""

    def __init__(self, message: str, *, limit: int = 0, length: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        """The most bytes that a frame may have."""
        self.length = length
        """The length as far as it is known: the one that the frame announces, or what has arrived of it."""


class FrameTruncated(FramingError):
    """The stream ended inside a frame."""

    def __init__(self, message: str, *, left: int = 0, missing: int | None = None) -> None:
        super().__init__(message)
        self.left = left
        """How many bytes of the incomplete frame had arrived."""
        self.missing = missing
        """How many more bytes it needed, if that is known."""


class BadFrame(FramingError):
    """Something received, or to be sent, is not a valid frame of this kind."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        """The position of the wrong byte in the stream, or in the frame if the message says so."""


class Decoder(ABC, Generic[F]):
    """Splits one stream of bytes into frames.

    To write a decoder of your own, implement :meth:`cut` and :meth:`rest`.
    """

    def __init__(self) -> None:
        self._over: Exception | None = None

    def feed(self, chunk: bytes) -> Iterable[F]:
        """The frames that end in this chunk.

        This is a list. If a frame is wrong, it is an iterator of the frames before it, which then raises.

        >>> from penstock.net.framing import LineDecoder
        >>> decoder = LineDecoder()
        >>> decoder.feed(b"one\\ntw"), decoder.feed(b"o\\n"), decoder.feed(b"three"), decoder.finish()
        ([b'one'], [b'two'], [], [b'three'])
        """
        if self._over is not None:
            raise self._over
        return self.cut(chunk if type(chunk) is bytes else _as_bytes(chunk))

    def finish(self) -> list[F]:
        """There are no more chunks. Returns the last frame if what is left is one, or raises."""
        if self._over is not None:
            raise self._over
        self._over = RuntimeError("this decoder has finished; make a new one for each stream")
        return self.rest()

    @abstractmethod
    def cut(self, chunk: bytes) -> Iterable[F]:
        """The frames that end in this chunk. Keep the rest. For a wrong frame return :meth:`broken`."""

    @abstractmethod
    def rest(self) -> list[F]:
        """Return the frames that the end of the stream completes, or raise."""

    def broken(self, frames: list[F], error: FramingError) -> Iterable[F]:
        """Give these frames and then raise: what came before the fault is not lost."""
        self._over = error
        return _frames_then(frames, error)


def _frames_then(frames: list[F], error: Exception) -> Iterator[F]:
    yield from frames
    raise error


def _as_bytes(chunk: Any) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(f"a decoder needs bytes, not {chunk!r}; text has to be encoded first: .map(str.encode)")


def a_limit(max_length: Any, of: str) -> int:
    """The most bytes that a frame may have."""
    return a_count(max_length, f"max_length of {of}()")
