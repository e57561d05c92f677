"""Decoders of text: lines, frames with a delimiter, and characters that a chunk may cut in two."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any

from penstock.net.framing.decoder import (
    BadFrame,
    Decoder,
    FrameTooLong,
    FrameTruncated,
    FramingError,
    a_limit,
)

__all__ = ["LONGEST_LINE", "DelimiterDecoder", "LineDecoder", "TextDecoder"]


LONGEST_LINE = 64 * 1024
"""The default for the most bytes in a line, or before a delimiter."""


class LineDecoder(Decoder[Any]):
    """Lines, which end with ``\\n`` or ``\\r\\n``. See :func:`penstock.net.framing.lines`."""

    def __init__(
        self,
        max_length: int = LONGEST_LINE,
        *,
        encoding: str | None = None,
        keep_ends: bool = False,
        must_end: bool = False,
    ) -> None:
        super().__init__()
        self._limit = a_limit(max_length, "lines")
        self._encoding = None if encoding is None else _splittable(encoding)
        self._keep_ends = keep_ends
        self._must_end = must_end
        self._pending = bytearray()
        self._count = 0

    def cut(self, chunk: bytes) -> Iterable[Any]:
        """Split the chunk. Its first piece completes what is pending; its last piece is pending next."""
        pending = self._pending
        size = len(pending) + len(chunk)
        lines = chunk.split(b"\n")
        rest = lines.pop()
        # A search for one byte takes a fraction of the time of one for two, and one from the end a half.
        may_have_two_bytes_at_the_end = b"\r" in chunk and chunk.rfind(b"\r\n") >= 0
        if lines and pending:
            may_have_two_bytes_at_the_end = may_have_two_bytes_at_the_end or pending[-1] == 0x0D
            pending += lines[0]
            lines[0] = bytes(pending)
            pending.clear()
        if may_have_two_bytes_at_the_end and not self._keep_ends:
            lines = [line.removesuffix(b"\r") for line in lines]
        pending += rest
        if size > self._limit and self._may_be_too_long(chunk, lines):
            error = self._check(lines)
            if error is not None:
                return self.broken(*self._finished(lines, error))
        if self._keep_ends or self._encoding is not None:
            lines, error = self._finished(lines)
            if error is not None:
                return self.broken(lines, error)
        self._count += len(lines)
        return lines

    def rest(self) -> list[Any]:
        """The last line need not end with a line end, unless ``must_end`` is set."""
        if not self._pending:
            return []
        left = bytes(self._pending)
        self._pending.clear()
        if self._must_end:
            raise _unended(len(left), "a line", "must_end=False accepts it as a line")
        lines, error = ([left], None) if self._encoding is None else self._decoded([left], self._encoding)
        if error is not None:
            raise error
        return lines

    def _may_be_too_long(self, chunk: bytes, lines: list[bytes]) -> bool:
        """Whether some line may be above the limit. This looks at the line ends only, a few for each chunk.

        From the beginning of a line, the last line end within the limit shows that all lines up to it are
        short enough.
        """
        limit = self._limit
        if len(self._pending) > limit or (lines and len(lines[0]) > limit):
            return True
        at = chunk.find(b"\n") + 1
        while len(chunk) - at > limit:
            last = chunk.rfind(b"\n", at, at + limit + 1)
            if last < 0:
                return True
            at = last + 1
        return False

    def _check(self, lines: list[bytes]) -> FrameTooLong | None:
        """Look for a line above the limit; ``lines`` keeps those before it."""
        limit = self._limit
        if lines and max(map(len, lines)) > limit:
            for number, line in enumerate(lines):
                length = len(line) - (self._keep_ends and line.endswith(b"\r"))
                if length > limit:
                    del lines[number:]
                    return self._too_long(self._count + number + 1, length)
        pending = len(self._pending)
        if pending > limit + 1 or (pending == limit + 1 and self._pending[-1] != 0x0D):
            return self._too_long(self._count + len(lines) + 1, pending)
        return None

    def _too_long(self, number: int, length: int) -> FrameTooLong:
        return FrameTooLong(
            f"line {number} is too long: {length} bytes have arrived, and at most {self._limit} are allowed; "
            r"increase max_length of lines(), or make the peer end its lines with \n",
            limit=self._limit,
            length=length,
        )

    def _finished(self, lines: list[bytes], then: FramingError | None = None) -> tuple[list[Any], Any]:
        """The lines as they are emitted, and an error: the first one met on the way, or else ``then``."""
        if self._keep_ends:
            lines = [line + b"\n" for line in lines]
        if self._encoding is None:
            return lines, then
        texts, error = self._decoded(lines, self._encoding)
        return texts, error or then

    def _decoded(self, lines: list[bytes], encoding: str) -> tuple[list[Any], BadFrame | None]:
        texts: list[str] = []
        try:
            for line in lines:
                texts.append(line.decode(encoding))
        except UnicodeDecodeError as wrong:
            bad = BadFrame(
                f"line {self._count + len(texts) + 1} is not {encoding} text: {wrong.reason} at byte "
                f"{wrong.start} of the line; without encoding= lines() emits bytes",
                offset=wrong.start,
            )
            bad.__cause__ = wrong
            return texts, bad
        return texts, None


class DelimiterDecoder(Decoder[bytes]):
    """Frames that end with given bytes. See :func:`penstock.net.framing.delimited`."""

    def __init__(self, delimiter: bytes, max_length: int = LONGEST_LINE, *, must_end: bool = False) -> None:
        super().__init__()
        if not isinstance(delimiter, bytes) or not delimiter:
            raise ValueError(f"delimited() needs at least one byte, such as b'\\0', not {delimiter!r}")
        self._delimiter = delimiter
        self._overlap = len(delimiter) - 1
        """A delimiter that two chunks share has at most this many bytes in the first."""
        self._limit = a_limit(max_length, "delimited")
        self._must_end = must_end
        self._pending = bytearray()

    def cut(self, chunk: bytes) -> Iterable[bytes]:
        """Split the chunk, together with the end of what is pending: a delimiter may begin there."""
        pending = self._pending
        size = len(pending) + len(chunk)
        if self._overlap and pending:
            chunk = bytes(pending[-self._overlap :]) + chunk
            del pending[-self._overlap :]
        frames = chunk.split(self._delimiter)
        rest = frames.pop()
        if frames and pending:
            pending += frames[0]
            frames[0] = bytes(pending)
            pending.clear()
        pending += rest
        if size > self._limit:
            if frames and max(map(len, frames)) > self._limit:
                first = next(number for number, frame in enumerate(frames) if len(frame) > self._limit)
                return self.broken(frames[:first], self._too_long(len(frames[first])))
            if len(pending) > self._limit and not self._may_end_in_time():
                return self.broken(frames, self._too_long(len(pending)))
        return frames

    def rest(self) -> list[bytes]:
        """The last frame need not end with the delimiter, unless ``must_end`` is set."""
        if not self._pending:
            return []
        left = bytes(self._pending)
        self._pending.clear()
        if self._must_end:
            raise _unended(len(left), "a frame", "must_end=False accepts it as a frame")
        return [left]

    def _may_end_in_time(self) -> bool:
        """Whether the bytes above the limit may be the beginning of the delimiter."""
        first = max(0, len(self._pending) - self._overlap)
        return any(self._delimiter.startswith(self._pending[at:]) for at in range(first, self._limit + 1))

    def _too_long(self, length: int) -> FrameTooLong:
        return FrameTooLong(
            f"a frame is too long: {length} bytes have arrived, and at most {self._limit} are allowed; "
            "increase max_length of delimited(), or make the peer end its frames with "
            f"{self._delimiter!r}",
            limit=self._limit,
            length=length,
        )


def _unended(left: int, what: str, remedy: str) -> FrameTruncated:
    return FrameTruncated(
        f"the stream ended inside {what}: {left} bytes had arrived, but not its end; {remedy}", left=left
    )


def _splittable(encoding: str) -> str:
    """Check that the byte 0x0A is a line end in this encoding, and nothing else."""
    end: bytes = b""
    try:
        end = "\n".encode(encoding)
    except LookupError:
        raise ValueError(f"lines() does not know the encoding {encoding!r}; try 'utf-8'") from None
    if end != b"\n":
        raise ValueError(
            f"lines in {encoding!r} cannot be split as bytes; decode first: "
            f"receive().transform(text({encoding!r})), then split the text"
        )
    return encoding


class TextDecoder(Decoder[str]):
    """The text of each chunk. See :func:`penstock.net.framing.text`."""

    def __init__(self, encoding: str = "utf-8", errors: str = "strict") -> None:
        super().__init__()
        try:
            make = codecs.getincrementaldecoder(encoding)
            codecs.lookup_error(errors)
        except LookupError as unknown:
            raise ValueError(f"text() cannot decode: {unknown}; try text('utf-8', 'strict')") from None
        self._encoding = encoding
        self._decoder = make(errors)
        self._before = 0
        """Bytes of the stream before the current chunk."""

    def cut(self, chunk: bytes) -> Iterable[str]:
        """Decode all characters that are complete."""
        state = self._decoder.getstate()
        try:
            text = self._decoder.decode(chunk)
        except UnicodeDecodeError as wrong:
            start = wrong.start - len(state[0])
            self._decoder.setstate(state)
            text = self._decoder.decode(chunk[: max(0, start)])
            bad = BadFrame(
                f"byte {self._before + start} of the stream is not {self._encoding} text: {wrong.reason}; "
                "text(errors='replace') replaces it and goes on, text('latin-1') accepts any byte",
                offset=self._before + start,
            )
            bad.__cause__ = wrong
            return self.broken([text] if text else [], bad)
        self._before += len(chunk)
        return [text] if text else []

    def rest(self) -> list[str]:
        """An incomplete character is an error, or what ``errors`` makes of it."""
        left = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(b"", final=True)
        except UnicodeDecodeError as wrong:
            raise FrameTruncated(
                f"the stream ended inside a character of {self._encoding}, after {self._before} bytes: "
                f"{left} bytes of it had arrived; text(errors='replace') accepts that",
                left=left,
            ) from wrong
        return [text] if text else []
