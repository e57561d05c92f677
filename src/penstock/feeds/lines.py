"""From bytes to lines to elements: where a line ends, how long it may be, and what happens to a bad one.

A :class:`LinePublisher` reads when it is asked to, on the thread that asks. It does not read ahead: while its
subscriber has no space, a pipe fills up and its writer waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from penstock.bad_reasons import BadReasons
from penstock.delivery import BadRecord
from penstock.net.framing import Decoder
from penstock.spec import Publisher, Subscriber, Subscription, check_subscriber
from penstock.streams import Flux

__all__ = [
    "CHUNK",
    "BadLines",
    "Decode",
    "ElementDecoder",
    "LinePublisher",
    "LineReader",
    "LineSplitter",
    "LineTooLong",
    "OnBadLine",
    "decoder",
    "portions",
]

_log = logging.getLogger("penstock.feeds")

CHUNK: Final = 256 * 1024
"""How many bytes are read at once, at most."""
_KEPT: Final = 1 << 20
"""How many bytes of a line that is too long are handed on, at most."""
_BETWEEN_WARNINGS: Final = 1.0
"""Seconds. A sender of nothing but bad lines must not fill a log file."""

Decode: TypeAlias = Callable[[bytes], Any]
"""Makes an element of a line; ValueError if it cannot."""
OnBadLine: TypeAlias = Literal["fail", "skip", "dead-letter"]
"""What happens to a bad line: the stream fails, the line is skipped, or it is handed on as a BadRecord."""


class LineTooLong(ValueError):
    """A line is longer than the feed allows; the text follows the name of the line: ``has 20 bytes``."""


class BadLines:
    """Counts the lines of one feed that could not be records, hands them on, or raises for the first one."""

    def __init__(self, policy: OnBadLine, *, silent: bool = False) -> None:
        self.policy = policy
        self.skipped = 0
        """How many lines were skipped."""
        self.reasons = BadReasons()
        """Why they were skipped."""
        self.has_refused = False
        """Whether a bad line was an error."""
        self._silent = silent
        self._told = float("-inf")

    @property
    def keeps(self) -> bool:
        """Whether bad lines are handed on, so that their bytes are needed."""
        return self.policy == "dead-letter"

    def refuse(
        self,
        error: Exception,
        value: bytes = b"",
        *,
        at: str = "",
        key: bytes | None = None,
        size: int | None = None,
    ) -> list[BadRecord]:
        """Raise a ValueError, hand the line on, or count it and log it: what takes its place in the stream.

        ``at`` says where the line is. ``value`` has its bytes, or the first of ``size`` bytes. At most one
        warning a second is logged.
        """
        text = f"{at}{'' if isinstance(error, LineTooLong) else ':'} {error}" if at else str(error)
        if self.policy == "fail":
            self.has_refused = True
            refused = LineTooLong(text) if isinstance(error, LineTooLong) else ValueError(text)
            refused.add_note("on_bad_line='skip' leaves bad lines out, and 'dead-letter' keeps them")
            raise refused
        if self.policy == "dead-letter":
            return [BadRecord(value, str(error), at, key, size)]
        self.skipped += 1
        self.reasons.note([str(error)])
        now = time.monotonic()
        if not self._silent and now - self._told >= _BETWEEN_WARNINGS:
            self._told = now
            _log.warning("%s; it is skipped (%d so far)", text, self.skipped)
        return []


def portions(chunk: bytes, most: int = 256) -> Iterator[bytes]:
    """Cut a chunk after line ends, so that no portion has more than ``most`` of them.

    A delivery is stored as a whole: one with all the short lines of a chunk would overfill a small log.
    """
    if chunk.count(b"\n") <= most:
        yield chunk
        return
    middle = len(chunk) // 2
    cut = chunk.find(b"\n", middle) + 1
    if not 0 < cut < len(chunk):
        cut = chunk.rfind(b"\n", 0, middle) + 1
    yield from portions(chunk[:cut], most)
    yield from portions(chunk[cut:], most)


class LineSplitter:
    """Splits the bytes of one file or connection into lines, and makes elements of them.

    ``decode`` makes an element of a line; None means that the line is the element. ``label`` names the sender
    in messages, and ``number`` is how many lines came before.
    """

    def __init__(
        self, max_line: int, decode: Decode | None, bad: BadLines, *, label: str = "", number: int = 0
    ) -> None:
        self.bad = bad
        self.number = number
        """How many lines have ended."""
        self.records = 0
        """How many elements were made of them."""
        self.pending = 0
        """How many bytes have arrived of a line whose newline has not."""
        self._max_line = max_line
        self._decode = decode
        self._label = f"{label}: " if label else ""
        self._pieces: list[bytes] = []
        self._overlong = False
        """Whether the rest of a line that was too long is being discarded."""

    def feed(self, chunk: bytes) -> Iterable[Any]:
        """Return the elements of the lines that end in these bytes.

        It is a list, unless a bad line is an error: then iterating gives the elements before it, and raises.
        """
        made, error = self.take(chunk)
        return made if error is None else _elements_then(made, error)

    def take(self, chunk: bytes) -> tuple[list[Any], ValueError | None]:
        """The same as a list, and the error of a bad line after these elements."""
        made: list[Any] = []
        try:
            self._cut(chunk, made)
        except ValueError as error:
            return made, error
        return made, None

    def finish(self) -> Iterable[Any]:
        """Return the last line, if it has no newline: for a feed whose end is also the end of a line."""
        return self.feed(b"\n") if self.pending else []

    def forget(self) -> int:
        """Drop the incomplete last line, and return how many bytes it had."""
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
            if self.bad.keeps:
                made += self._refuse_too_long(b"".join(self._pieces), self.pending)
        else:
            lines.insert(0, b"".join(self._pieces))
        last = lines.pop()
        self._pieces, self.pending = [], 0
        self._make(lines, len(chunk), made)
        self._keep(last)

    def _keep(self, piece: bytes) -> None:
        self.pending += len(piece)
        if self._overlong:
            return
        self._pieces.append(piece)
        if self.pending > self._max_line:
            begun = b"".join(self._pieces)[:_KEPT]
            self._pieces = [begun]
            self._overlong = True
            if not self.bad.keeps:  # Otherwise it is handed on at its end, when its size is known.
                self._refuse_too_long(begun, self.pending, self.number + 1)

    def _make(self, lines: list[bytes], chunk: int, made: list[Any]) -> None:
        decode = self._decode
        if decode is None and chunk <= self._max_line:
            # None of them can be bad, so they need not be looked at one by one.
            made += lines
            self.number += len(lines)
            self.records += len(lines)
            return
        for line in lines:
            self.number += 1
            if len(line) > self._max_line:
                made += self._refuse_too_long(line[:_KEPT], len(line))
                continue
            try:
                element = line if decode is None else decode(line)
            except (ValueError, RecursionError, OverflowError) as error:
                made += self.bad.refuse(error, line, at=f"{self._label}line {self.number}")
            else:
                made.append(element)
                self.records += 1

    def _refuse_too_long(self, begun: bytes, size: int, number: int = 0) -> list[BadRecord]:
        error = LineTooLong(
            f"has more than {self._max_line} bytes; allow more with max_line (--max-line), or check that the "
            "input is text with lines"
        )
        return self.bad.refuse(error, begun, at=f"{self._label}line {number or self.number}", size=size)


def _elements_then(made: list[Any], error: ValueError) -> Iterator[Any]:
    yield from made
    raise error


def decoder(codec: str) -> Decode | None:
    """Return what makes an element of a line for this codec; None if the line itself is the element."""
    if codec == "bytes":
        return None
    if codec == "text":
        return bytes.decode
    if ":" in codec:
        from penstock.aquifer import open_schema

        return open_schema(codec).checked
    import msgspec

    decode = msgspec.json.Decoder().decode
    # JSON has numbers that MessagePack does not have. That has to be found out here, where a line can be
    # skipped; in the gateway it would end the stream.
    check = msgspec.msgpack.Encoder().encode if codec == "msgpack" else None

    def element(line: bytes) -> Any:
        value = decode(line)
        if value is None:
            raise ValueError("null is not a record")
        if check is not None:
            check(value)
        return value

    return element


class ElementDecoder(Decoder[Any]):
    """Makes elements of chunks of bytes, as a framing: a framing asks for one chunk at a time."""

    def __init__(self, splitter: LineSplitter, *, end_is_newline: bool = False) -> None:
        super().__init__()
        self._splitter = splitter
        self._end_is_newline = end_is_newline

    def cut(self, chunk: bytes) -> Iterable[Any]:
        return self._splitter.feed(chunk)

    def rest(self) -> list[Any]:
        return list(self._splitter.finish()) if self._end_is_newline else []


class LineReader(Protocol):
    """Reads bytes until there are no more; :class:`LinePublisher` can wake it and closes it."""

    def wake(self) -> None:
        """Make a read that waits return; from any thread."""
        ...

    def close(self) -> None:
        """Close what is read."""
        ...


R = TypeVar("R", bound=LineReader)


class LinePublisher(Publisher[Any], Generic[R]):
    """Publishes the elements that a generator makes of what a reader reads; for one subscriber.

    ``open_reader`` is called on ``subscribe``, and its OSError or ValueError becomes ``on_error``.
    ``elements`` is the generator; it closes the reader.
    """

    def __init__(self, open_reader: Callable[[], R], elements: Callable[[R], Iterator[Any]]) -> None:
        self._open_reader = open_reader
        self._elements = elements

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Open the reader; the reading begins with the first request."""
        check_subscriber(subscriber)
        try:
            reader = self._open_reader()
        except (OSError, ValueError) as error:
            failed: Flux[Any] = Flux.error(error)
            failed.subscribe(subscriber)
            return
        Flux.from_iterable(self._elements(reader)).subscribe(_WakingSubscriber(subscriber, reader))


class _WakingSubscriber:
    """Passes everything on, and gives its subscriber a subscription that can wake the reader."""

    def __init__(self, subscriber: Subscriber[Any], reader: LineReader) -> None:
        self._subscriber = subscriber
        self._reader = reader
        self._subscription: _WakingSubscription | None = None
        self.on_next = subscriber.on_next  # Nothing to do for an element, so no call of our own.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = _WakingSubscription(subscription, self._reader)
        self._subscriber.on_subscribe(self._subscription)

    def on_error(self, error: BaseException, /) -> None:
        self._subscriber.on_error(error)

    def on_complete(self) -> None:
        # A read that was woken looks like the end of the lines, and is not.
        if self._subscription is None or not self._subscription.cancelled:
            self._subscriber.on_complete()


class _WakingSubscription:
    """Its cancel also ends a read that waits for bytes. It does not refer to the subscriber."""

    def __init__(self, upstream: Subscription, reader: LineReader) -> None:
        self.cancelled = False
        self._begun = False
        """Whether something was requested; from then on the generator closes the reader."""
        self._mutex = threading.Lock()
        self._upstream = upstream
        self._reader = reader

    def request(self, n: int, /) -> None:
        if not self._begun:
            with self._mutex:
                self._begun = not self.cancelled
        self._upstream.request(n)

    def cancel(self) -> None:
        with self._mutex:
            is_unread = not (self._begun or self.cancelled)
            self.cancelled = True
        self._upstream.cancel()
        self._reader.wake()
        if is_unread:
            self._reader.close()  # A generator that was never started does not even run its finally.
