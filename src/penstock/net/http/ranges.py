"""Conditional requests and ranges (RFC 9110): what a client wants of something that it may have already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["MOST_RANGES", "Span", "Validators", "spans_of"]

MOST_RANGES: Final = 32
"""A request for more ranges than this gets the whole."""

_RANGE = re.compile(r"[ \t]*([0-9]*)-([0-9]*)[ \t]*")
_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)[ \t]*')

# Written out, because strftime speaks the language of the machine.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)


class Span(NamedTuple):
    """The bytes from ``start`` up to, and without, ``end``."""

    start: int
    end: int


def spans_of(header: str, size: int) -> list[Span] | None:
    """What a ``Range`` header asks for; an empty list if there is no such byte, None for the whole.

    >>> spans_of("bytes=0-1, -3", 10), spans_of("bytes=10-", 10), spans_of("bytes=x", 10)
    ([Span(start=0, end=2), Span(start=7, end=10)], [], None)

    A header that cannot be read means the whole, and so do ranges that together are larger than it.
    """
    unit, mark, text = header.partition("=")
    if not mark or unit.strip().lower() != "bytes":
        return None
    wanted = text.split(",")
    if len(wanted) > MOST_RANGES:
        return None
    spans = []
    for one in wanted:
        found = _RANGE.fullmatch(one)
        if found is None:
            return None
        first, last = (_number(digits) for digits in found.groups())
        if first is None and last is None:
            return None
        if first is None:  # so many bytes at the end
            span = Span(max(0, size - (last or 0)), size)
        elif last is not None and last < first:
            return None
        else:
            span = Span(first, size if last is None else min(size, last + 1))
        if span.start < span.end:
            spans.append(span)
    return None if sum(span.end - span.start for span in spans) > size else spans


def _number(digits: str) -> int | None:
    if not digits:
        return None
    # No file has more than twenty digits, and Python refuses to read thousands of them.
    return int(digits) if len(digits) <= 20 else 10**20


@dataclass(frozen=True, slots=True)
class Validators:
    """How a client can tell whether what it has is still the same."""

    etag: str
    """A strong one, with its quotation marks."""
    modified: int
    """Seconds since 1970."""

    @property
    def last_modified(self) -> str:
        """The time as a header has it."""
        when = datetime.fromtimestamp(self.modified, UTC)
        day, month = _DAYS[when.weekday()], _MONTHS[when.month - 1]
        return f"{day}, {when.day:02} {month} {when.year:04} {when:%H:%M:%S} GMT"

    def status(self, headers: dict[str, str]) -> int | None:
        """304 if the client has it, 412 if it wants something else, None if it wants this (§13.2.2)."""
        if "if-match" in headers:
            if not self._named_in(headers["if-match"], weakly=False):
                return 412
        elif (since := _seconds(headers.get("if-unmodified-since"))) is not None and self.modified > since:
            return 412
        if "if-none-match" in headers:
            return 304 if self._named_in(headers["if-none-match"], weakly=True) else None
        since = _seconds(headers.get("if-modified-since"))
        return 304 if since is not None and self.modified <= since else None

    def allow_range(self, if_range: str | None) -> bool:
        """Whether the rest of what the client has is the rest of this."""
        if if_range is None:
            return True
        return if_range.strip() in (self.etag, self.last_modified)

    def _named_in(self, header: str, *, weakly: bool) -> bool:
        if header.strip() == "*":
            return True
        return any(tag == self.etag and (weakly or not weak) for weak, tag in _tags(header))


def _tags(header: str) -> Sequence[tuple[str, str]]:
    text, place, tags = header.strip(), 0, []
    while place < len(text) and (found := _TAG.match(text, place)):
        tags.append((found[1] or "", found[2]))
        place = found.end()
    return tags


def _seconds(date: str | None) -> float | None:
    """A date as seconds since 1970; None if there is none, or none that can be read."""
    if date is None:
        return None
    found = _DATE.fullmatch(date.strip())
    if found is None or found[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[i]) for i in (1, 3, 4, 5, 6))
    try:
        return datetime(year, _MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
