"""``multipart/form-data`` taken apart (RFC 7578, RFC 2046), without any input or output.

Bytes go in as they arrive, and events come out: the head of a part, pieces of its content, its end. No more
is kept than the head of a part, or what may be the beginning of a boundary.

Line ends are CRLF. A body with bare line feeds is refused, because a parser that guesses finds other parts in
it than the next parser does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from penstock.net.http.asgi import BadForm, FormTooLarge, NotAForm

__all__ = ["PART_END", "MultipartDecoder", "MultipartEvent", "PartHead", "boundary_of", "parameters_of"]

_PADDING: Final = 128
"""Blanks that may follow a boundary on its line."""
_AFTER_BOUNDARY = re.compile(rb"(--)?[ \t]{0,%d}\r\n" % _PADDING)
_PERHAPS_AFTER_BOUNDARY = re.compile(rb"-?|(--)?[ \t]{0,%d}\r?" % _PADDING)
_LAST_AFTER_BOUNDARY = re.compile(rb"--[ \t]{0,%d}\r?" % _PADDING)
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME = re.compile(_TOKEN)
_PARAMETER = re.compile(rf'[ \t]*;[ \t]*({_TOKEN})[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^\s;"]*)', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class PartHead:
    """What a part says about itself."""

    name: str
    filename: str | None
    headers: dict[str, str]


class _PartEnd:
    def __repr__(self) -> str:
        return "PART_END"


PART_END: Final = _PartEnd()
"""The content of a part is complete."""

MultipartEvent = PartHead | bytes | _PartEnd | Exception | None
"""A step of the decoder. An exception is the last one of a bad body, and None that of a good one."""


class MultipartDecoder:
    """Finds the parts in a body."""

    def __init__(
        self,
        boundary: str,
        *,
        max_parts: int,
        max_header_bytes: int,
        max_part_bytes: int | None,
    ) -> None:
        self._delimiter = b"\r\n--" + boundary.encode("ascii")
        self._max_parts = max_parts
        self._max_header_bytes = max_header_bytes
        self._max_part_bytes = max_part_bytes
        self._parts = 0
        self._size = 0
        self._kept = b"\r\n"  # so that a boundary at the very beginning is one like any other
        self._skip = 2
        """How many kept bytes are not content: the line end before it, which a boundary may need."""
        self._read = self._content
        self._in_part = False

    def feed(self, chunk: bytes) -> list[MultipartEvent]:
        """The events that this chunk completes."""
        self._kept += chunk
        return self._run(last=False)

    def finish(self) -> list[MultipartEvent]:
        """The events at the end of the body: an error, unless the last boundary was there."""
        return self._run(last=True)

    def _run(self, *, last: bool) -> list[MultipartEvent]:
        events: list[MultipartEvent] = []
        try:
            while self._read(events, last):
                pass
            if last and self._read != self._nothing:
                raise BadForm("the form ends before its last boundary; its line ends have to be CRLF")
        except (BadForm, FormTooLarge) as error:
            events.append(error)
            self._read = self._nothing
        return events

    # ---------------------------------------------------------------- states: each says whether to go on
    def _nothing(self, events: list[MultipartEvent], last: bool) -> bool:
        """What follows the last boundary has no meaning."""
        self._kept = b""
        return False

    def _content(self, events: list[MultipartEvent], last: bool) -> bool:
        """The content of a part, or what precedes the first one, up to the next boundary."""
        kept, delimiter = self._kept, self._delimiter
        place = kept.find(delimiter)
        while place >= 0:
            behind = place + len(delimiter)
            found = _AFTER_BOUNDARY.match(kept, behind)
            if found is None and last:
                found = _LAST_AFTER_BOUNDARY.fullmatch(kept, behind)
            if found is not None:
                self._emit(events, place)
                self._close_part(events)
                self._kept = kept[found.end() :]
                if found.group().startswith(b"--"):
                    events.append(None)
                    self._read = self._nothing
                    return False
                self._read = self._head
                return True
            if _PERHAPS_AFTER_BOUNDARY.fullmatch(kept, behind):
                self._emit(events, place)
                return False
            place = kept.find(delimiter, place + 1)
        self._emit(events, self._perhaps_a_boundary(kept))
        return False

    def _perhaps_a_boundary(self, kept: bytes) -> int:
        """Where the last bytes may be the beginning of a boundary."""
        place = kept.find(b"\r", max(0, len(kept) - len(self._delimiter)))
        while place >= 0:
            if self._delimiter.startswith(kept[place:]):
                return place
            place = kept.find(b"\r", place + 1)
        return len(kept)

    def _emit(self, events: list[MultipartEvent], end: int) -> None:
        """Hand on what is content, and keep the rest."""
        if end <= 0:
            return
        content = self._kept[self._skip : end]
        self._kept = self._kept[end:]
        self._skip = max(0, self._skip - end)
        if self._in_part and content:
            most = self._max_part_bytes
            if most is not None and self._size + len(content) > most:
                raise FormTooLarge(f"a part of the form has more than {most} bytes")
            self._size += len(content)
            events.append(content)

    def _close_part(self, events: list[MultipartEvent]) -> None:
        if self._in_part:
            self._in_part = False
            events.append(PART_END)

    def _head(self, events: list[MultipartEvent], last: bool) -> bool:
        """The headers of a part, up to the empty line behind them."""
        kept, most = self._kept, self._max_header_bytes
        end = 0 if kept.startswith(b"\r\n") else kept.find(b"\r\n\r\n") + 2
        if end > most or (end == 1 and len(kept) > most + 3):
            raise FormTooLarge(f"the headers of a part have more than {most} bytes")
        if end == 1:
            return False
        self._parts += 1
        if self._parts > self._max_parts:
            raise FormTooLarge(f"the form has more than {self._max_parts} parts")
        events.append(_head_of(kept[:end]))
        # The empty line stays: if there is no content, its line end is the one before the next boundary.
        self._kept, self._skip = kept[end:], 2
        self._size = 0
        self._in_part = True
        self._read = self._content
        return True


def _head_of(block: bytes) -> PartHead:
    try:
        text = block.decode()
    except UnicodeDecodeError:
        raise BadForm("the headers of a part are not UTF-8 text") from None
    headers: dict[str, str] = {}
    for line in re.sub(r"\r\n[ \t]+", " ", text).split("\r\n")[:-1]:
        name, mark, value = line.partition(":")
        if not mark or not _NAME.fullmatch(name) or any(end in line for end in "\r\n\0"):
            raise BadForm("a header of a part cannot be read")
        if name.lower() in headers:
            raise BadForm(f"a part has two headers {name.lower()}")
        headers[name.lower()] = value.strip(" \t")
    kind, given = parameters_of(headers.get("content-disposition", ""))
    if kind != "form-data" or "name" not in given:
        raise BadForm("a part does not say its name: it needs content-disposition: form-data; name=…")
    filename = given.get("filename")
    if "filename*" in given:
        filename = _extended(given["filename*"])
    return PartHead(given["name"], filename, headers)


def _extended(value: str) -> str:
    """The text of a parameter that says its character set (RFC 8187)."""
    charset, _, rest = value.partition("'")
    encoded = rest.partition("'")[2]
    if charset.lower() not in ("utf-8", "iso-8859-1"):
        raise BadForm("a file name is in a character set other than UTF-8 or ISO-8859-1")
    try:
        return unquote_to_bytes(encoded).decode(charset)
    except UnicodeDecodeError:
        raise BadForm("a file name is not text in its own character set") from None


def parameters_of(header: str) -> tuple[str, dict[str, str]]:
    """A header such as ``form-data; name="x"``: its value in lower case, and its parameters."""
    value, mark, _ = header.partition(";")
    place, given = len(value), {}
    while mark and place < len(header):
        found = _PARAMETER.match(header, place)
        if found is None:
            if header[place:].strip("; \t"):
                raise BadForm("the parameters of a header cannot be read")
            break
        name, text = found[1].lower(), found[2]
        if name in given:
            raise BadForm(f"a header has the parameter {name} twice")
        # Only these two are escaped: a client may write a path with backslashes.
        given[name] = _ESCAPED.sub(r"\1", text[1:-1]) if text.startswith('"') else text
        place = found.end()
    return value.strip().lower(), given


def boundary_of(content_type: str) -> str:
    """The boundary that a request announces."""
    kind, given = parameters_of(content_type)
    if kind != "multipart/form-data":
        raise NotAForm(f"this needs a body of multipart/form-data, not {kind or 'one without a type'}")
    boundary = given.get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise BadForm("the content type of the form has no boundary, or one that is not allowed")
    return boundary
