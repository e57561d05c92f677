"""Server-sent events: how one is written, and how a stream of them is taken apart again.

The format is that of the HTML standard: lines of ``field: value``, and an empty line after each event.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.net.framing import BadFrame, Decoder, FrameTooLong

__all__ = ["COMMENT", "LONGEST_EVENT", "Event", "EventDecoder", "WrongEvent", "as_event"]

COMMENT = b":\n\n"
"""A line without a meaning, which keeps proxies from closing an idle connection."""
LONGEST_EVENT = 1024 * 1024
"""The default for the most bytes in one event."""
_RETRY_DIGITS = 15
"""More milliseconds than that are for ever; Python would refuse to read a number of thousands of digits."""
_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event.

    >>> Event("two\\nlines", event="note", id="7").encode()
    b'event: note\\nid: 7\\ndata: two\\ndata: lines\\n\\n'
    """

    data: str = ""
    event: str | None = None
    """The type of the event; for a browser, one without a type is a ``message``."""
    id: str | None = None
    """A client that reconnects sends it as ``Last-Event-ID``."""
    retry: int | None = None
    """How many milliseconds a client should wait before it reconnects."""

    def __post_init__(self) -> None:
        """Refuse values that would be read as something else."""
        for name, value in (("event", self.event), ("id", self.id)):
            if value is not None and any(mark in value for mark in "\r\n\0"):
                raise ValueError(f"the {name} of an event has to be one line without NUL, not {value!r}")
        if self.retry is not None and self.retry < 0:
            raise ValueError(f"retry has to be a number of milliseconds, not {self.retry}")

    def encode(self) -> bytes:
        """The event as it is sent."""
        lines = []
        if self.event is not None:
            lines.append(f"event: {self.event}")
        if self.id is not None:
            lines.append(f"id: {self.id}")
        if self.retry is not None:
            lines.append(f"retry: {self.retry}")
        # Each of the three is a line end for a client, so they are line ends here too.
        text = self.data.replace("\r\n", "\n").replace("\r", "\n")
        lines.extend(f"data: {line}" for line in text.split("\n"))
        return ("\n".join(lines) + "\n\n").encode()


@dataclass(frozen=True, slots=True)
class WrongEvent(Event):
    """An event that could not be read; its data is what could be, and nothing if it was too long."""

    error: BadFrame | FrameTooLong | None = None


def as_event(thing: Any) -> Event:
    """An element as an event: an event itself, text as its data, anything else as JSON."""
    if isinstance(thing, Event):
        return thing
    if isinstance(thing, str):
        return Event(thing)
    try:
        return Event(_as_json(thing))
    except (TypeError, ValueError) as wrong:
        raise BadFrame(f"this {type(thing).__name__} cannot be sent as an event: {wrong}") from wrong


class EventDecoder(Decoder[Event]):
    """Takes a stream of server-sent events apart.

    >>> decoder = EventDecoder()
    >>> decoder.feed(b": hello\\n\\ndata: on"), decoder.feed(b"e\\rdata: two\\r\\n\\r\\n")
    ([], [Event(data='one\\ntwo', event=None, id=None, retry=None)])

    An event that is incomplete when the stream ends is dropped, as the standard says. One that is too long,
    or is not text, ends the stream with an error; with ``keep_wrong`` it becomes a :class:`WrongEvent`, and
    the stream goes on.
    """

    def __init__(self, max_length: int = LONGEST_EVENT, *, keep_wrong: bool = False) -> None:
        super().__init__()
        self._limit = max_length
        self._keep_wrong = keep_wrong
        self._is_cut = False
        """The beginning of the line that comes was thrown away."""
        self._pending = bytearray()
        self._after_return = False
        """The last chunk ended with a carriage return; a newline that follows belongs to it."""
        self._first = True
        self._length = 0
        self._begin()

    def _begin(self) -> None:
        self._data: list[str] = []
        self._event: str | None = None
        self._id: str | None = None
        self._retry: int | None = None
        self._length = 0
        self._wrong: BadFrame | FrameTooLong | None = None

    def cut(self, chunk: bytes) -> Iterable[Event]:
        """Split into lines, however they end. An empty line completes an event."""
        if not chunk:
            return []
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        # Only the chunk is searched; what is pending has been searched before.
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop()
        if lines and self._pending:
            lines[0] = bytes(self._pending) + lines[0]
            self._pending.clear()
        self._pending += rest
        events: list[Event] = []
        try:
            for line in lines:
                if self._is_cut:
                    self._is_cut = False
                elif line:
                    self._take(line)
                else:
                    events += self._ended()
            self._check_pending()
        except (BadFrame, FrameTooLong) as wrong:
            return self.broken(events, wrong)
        return events

    def _take(self, line: bytes) -> None:
        self._length += len(line)
        try:
            if self._wrong is None:
                self._check(self._length)
                self._field(line)
        except (BadFrame, FrameTooLong) as wrong:
            self._note(wrong)
        if self._wrong is not None and line.startswith(b"id:") and len(line) <= self._limit:
            with contextlib.suppress(BadFrame):  # It is wrong already.
                self._field(line)  # So that it is not sent again.

    def _check_pending(self) -> None:
        try:
            if self._wrong is None:
                self._check(self._length + len(self._pending))
        except FrameTooLong as wrong:
            self._note(wrong)
        if len(self._pending) > self._limit:
            self._is_cut = True
            self._pending.clear()

    def _note(self, wrong: BadFrame | FrameTooLong) -> None:
        if not self._keep_wrong:
            raise wrong
        if isinstance(wrong, FrameTooLong):
            self._data.clear()
        self._wrong = self._wrong or wrong

    def _ended(self) -> list[Event]:
        """The event that an empty line completes."""
        data, kind, id, retry, wrong = "\n".join(self._data), self._event, self._id, self._retry, self._wrong
        is_one = bool(self._data)
        self._begin()
        if wrong is not None:
            return [WrongEvent(data, kind, id, retry, wrong)]
        return [Event(data, kind, id, retry)] if is_one else []

    def rest(self) -> list[Event]:
        """An incomplete event is dropped."""
        return []

    def _field(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment
        try:
            text = value.removeprefix(b" ").decode()
        except UnicodeDecodeError as wrong:
            raise BadFrame(f"an event is not UTF-8 text: {wrong.reason}", offset=wrong.start) from wrong
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._event = text or None
        elif name == b"id" and "\0" not in text:
            self._id = text
        elif name == b"retry" and text.isascii() and text.isdigit():
            self._retry = int(text[:_RETRY_DIGITS])

    def _check(self, length: int) -> None:
        if length > self._limit:
            raise FrameTooLong(
                f"an event is too long: {length} bytes of it have arrived, and at most {self._limit} are "
                "allowed; increase max_length, or make the server end its events with an empty line",
                limit=self._limit,
                length=length,
            )
