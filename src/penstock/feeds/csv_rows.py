"""Rows of CSV from chunks of bytes: where a row ends, although a field in quotes may have line breaks.

The first row names the fields. A row ends at a line break outside of quotes, so a position after a row is one
at which reading can go on.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.feeds.bodies import record_of_fields
from penstock.feeds.feed import FeedOptions
from penstock.feeds.lines import BadLines, LineTooLong

__all__ = ["RowSplitter"]

_KEPT = 1 << 20
"""How many bytes of a row that is too long are handed on, at most."""


class RowSplitter:
    """Splits the bytes of one file into rows, and makes records of them; used as a LineSplitter is."""

    def __init__(self, options: FeedOptions, bad: BadLines, *, label: str = "") -> None:
        self.bad = bad
        self.pending = 0
        """How many bytes have arrived of a row whose end has not."""
        self._options = options
        self._label = f"{label}: " if label else ""
        self._pieces: list[bytes] = []
        """The row that has not ended."""
        self._is_open = False
        """Whether that row is inside of quotes."""
        self._names: list[str] | None = None
        self._line = 0
        self._row_began = 1

    def pass_over(self, chunk: bytes) -> None:
        """Rows that are known already: only the names of the fields are of interest, and the line numbers."""
        if self._names is None:
            for row in self._rows(chunk):
                self._line_ends(row)
                if self._names is None and row.strip(b"\r\n"):
                    self._names = self._header(row)
        else:
            self._line += chunk.count(b"\n")
        self._row_began = self._line + 1
        self._pieces, self.pending, self._is_open = [], 0, False

    def take(self, chunk: bytes) -> tuple[list[Any], ValueError | None]:
        """The records of the rows that end in these bytes, and the error of a bad row after these."""
        made: list[Any] = []
        try:
            for row in self._rows(chunk):
                made += self._records(row)
        except ValueError as error:
            return made, error
        return made, None

    def finish(self) -> Iterable[Any]:
        """The last row, if it has no line break; a row that ends inside of quotes is a bad one."""
        if not self.pending:
            return []
        row, self._pieces, self.pending, self._is_open = b"".join(self._pieces), [], 0, False
        return self._records(row)

    def _rows(self, chunk: bytes) -> Iterator[bytes]:
        start = 0
        while (end := chunk.find(b"\n", start) + 1) > 0:
            line, start = chunk[start:end], end
            if line.count(b'"') % 2:
                self._is_open = not self._is_open
            self._pieces.append(line)
            self.pending += len(line)
            if not self._is_open or self.pending > self._options.max_line:
                # A row that is too long may have lost its last quote: the next line begins a new one.
                row, self._pieces, self.pending, self._is_open = b"".join(self._pieces), [], 0, False
                yield row
        if start < len(chunk):
            rest = chunk[start:]
            if rest.count(b'"') % 2:
                self._is_open = not self._is_open
            self._pieces.append(rest)
            self.pending += len(rest)

    def _line_ends(self, row: bytes) -> str:
        """Count the lines of a row, and return where it began."""
        self._row_began, self._line = self._line + 1, self._line + max(row.count(b"\n"), 1)
        return f"{self._label}line {self._row_began}"

    def _records(self, row: bytes) -> list[Any]:
        at = self._line_ends(row)
        text = row.rstrip(b"\r\n")
        if not text:
            return []
        if self._names is None:
            self._names = self._header(row)
            return []
        try:
            if len(text) > self._options.max_line:
                raise LineTooLong(f"has {len(text)} bytes; allow more with max_line (--max-line)")
            fields = _split(text)
            if len(fields) != len(self._names):
                raise ValueError(f"it has {len(fields)} fields, and the header has {len(self._names)}")
            return [record_of_fields(dict(zip(self._names, fields, strict=True)), self._options)]
        except ValueError as error:
            return list(self.bad.refuse(error, text[:_KEPT], at=at, size=len(text)))

    def _header(self, row: bytes) -> list[str]:
        try:
            names = _split(row.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n"))
        except ValueError as error:
            raise ValueError(f"{self._label}line 1: the header cannot be read: {error}") from None
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(
                f"{self._label}line 1: the header has {twice[0]!r} twice, so one of the fields would be lost"
            )
        return names


def _split(row: bytes) -> list[str]:
    try:
        rows = list(csv.reader([row.decode()], strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if len(rows) != 1:
        raise ValueError("it ends inside of quotes")
    return rows[0]
