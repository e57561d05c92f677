"""What can be wrong with bytes that should be frames."""

from __future__ import annotations

from penstock.net.errors import NetError

__all__ = ["BadFrame", "FrameTooLong", "FrameTruncated", "FramingError"]


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
