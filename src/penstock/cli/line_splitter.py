"""From bytes to lines to elements: where a line ends, how long it may be, and what becomes of a bad one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

__all__ = ["BadLines", "Decode", "LineSplitter", "LineTooLong", "OnBadLine", "decoder"]

_log = logging.getLogger("penstock.cli")

_BETWEEN_WARNINGS: Final = 1.0
"""Seconds: a sender of nothing but bad lines must not fill a log file."""

Decode: TypeAlias = Callable[[bytes], Any]
OnBadLine: TypeAlias = Literal["fail", "skip"]


class LineTooLong(ValueError):
    """A line without an end in sight."""


class BadLines:
    """The lines of one source that could not be records: an error, or counted and told."""

    def __init__(self, policy: OnBadLine, *, silent: bool = False) -> None:
        self.policy = policy
        self.skipped = 0
        self._silent = silent
        self._told = float("-inf")

    def refuse(self, error: ValueError) -> None:
        """Raise the error, or count it; it is logged unless another one was within the last second."""
        if self.policy == "fail":
            raise error
        self.skipped += 1
        now = time.monotonic()
        if not self._silent and now - self._told >= _BETWEEN_WARNINGS:
            self._told = now
            _log.warning("%s; this line is skipped (bad lines so far: %d)", error, self.skipped)


class LineSplitter:
    """Cuts the bytes of one file or connection into lines, and makes elements of them."""

    def __init__(
        self, longest: int, decode: Decode | None, bad: BadLines, *, label: str = "", number: int = 0
    ) -> None:
        self.bad = bad
        self.number = number
        """How many lines have ended."""
        self.records = 0
        """How many elements were made of them."""
        self.pending = 0
        """Bytes that have come of a line whose end has not."""
        self._longest = longest
        self._decode = decode
        self._label = f"{label}: " if label else ""
        self._pieces: list[bytes] = []
        self._overlong = False
        """Whether the rest of a line that was too long is being passed over."""

    def feed(self, chunk: bytes) -> Iterable[Any]:
        """The elements of the lines that end in these bytes.

        It is a list, unless a line is bad: then it gives the elements that came before, and raises.
        """
        made: list[Any] = []
        try:
            self._cut(chunk, made)
        except ValueError as error:
            return _elements_then(made, error)
        return made

    def finish(self) -> Iterable[Any]:
        """The last line, if it has no newline: for a source whose end is the end of its last line."""
        return self.feed(b"\n") if self.pending else []

    def forget(self) -> int:
        """Drop a line whose end will never come; how many bytes it had."""
        lost, self.pending = self.pending, 0
        self._pieces.clear()
        self._overlong = False
        return lost

    def _cut(self, chunk: bytes, made: list[Any]) -> None:
        first, newline, rest = chunk.partition(b"\n")
        self._keep(first)
        if not newline:
            return
        lines = rest.split(b"\n")
        if self._overlong:
            self._overlong = False
            self.number += 1
        else:
            lines.insert(0, b"".join(self._pieces))
        last = lines.pop()
        self._pieces, self.pending = [], 0
        self._make(lines, len(chunk), made)
        self._keep(last)

    def _keep(self, piece: bytes) -> None:
        """A piece of a line whose end has not come."""
        self.pending += len(piece)
        if self._overlong:
            return
        self._pieces.append(piece)
        if self.pending > self._longest:
            self._pieces.clear()
            self._overlong = True
            self.bad.refuse(self._too_long(self.number + 1))

    def _make(self, lines: list[bytes], chunk: int, made: list[Any]) -> None:
        decode = self._decode
        if decode is None and chunk <= self._longest:
            # None of them can be bad: no look at each.
            made += lines
            self.number += len(lines)
            self.records += len(lines)
            return
        for line in lines:
            self.number += 1
            if len(line) > self._longest:
                self.bad.refuse(self._too_long(self.number))
                continue
            try:
                element = line if decode is None else decode(line)
            except (ValueError, RecursionError, OverflowError) as error:
                self.bad.refuse(ValueError(f"{self._label}line {self.number}: {error}"))
            else:
                made.append(element)
                self.records += 1

    def _too_long(self, number: int) -> LineTooLong:
        return LineTooLong(
            f"{self._label}line {number} has more than {self._longest} bytes; allow more with --max-line, or "
            "is this not a text with lines?"
        )


def _elements_then(made: list[Any], error: ValueError) -> Iterator[Any]:
    yield from made
    raise error


def decoder(codec: str) -> Decode | None:
    """What makes an element for this codec of a line; None if it is the line itself."""
    if codec == "bytes":
        return None
    if codec == "text":
        return bytes.decode
    import msgspec

    decode = msgspec.json.Decoder().decode
    # JSON has numbers that MessagePack has not. Whether the codec can take an element has to be known here:
    # in the gateway it would end the stream.
    check = msgspec.msgpack.Encoder().encode if codec == "msgpack" else None

    def element(line: bytes) -> Any:
        value = decode(line)
        if value is None:
            raise ValueError("null is no record")
        if check is not None:
            check(value)
        return value

    return element
